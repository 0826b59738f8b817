from __future__ import annotations

import pytest
from jinja2 import Environment
from mindful.models.providers.trial import _FAMILIES, _MARKS, judge


@pytest.mark.parametrize("mark", _FAMILIES)
def test_the_template_of_each_family_renders_a_conversation(mark: str) -> None:
    template, stop = _FAMILIES[mark]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "Hm"},
    ]
    text = Environment().from_string(template).render(messages=messages, add_generation_prompt=True)
    assert [text.count(part) for part in ("Hi", "Ho", "Hm")] == [1, 1, 1]
    assert stop in text.split("Hm")[0]
    assert mark in text


def test_marks_of_turns_in_answers_become_stops() -> None:
    stops, warnings = judge([("Blue.<|im_end|>\nUser: And?", False), ("Hello!", True), ("A house.", True)])
    assert stops == ["\nUser:", "<|im_end|>"]
    assert len(warnings) == 1
    assert all(mark in _MARKS for mark in stops)


@pytest.mark.parametrize(
    ("answers", "message"),
    [([("on and on", False)] * 3, "ended within"), ([("", True)] * 3, "empty")],
)
def test_answers_that_do_not_end_or_begin_are_warned_of(
    answers: list[tuple[str, bool]], message: str
) -> None:
    stops, warnings = judge(answers)
    assert stops == []
    assert message in warnings[0][0]


def test_a_good_model_needs_nothing() -> None:
    assert judge([("Blue.", True), ("Hello!", True), ("A house.", True)]) == ([], [])
