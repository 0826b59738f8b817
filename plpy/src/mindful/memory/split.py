"""Texts split by their structure: sections of Markdown, definitions of code, paragraphs and sentences of prose."""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from mindful.core.extra import extra
from mindful.core.pattern import linear
from mindful.core.ports import Interrupts

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
_DEFINES = linear(
    r"(?:class|function|method|module|interface|struct|enum|trait|type|type_alias|constructor|namespace|record|union)"
    r"(?:_definition|_declaration|_item|_specifier|_spec|_signature)?$|singleton_method$"
)
"""Types of nodes that define something, in the grammars of all languages."""
_LEVEL = linear(r"_h(\d)_")
_PAGE = "\f"
_MOST_PAGES = 50_000
"""Pages of a text that are named. A hostile text of form feeds has millions: seconds without a check, and gigabytes."""
_PIECE = 1 << 12
"""Bytes that a parser reads in one step, which takes about 1 ms."""
_BLOCK = 1 << 16
"""Characters that the splitter gets in one call: it looks for a cancel only when it counts tokens."""
_DEEPEST = 32
"""Nesting of definitions and headings. Deeper ones, in generated or hostile texts, are ignored."""
_LONGEST_NAME = 200
"""Bytes of the heading of a chunk."""
_NODES = 256
"""Nodes of a tree between two checks for a cancel."""
_PARSE_S, _PARSE_BYTE_S, _LONGEST_PARSE_S = 0.1, 1e-5, 0.8
"""Largest processor time of a parse: per text, per byte, and in all. It is twenty times the usual time for code.

A cancel ends a parse. A command that waits for all backends, such as DROP DATABASE, waits until the parse ends."""


class Chunk(NamedTuple):
    """A part of a text: the characters at start <= position < end."""

    content: str
    heading: str | None
    start: int
    end: int


class _Section(NamedTuple):
    """A part of a text that has a name. Two sections are nested or disjoint."""

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
    interrupts: Interrupts,
) -> list[Chunk]:
    """Split a text at the highest boundaries of its structure that keep each part within max_tokens.

    Sections and definitions stay whole if they fit. Neighbors that fit together become one part. Longer ones are split
    at blank lines, lines and sentences, and the parts share at most `overlap` tokens. The suffix of the source decides
    the kind `auto` and the language of code. Code in a language without a grammar is split as prose.
    """
    language = _language(kind, source)
    size = _bounded(count, max_tokens)
    sections = _sections(text, language, interrupts)
    parts = list(_Splitter(text, size, max_tokens, overlap, interrupts).parts(sections, language is None))
    return list(_headed(text, parts, sections))


class _Splitter:
    """Splits one text."""

    def __init__(
        self, text: str, size: Callable[[str], int], max_tokens: int, overlap: int, interrupts: Interrupts
    ) -> None:
        with extra("documents"):
            from semantic_text_splitter import TextSplitter

        self._text, self._size, self._most, self._interrupts = text, size, max_tokens, interrupts
        self._prose = TextSplitter.from_callback(size, max_tokens, overlap)

    def parts(self, sections: Sequence[_Section], is_prose: bool) -> Iterator[tuple[int, str]]:
        """Yield the position and the text of each part."""
        if is_prose:
            yield from self._of_prose(0, len(self._text))
        else:
            yield from self._of(0, len(self._text), sections)

    def _of(self, start: int, end: int, sections: Sequence[_Section]) -> Iterator[tuple[int, str]]:
        """Split a range at its outermost sections, and join neighbors that fit together."""
        begin, room = start, self._most
        for first, last, inner in _segments(start, end, sections):
            self._interrupts.check()
            tokens = self._size(self._text[first:last])
            if tokens > room:
                yield from self._whole(begin, first)
                begin, room = first, self._most
            if tokens > self._most:
                yield from self._of(first, last, inner) if inner else self._of_prose(first, last)
                begin = last
            else:
                room -= tokens
        yield from self._whole(begin, end)

    def _whole(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        part = self._text[start:end].strip()
        if not part:
            return
        if self._size(part) > self._most:  # Joined parts can have one token more than their sum.
            yield from self._of_prose(start, end)
        else:
            yield self._text.index(part[0], start), part

    def _of_prose(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        while start < end:
            last = self._cut(start, end)
            self._interrupts.check()
            for offset, part in self._prose.chunk_indices(self._text[start:last]):
                yield start + offset, part
            start = last

    def _cut(self, start: int, end: int) -> int:
        """Return the end of a block: after a paragraph, a line or a word, in the second half of the block."""
        limit = start + _BLOCK
        if end <= limit:
            return end
        found = (self._text.rfind(mark, start + _BLOCK // 2, limit) for mark in ("\n\n", "\n", " "))
        return next((at + 1 for at in found if at >= 0), limit)


def _segments(
    start: int, end: int, sections: Sequence[_Section]
) -> Iterator[tuple[int, int, Sequence[_Section]]]:
    """Cut a range into its outermost sections, with their inner sections, and the gaps between them."""
    at = 0
    while at < len(sections):
        section, inner = sections[at], at + 1
        while inner < len(sections) and sections[inner].start < section.end:
            inner += 1
        if start < section.start:
            yield start, section.start, ()
        yield section.start, section.end, sections[at + 1 : inner]
        start, at = section.end, inner
    if start < end:
        yield start, end, ()


def _language(kind: str, source: str) -> str | None:
    ending = PurePath(source).suffix.lower()
    if kind == "markdown" or (kind == "auto" and ending in _MARKDOWN):
        return "markdown"
    return _LANGUAGE_OF.get(ending) if kind in ("auto", "code") else None


def _bounded(count: Callable[[str], int], max_tokens: int) -> Callable[[str], int]:
    """Count the beginning of a long text first: tokenizers are slow with texts that have no spaces."""
    longest = max_tokens * 16

    def size(text: str) -> int:
        tokens = count(text[:longest])
        return tokens if tokens > max_tokens or len(text) <= longest else count(text)

    return size


@cache
def _grammar(language: str) -> Any:
    """Return a tree-sitter language."""
    with extra("documents"):
        module = importlib.import_module(f"tree_sitter_{'typescript' if language == 'tsx' else language}")
    name = {"typescript": "language_typescript", "tsx": "language_tsx", "php": "language_php"}.get(language)
    return getattr(module, name or "language")()


def _sections(text: str, language: str | None, interrupts: Interrupts) -> list[_Section]:
    """Find the sections of a text, by position, outer before inner."""
    if language is None:
        return list(_pages(text))
    encoded = text.encode()
    root = _parsed(encoded, language, interrupts)
    if root is None:
        return []
    found = _outline(root, interrupts) if language == "markdown" else _definitions(root, interrupts)
    character = _characters(encoded)
    sections = [
        _Section(character(start), character(end), name)
        for start, end, name in sorted(found, key=lambda part: part[0])
        if start < end
    ]
    return list(_nested(sections))


def _nested(sections: Iterable[_Section]) -> Iterator[_Section]:
    """Leave out sections that are nested too deep, or that overlap an earlier one."""
    path: list[_Section] = []
    for section in sections:
        while path and path[-1].end <= section.start:
            path.pop()
        if len(path) < _DEEPEST and (not path or section.end <= path[-1].end):
            path.append(section)
            yield section


def _parsed(encoded: bytes, language: str, interrupts: Interrupts) -> Node | None:
    """Parse a text. Return None if that takes much longer than usual."""
    with extra("documents"):
        from tree_sitter import Language, Parser

    longest = time.process_time() + min(_PARSE_S + _PARSE_BYTE_S * len(encoded), _LONGEST_PARSE_S)

    def is_over(*_: object) -> bool:
        return interrupts.pending() or time.process_time() > longest

    def read(start: int, _: object) -> bytes:
        return encoded[start : start + _PIECE]

    try:
        root = Parser(Language(_grammar(language))).parse(read, progress_callback=is_over).root_node
    except ValueError:  # The parse was stopped.
        root = None
    interrupts.check()
    return root


def _pages(text: str) -> Iterator[_Section]:
    """Find pages. Form feeds separate them, as in text extracted from a PDF."""
    start = 0
    if _PAGE in text:
        for number in range(1, _MOST_PAGES + 1):
            end = text.find(_PAGE, start)
            end = (len(text) if end < 0 else end) + 1
            yield _Section(start, end, f"Page {number}")
            if end > len(text):
                break
            start = end


def _walk(root: Node, into: Callable[[Node], bool], interrupts: Interrupts) -> Iterator[Node]:
    """Yield the nodes of a tree in order, and the nodes inside those for which `into` is true."""
    cursor, depth, seen = root.walk(), 0, 0
    if not cursor.goto_first_child():
        return
    while True:
        seen += 1
        if seen % _NODES == 0:
            interrupts.check()
        node = cursor.node
        assert node is not None
        yield node
        if depth < 2 * _DEEPEST and into(node) and cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if depth == 0:
                return
            cursor.goto_parent()
            depth -= 1


def _outline(root: Node, interrupts: Interrupts) -> list[tuple[int, int, str]]:
    """Find the section of each Markdown heading, up to the next heading of its level or above."""
    open_headings: list[tuple[int, int, str]] = []
    found = []
    for heading in _walk(root, lambda node: node.type == "section", interrupts):
        if heading.type not in ("atx_heading", "setext_heading"):
            continue
        level = next(int(digit) for child in heading.children for digit in _LEVEL.findall(child.type))
        while open_headings and open_headings[-1][0] >= level:
            _, start, name = open_headings.pop()
            found.append((start, heading.start_byte, name))
        content = heading.child_by_field_name("heading_content")
        open_headings.append((level, heading.start_byte, _name(content) if content is not None else ""))
    return found + [(start, root.end_byte, name) for _, start, name in open_headings]


def _definitions(root: Node, interrupts: Interrupts) -> Iterator[tuple[int, int, str]]:
    """Find the definitions of code that have a name and a body."""
    decorated = None
    for node in _walk(root, lambda _: True, interrupts):
        if node.type == "decorated_definition":
            decorated = node
        if not _DEFINES.match(node.type) or node.child_by_field_name("body") is None:
            continue
        named = node.child_by_field_name("name") or _declared(node)
        if named is not None:
            start, decorated = (decorated or node).start_byte, None
            yield start, node.end_byte, _name(named)


def _declared(node: Node) -> Node | None:
    """Find the name within a declarator, as C writes it: of `int *f(int a)`, f."""
    for _ in range(_DEEPEST):
        inner = node.child_by_field_name("declarator")
        if inner is None:
            return node if node.type.endswith("identifier") else None
        node = inner
    return None


def _name(node: Node) -> str:
    return " ".join((node.text or b"")[:_LONGEST_NAME].decode(errors="replace").split()).strip("# ")


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
