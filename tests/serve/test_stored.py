"""Stored responses and conversations, read and deleted by OpenAI's own client."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve.conftest import Service, Start, wait_until
from support import SCRIPTED_GENERATOR, Connect
from support.models import register_once
from support.query import one

MODEL = f"mindful/{SCRIPTED_GENERATOR}"
INPUT: list[Any] = [
    {"role": "user", "content": "My dog is called Bo."},
    {"role": "assistant", "content": "A good name."},
    {"role": "user", "content": "What is the capital of France?"},
]
CHATTING = """select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock' and query ~* 'llm_chat|^fetch'"""


@pytest.mark.shares
def test_a_response_is_read_again_with_its_input(service: Service) -> None:
    client = service.client()
    made = client.responses.create(model=MODEL, input=INPUT, instructions="Be brief.")
    read = client.responses.retrieve(made.id)
    assert read.output_text == made.output_text == "The capital of France is Paris."
    assert (read.status, read.instructions, read.model) == ("completed", "Be brief.", SCRIPTED_GENERATOR)
    assert read.usage == made.usage
    assert read.model_extra is not None
    assert made.model_extra is not None
    assert read.model_extra["x_mindful"] == made.model_extra["x_mindful"]
    items = client.responses.input_items.list(made.id, order="asc")
    assert [item.model_dump()["content"][0]["text"] for item in items.data] == [
        one["content"] for one in INPUT
    ]
    streamed = client.responses.create(model=MODEL, input="Go on.", previous_response_id=made.id, stream=True)
    *_, last = streamed
    later = client.responses.retrieve(last.response.id)  # type: ignore[union-attr]
    assert later.output_text
    assert len(client.responses.input_items.list(later.id).data) == 1
    assert client.responses.retrieve(made.id).output_text == made.output_text


def test_a_deleted_response_leaves_nothing(service: Service, db: psycopg.Connection) -> None:
    client = service.client()
    made = client.responses.create(model=MODEL, input="My locker has the number 4711.")
    client.responses.delete(made.id)
    assert one(db, "select count(*) from memory") == 0
    for call in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(made.id)


def test_a_conversation_is_listed_in_pages_and_deleted(service: Service, db: psycopg.Connection) -> None:
    client = service.client()
    talk = client.conversations.create(metadata={"topic": "places"})
    for asked in ("What is the capital of France?", "And now?"):
        client.responses.create(model=MODEL, input=asked, conversation=talk.id)
    assert client.conversations.retrieve(talk.id).metadata == {"topic": "places"}
    page = client.conversations.items.list(talk.id, limit=3)
    assert (len(page.data), page.has_more) == (3, True)
    listed = [item.role for item in client.conversations.items.list(talk.id, limit=3, order="asc")]  # type: ignore[union-attr]
    assert listed == ["user", "assistant", "user", "assistant"]
    assert client.conversations.delete(talk.id).deleted
    assert one(db, "select count(*) from memory") == 0
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(talk.id)


def test_no_time_is_later_than_it_was(service: Service, db: psycopg.Connection) -> None:
    client = service.client()
    made = client.responses.create(model=MODEL, input=INPUT)
    assert made.conversation is not None
    for table in ("session", "memory", "model"):
        db.execute(f"update mindful.{table} set created_at = to_timestamp(1767225600.9)".encode())
    for shown in (
        client.responses.retrieve(made.id).created_at,
        client.conversations.retrieve(made.conversation.id).created_at,
        client.models.retrieve(MODEL).created,
    ):
        assert shown == 1767225600


def test_another_key_neither_reads_nor_deletes_them(
    service: Service, other_key: str, db: psycopg.Connection
) -> None:
    mine, other = service.client(), service.client(other_key)
    talk = mine.conversations.create()
    made = mine.responses.create(model=MODEL, input="My locker has the number 4711.", conversation=talk.id)
    calls: list[tuple[Callable[..., Any], str]] = [
        (other.responses.retrieve, made.id),
        (other.responses.delete, made.id),
        (other.responses.input_items.list, made.id),
        (other.conversations.retrieve, talk.id),
        (other.conversations.delete, talk.id),
        (other.conversations.items.list, talk.id),
    ]
    for call, own in calls:
        with pytest.raises(openai.NotFoundError):
            call(own)
    assert one(db, "select count(*) from memory") == 2


@pytest.mark.shares
def test_a_key_without_the_scope_memory_reads_none(service: Service, admin: psycopg.Connection) -> None:
    made = service.client().responses.create(model=MODEL, input="Hi")
    key = one(admin, "select key_create('small', 'customer-7', '{chat}')")
    with pytest.raises(openai.PermissionDeniedError):
        service.client(key).responses.retrieve(made.id)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shown", [0, 1])
def test_a_response_that_failed_leaves_nothing_and_is_tried_again(
    service: Service, admin: psycopg.Connection, db: psycopg.Connection, stream: bool, shown: int
) -> None:
    """The model fails before or after the first word is shown."""
    model = f"mindful/{register_once(admin, f'fails-{shown}', 'generator', 'scripted', fails_after=shown)}"
    client = service.client()
    first = client.responses.create(model=MODEL, input="Good morning.")
    for place in ({"previous_response_id": first.id}, {}):
        for _ in range(2):
            with pytest.raises(openai.APIError):
                list(client.responses.create(model=model, input=INPUT, stream=stream, **place))  # type: ignore[call-overload]
    assert one(db, "select count(*) from memory") == 2
    assert one(db, "select count(*) from session") == 1
    again = client.responses.create(model=MODEL, input=INPUT, previous_response_id=first.id)
    assert one(db, "select array_agg(role order by turn) from memory") == [
        *("user", "assistant"),
        *("user", "assistant", "user", "assistant"),
    ]
    assert client.responses.retrieve(again.id).output_text == again.output_text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shown", [0, 1])
def test_a_chat_that_failed_leaves_no_session(
    service: Service, admin: psycopg.Connection, db: psycopg.Connection, stream: bool, shown: int
) -> None:
    """The model fails before or after the first word is shown."""
    model = f"mindful/{register_once(admin, f'fails-{shown}', 'generator', 'scripted', fails_after=shown)}"
    question: Any = {"role": "user", "content": "What is the capital of France?"}
    prompt: Any = {"role": "system", "content": "Be brief."}
    for messages in ([question], [prompt, question]):
        with pytest.raises(openai.APIError):
            list(service.client().chat.completions.create(model=model, messages=messages, stream=stream))
    assert one(db, "select count(*) from session") == 0
    assert one(db, "select count(*) from memory") == 0


def test_messages_that_got_no_reply_do_not_end_a_conversation(
    service: Service, db: psycopg.Connection
) -> None:
    """As of a service that ended within a request."""
    client = service.client()
    first = client.responses.create(model=MODEL, input="Good morning.")
    db.execute(
        "insert into memory (tenant, kind, session_id, turn, role, content)"
        " select tenant, 'message', session_id, 2 + n, (array['user', 'assistant'])[n], 'Wait.'"
        " from session, generate_series(1, 2) n"
    )
    second = client.responses.create(model=MODEL, input="Go on.", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="Go on.", previous_response_id=first.id)
    client.responses.create(model=MODEL, input="Go on.", previous_response_id=second.id)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_leaves_no_messages(
    service: Service, connect: Connect, db: psycopg.Connection, stream: bool
) -> None:
    content = json.dumps({"model": MODEL, "input": INPUT, "stream": stream}).encode()
    host, port = service.url.removeprefix("http://").split(":")
    head = f"POST /v1/responses HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    head += f"authorization: Bearer {service.key}\r\ncontent-length: {len(content)}\r\n\r\n"
    holder = connect()
    with holder.transaction():
        holder.execute("lock table mindful.decision in access exclusive mode")  # a chat waits, and no insert
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + content)
            wait_until(lambda: one(db, CHATTING) == 1)
            assert one(db, "select count(*) from memory") == 2
        wait_until(lambda: one(db, CHATTING) == 0)
    wait_until(lambda: one(db, "select count(*) from memory") == 0)
    wait_until(lambda: one(db, "select count(*) from session") == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_gets_one_response_at_a_time(
    service: Service, other_key: str, connect: Connect, db: psycopg.Connection, stream: bool
) -> None:
    client = service.client()
    begun = client.responses.create(model=MODEL, input="Good morning.")
    assert begun.conversation is not None
    places: list[Any] = [{"previous_response_id": begun.id}, {"conversation": begun.conversation.id}]
    holder = connect()
    with ThreadPoolExecutor(1) as pool:
        with holder.transaction():
            holder.execute(
                "lock table mindful.decision in access exclusive mode"
            )  # a chat waits, and no insert
            body = {"model": MODEL, "input": INPUT, "stream": stream, **places[0]}
            first = pool.submit(service.post, "/v1/responses", body)
            wait_until(lambda: one(db, CHATTING) == 1)
            for place in places:
                with pytest.raises(openai.ConflictError) as refused:
                    client.responses.create(model=MODEL, input="Go on.", stream=stream, **place)
                assert refused.value.code == "conversation_locked"
                with pytest.raises(openai.NotFoundError):
                    service.client(other_key).responses.create(model=MODEL, input="Go on.", **place)
        assert first.result().status_code == 200
    client.responses.create(model=MODEL, input="Go on.", **places[1])
    assert one(db, "select array_agg(content order by turn) from memory where role = 'user'") == [
        *("Good morning.", INPUT[0]["content"], INPUT[2]["content"], "Go on.")
    ]


def test_a_long_message_before_a_question_is_stored_in_parts(service: Service) -> None:
    client = service.client()
    long: Any = [{"role": "user", "content": "word " * 60_000}, {"role": "user", "content": "Hi"}]
    made = client.responses.create(model=MODEL, input=long)
    assert client.responses.retrieve(made.id).output_text == made.output_text
    client.responses.create(model=MODEL, input="Go on.", previous_response_id=made.id)


PATHS = [
    "/v1/responses/{}", "/v1/responses/{}/input_items", "/v1/conversations/{}", "/v1/conversations/{}/items",
    "/v1/models/{}", "/?session={}", "/desk/memories?q={}", "/desk/memories?id={}", "/desk/memories?before={}",
    "/desk/memories?kind={}", "/desk/labels?skip={}", "/desk/replies/{}/memories", "/desk/confidence?live={}",
    "/desk/status?live={}",
]  # fmt: skip
FORMS = {
    "/desk/say": ["message", "session", "model"],
    "/desk/memories": ["content"],
    "/desk/memories/1/correct": ["content"],
    "/desk/memories/1/forget": ["confirmed"],
    "/desk/replies/1/label": ["correct", "note", "view", "skip"],
    "/desk/retry": ["live"],
    "/desk/signin": ["key"],
}
LIKELY = st.sampled_from(
    ["1", "2", "-1", "9" * 18, "9" * 40, "yes", "no", "queue", "fact", "\0", "\udcff", "%00", SCRIPTED_GENERATOR,
     "resp_00000000000000000000000000000001_1", "conv_00000000-0000-0000-0000-000000000001",
     "00000000-0000-0000-0000-000000000001", "conv_" + "-" * 32, "x" * 3000]
)  # fmt: skip


def test_no_address_and_no_form_makes_the_service_fail(
    start: Start, scripted: None, admin: psycopg.Connection
) -> None:
    from urllib.parse import quote_from_bytes

    admin.execute("select model_default_set(%s, force => true)", (SCRIPTED_GENERATOR,))
    service = start("--no-keys", tenant="customer-7")

    def quoted(text: str) -> str:
        return quote_from_bytes(text.encode("utf-8", "surrogatepass"), safe="")

    words = LIKELY | st.text(max_size=20)
    with httpx2.Client(base_url=service.url, timeout=60, headers={"origin": service.url}) as client:
        client.post("/v1/responses", json={"model": MODEL, "input": "Hi"})

        @settings(
            max_examples=120,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        )
        @given(st.sampled_from(PATHS), words, st.sampled_from(["GET", "DELETE", "POST"]))
        def visit(path: str, word: str, method: str) -> None:
            answer = client.request(method, path.format(quoted(word)))
            assert answer.status_code in (200, 303, 307, 400, 404, 405, 415, 503), (
                method,
                path,
                word,
                answer.text,
            )
            assert answer.status_code != 503 or "default" in answer.text, (path, word, answer.text)

        @settings(
            max_examples=90,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        )
        @given(
            st.sampled_from(sorted(FORMS)).flatmap(
                lambda path: st.tuples(
                    st.just(path), st.dictionaries(st.sampled_from(FORMS[path]), words, max_size=4)
                )
            )
        )
        def send(sent: tuple[str, dict[str, str]]) -> None:
            path, form = sent
            content = "&".join(f"{name}={quoted(value)}" for name, value in form.items())
            kind = {"content-type": "application/x-www-form-urlencoded"}
            answer = client.post(path, content=content.encode(), headers=kind)
            assert answer.status_code in (200, 303, 400, 404, 503), (path, form, answer.text)

        visit()
        send()
