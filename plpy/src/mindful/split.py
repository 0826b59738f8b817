"""Texts split by their structure: sections of Markdown, definitions of code, paragraphs and sentences of prose."""

from __future__ import annotations

import importlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice, takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node

FORMATS = ("auto", "prose", "markdown", "code")
_MARKDOWN = (".md", ".markdown", ".mdx")
_GRAMMARS: dict[str, tuple[str, ...]] = {
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"),
    "c_sharp": (".cs",),
    "bash": (".sh", ".bash"),
    "go": (".go",),
    "java": (".java",),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "php": (".php",),
    "python": (".py", ".pyi"),
    "ruby": (".rb",),
    "rust": (".rs",),
    "typescript": (".ts", ".mts", ".cts"),
    "tsx": (".tsx",),
}
_LANGUAGE_OF = {ending: name for name, endings in _GRAMMARS.items() for ending in endings}
_NAMED = re.compile(r"definition\.(class|function|interface|method|module|type)$")
_PAGE = "\f"
_PARSED = 1 << 20
"""Characters of a text that the splitter may parse: it does so in one go, for some 0.3 s, and hears no cancel."""
_PIECE = 1 << 12
"""Bytes that a parser reads at once: a millisecond's work."""


@dataclass(frozen=True)
class Chunk:
    """A part of a text: the characters at start <= position < end."""

    content: str
    heading: str | None
    start: int
    end: int


@dataclass(frozen=True)
class _Section:
    """A part of a text that has a name; sections lie within one another, or apart."""

    start: int
    end: int
    name: str


def split(
    text: str,
    kind: str,
    source: str,
    count: Callable[[str], int],
    max_tokens: int,
    overlap: int,
    pending: Callable[[], bool] = lambda: False,
) -> list[Chunk]:
    """Split a text at the highest boundaries of its structure that keep each part within max_tokens.

    Neighbours share at most `overlap` tokens. The kind auto is found by the ending of the source's name, as is the
    language of code; code in a language without a grammar, and any text of more than a million characters, is split
    at its blank lines and lines. Where pending tells of a cancel, headings may be missing: nobody waits for them.
    """
    language = _language(kind, source)
    size = _bounded(count, max_tokens)
    splitter = _splitter(language if len(text) <= _PARSED else None, size, max_tokens, overlap)
    parts = splitter.chunk_indices(text)
    return list(_headed(text, parts, _sections(text, language, pending)))


def _language(kind: str, source: str) -> str | None:
    ending = PurePath(source).suffix.lower()
    if kind == "markdown" or (kind == "auto" and ending in _MARKDOWN):
        return "markdown"
    return _LANGUAGE_OF.get(ending) if kind in ("auto", "code") else None


def _bounded(count: Callable[[str], int], max_tokens: int) -> Callable[[str], int]:
    """Count a text only until it is known to be too long: tokenizers are slow with what has no spaces."""
    longest = max_tokens * 16

    def size(text: str) -> int:
        tokens = count(text[:longest])
        return tokens if tokens > max_tokens or len(text) <= longest else count(text)

    return size


def _splitter(language: str | None, size: Callable[[str], int], max_tokens: int, overlap: int) -> Any:
    from semantic_text_splitter import CodeSplitter, MarkdownSplitter, TextSplitter

    if language == "markdown":
        return MarkdownSplitter.from_callback(size, max_tokens, overlap)
    if language is None:
        return TextSplitter.from_callback(size, max_tokens, overlap)
    return CodeSplitter.from_callback(_grammar(language)[0], size, max_tokens, overlap)


@cache
def _grammar(language: str) -> tuple[Any, str]:
    """Return a tree-sitter language, and the query that finds its definitions."""
    module = importlib.import_module(f"tree_sitter_{'typescript' if language == 'tsx' else language}")
    name = {"typescript": "language_typescript", "tsx": "language_tsx", "php": "language_php"}.get(language)
    tags = getattr(module, "TAGS_QUERY", None) or ""
    if language in ("typescript", "tsx"):  # whose own query has only what JavaScript lacks
        tags += _grammar("javascript")[1]
    return getattr(module, name or "language")(), tags


def _sections(text: str, language: str | None, pending: Callable[[], bool]) -> list[_Section]:
    """Find the named parts of a text, in the order of their beginnings, the outer before the inner."""
    if language is None:
        return list(_pages(text))
    from tree_sitter import Language, Parser

    grammar, tags = _grammar(language)
    encoded = text.encode()

    def read(start: int, _: object) -> bytes:
        return b"" if pending() else encoded[start : start + _PIECE]

    root = Parser(Language(grammar)).parse(read).root_node
    found = _outline(root, pending) if language == "markdown" else _definitions(root, grammar, tags, pending)
    character = _characters(encoded)
    return [
        _Section(character(start), character(end), name)
        for start, end, name in sorted(found, key=lambda part: (part[0], -part[1]))
    ]


def _pages(text: str) -> Iterator[_Section]:
    """Find pages, which form feeds part, as in what is drawn from a PDF."""
    start = 0
    if _PAGE in text:
        for number, page in enumerate(text.split(_PAGE), start=1):
            yield _Section(start, start + len(page) + 1, f"Page {number}")
            start += len(page) + 1


def _headings(node: Node) -> Iterator[Node]:
    for child in node.children:
        if child.type == "section":
            yield from _headings(child)
        elif child.type in ("atx_heading", "setext_heading"):
            yield child


def _outline(root: Node, pending: Callable[[], bool]) -> list[tuple[int, int, str]]:
    """Find what is below each heading of Markdown: all until the next one of its level or above."""
    open_headings: list[tuple[int, int, str]] = []
    found = []
    for heading in takewhile(lambda _: not pending(), _headings(root)):
        level = next(int(digit) for child in heading.children for digit in re.findall(r"_h(\d)_", child.type))
        while open_headings and open_headings[-1][0] >= level:
            _, start, name = open_headings.pop()
            found.append((start, heading.start_byte, name))
        content = heading.child_by_field_name("heading_content")
        open_headings.append((level, heading.start_byte, _name(content) if content is not None else ""))
    return found + [(start, root.end_byte, name) for _, start, name in open_headings]


def _definitions(
    root: Node, grammar: Any, tags: str, pending: Callable[[], bool]
) -> Iterator[tuple[int, int, str]]:
    """Find the definitions of code by its grammar's own query for them."""
    from tree_sitter import Language, Query, QueryCursor

    if not tags:
        return
    cursor = QueryCursor(Query(Language(grammar), tags))
    children = takewhile(lambda _: not pending(), root.children)
    for _, captures in chain.from_iterable(map(cursor.matches, children)):
        node = next((nodes[0] for kind, nodes in captures.items() if _NAMED.match(kind)), None)
        if node is None or "name" not in captures:
            continue
        while node.parent is not None and node.parent.type.endswith("_definition"):
            node = node.parent  # a decorator's, or that of the body which a C declarator lacks
        yield node.start_byte, node.end_byte, _name(captures["name"][0])


def _name(node: Node) -> str:
    return " ".join((node.text or b"").decode(errors="replace").split()).strip("# ")


def _characters(encoded: bytes) -> Callable[[int], int]:
    """Return what turns a position in bytes into one in characters."""
    if encoded.isascii():
        return lambda position: position
    step = 1 << 12
    before = [0]
    for start in range(0, len(encoded), step):
        before.append(before[-1] + _begun(encoded[start : start + step]))
    return lambda position: before[position // step] + _begun(encoded[position - position % step : position])


def _begun(encoded: bytes) -> int:
    """Count the characters of UTF-8 that begin in some bytes."""
    return sum(byte & 0xC0 != 0x80 for byte in encoded)


def _headed(text: str, parts: list[tuple[int, str]], sections: list[_Section]) -> Iterator[Chunk]:
    """Give each part the path of the section that its first new words are in, else the first that it holds."""
    coming, path, known = deque(sections), list[_Section](), 0
    for start, content in parts:
        end = start + len(content)
        new = text[max(start, known) : end]  # what is before that was in the part before
        at, known = end - len(new.lstrip()), end
        while coming and coming[0].start <= at:
            path = [*_around(path, coming[0].start), coming.popleft()]
        path = _around(path, at)
        shown = path or [section for section in islice(coming, 1) if section.start < end]
        heading = " > ".join(section.name for section in shown if section.name)
        yield Chunk(content.replace(_PAGE, "\n"), heading or None, start, end)


def _around(sections: list[_Section], position: int) -> list[_Section]:
    return [section for section in sections if section.start <= position < section.end]
