"""Regular expressions, and what reads texts by them, take time in proportion to the text."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mindful
import pytest
from mindful.confidence.signal import conveyed, free, grounding
from mindful.conversation.assistant import requested
from mindful.conversation.clarification import named, of_names
from mindful.conversation.recap import extract, unsupported
from mindful.core import pattern
from mindful.core.text import pieces, strip_accents, words
from mindful.learning.consolidation import _Sentences
from mindful.learning.extraction import rule
from mindful.learning.extraction.sentence import normal, sentences
from support.clock import TRIES
from support.hostile import texts
from support.pumped import pumped

SOURCE = Path(mindful.__file__).parent
SMALL, LARGE = 1 << 11, 1 << 14
SLACK = 3
"""How much more than in proportion a text may cost: what is outside of the loop, and other processes."""
NOISE_MS = 5
"""Below, ratios say nothing."""
HEARD_MS = 100
"""The longest that nothing may look for a cancel."""
SHORT_MS = HEARD_MS / 5
"""The longest that a pattern may take for a short text, on slow machines too."""


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


MODULES = {
    ".".join(("mindful", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
NEEDS_LLAMA = "mindful.models.providers.llama"
for name, source in MODULES.items():
    if "mindful.core.pattern" in imports(source) and not name.startswith(NEEDS_LLAMA):
        importlib.import_module(name)


@pytest.mark.parametrize("made", [*pattern.LINEAR, *pattern.SHORT], ids=lambda made: made.pattern[:30])
def test_a_capital_is_told_as_one_of_any_alphabet(made: pattern.Linear | pattern.Short) -> None:
    """What is no lower-case letter of ASCII may be a lower-case one of others, and [A-Z] leaves theirs out of names."""
    assert "[^\\W\\d_a-z]" not in made.pattern
    assert not re.search(r"\[A-Z\](?:\\w|\[\\w|\[\^\\W)", made.pattern)
    assert pattern.CAPITAL not in made.pattern or not flags(made) & pattern.IGNORECASE


def flags(made: pattern.Linear | pattern.Short) -> int:
    return (made._pattern if isinstance(made, pattern.Short) else made).flags & ~re.UNICODE


def milliseconds(call: Callable[[], object], enough: float = NOISE_MS) -> float:
    """Return the processor time of a call: the best of several, the last of which takes no more than `enough`."""
    gc.freeze()  # a collection would walk what thousands of other tests left
    best = float("inf")
    for _ in range(TRIES):
        started = time.process_time()
        call()
        best = min(best, (time.process_time() - started) * 1000)
        if best <= max(enough, NOISE_MS) or best >= 500:
            break
    return best


def is_linear(
    call: Callable[[str], object], made: Callable[[int], Mapping[str, str]] = texts
) -> Iterator[str]:
    """Name the hostile texts, made for a size, on which a call takes more than in proportion to the text."""
    less = made(SMALL)
    for kind, text in made(LARGE).items():
        spent = milliseconds(lambda text=text: call(text), 500)  # type: ignore[misc]
        if spent > NOISE_MS:
            small = less[kind]
            least = max(milliseconds(lambda small=small: call(small)), NOISE_MS / 32)  # type: ignore[misc]
            most = SLACK * LARGE / SMALL * least
            if spent > most:
                spent = milliseconds(lambda text=text: call(text), most)  # type: ignore[misc]
            if spent > most:
                yield f"{kind}: {least:.1f} ms for {SMALL} bytes, {spent:.0f} ms for {LARGE}"


def test_no_module_but_one_imports_regular_expressions() -> None:
    users = [name for name, path in MODULES.items() if {"re", "regex", "re2", "fnmatch"} & set(imports(path))]
    assert users == [pattern.__name__]


def test_a_pattern_is_compiled_at_its_first_use_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, int]] = []
    compile_ = re.compile

    def compiling(source: str, flags: int) -> re.Pattern[str]:
        compiled.append((source, flags))
        return compile_(source, flags)

    monkeypatch.setattr(pattern, "LINEAR", [])
    monkeypatch.setattr(pattern, "SHORT", [])
    monkeypatch.setattr(re, "compile", compiling)
    whole, short = pattern.linear("a+", pattern.IGNORECASE), pattern.Short("b", 3)
    assert (compiled, whole.pattern, whole.flags) == ([], "a+", pattern.IGNORECASE)
    assert whole.findall("aAba") == ["aA", "a"]
    assert (whole.split("xay"), whole.sub("-", "xAy"), bool(whole.search("b"))) == (["x", "y"], "x-y", False)
    assert compiled == [("a+", pattern.IGNORECASE)]
    assert (bool(short.search("aab")), short.split("abab")) == (True, ["abab"])
    assert compiled == [("a+", pattern.IGNORECASE), ("b", 0)]


def test_every_pattern_can_be_compiled() -> None:
    patterns: list[pattern.Linear | pattern.Short] = [*pattern.LINEAR, *pattern.SHORT]
    for made in patterns:
        assert made.fullmatch("\0") is None or made.search("\0")


@pytest.mark.parametrize("made", pattern.LINEAR, ids=lambda made: str(made.pattern)[:40])
@pytest.mark.slow
def test_a_pattern_takes_time_in_proportion_to_the_text(made: pattern.Linear) -> None:
    assert list(is_linear(lambda text: sum(1 for _ in made.finditer(text)))) == []


@pytest.mark.parametrize("made", pattern.SHORT, ids=lambda made: made.pattern[:40])
@pytest.mark.slow
def test_a_pattern_for_short_texts_reads_no_longer_ones(made: pattern.Short) -> None:
    for text in texts(made.longest).values():
        spent = milliseconds(lambda text=text: (made.match(text), list(made.finditer(text))), SHORT_MS)  # type: ignore[misc]
        assert spent < SHORT_MS
    for text in texts(LARGE).values():
        assert made.search(text) is made.match(text) is made.fullmatch(text) is None
        assert (list(made.finditer(text)), made.split(text), made.sub("", text)) == ([], [text], text)


class TooLongError(Exception):
    """A pattern is still at a text."""


def read(made: pattern.Linear | pattern.Short, text: str, seconds: float = 2) -> None:
    """Find all matches, and raise TooLongError in the end. A time that doubles with each letter would never end."""

    def ring(_number: int, _frame: object) -> None:
        raise TooLongError(f"{made.pattern[:60]} is still at {text[:60]!r} of {len(text)} characters")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        made.match(text), sum(1 for _ in made.finditer(text))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("made", pattern.SHORT, ids=lambda made: made.pattern[:40])
def test_no_repeat_makes_a_pattern_for_short_texts_slow(made: pattern.Short) -> None:
    for text in pumped(made.pattern, flags(made), made.longest):
        assert milliseconds(lambda text=text: read(made, text), SHORT_MS) <= SHORT_MS  # type: ignore[misc]


@pytest.mark.parametrize("made", pattern.LINEAR, ids=lambda made: str(made.pattern)[:40])
@pytest.mark.slow
def test_no_repeat_takes_more_than_in_proportion(made: pattern.Linear) -> None:
    def repeats(size: int) -> Mapping[str, str]:
        return {str(at): text for at, text in enumerate(pumped(made.pattern, flags(made), size))}

    assert list(is_linear(lambda text: read(made, text), repeats)) == []


@pytest.mark.parametrize(
    "source",
    ["(a+)+$", "^no, it is(?: ?[^ ?]+[^ ?]*){0,6}$", r"(?:x|y*z)(?:\d+|\d\d)*!", "(?=b(?:[^c]+)+c)b"],
)
def test_a_pattern_whose_time_doubles_with_each_letter_is_found(source: str) -> None:
    made = pattern.Short(source, 40)
    pattern.SHORT.remove(made)

    def read_all() -> None:
        for text in pumped(source, 0, 40):
            read(made, text, 0.2)

    with pytest.raises(TooLongError):
        read_all()


class Counter:
    """A generator that counts words."""

    def count(self, text: str) -> int:
        return len(text.split())


TURNS = {"id": 1, "role": "user"}
READERS: dict[str, Callable[[str], object]] = {
    "statements": lambda text: list(rule.statements(text, "The user", None)),
    "statements of documents": lambda text: list(rule.statements(text, None, None)),
    "sentences": lambda text: list(sentences(text, lambda: None)),
    "normal": normal,
    "said": lambda text: _Sentences().add(normal(text), 1),
    "requested": requested,
    "named": lambda text: named(text, "Anna Maria Smith"),
    "names in question": lambda text: of_names(text, ["Anna Smith and Anna Miller"]),
    "names in memory": lambda text: of_names("Who is Anna?", [text, text]),
    "extract": lambda text: extract([TURNS | {"content": text}], Counter()),  # type: ignore[arg-type]
    "unsupported": lambda text: unsupported(text[:1000], [text]),
    "words": words,
    "free": lambda text: free({}, text, text),
    "grounding": lambda text: grounding(text, text, [text]),
    "conveyed": lambda text: conveyed(text, text, [text]),
    "pieces": lambda text: list(pieces(text)),
    "strip_accents": strip_accents,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.slow
def test_a_reader_takes_time_in_proportion_to_the_text(reader: str) -> None:
    assert list(is_linear(READERS[reader])) == []


@pytest.mark.parametrize("kind", texts(16))
@pytest.mark.slow
def test_drawing_facts_looks_for_a_cancel_in_time(kind: str) -> None:
    gc.freeze()  # a collection would walk what thousands of other tests left
    gaps, last, text = [0.0], [0.0], texts(1 << 18)[kind]

    def check() -> None:
        gaps.append(time.process_time() - last[0])
        last[0] = time.process_time()

    for _ in range(TRIES):  # other processes on the same core make it slower
        last[0] = time.process_time()
        gaps[:] = [0.0]
        list(rule.statements(text, "The user", None, check))
        check()
        if max(gaps) * 1000 < HEARD_MS:
            break
    assert max(gaps) * 1000 < HEARD_MS


def test_pieces_are_the_text_and_begin_with_a_blank_where_there_is_one() -> None:
    text = "word " * 5000 + "x" * 20_000
    parts = list(pieces(text, 1000))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 1000
    assert all(part.startswith(" word") for part in parts[1:20])


def test_facts_of_later_paragraphs_are_quoted_as_they_stand() -> None:
    text = "I live in Porto.\n\nI work at Acme.\n\n\nMy dog is called Rex."
    found = [(one.relation, one.object, one.quote) for one in rule.statements(text, "The user", None)]
    assert found == [
        ("lives_in", "Porto", "I live in Porto"),
        ("works_at", "Acme", "I work at Acme"),
        ("name", "Rex", "My dog is called Rex"),
    ]
