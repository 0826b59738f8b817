from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.conversation import recap
from mindful.conversation.recap import extract, unsupported
from mindful.core.errors import InvalidParameterError, MindfulError, NullValueError, UndefinedObjectError
from mindful.core.ports import Row
from mindful.models import runtime
from mindful_scripted import ScriptedGenerator
from unit.fakes import FakeDatabase, scripted, wrapped

GENERATOR = ScriptedGenerator({})


def turn(number: int, content: str, role: str = "user") -> Row:
    return {"id": number, "role": role, "content": content, "content_hash": str(number)}


@given(st.lists(st.text(max_size=60), max_size=8), st.integers(0, 40))
def test_an_extract_quotes_its_turns_in_their_order_and_keeps_to_its_length(
    contents: list[str], length: int
) -> None:
    turns = [turn(at, content) for at, content in enumerate(contents)]
    taken = extract(turns, GENERATOR, length)
    assert all(sentence in said["content"] for said, sentence in taken)
    assert [said["id"] for said, _ in taken] == sorted(said["id"] for said, _ in taken)
    assert sum(GENERATOR.count(f"{said['role']}: {sentence}") for said, sentence in taken) <= length


def test_names_and_numbers_of_the_user_go_before_talk() -> None:
    turns = [
        turn(1, "Hello there! That sounds really great, such fun."),
        turn(2, "Would you like to visit Lisbon in 2024?", "assistant"),
        turn(3, "My sister Clara moved to Porto in 2019."),
    ]
    assert extract(turns, GENERATOR, 14) == [(turns[2], "My sister Clara moved to Porto in 2019.")]


def test_what_is_told_already_is_not_told_again() -> None:
    turns = [turn(1, "Clara moved to Porto."), turn(2, "Clara moved to Porto."), turn(3, "Rex barks.")]
    assert [sentence for _, sentence in extract(turns, GENERATOR, 100)] == [
        "Clara moved to Porto.",
        "Rex barks.",
    ]


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ("The user's sister Clara moved to Porto.", set()),
        ("She moved in 2019.", set()),
        ("The user's sister Maria moved to Porto.", {"maria"}),
        ("She moved in 2020.", {"2020"}),
        ("Porto's weather is fine.", set()),
    ],
)
def test_names_and_numbers_that_nobody_said_are_found(summary: str, found: set[Any]) -> None:
    assert unsupported(summary, ["My sister Clara moved to Porto.", "It was in 2019."]) == found


class Session(FakeDatabase):
    """A session whose segments have no summary yet."""

    def __init__(
        self, segments: int = 2, method: str = "extract", late: bool = False, **options: Any
    ) -> None:
        self.written: list[tuple[Any, ...]] = []
        self.late = late
        super().__init__(
            {
                "select from mindful.session": [{}] if segments else [],
                "mindful.setting_get($1, $2)": [{"value": json.dumps(method)}],
                "_mindful.recap_missing": lambda _session, size, most: [
                    {"first": 1 + size * at, "last": size * (at + 1)}
                    for at in range(segments if most is None else min(segments, most))
                ],
                "_mindful.recap_turns": lambda _session, first, last: [
                    turn(at, f"Clara moved to Porto in {2000 + at}.") for at in range(first, last + 1)
                ],
                "_mindful.recap_write": self.write,
            },
            scripted(generator=options),
        )

    def write(self, *arguments: Any) -> list[Row]:
        """Keep a summary, unless a turn has changed meanwhile."""
        self.written.append(arguments)
        return [{"id": None if self.late else len(self.written)}]

    def summarize(self, session: str | None = "s", method: str | None = None) -> int:
        """Summarize it."""
        count: int = wrapped(recap.session_summarize)(self, session, method)
        return count


def test_each_segment_has_a_summary_that_quotes_each_of_its_turns() -> None:
    db = Session()
    assert db.summarize() == 2
    assert [(row[1], row[2], row[4]) for row in db.written] == [(1, 10, "extract"), (11, 20, "extract")]
    for _, first, last, content, _, ids, hashes, quotes in db.written:
        assert sorted(set(ids)) == list(range(first, last + 1))
        assert hashes == [str(at) for at in range(first, last + 1)]
        assert len(ids) == len(quotes)
        assert all(
            quote == f"Clara moved to Porto in {2000 + at}." for at, quote in zip(ids, quotes, strict=True)
        )
        assert all(line.startswith("user: ") for line in content.splitlines())


def test_a_summary_that_is_too_late_is_not_counted() -> None:
    assert Session(late=True).summarize() == 0


@pytest.mark.parametrize(
    ("reply", "method"),
    [("Clara moved to Porto in 2001.", "model"), ("She moved with Maria.", "extract"), ("", "extract")],
)
def test_what_a_model_writes_must_name_what_was_said(reply: str, method: str) -> None:
    db = Session(1, default=reply)
    db.summarize(method="model")
    assert db.written[0][4] == method
    assert (db.written[0][3] == reply) == (method == "model")


@pytest.mark.parametrize(("method", "kept"), [("extract", 2), ("model", 0), ("off", 0)])
def test_after_a_reply_two_are_made_where_that_needs_no_model(method: str, kept: int) -> None:
    db = Session(5)
    spec, generator = runtime.generator(db, None)
    recap.keep_up(db, spec, generator, "s", method)
    assert len(db.written) == kept
    assert Session(5, "off").summarize() == 0


@pytest.mark.parametrize(
    ("session", "method", "error"),
    [(None, None, NullValueError), ("s", "magic", InvalidParameterError)],
)
def test_bad_arguments_are_refused(
    session: str | None, method: str | None, error: type[MindfulError]
) -> None:
    with pytest.raises(error):
        Session().summarize(session, method)
    with pytest.raises(UndefinedObjectError):
        Session(0).summarize()
