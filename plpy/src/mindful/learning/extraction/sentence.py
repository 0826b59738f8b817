"""Positions of the sentences and clauses in a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from mindful.core.extra import extra
from mindful.core.pattern import IGNORECASE, MULTILINE, linear

TEMPLATE = linear(
    r"<\|[^|>]{1,40}\|>|\[/?INST\]|<</?SYS>>|</?s>|\{\{|\}\}|\{(?:memories|message|context|question)\}"
    r"|^[^\S\n]*+(?:#{2,} )?(?:Instruction|Response|Input|System|Assistant|User|Human|Context|Question|Answer)\s*:",
    MULTILINE,
)
"""Marks of prompt templates. A text with one is no user's statement."""

# Each character is replaced by one character, so positions do not change.
_PLAIN = str.maketrans({"\u2019": "'", "\u2018": "'", "`": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " "})

_OPENER = linear(
    r"[^\w\"']*(?:(?:yeah|yes|yep|yup|no|nope|oh|ah|aw+|wow|hey|hi|hello|well|so|and|but|also|plus|then|now|ok|okay|sure|haha|lol|hmm+|"
    r"thanks|thank you|thx|actually|honestly|anyway|by the way|btw|of course|speaking of which|for sure|absolutely|"
    r"totally|definitely|exactly|cool|nice|great|awesome|guess what|luckily|unfortunately|recently|lately|"
    r"in fact|because|as for me|personally|right now|currently|these days)\b"
    r"(?:(?: so much| a lot)?,? [A-Z][a-z]+)?[,!.:]?\s+)*",
    IGNORECASE,
)
_BREAK = linear(
    r"(?:,\s*+|(?<!\s)\s++)(?:and|but|so|plus)\s++(?=(?:I|my|we)\b)|;\s++|\s[-\u2013\u2014]+\s|(?:(?<!\s)\s++)?\u2014\s*+"
    r"|,\s++(?=(?:I|my)\s)|(?:,\s*+|(?<!\s)\s++)(?=because\b)",
    IGNORECASE,
)


_PARAGRAPH = linear(r"\n[^\S\n]*+\n\s*+")
_PIECE = 1 << 12
"""Characters that are split into sentences between two checks for a cancel: at most 20 ms."""
_WORD = linear(r"[a-z0-9']+")


def plain(text: str) -> str:
    """Return the text with ASCII quotes and apostrophes, of the same length."""
    return text.translate(_PLAIN)


def sentences(text: str, check: Callable[[], None]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sentence. Checks for a cancel every few milliseconds."""
    with extra("learning"):  # imported here: it takes 50 ms, and only consolidation needs it
        from syntok.segmenter import segment
        from syntok.tokenizer import Tokenizer

    tokenizer = Tokenizer(replace_not_contraction=False)
    for start, end in _pieces(text):
        check()
        for sentence in segment(tokenizer.tokenize(text[start:end])):
            last = sentence[-1]
            yield start + sentence[0].offset, start + last.offset + len(last.value)


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each paragraph. Long ones are cut, behind a sentence if possible."""
    begin = 0
    for gap in chain(_PARAGRAPH.finditer(text), (None,)):
        end = gap.start() if gap else len(text)
        while end - begin > _PIECE:
            half, limit = begin + _PIECE // 2, begin + _PIECE
            cut = max(text.rfind(mark, half, limit) for mark in (". ", "! ", "? ", "\n"))
            if cut < 0:
                cut = text.rfind(" ", half, limit)
            yield begin, (begin := cut + 1 if cut >= 0 else limit)
        yield begin, end
        begin = gap.end() if gap else end


def clauses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each clause of a sentence, without opening words like "well"."""
    cuts = [start]
    for gap in _BREAK.finditer(text, start, end):
        cuts += [gap.start(), gap.end()]
    cuts.append(end)
    for first, last in zip(cuts[::2], cuts[1::2], strict=True):
        opener = _OPENER.match(text, first, last)
        first = opener.end() if opener else first
        if first < last:
            yield first, last


def normal(sentence: str) -> str:
    """Return the words of a sentence in lower case, to compare sentences."""
    return " ".join(_WORD.findall(plain(sentence).lower()))
