"""OpenAI's own client for Python, which checks each response against its types."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import openai
import psycopg
import pytest
from serve.conftest import Service, Start
from support import EMBEDDER, GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR
from support.query import one

ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
PARIS = "The capital of France is Paris."
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
        },
    },
}


@pytest.mark.shares
def test_models_are_listed_with_and_without_memory(service: Service) -> None:
    client = service.client()
    names = {model.id for model in client.models.list()}
    assert {GENERATOR, f"mindful/{GENERATOR}", EMBEDDER} <= names
    assert f"mindful/{EMBEDDER}" not in names
    assert client.models.retrieve(f"mindful/{GENERATOR}").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("absent")


def test_a_chat_is_answered_and_nothing_is_kept(service: Service, db: psycopg.Connection) -> None:
    answer = service.client().chat.completions.create(model=SCRIPTED_GENERATOR, messages=ASK)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (PARIS, "stop")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6
    assert one(db, "select count(*) from memory") == 0


@pytest.mark.shares
def test_a_stream_ends_with_its_usage(service: Service) -> None:
    chunks = list(
        service.client().chat.completions.create(
            model=SCRIPTED_GENERATOR, messages=ASK, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == PARIS
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:] if chunk.choices] == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.shares
async def test_the_asynchronous_client_streams_too(service: Service) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.key, _strict_response_validation=True
    ) as client:
        stream = await client.chat.completions.create(model=SCRIPTED_GENERATOR, messages=ASK, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        answer = await client.chat.completions.create(model=SCRIPTED_GENERATOR, messages=ASK)
    assert text == answer.choices[0].message.content == PARIS


@pytest.mark.shares
def test_a_forced_tool_is_called(service: Service, brief: str) -> None:
    client = service.client()
    given: dict[str, Any] = {
        "model": brief,
        "messages": ASK,
        "tools": [WEATHER],
        "tool_choice": "required",
    }
    choice = client.chat.completions.create(**given).choices[0]
    (call,) = choice.message.tool_calls or []
    assert choice.finish_reason == "tool_calls"
    assert call.type == "function"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
    named = {"type": "function", "function": {"name": "get_weather"}}
    with client.chat.completions.stream(**given | {"tool_choice": named}) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls or []
    assert streamed.function.arguments == call.function.arguments


@pytest.mark.shares
def test_log_probabilities_come_whole_and_in_chunks(service: Service, brief: str) -> None:
    client = service.client()
    given: dict[str, Any] = {
        "model": brief, "messages": ASK, "logprobs": True, "top_logprobs": 2, "max_tokens": 4, "seed": 1,
    }  # fmt: skip
    whole = client.chat.completions.create(**given).choices[0].logprobs
    assert whole is not None
    tokens = whole.content or []
    assert [len(token.top_logprobs) for token in tokens] == [2] * 4
    streamed = [
        token
        for chunk in client.chat.completions.create(**given, stream=True)
        if chunk.choices[0].logprobs is not None
        for token in chunk.choices[0].logprobs.content or []
    ]
    assert [token.bytes for token in streamed] == [token.bytes for token in tokens]


@pytest.mark.shares
def test_json_fits_the_schema(service: Service, brief: str) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 9}},
        "required": ["name"],
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    answer = service.client().chat.completions.create(
        model=brief, messages=ASK, response_format=form, max_tokens=60
    )
    assert set(json.loads(answer.choices[0].message.content or "")) == {"name"}


@pytest.mark.shares
def test_plain_texts_are_continued(service: Service) -> None:
    client = service.client()
    answer = client.completions.create(
        model=GENERATOR, prompt="The capital of France is", max_tokens=3, logprobs=2
    )
    assert "Paris" in answer.choices[0].text
    # The client's type of a chunk demands the finish_reason that only the last one has.
    lenient = service.client(_strict_response_validation=False)
    pieces = lenient.completions.create(
        model=GENERATOR, prompt="The capital of France is", max_tokens=3, stream=True
    )
    assert "".join(piece.choices[0].text for piece in pieces) == answer.choices[0].text


@pytest.mark.shares
def test_embeddings_are_the_same_as_numbers_and_as_base64(service: Service, ana: psycopg.Connection) -> None:
    client = service.client()
    plain = client.embeddings.create(model=EMBEDDER, input=["tea", "coffee"], encoding_format="float")
    # Unasked the client wants base64, and decodes it after its check of types.
    lenient = service.client(_strict_response_validation=False)
    coded = lenient.embeddings.create(model=EMBEDDER, input=["tea", "coffee"])
    raw = service.post(
        "/v1/embeddings", {"model": EMBEDDER, "input": "tea", "encoding_format": "base64"}
    ).json()
    data = base64.b64decode(raw["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == pytest.approx(
        plain.data[0].embedding, abs=1e-6
    )
    assert coded.data[1].embedding == pytest.approx(plain.data[1].embedding, abs=1e-6)
    expected = one(ana, "select llm_embed('tea')::real[]")
    assert plain.data[0].embedding == pytest.approx(expected, abs=1e-6)
    assert plain.usage.prompt_tokens == 2
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length"):
        client.embeddings.create(model=EMBEDDER, input=[[1, 2]])


@pytest.mark.shares
def test_documents_are_put_in_order(service: Service, judge: str) -> None:
    body = {
        "model": judge,
        "query": "green tea",
        "documents": ["a dog", {"text": "green tea"}, "tea"],
        "top_n": 2,
    }
    results = service.post("/v1/rerank", body).json()["results"]
    assert [result["index"] for result in results] == [1, 2]
    assert results[0]["relevance_score"] == 1


def test_a_model_that_remembers_recalls_stores_and_says_how_sure_it_is(
    service: Service, db: psycopg.Connection
) -> None:
    client, model = service.client(), f"mindful/{SCRIPTED_GENERATOR}"
    first = client.chat.completions.create(model=model, messages=ASK)
    told = first.model_extra["x_mindful"] if first.model_extra else {}
    assert set(told) == {"confidence", "probability", "action", "memory_ids", "message_id", "session_id"}
    talk = [*ASK, {"role": "assistant", "content": PARIS}, {"role": "user", "content": "And then?"}]
    *_, last = client.chat.completions.create(model=model, messages=talk, stream=True)
    assert last.model_extra is not None
    assert last.model_extra["x_mindful"]["session_id"] == told["session_id"]
    rows = db.execute("select tenant, content from memory where kind = 'message' order by turn").fetchall()
    assert [content for _, content in rows] == [ASK[0]["content"], PARIS, "And then?", PARIS]
    assert {tenant for tenant, _ in rows} == {"customer-7"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_is_sent_back_with_its_notice_continues_its_session(
    service: Service, admin: psycopg.Connection, db: psycopg.Connection, stream: bool
) -> None:
    admin.execute("select setting_set('chat_flag_notice', true, 'global')")
    client, talk = service.client(), [*ASK]
    for asked in ("And then?", "And now?"):
        answer = client.chat.completions.create(
            model=f"mindful/{SCRIPTED_GENERATOR}", messages=talk, stream=stream
        )
        if isinstance(answer, openai.Stream):
            text = "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
        else:
            text = answer.choices[0].message.content or ""
        assert text.startswith(f"{PARIS}\n\n[")
        talk += [{"role": "assistant", "content": text}, {"role": "user", "content": asked}]
    assert one(db, "select count(*) from session") == 1
    assert one(db, "select count(*) from memory where position('[' in content) > 0") == 0


def test_another_history_is_another_session(service: Service, db: psycopg.Connection) -> None:
    client, model = service.client(), f"mindful/{SCRIPTED_GENERATOR}"
    client.chat.completions.create(model=model, messages=ASK)
    edited: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": PARIS},
        {"role": "user", "content": "And then?"},
    ]
    client.chat.completions.create(model=model, messages=edited)
    assert one(db, "select count(*) from session") == 2
    assert one(db, "select count(*) from session where system_prompt = 'Be brief.'") == 1
    client.chat.completions.create(model=model, messages=[*edited[1:], *edited[2:]])
    assert one(db, "select count(*) from session") == 3


@pytest.mark.shares
def test_a_model_that_remembers_refuses_what_a_session_cannot_hold(service: Service) -> None:
    parts = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is the capital of "},
                {"type": "text", "text": "France?"},
            ],
        }
    ]
    body: dict[str, Any] = {"model": f"mindful/{SCRIPTED_GENERATOR}", "messages": parts}
    assert service.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"] == PARIS
    call = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    for message in (
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ):
        answer = service.post("/v1/chat/completions", body | {"messages": [message, *parts]})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "unsupported_parameter"


def test_a_user_interfaces_own_requests_are_not_remembered(service: Service, db: psycopg.Connection) -> None:
    """Open WebUI asks the chat's model for titles, tags and questions that may follow."""
    task = (
        "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: What is the capital of France?\n"
        "</chat_history>"
    )
    client = service.client()
    given: dict[str, Any] = {"model": f"mindful/{SCRIPTED_GENERATOR}", "tools": [WEATHER]}
    for streams in (False, True):
        asked = given | {"messages": [{"role": "user", "content": task}], "stream": streams}
        list(client.chat.completions.create(**asked))
    assert one(db, "select count(*) from memory") == 0
    client.chat.completions.create(
        **given | {"messages": [{"role": "user", "content": "### Task: feed Rex."}]}
    )
    assert one(db, "select count(*) from memory") == 2


@pytest.mark.shares
def test_a_model_that_remembers_may_be_offered_tools(service: Service) -> None:
    given: dict[str, Any] = {"model": f"mindful/{SCRIPTED_GENERATOR}", "messages": ASK, "tools": [WEATHER]}
    client = service.client()
    for choice in ({}, {"tool_choice": "auto"}, {"tool_choice": "none"}):
        assert client.chat.completions.create(**given | choice).choices[0].message.content == PARIS
    named = {"type": "function", "function": {"name": "get_weather"}}
    for forced in ("required", named):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**given | {"tool_choice": forced})
        assert caught.value.param == "tool_choice"


def test_responses_go_on_from_the_one_before(service: Service, db: psycopg.Connection) -> None:
    client = service.client()
    first = client.responses.create(model=SCRIPTED_GENERATOR, input="What is the capital of France?")
    assert (first.output_text, first.status) == (PARIS, "completed")
    stream = client.responses.create(
        model=SCRIPTED_GENERATOR, input="And then?", previous_response_id=first.id, stream=True
    )
    events = list(stream)
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert events[-1].type == "response.completed"
    second = events[-1].response
    assert {event.response.id for event in events if hasattr(event, "response")} == {second.id}
    assert second.output_text == PARIS  # the script finds the question in the conversation
    assert one(db, "select count(*) from session") == 1
    with pytest.raises(openai.BadRequestError):  # the conversation has gone on
        client.responses.create(model=SCRIPTED_GENERATOR, input="What?", previous_response_id=first.id)
    for absent in ("resp_999999", first.id + "0", first.id.replace("_1", "_2"), "resp_x_1", "conv_1"):
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model=SCRIPTED_GENERATOR, input="What?", previous_response_id=absent)
    told: Any = [
        {"role": "user", "content": "Wait."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "What?"},
    ]
    third = client.responses.create(model=SCRIPTED_GENERATOR, input=told, previous_response_id=second.id)
    client.responses.create(model=SCRIPTED_GENERATOR, input="And?", previous_response_id=third.id)


def test_responses_that_are_not_stored_leave_nothing(
    service: Service, brief: str, db: psycopg.Connection
) -> None:
    client = service.client()
    tool: Any = {
        "type": "function",
        "name": "clock",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        "strict": None,
    }
    given: dict[str, Any] = {"model": brief, "input": "What time is it?", "store": False, "tools": [tool]}
    answer = client.responses.create(**given, tool_choice="required", max_output_tokens=60)
    assert [item.type for item in answer.output] == ["function_call"]
    with client.responses.stream(**given, tool_choice="required") as stream:
        assert [item.type for item in stream.get_final_response().output] == ["function_call"]
    assert one(db, "select count(*) from memory") == 0


def test_conversations_are_sessions(service: Service, db: psycopg.Connection) -> None:
    client = service.client()
    conversation = client.conversations.create(metadata={"topic": "travel"})
    for _ in range(2):
        client.responses.create(model=SCRIPTED_GENERATOR, input="Hi", conversation=conversation.id)
    assert conversation.id == f"conv_{one(db, 'select session_id from session')}"
    assert one(db, "select count(*) from memory where kind = 'message'") == 4


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"model": "absent"}, openai.NotFoundError),
        ({"messages": []}, openai.BadRequestError),
        ({"temperature": "hot"}, openai.BadRequestError),
        ({"extra_body": {"mood": 1}}, openai.BadRequestError),
        ({"audio": {"voice": "x", "format": "mp3"}}, openai.BadRequestError),
        (
            {"messages": [{"role": "user", "content": "word " * 9000}], "model": GENERATOR},
            openai.BadRequestError,
        ),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, openai.BadRequestError),
        ({"model": f"mindful/{SCRIPTED_GENERATOR}", "top_p": 7.5}, openai.BadRequestError),
        ({"model": f"mindful/{SCRIPTED_GENERATOR}", "stop": "."}, openai.BadRequestError),
    ],
    ids=str,
)
@pytest.mark.shares
def test_errors_are_of_their_class(
    service: Service, given: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        service.client().chat.completions.create(**{"model": SCRIPTED_GENERATOR, "messages": ASK} | given)
    assert caught.value.type == "invalid_request_error"
    if "temperature" in given or "extra_body" in given:
        assert caught.value.param in ("temperature", "mood")
    if given.get("model") == GENERATOR:
        assert caught.value.code == "context_length_exceeded"
        assert "this model's maximum context length is" in caught.value.message


@pytest.mark.shares
def test_a_client_waits_and_tries_again_after_429(service: Service, admin: psycopg.Connection) -> None:
    slow = str(one(admin, "select key_create('slow', 'customer-9', requests_per_minute => 1)"))

    def hurry() -> None:
        for _ in range(4):  # a minute may begin meanwhile
            service.client(slow).models.list()

    with pytest.raises(openai.RateLimitError) as caught:
        hurry()
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 60


@pytest.mark.shares
def test_keys_are_asked_for_and_their_scopes_hold(service: Service, admin: psycopg.Connection) -> None:
    with pytest.raises(openai.AuthenticationError):
        service.client("wrong").models.list()
    narrow = str(one(admin, "select key_create('narrow', 'customer-7', '{embed}')"))
    client = service.client(narrow)
    client.embeddings.create(model=SCRIPTED_EMBEDDER, input="tea", encoding_format="float")
    with pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(model=SCRIPTED_GENERATOR, messages=ASK)
    admin.execute("select key_revoke(id) from key_list() where name = 'narrow'")
    with pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_an_alias_is_another_name(start: Start) -> None:
    service = start("--keys", "--alias", f"Owner/Name={SCRIPTED_GENERATOR}")
    answer = service.client().chat.completions.create(model="Owner/Name", messages=ASK)
    assert (answer.model, answer.choices[0].message.content) == ("Owner/Name", PARIS)
    assert "Owner/Name" in {model.id for model in service.client().models.list()}
    default = start("--keys", "--alias", f"*={SCRIPTED_GENERATOR}")
    assert (
        default.client().chat.completions.create(model="gpt-9", messages=ASK).choices[0].message.content
        == PARIS
    )
