"""Lists of messages: each argument has its effect, nothing is remembered, and a resent beginning costs nothing."""

from __future__ import annotations

import json
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, Connect, fails
from support.query import one

ASK = [{"role": "user", "content": "What is the capital of France?"}]
LIGHTHOUSE = (
    "The keeper of the lighthouse writes down the weather, the ships that pass, and what he had for dinner. "
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"$ref": "#/$defs/city"},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
            "$defs": {"city": {"enum": ["Paris", "Rome"]}},
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
Rows = list[dict[str, Any]]


def complete(connection: psycopg.Connection, messages: object = ASK, **given: Any) -> Rows:
    """Answer a list of messages; each row as an object."""
    return called(connection, "select to_jsonb(c) from llm_complete({}) c", messages, given)


def stream(connection: psycopg.Connection, messages: object = ASK, **given: Any) -> Rows:
    """Answer a list of messages piece by piece."""
    return called(connection, "select to_jsonb(llm_complete_stream({}))", messages, given)


def called(
    connection: psycopg.Connection, form: LiteralString, messages: object, given: dict[str, Any]
) -> Rows:
    values = {"messages": Jsonb(messages)} | {
        key: Jsonb(value) if isinstance(value, (dict, list)) and key != "stop" else value
        for key, value in given.items()
    }
    names = ", ".join(f"{name} => %({name})s{'::text[]' if name == 'stop' else ''}" for name in values)
    return [row[0] for row in connection.execute(form.format(names).encode(), values).fetchall()]


@pytest.mark.shares
def test_an_answer_says_why_it_ended_and_what_it_cost(ana: psycopg.Connection) -> None:
    (row,) = complete(ana, model=SCRIPTED_GENERATOR)
    assert (row["text"], row["finish_reason"], row["choice"]) == (
        "The capital of France is Paris.",
        "stop",
        0,
    )
    assert row["completion_tokens"] == 6
    (row,) = complete(ana, model=SCRIPTED_GENERATOR, max_tokens=2)
    assert (row["text"], row["finish_reason"]) == ("The capital", "length")


def test_nothing_is_remembered(ana: psycopg.Connection) -> None:
    complete(ana, model=SCRIPTED_GENERATOR)
    stream(ana, model=SCRIPTED_GENERATOR)
    assert one(ana, "select count(*) from memory") == one(ana, "select count(*) from session") == 0
    assert one(ana, "select count(*) from generation") == 2


@pytest.mark.shares
def test_minus_one_token_is_as_many_as_fit(
    brief: str, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    options = {"context_length": 40, "default": "word " * 100}
    admin.execute("select model_register('small', 'generator', 'scripted', '', %s)", (Jsonb(options),))
    (row,) = complete(ana, [{"role": "user", "content": "Go on"}], model="small", max_tokens=-1)
    assert row["finish_reason"] == "length"
    assert row["prompt_tokens"] + row["completion_tokens"] == 40


@pytest.mark.shares
def test_a_list_that_ends_with_the_assistants_words_is_continued(ana: psycopg.Connection) -> None:
    begun = "The capital of France is the city of"
    (row,) = complete(ana, [*ASK, {"role": "assistant", "content": begun}], max_tokens=4)
    assert row["text"].lstrip().startswith("Paris")
    opened = [
        {"role": "system", "content": "You are brief."},
        {"role": "assistant", "content": "Hello!"},
        *ASK,
    ]
    assert (
        "Paris" in complete(ana, [*opened, {"role": "assistant", "content": begun}], max_tokens=4)[0]["text"]
    )


@pytest.mark.shares
def test_a_plain_text_is_continued_without_the_template(ana: psycopg.Connection) -> None:
    (row,) = complete(ana, "The capital of France is", max_tokens=3)
    assert "Paris" in row["text"]
    assert row["prompt_tokens"] < 8


@pytest.mark.shares
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_stream_is_the_whole_answer_in_pieces(brief: str, ana: psycopg.Connection, index: int) -> None:
    cases: list[dict[str, Any]] = [
        {"max_tokens": 12},
        {"max_tokens": 12, "top_logprobs": 3, "seed": 7},
        {"max_tokens": 12, "seed": 1, "temperature": 0.9, "n": 2},
    ]
    given = cases[index]
    whole, pieces = complete(ana, **given), stream(ana, **given)
    for row in whole:
        own = [piece for piece in pieces if piece["choice"] == row["choice"]]
        assert "".join(piece["text"] for piece in own) == row["text"]
        assert [piece["finish_reason"] for piece in own[-2:]] == [None, row["finish_reason"]]
        assert own[-1]["usage"]["completion_tokens"] == row["completion_tokens"]
        if "top_logprobs" in given:
            logprobs = [piece["logprob"] for piece in own if piece["token"] is not None]
            assert logprobs == pytest.approx([one["logprob"] for one in row["logprobs"]], abs=1e-5)


@pytest.mark.shares
def test_choices_of_a_seed_differ_and_repeat(brief: str, ana: psycopg.Connection) -> None:
    first = [row["text"] for row in complete(ana, temperature=1.5, seed=5, n=3, max_tokens=12)]
    assert len(set(first)) > 1
    assert first == [row["text"] for row in complete(ana, temperature=1.5, seed=5, n=3, max_tokens=12)]
    assert complete(ana, temperature=1.5, seed=6, max_tokens=12)[0]["text"] == first[1]


@pytest.mark.shares
def test_logprobs_hold_each_token_and_the_likeliest_in_its_place(brief: str, ana: psycopg.Connection) -> None:
    (row,) = complete(ana, max_tokens=5, top_logprobs=4)
    assert len(row["logprobs"]) == 5
    assert "".join(one["token"] for one in row["logprobs"]) == row["text"]
    for token in row["logprobs"]:
        values = [other["logprob"] for other in token["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert len(values) == 4
        # Temperature 0 takes the likeliest.
        assert token["top_logprobs"][0]["token"] == token["token"]
        assert token["logprob"] == pytest.approx(values[0])
    assert complete(ana, max_tokens=2, top_logprobs=0)[0]["logprobs"][0]["top_logprobs"] == []
    assert complete(ana, max_tokens=2)[0]["logprobs"] is None


@pytest.mark.shares
def test_a_character_of_several_tokens_is_one_piece_of_text_with_all_its_bytes(
    ana: psycopg.Connection,
) -> None:
    smile = [{"role": "user", "content": "Repeat: 🌟🌟🌟"}, {"role": "assistant", "content": "🌟🌟🌟🌟"}]
    pieces = stream(ana, smile, max_tokens=9, top_logprobs=0)
    data = b"".join(bytes.fromhex(piece["bytes"][2:]) for piece in pieces if piece["bytes"])
    assert "".join(piece["text"] for piece in pieces) == data.decode(errors="replace")


@pytest.mark.shares
def test_a_bias_forbids_and_forces_tokens(brief: str, ana: psycopg.Connection) -> None:
    (row,) = complete(ana, max_tokens=4, logit_bias={"42": 100}, top_logprobs=0)
    (forced,) = {token["token"] for token in row["logprobs"]}
    (row,) = complete(ana, max_tokens=4, logit_bias={"42": -100, "43": 99}, top_logprobs=0)
    assert forced not in row["text"]


@pytest.mark.shares
def test_a_penalty_ends_repetition(ana: psycopg.Connection) -> None:
    words = [
        complete(ana, max_tokens=30, **given)[0]["text"].split()
        for given in ({}, {"frequency_penalty": 2}, {"presence_penalty": 2}, {"repeat_penalty": 1.5})
    ]
    free, *held = [len(set(text)) / len(text) for text in words]
    assert free < min(held)
    schema = {"type": "array", "items": {"enum": ["yes", "no"]}, "minItems": 4, "maxItems": 4}
    (within,) = complete(ana, max_tokens=60, repeat_penalty=1.5, json_schema=schema)
    assert len(json.loads(within["text"])) == 4


def test_the_truncations_decide_what_can_be_drawn(brief: str, ana: psycopg.Connection) -> None:
    greedy = complete(ana, max_tokens=12)[0]["text"]
    for given in ({"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}):
        assert complete(ana, max_tokens=12, temperature=2, seed=3, **given)[0]["text"] == greedy
    wide = complete(ana, max_tokens=12, temperature=2, seed=3, top_k=0, top_p=1, min_p=0)[0]["text"]
    assert wide != greedy


@pytest.mark.shares
def test_a_stop_ends_the_text_before_it(brief: str, ana: psycopg.Connection) -> None:
    (row,) = complete(ana, model=SCRIPTED_GENERATOR, stop=["Paris"], top_logprobs=0)
    assert (row["text"], row["finish_reason"]) == ("The capital of France is ", "stop")


@pytest.mark.shares
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_forced_call_fits_the_functions_parameters(
    brief: str, ana: psycopg.Connection, choice: str
) -> None:
    tools = [WEATHER] if choice == "required" else [CLOCK, WEATHER]
    question = [{"role": "user", "content": "How is the weather in Rome?"}]
    (row,) = complete(ana, question, tools=tools, tool_choice=choice, max_tokens=60)
    assert (row["text"], row["finish_reason"]) == ("", "tool_calls")
    (call,) = row["tool_calls"]
    arguments = json.loads(call["arguments"])
    assert (call["name"], set(arguments)) == ("get_weather", {"city", "days"})
    assert arguments["city"] in ("Paris", "Rome")
    assert 1 <= arguments["days"] <= 9


@pytest.mark.shares
def test_a_call_is_streamed_with_its_name_once(brief: str, ana: psycopg.Connection) -> None:
    pieces = [
        row["tool_call"]
        for row in stream(ana, tools=[WEATHER], tool_choice="required", max_tokens=60)
        if row["tool_call"]
    ]
    assert [sorted(piece) for piece in pieces] == [["arguments", "id", "name"]] + [["arguments"]] * (
        len(pieces) - 1
    )
    assert set(json.loads("".join(piece["arguments"] for piece in pieces))) == {"city", "days"}


CALLS = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


@pytest.mark.shares
@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        (CALLS, "", 1),
        ("<tool_box> is no call.", "<tool_box> is no call.", 0),
        ("No call.", "No call.", 0),
        ("", "", 0),
    ],
)
def test_the_model_may_call_or_answer(
    admin: psycopg.Connection, ana: psycopg.Connection, reply: str, text: str, calls: int
) -> None:
    caller = f"caller{len(reply)}"
    admin.execute(
        "select model_register(%s, 'generator', 'scripted', '', %s)",
        (caller, Jsonb({"replies": [], "default": reply})),
    )
    (row,) = complete(ana, tools=[CLOCK], model=caller)
    assert (row["text"], len(row["tool_calls"] or [])) == (text, calls)
    if calls:
        assert json.loads(row["tool_calls"][0]["arguments"]) == {}
        assert row["finish_reason"] == "tool_calls"


@pytest.mark.shares
def test_results_of_calls_are_shown_to_the_model(ana: psycopg.Connection) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    talk = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is seven o'clock."},
    ]
    assert "seven" in complete(ana, talk, tools=[CLOCK], tool_choice="none", max_tokens=20)[0]["text"].lower()


@pytest.mark.shares
def test_json_fits_its_schema_and_one_that_is_cut_says_so(brief: str, ana: psycopg.Connection) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}},
        "required": ["name"],
    }
    (row,) = complete(ana, json_schema=schema, max_tokens=60)
    assert set(json.loads(row["text"])) == {"name"}
    assert complete(ana, json_schema=schema, max_tokens=3)[0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("given", "sqlstate"),
    [
        ({"messages": []}, "22023"),
        ({"messages": {"role": "user"}}, "22023"),
        ({"messages": ["Hi"]}, "22023"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "22023"),
        ({"messages": [{"role": "user", "content": 1}]}, "22023"),
        ({"messages": [{"role": "user"}]}, "22023"),
        ({"messages": [{"role": "user", "name": 5, "content": "Hi"}]}, "22023"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "22023"),
        ({"messages": [{"role": "user", "content": "Hi", "mood": "good"}]}, "22023"),
        ({"messages": ""}, "22023"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, "54000"),
        ({"messages": [{"role": "user", "content": "x" * (1 << 20)}]}, "54000"),
        ({"model": "absent"}, "42704"),
        ({"max_tokens": 0}, "22023"),
        ({"top_p": 1.5}, "22023"),
        ({"top_k": -1}, "22023"),
        ({"min_p": None}, "22004"),
        ({"temperature": "NaN"}, "22023"),
        ({"presence_penalty": 3}, "22023"),
        ({"repeat_penalty": 0}, "22023"),
        ({"logit_bias": {"a": 1}}, "22023"),
        ({"logit_bias": {"1": 101}}, "22023"),
        ({"n": 0}, "22023"),
        ({"n": 33}, "22023"),
        ({"top_logprobs": 21}, "22023"),
        ({"tools": {}}, "22023"),
        ({"tools": [{"type": "browser"}]}, "22023"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "22023"),
        ({"tools": [CLOCK], "tool_choice": "other"}, "22023"),
        ({"tool_choice": "required"}, "22023"),
        ({"tools": [CLOCK], "json_schema": {}}, "22023"),
        ({"json_schema": {"type": 1}}, "22023"),
    ],
    ids=str,
)
@pytest.mark.shares
def test_wrong_arguments_are_refused(ana: psycopg.Connection, given: dict[str, Any], sqlstate: str) -> None:
    messages = given.pop("messages", ASK)
    with fails(sqlstate):
        complete(ana, messages, **given)


def turns(count: int) -> list[dict[str, str]]:
    """A conversation that ends with the user's words."""
    talk = [{"role": "system", "content": "You are the keeper's friend."}]
    for at in range(count):
        talk += [
            {"role": "user", "content": f"{at}. {LIGHTHOUSE}Who is he?"},
            {"role": "assistant", "content": f"He is keeper number {at}, and a friend of the birds."},
        ]
    return talk[:-1]


def test_a_resent_history_costs_its_new_tokens_on_any_connection(brief: str, connect: Connect) -> None:
    talk: list[dict[str, str]] = []
    connections = [connect("ana"), connect("ana")]
    for at in range(10):
        talk.append({"role": "user", "content": f"{at}. {LIGHTHOUSE}Who is he?"})
        connections[at % 2].execute("select model_unload()")
        (row,) = complete(connections[at % 2], talk, max_tokens=12)
        talk.append({"role": "assistant", "content": row["text"]})
        # The client's words and the template's are new, and 15 tokens that no state was kept of.
        assert not at or row["prompt_tokens"] - row["cached_tokens"] < 70
    assert row["prompt_tokens"] > 450


def test_a_conversation_that_takes_another_turn_is_kept_beside_the_first(
    ana: psycopg.Connection, connect: Connect
) -> None:
    complete(ana, turns(4), max_tokens=4)
    other = [*turns(5)[:-1], {"role": "user", "content": "Something else: " + LIGHTHOUSE * 4}]
    replies = [complete(ana, talk, max_tokens=4)[0]["text"] for talk in (turns(6), other)]
    assert one(ana, "select count(distinct thread_id) from kv_state") == 2
    for talk, reply in zip((turns(6), other), replies, strict=True):
        said = [*talk, {"role": "assistant", "content": reply}, {"role": "user", "content": "And then?"}]
        (row,) = complete(connect("ana"), said, max_tokens=4)
        assert row["prompt_tokens"] - row["cached_tokens"] < 64


def test_a_kept_state_is_its_tenants(brief: str, ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    complete(ana, turns(4), max_tokens=4)
    assert complete(bob, turns(4), max_tokens=4)[0]["cached_tokens"] == 0


def test_forgetting_deletes_the_states_of_lists(brief: str, ana: psycopg.Connection) -> None:
    complete(ana, turns(4), max_tokens=4)
    ana.execute("select memory_insert('tea')")
    ana.execute("select memory_forget(ids => array(select id from memory))")
    assert one(ana, "select count(*) from kv_state") == 0


def test_a_read_only_transaction_may_complete(brief: str, ana: psycopg.Connection) -> None:
    ana.execute("set default_transaction_read_only = on")
    notices: list[str] = []
    ana.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    assert complete(ana, turns(4), max_tokens=4)[0]["finish_reason"]
    assert notices == []
