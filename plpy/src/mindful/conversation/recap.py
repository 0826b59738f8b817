"""Summaries of turns of a session, which replace the turns when they leave the window.

A summary covers ten turns. By default it is made of their own sentences, those that tell most: that takes 10 ms,
invents nothing, and kept more of what is asked for later than what a small model writes (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mindful.core.entry import writing_function
from mindful.core.errors import InvalidParameterError, NullValueError, UndefinedObjectError
from mindful.core.pattern import linear
from mindful.core.ports import Database, Generator, ModelSpec, Row
from mindful.core.setting import setting_get
from mindful.core.text import pieces
from mindful.generate.summary import summarize
from mindful.models import runtime

SEGMENT = 10
"""Turns that one summary covers."""
_LENGTH = 100
"""Most tokens of a summary."""
_AFTER_A_REPLY = 2
"""Most summaries after one reply: an imported conversation is not summarized in one go."""
_LONGEST = 4000
"""Characters of a turn that a summary reads. Recall finds later parts of a long text."""
_NAMED = 2.0
"""Weight of a name or a number; other words have weight 1."""
_ASKED = 0.5
"""Weight of a word in a question or in a reply of the model, which are not evidence."""
_METHODS = ("extract", "model", "off")
_SENTENCE = linear(r"(?<=[.!?])\s+|\n+")
_WORD = linear(r"\w+(?:['\u2019]\w+)?")
_SHORT = 3
"""Length of words that are ignored: most short words are grammar."""


class _Sentence(NamedTuple):
    turn: Row
    text: str
    words: frozenset[str]
    names: frozenset[str]

    @property
    def line(self) -> str:
        """The sentence with its role."""
        return f"{self.turn['role']}: {self.text}"


@writing_function
def session_summarize(db: Database, session_id: str | None, method: str | None) -> int:
    """Summarize the turns that have no summary yet."""
    if session_id is None:
        raise NullValueError("session_id is null", "Give a session, as session_start returns it.")
    known = db.rows(
        "select from mindful.session where tenant = (select _mindful.tenant()) and session_id = $1",
        ("uuid",),
        (session_id,),
    )
    if not known:
        raise UndefinedObjectError(
            f"there is no session {session_id}", "Start one with session_start(), or look in mindful.session."
        )
    if method is not None and method not in _METHODS:
        raise InvalidParameterError(f"method is '{method}'", f"Methods are {', '.join(_METHODS)}.")
    spec, generator = runtime.generator(db, None)
    return _summarize(
        db, spec, generator, session_id, method or setting_get(db, "session_summary", session_id), None
    )


def keep_up(db: Database, spec: ModelSpec, generator: Generator, session_id: str, method: str) -> None:
    """Summarize turns after a reply, if the method needs no model."""
    if method == "extract":
        _summarize(db, spec, generator, session_id, "extract", _AFTER_A_REPLY)


def unsupported(summary: str, sources: Iterable[str]) -> set[str]:
    """Return the names and numbers of a summary that are in none of its sources."""
    known = {_normal(word) for source in sources for word in _WORD.findall(source)}
    return {name for sentence in _sentences(summary) for name in _names(sentence)} - known


def extract(
    turns: Sequence[Row],
    generator: Generator,
    length: int = _LENGTH,
    check: Callable[[], None] = lambda: None,
) -> list[tuple[Row, str]]:
    """Choose the sentences that together tell most in so many tokens, and return them with their turns in order.

    Greedy coverage of words, names and numbers above others, for the square root of a sentence's cost (after the
    concept coverage of Gillick and Favre 2009): a word that is covered already is worth nothing.
    """
    sentences = [
        _Sentence(turn, text, frozenset(_words(text)), frozenset(_names(text)))
        for turn in turns
        for text in _sentences(turn["content"][:_LONGEST])
    ]
    costs = [generator.count(sentence.line) + 4 for sentence in sentences]  # its quotes and the line's end
    covered: set[str] = set()
    chosen: list[int] = []
    while True:
        check()
        gains = {
            at: _worth(sentence, covered) / costs[at] ** 0.5
            for at, sentence in enumerate(sentences)
            if costs[at] <= length and at not in chosen
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] == 0:
            break
        chosen.append(best)
        length -= costs[best]
        covered |= sentences[best].words
    return [(sentences[at].turn, sentences[at].text) for at in sorted(chosen)]


def _summarize(
    db: Database, spec: ModelSpec, generator: Generator, session_id: str, method: str, most: int | None
) -> int:
    if method == "off":
        return 0
    missing = db.rows(
        "select first, last from _mindful.recap_missing($1, $2, $3)",
        ("uuid", "integer", "integer"),
        (session_id, SEGMENT, most),
    )
    return sum(_write(db, spec, generator, session_id, method, segment) for segment in missing)


def _write(
    db: Database, spec: ModelSpec, generator: Generator, session_id: str, method: str, segment: Row
) -> bool:
    turns = db.rows(
        "select id, role, content, content_hash from _mindful.recap_turns($1, $2, $3)",
        ("uuid", "integer", "integer"),
        (session_id, segment["first"], segment["last"]),
    )
    taken = extract(turns, generator, check=db.check)
    content = "\n".join(f"{turn['role']}: {text}" for turn, text in taken)
    if method == "model":
        written = summarize(db, spec, generator, [f"{turn['role']}: {turn['content']}" for turn in turns])
        if written and not unsupported(written, _pieces(db, turns)):
            content = written
        else:
            method = "extract"
    quotes = list(_quotes(turns, taken))
    written_id = db.one(
        "select _mindful.recap_write($1, $2, $3, $4, $5, $6, $7, $8) as id",
        ("uuid", "integer", "integer", "text", "text", "bigint[]", "text[]", "text[]"),
        (
            session_id,
            segment["first"],
            segment["last"],
            content or _excerpt(turns[0]["content"]),
            method,
            [turn["id"] for turn, _ in quotes],
            [turn["content_hash"] for turn in turns],
            [quote for _, quote in quotes],
        ),
    )["id"]
    return written_id is not None


def _pieces(db: Database, turns: Sequence[Row]) -> Iterator[str]:
    for turn in turns:
        for piece in pieces(turn["content"]):
            db.check()
            yield piece


def _quotes(turns: Sequence[Row], taken: Sequence[tuple[Row, str]]) -> Iterator[tuple[Row, str]]:
    """Quote every covered turn: the sentences that were chosen, else its beginning."""
    yield from taken
    covered = {turn["id"] for turn, _ in taken}
    for turn in turns:
        if turn["id"] not in covered:
            yield turn, _excerpt(turn["content"])


def _excerpt(text: str) -> str:
    return next(_sentences(text), text)[:200]


def _sentences(text: str) -> Iterator[str]:
    for part in _SENTENCE.split(text):
        if part.strip():
            yield part.strip()


def _words(sentence: str) -> Iterator[str]:
    for word in map(_normal, _WORD.findall(sentence)):
        if len(word) > _SHORT or word.isdigit():
            yield word


def _names(sentence: str) -> Iterator[str]:
    """Find numbers, and words with a capital that do not begin the sentence."""
    for found in _WORD.finditer(sentence):
        word = found[0]
        capital = word[0].isupper() and found.start() > 0 and word.split("'")[0].split("\u2019")[0] != "I"
        if capital or any(character.isdigit() for character in word):
            yield _normal(word)


def _normal(word: str) -> str:
    return word.casefold().removesuffix("'s").removesuffix("\u2019s")


def _worth(sentence: _Sentence, covered: set[str]) -> float:
    new = sentence.words - covered
    worth = len(new - sentence.names) + _NAMED * len(new & sentence.names)
    asked = sentence.text.endswith("?") or sentence.turn["role"] == "assistant"
    return worth * _ASKED if asked else worth
