"""Lists of messages are read as clients send them, or refused with the place of what is wrong."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from mindful.conversation.messages import CLOSING, OPENING, Conversation, conversation_of
from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.core.ports import Message
from mindful_scripted import ScriptedGenerator

CALL = {"type": "function", "function": {"name": "clock", "arguments": '{"city": "Rome"}'}}
WRITTEN = f'{OPENING}{{"name": "clock", "arguments": {{"city": "Rome"}}}}{CLOSING}'
LONGEST = 1 << 18


def read(*messages: Any) -> Conversation:
    return conversation_of(json.dumps(messages))


def user(content: Any = "Hi", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content} | more


@pytest.mark.parametrize(
    ("given", "role", "content"),
    [
        (user(), "user", "Hi"),
        (user(""), "user", ""),
        (user(name="Ana"), "user", "Ana: Hi"),
        (user(name=None, tool_calls=None, tool_call_id=None), "user", "Hi"),
        ({"role": "system", "content": "Be kind."}, "system", "Be kind."),
        ({"role": "system", "content": "Be kind.", "name": "Ana"}, "system", "Be kind."),
        ({"role": "developer", "content": "Be kind."}, "system", "Be kind."),
        (
            {"role": "tool", "content": "12:00", "tool_call_id": "a"},
            "user",
            "<tool_response>\n12:00\n</tool_response>",
        ),
        (user([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]), "user", "ab"),
        (user([{"type": "output_text", "text": "c"}]), "user", "c"),
        (user([]), "user", ""),
    ],
)
def test_a_message_is_read_as_its_role_says(given: dict[str, Any], role: str, content: str) -> None:
    assert read(given) == Conversation((Message(role, content),))


def test_words_of_the_assistant_at_the_end_are_continued() -> None:
    said = [{"role": "assistant", "content": text} for text in ("Once", "upon")]
    assert read(user(), *said) == Conversation((Message("user", "Hi"),), "Once\n\nupon")
    assert read(user(), said[0], user("And?")).opening == ""


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
def test_calls_are_written_as_the_model_writes_them(content: dict[str, Any]) -> None:
    called = {"role": "assistant", "tool_calls": [CALL, CALL]} | content
    assert read(user(), called, user()).messages[1] == Message("assistant", f"{WRITTEN}\n{WRITTEN}")


def test_calls_come_after_the_words_before_them() -> None:
    called = {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]}
    assert read(called, user()).messages[0].content == f"Let me look.\n{WRITTEN}"
    bare = {"role": "assistant", "tool_calls": [{"function": {"name": "clock", "arguments": ""}}]}
    assert (
        read(bare, user()).messages[0].content == f'{OPENING}{{"name": "clock", "arguments": {{}}}}{CLOSING}'
    )


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([], "messages is not an array"),
        (["Hi"], "messages[0] is not an object"),
        ([user(), user(text="Hi")], "messages[1] has the member text"),
        ([{"content": "Hi"}], "messages[0].role is null"),
        ([{"role": "critic", "content": "Hi"}], 'messages[0].role is "critic"'),
        ([{"role": ["user"], "content": "Hi"}], 'messages[0].role is ["user"]'),
        ([user(name=1)], "messages[0].name is not a text"),
        ([user(tool_call_id=1)], "messages[0].tool_call_id is not a text"),
        ([{"role": "user"}], "messages[0].content is missing"),
        ([{"role": "user", "tool_calls": [CALL]}], "messages[0].content is missing"),
        ([{"role": "assistant"}, user()], "messages[0].content is missing"),
        ([{"role": "assistant", "tool_calls": []}, user()], "messages[0].content is missing"),
        ([user(1)], "messages[0].content is not a text"),
        ([user(["Hi"])], "messages[0].content holds a part that is not a text"),
        ([user([{"type": "image_url"}])], "messages[0].content holds a part that is not a text"),
        ([user([{"type": "text"}])], "messages[0].content holds a part without a text"),
        ([user(tool_calls=[CALL])], "messages[0].tool_calls is not the assistant's"),
        ([user(tool_calls={})], "messages[0].tool_calls is not an array"),
        ([{"role": "assistant", "tool_calls": [1]}], "messages[0].tool_calls holds a call without"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {}}]}],
            "messages[0].tool_calls holds a call without",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{"}}]}],
            "messages[0].tool_calls holds arguments that are not JSON",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {"b": 1}}}]}],
            "messages[0].tool_calls holds arguments that are not JSON",
        ),
    ],
)
def test_the_error_names_the_place(messages: list[Any], wrong: str) -> None:
    with pytest.raises(InvalidParameterError) as raised:
        conversation_of(json.dumps(messages))
    assert str(raised.value).startswith(wrong)


@pytest.mark.parametrize("text", ['""', '" \\n"', "{}", "1", "null"])
def test_what_is_neither_a_text_nor_an_array_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="messages is"):
        conversation_of(text)


@pytest.mark.parametrize(
    ("messages", "fits"),
    [
        (["a" * LONGEST], True),
        (["a" * (LONGEST + 1)], False),
        ("a" * LONGEST, True),
        ("a" * (LONGEST + 1), False),
        (["a" * LONGEST] * 3, True),
        (["a" * LONGEST] * 4, False),
        ([""] * 10_000, True),
        ([""] * 10_001, False),
    ],
)
def test_messages_are_limited_in_size_and_number(messages: str | list[str], fits: bool) -> None:
    given = messages if isinstance(messages, str) else [user(content) for content in messages]
    with nullcontext() if fits else pytest.raises(ContextLengthError):
        conversation_of(json.dumps(given))


def test_what_is_kept_of_a_turn_is_the_beginning_of_the_next_prompt() -> None:
    generator = ScriptedGenerator({})
    said = [Message("assistant", "Once upon a time"), Message("user", "")]
    assert read(user(), {"role": "assistant", "content": "Once upon"}).next_tokens(
        generator, " a time"
    ) == generator.encode([Message("user", "Hi"), *said])
    assert conversation_of('"Once upon"').next_tokens(generator, " a time") == generator.tokenize(
        "Once upon a time"
    )


def test_a_prompt_ends_with_the_words_to_be_continued() -> None:
    generator = ScriptedGenerator({})
    begun = read(user(), {"role": "assistant", "content": "Once upon"}).tokens(generator)
    assert begun == [*generator.encode([Message("user", "Hi")]), *generator.tokenize("Once upon")]
    assert read(user()).tokens(generator) == generator.encode([Message("user", "Hi")])
    assert conversation_of('"Once upon"').tokens(generator) == generator.tokenize("Once upon")
