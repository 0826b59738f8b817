"""Texts split by structure."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mindful.memory.split import Chunk, _characters, _pages, _Section, _segments, split
from support.hostile import texts
from unit.fakes import FakeDatabase

PYTHON = '''"""Animals."""


@property
class Dog:
    """A dog."""

    def bark(self) -> str:
        """Say something."""
        return "Wuff, wuff, wuff, and many more such words as dogs like to say"

    def sleep(self) -> str:
        """Say nothing."""
        return "zzz"


def main() -> None:
    """Run."""
    print(Dog().bark(), "and so on and so on, until the evening comes")
'''
C = """static int counter;

/* Adds one to the counter, and says how much it is now. */
int *increment(int by) { counter += by; return &counter; }

struct point { int x; int y; };

int main(void) { increment(1); increment(2); return *increment(3); }
"""
TYPESCRIPT = """interface Named { name: string; nickname: string; title: string }

class Greeter implements Named {
    greet(other: Named): string { return `Hello ${other.name}, how are you today?`; }
}

function main(): void { console.log("This is the end of the file, really."); }
"""


def words(text: str) -> int:
    return len(text.split())


def parts(text: str, source: str, size: int, overlap: int = 0, kind: str = "auto") -> list[Chunk]:
    return split(text, kind, source, words, size, overlap, FakeDatabase({}))


def headings(text: str, source: str, size: int, kind: str = "auto") -> list[str | None]:
    return list(dict.fromkeys(chunk.heading for chunk in parts(text, source, size, kind=kind)))


def test_sections_are_found_by_markdown_not_by_signs() -> None:
    text = "Before.\n\n# One #\n\nFirst.\n\n```sh\n# no heading\n```\n\n"
    text += "Two\n---\n\nSecond, with words.\n\n# Three\n\nThird.\n"
    found = parts(text, "a.md", 6)
    assert list(dict.fromkeys(chunk.heading for chunk in found)) == [None, "One", "One > Two", "Three"]
    assert [chunk.heading for chunk in found if "no heading" in chunk.content] == ["One"]
    assert [chunk.heading for chunk in found if "Second" in chunk.content] == ["One > Two"]


def test_an_overlap_does_not_move_a_chunk_into_the_section_before() -> None:
    text = "# One\n\n" + " ".join(["alpha."] * 9) + "\n\n# Two\n\n" + " ".join(["beta."] * 9)
    found = parts(text, "a.md", 12, overlap=4)
    assert [chunk.heading for chunk in found if "beta" in chunk.content] == ["Two"]


def test_code_is_split_at_its_definitions() -> None:
    assert headings(PYTHON, "animals.py", 12) == [None, "Dog", "Dog > bark", "Dog > sleep", "main"]
    assert headings(C, "count.c", 14) == [None, "increment", "point", "main"]
    assert headings(TYPESCRIPT, "greet.ts", 10) == ["Named", "Greeter", "Greeter > greet", "main"]


@pytest.mark.parametrize(
    ("source", "text", "heading"),
    [
        ("a.cpp", "class Shape { public: int area() { return 0; } };", "Shape"),
        ("a.go", "package p\nfunc Run() int { return 1 }", "Run"),
        ("a.java", "class Main { void run() { int a = 1; } }", "Main"),
        ("a.js", "function run() { return 1 }", "run"),
        ("a.php", "<?php function run() { return 1; }", "run"),
        ("a.rb", "def run\n  1\nend", "run"),
        ("a.rs", "fn run() -> i32 { 1 }", "run"),
        ("a.tsx", "function View() { return <b>x</b>; }", "View"),
        ("a.sh", "run() { echo 1; }", "run"),
        ("a.cs", "class Main { void Run() { } }", "Main"),
    ],
)
def test_every_grammar_works(source: str, text: str, heading: str | None) -> None:
    (chunk,) = parts(text, source, 50)
    assert (chunk.content, chunk.heading) == (text, heading)


def test_pages_are_headings_of_prose() -> None:
    found = parts("First page ends.\fSecond page begins.\fThird.", "a.pdf", 3)
    assert [(chunk.content, chunk.heading) for chunk in found] == [
        ("First page ends.", "Page 1"),
        ("Second page begins.", "Page 2"),
        ("Third.", "Page 3"),
    ]


def test_pages_without_end_are_not_all_named() -> None:
    assert [page.name for page in _pages("a\fb\f")] == ["Page 1", "Page 2", "Page 3"]
    assert len(list(_pages("a\f" * 60_000))) == 50_000


def test_the_kind_is_told_by_the_ending_or_given() -> None:
    text = "# Title\n\ntext"
    assert headings(text, "a.MD", 9) == ["Title"]
    assert headings(text, "a.txt", 9) == [None]
    assert headings(text, "a.txt", 9, "markdown") == ["Title"]
    assert headings(text, "a.md", 9, "prose") == [None]
    assert headings("def f(): pass", "a", 9, "code") == [None]


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet="aé漢🙂 .\n#`\f", min_size=1, max_size=300),
    st.sampled_from(["a.md", "a.txt", "a.py"]),
    st.integers(0, 8),
)
def test_places_are_characters_and_nothing_is_lost(text: str, source: str, overlap: int) -> None:
    found = split(text, "auto", source, len, 16, overlap, FakeDatabase({}))
    assert all(len(chunk.content) <= 16 for chunk in found)
    assert [text[chunk.start : chunk.end].replace("\f", "\n") for chunk in found] == [
        chunk.content for chunk in found
    ]
    held = set[int]().union(*(range(chunk.start, chunk.end) for chunk in found))
    assert [
        position for position in range(len(text)) if position not in held and text[position].strip()
    ] == []


def test_a_long_text_without_spaces_is_not_counted_again_and_again() -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return len(text)

    text = "x" * 20000
    found = split(text, "prose", "a", count, 200, 20, FakeDatabase({}))
    assert "".join(text[max(chunk.start, 0) : chunk.end] for chunk in found).startswith("xxx")
    assert found[-1].end == len(text)
    assert counted < 100 * len(text)


@given(st.lists(st.text(min_size=1), min_size=1).map("".join), st.integers(0, 5))
def test_a_position_in_bytes_is_one_in_characters(text: str, double: int) -> None:
    long = text * (8000 // len(text.encode()) if double % 2 else 1)
    position_of = _characters(long.encode())
    for at in {0, 1, len(long) // 2, len(long) - 1, len(long)}:
        assert position_of(len(long[:at].encode())) == len(long[:at])


def test_a_range_is_its_outermost_sections_with_those_within_and_the_gaps() -> None:
    sections = [_Section(*span, "") for span in ((10, 100), (10, 50), (20, 30), (60, 100), (120, 150))]
    assert list(_segments(0, 200, sections)) == [
        (0, 10, ()),
        (10, 100, sections[1:4]),
        (100, 120, ()),
        (120, 150, []),
        (150, 200, ()),
    ]
    assert list(_segments(10, 100, sections[:1])) == [(10, 100, [])]
    assert list(_segments(5, 5, [])) == []


class CancelledError(Exception):
    """What a check raises."""


class Watch(FakeDatabase):
    """Measures the processor time between two checks, of which one may be the last."""

    def __init__(self, last: int | None = None) -> None:
        super().__init__({})
        self.last, self.longest, self.since = last, 0.0, time.process_time()

    def look(self) -> None:
        """Note that somebody has looked."""
        now = time.process_time()
        self.longest, self.since = max(self.longest, now - self.since), now

    def check(self) -> None:
        super().check()
        self.look()
        if self.last is not None and self.checks > self.last:
            raise CancelledError

    def pending(self) -> bool:
        """Tell whether the next check raises."""
        self.look()
        return self.last is not None and self.checks >= self.last


@pytest.mark.parametrize("source", ["a.py", "a.md", "a.txt"])
def test_a_cancel_ends_a_split(source: str) -> None:
    with pytest.raises(CancelledError):
        split(PYTHON * 20, "auto", source, words, 6, 0, Watch(0))


def test_what_takes_too_long_to_parse_is_split_as_prose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mindful.memory.split._PARSE_S", 0)
    monkeypatch.setattr("mindful.memory.split._PARSE_BYTE_S", 0)
    assert headings(PYTHON * 50, "a.py", 12) == [None]


@pytest.mark.parametrize("source", ["a", "a.md", "a.py", "a.sh", "a.rb", "a.ts", "a.cpp", "a.go", "a.php"])
@pytest.mark.slow
def test_a_hostile_text_is_split_in_time_and_hears_a_cancel(source: str) -> None:
    for kind, text in texts(1 << 14).items():
        longest = float("inf")
        for _ in range(3):
            watch, started = Watch(), time.process_time()

            def count(part: str, watch: Watch = watch) -> int:
                watch.check()
                return len(part) // 4

            split(text, "auto", source, count, 240, 24, watch)
            watch.check()
            longest = min(longest, watch.longest)
            if longest < 0.1:
                break
        assert longest < 0.1, kind
        assert time.process_time() - started < 2, kind
