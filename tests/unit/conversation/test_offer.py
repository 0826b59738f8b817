"""Calls of functions are told from text, wherever a stream is cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.conversation.messages import CLOSING, OPENING, conversation_of
from mindful.conversation.offer import CallReader, Offer, Reader, offer_of
from mindful.core.errors import InvalidParameterError

JSON = st.recursive(
    st.integers() | st.text(max_size=5), lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


def tool(name: str, parameters: object = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def read(reader: Reader, text: str, cuts: list[int], is_complete: bool = True) -> tuple[str, dict[str, Any]]:
    """Read a text that comes in pieces, and return its text and its call."""
    shown, call = "", dict[str, Any]()
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    answers = [reader.read(text[start:end]) for start, end in itertools.pairwise(places)]
    for piece, part in [*answers, reader.rest(is_complete)]:
        shown += piece
        for key, value in (part or {}).items():
            call[key] = call.get(key, "") + value
    return shown, call


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3), st.lists(st.integers(0, 200)), st.booleans())
def test_arguments_come_whole_however_the_stream_is_cut(
    arguments: Any, cuts: list[int], forced: bool
) -> None:
    written = json.dumps(arguments)
    body = f'{{"name": "clock", "arguments": {written}}}'
    text = body if forced else OPENING + body + CLOSING
    shown, call = read(CallReader(forced), text, cuts)
    assert (shown, call["name"], call["arguments"]) == ("", "clock", written)


@given(st.text(max_size=60).filter(lambda text: not text.startswith("<")), st.lists(st.integers(0, 60)))
def test_text_is_passed_on_however_the_stream_is_cut(text: str, cuts: list[int]) -> None:
    assert read(CallReader(False), text, cuts) == (text, {})


@pytest.mark.parametrize("text", ["<", "<tool", "<tool_call", "<tool_box>", "<b>bold</b>"])
def test_what_only_begins_like_a_call_is_text(text: str) -> None:
    assert read(CallReader(False), text, list(range(9))) == (text, {})


def test_what_cannot_begin_a_call_is_passed_on_at_once() -> None:
    for text in ("Hi", "~", "\u00e9", "{", "<b"):
        assert CallReader(False).read(text) == (text, None)
    assert CallReader(False).read("<") == ("", None)


def test_arguments_that_were_cut_are_given_as_far_as_they_came() -> None:
    _, call = read(
        CallReader(True), '{"name": "clock", "arguments": {"city": "Par', [30, 40], is_complete=False
    )
    assert call["arguments"] == '{"city": "Par'


def test_functions_are_presented_and_a_forced_call_is_begun() -> None:
    talk = conversation_of('[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]')
    presented = offer_of(json.dumps([tool("clock")]), "required", lambda: None).presented(talk)
    assert presented.opening == OPENING
    assert [message.role for message in presented.messages] == ["system", "system", "user"]
    assert '"name": "clock"' in presented.messages[1].content
    assert isinstance(offer_of(json.dumps([tool("clock")]), "auto", lambda: None).reader(), CallReader)


def test_nothing_is_presented_where_no_call_is_wanted() -> None:
    assert offer_of(json.dumps([tool("clock")]), "none", lambda: None) == Offer()
    assert offer_of(None, "auto", lambda: None) == Offer()
    text, call = read(Offer().reader(), '<tool_call>{"name": "clock"', [5])
    assert (text, call) == ('<tool_call>{"name": "clock"', {})


def test_references_lead_to_each_functions_own_definitions() -> None:
    parameters = {
        "type": "object",
        "properties": {"day": {"$ref": "#/$defs/day"}},
        "required": ["day"],
        "$defs": {"day": {"enum": ["Monday"]}},
    }
    other = parameters | {"$defs": {"day": {"enum": ["Friday"]}}}
    grammar = offer_of(
        json.dumps([tool("a", parameters), tool("b", other)]), "required", lambda: None
    ).grammar
    assert grammar is not None
    assert "Monday" in grammar
    assert "Friday" in grammar


@pytest.mark.parametrize("tools", ["{}", '["a"]', '[{"type": "web"}]', "[" * 900 + "]" * 900])
def test_what_is_not_a_function_is_refused(tools: str) -> None:
    with pytest.raises(InvalidParameterError):
        offer_of(tools, "auto", lambda: None)
