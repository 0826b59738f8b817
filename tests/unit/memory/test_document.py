"""Documents: their arguments, their chunks' keys and places."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from mindful.core.errors import ContextLengthError, InvalidParameterError, MindfulError, NullValueError
from mindful.core.ports import Row
from mindful.memory import document
from unit.fakes import Answer, FakeDatabase, scripted, wrapped

TEXT = " ".join(f"Sentence {at} says something." for at in range(40))


class Documents(FakeDatabase):
    """Keeps what is written."""

    def __init__(self, context_length: int | None = 66) -> None:
        self.written: list[Any] = []
        embedder = [] if context_length is None else [{"name": "embedder", "context_length": context_length}]
        answers: dict[str, Answer] = {
            "_mindful.document_source": [{}],
            "join mindful.model m on m.name = f.name": embedder,
            "_mindful.document_write": self.write,
        }
        super().__init__(answers | scripted({"dims": 8}))

    def write(self, *arguments: Any) -> Sequence[Row]:
        """Keep it."""
        self.written.append(arguments)
        return [{"chunks": len(arguments[3])}]

    def insert(self, content: str | None, source: str | None = "a.txt", **changed: Any) -> Row:
        """Insert a document."""
        arguments = {"title": None, "format": "prose", "metadata": None, "max_tokens": None, "overlap": None}
        found: Row = wrapped(document.document_insert)(self, content, source, *(arguments | changed).values())
        return found

    @property
    def chunks(self) -> list[str]:
        """The chunks that were written."""
        texts: list[str] = self.written[-1][4]
        return texts

    @property
    def places(self) -> list[dict[str, Any]]:
        """Where they stand."""
        return [json.loads(place) for place in self.written[-1][5]]


def test_chunks_know_their_places() -> None:
    db = Documents()
    db.insert(TEXT, title="A title", metadata='{"a": 1}', max_tokens=20, overlap=0)
    source, title, metadata, keys, chunks, _ = db.written[0]
    assert (source, title, metadata) == ("a.txt", "A title", '{"a": 1}')
    assert keys == [hashlib.md5(chunk.encode(), usedforsecurity=False).hexdigest() for chunk in chunks]
    assert len(set(keys)) == len(chunks) > 5
    assert [place["chunk"] for place in db.places] == list(range(1, len(chunks) + 1))
    assert {place["chunks"] for place in db.places} == {len(chunks)}
    assert all(
        TEXT[place["start"] : place["end"]].strip() == chunk.strip()
        for place, chunk in zip(db.places, chunks, strict=True)
    )
    assert all("heading" not in place for place in db.places)
    assert db.checks > 0


def test_headings_are_kept() -> None:
    db = Documents()
    db.insert("# One\n\nText.\n\n# Two\n\nMore.", format="markdown")
    assert {place.get("heading") for place in db.places} <= {"One", "Two", None}
    assert any(place.get("heading") for place in db.places)


@pytest.mark.parametrize(("context", "longest"), [(66, 64), (30, 28), (10_000, 240)])
def test_a_chunk_is_as_long_as_the_embedder_reads_and_not_longer_than_is_found(
    context: int, longest: int
) -> None:
    db = Documents(context)
    db.insert(TEXT * 20, overlap=0)
    sizes = [len(chunk.split()) for chunk in db.chunks]
    assert max(sizes) <= longest
    assert max(sizes) > longest * 0.8


def test_a_tenth_is_shared_by_neighbors() -> None:
    def shared(overlap: int | None) -> float:
        db = Documents(102)
        db.insert(TEXT * 10, max_tokens=100, overlap=overlap)
        return sum(len(chunk.split()) for chunk in db.chunks) / len((TEXT * 10).split()) - 1

    assert shared(0) == pytest.approx(0, abs=0.001)
    assert shared(None) == shared(10)
    assert shared(50) > shared(10) > 0.04


def test_without_an_embedder_words_are_counted() -> None:
    db = Documents(None)
    db.insert("One, two. " * 200, max_tokens=16, overlap=0)
    assert max(document._words(chunk) for chunk in db.chunks) <= 16
    assert document._words("One, two-three.") == 6


def test_the_same_chunk_again_has_a_key_of_its_own() -> None:
    db = Documents()
    db.insert(
        "\n\n".join(["The very same words stand here over and over again, sixteen of them in all now."] * 3)
    )
    db.insert("# A\n\nSame.\n\n# B\n\nSame.\n\n# C\n\nSame.", format="markdown", max_tokens=16, overlap=0)
    keys, chunks = db.written[-1][3:5]
    for text in set(chunks):
        own = [key for key, chunk in zip(keys, chunks, strict=True) if chunk == text]
        assert own == [own[0], *(f"{own[0]}-{at}" for at in range(2, len(own) + 1))]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"content": None}, NullValueError),
        ({"source": None}, NullValueError),
        ({"content": " \n"}, InvalidParameterError),
        ({"content": "\u00fc" * ((1 << 23) + 1)}, ContextLengthError),
        ({"format": "word"}, InvalidParameterError),
        ({"format": None}, InvalidParameterError),
        ({"max_tokens": 15}, InvalidParameterError),
        ({"max_tokens": 65}, InvalidParameterError),
        ({"overlap": -1}, InvalidParameterError),
        ({"max_tokens": 20, "overlap": 11}, InvalidParameterError),
    ],
)
def test_bad_arguments_write_nothing(changed: dict[str, Any], error: type[MindfulError]) -> None:
    db = Documents()
    with pytest.raises(error):
        db.insert(**{"content": TEXT} | changed)
    assert db.written == []


@pytest.mark.parametrize(
    "changed", [{"max_tokens": 16}, {"max_tokens": 64}, {"max_tokens": 20, "overlap": 10}]
)
def test_bounds_are_allowed(changed: dict[str, Any]) -> None:
    assert Documents().insert(TEXT, **changed)["chunks"] > 1


def parts(*contents: str | None) -> list[dict[str, Any]]:
    """The parts of rows' texts, for an embedder that reads 64 words."""
    found: list[dict[str, Any]] = wrapped(document.row_parts)(Documents(), contents)
    return found


@pytest.mark.parametrize("other", ["b", "x" * 100_000, " ".join(["a"] * 64)])
def test_a_row_that_the_embedder_reads_whole_has_one_part(other: str) -> None:
    assert parts("a", None, " \n", other) == [
        {"number": 1, "part": 1, "parts": 1, "content": "a"},
        {"number": 4, "part": 1, "parts": 1, "content": other},
    ]
    assert parts() == parts(None) == []


def test_a_longer_row_is_split_and_others_are_not() -> None:
    said = [f"word{at}" for at in range(1000)]
    first, *split, last = parts("short", " ".join(said), "brief")
    assert (first["number"], first["parts"], last["number"], last["parts"]) == (1, 1, 3, 1)
    assert [row["part"] for row in split] == list(range(1, len(split) + 1))
    assert {(row["number"], row["parts"]) for row in split} == {(2, len(split))}
    assert all(len(row["content"].split()) <= 64 for row in split)
    assert [word for word in said if any(word in row["content"].split() for row in split)] == said
    assert sum(len(row["content"].split()) for row in split) > 1000  # neighbors share words
