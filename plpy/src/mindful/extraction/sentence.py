"""Sentences and clauses of a text, each as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator

TEMPLATE = re.compile(
    r"<\|[^|>]{1,40}\|>|\[/?INST\]|<</?SYS>>|</?s>|\{\{|\}\}|\{(?:memories|message|context|question)\}"
    r"|^\s*(?:#{2,} )?(?:Instruction|Response|Input|System|Assistant|User|Human|Context|Question|Answer)\s*:",
    re.MULTILINE,
)
"""Marks of prompts: a text that has one is no statement of anybody's."""

# One character for one: positions stay what they are.
_PLAIN = str.maketrans({"\u2019": "'", "\u2018": "'", "`": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " "})

_OPENER = re.compile(
    r"[^\w\"']*(?:(?:yeah|yes|yep|yup|no|nope|oh|ah|aw+|wow|hey|hi|hello|well|so|and|but|also|plus|then|now|ok|okay|sure|haha|lol|hmm+|"
    r"thanks|thank you|thx|actually|honestly|anyway|by the way|btw|of course|speaking of which|for sure|absolutely|"
    r"totally|definitely|exactly|cool|nice|great|awesome|guess what|luckily|unfortunately|recently|lately|"
    r"in fact|because|as for me|personally|right now|currently|these days)\b"
    r"(?:(?: so much| a lot)?,? [A-Z][a-z]+)?[,!.:]?\s+)*",
    re.IGNORECASE,
)
_BREAK = re.compile(
    r"(?:,\s*|\s+)(?:and|but|so|plus)\s+(?=(?:I|my|we)\b)|;\s+|\s[-\u2013\u2014]+\s|\s*\u2014\s*"
    r"|,\s+(?=(?:I|my)\s)|(?:,\s*|\s+)(?=because\b)",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """Return the text with typewriter quotes and apostrophes, of the same length."""
    return text.translate(_PLAIN)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence begins and ends."""
    from syntok import segmenter  # 50 ms, for consolidation alone

    for paragraph in segmenter.process(text):
        for sentence in paragraph:
            yield sentence[0].offset, sentence[-1].offset + len(sentence[-1].value)


def clauses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the clauses of a sentence begin and end, without what opens a turn of speech."""
    cuts = [start]
    for found in _BREAK.finditer(text, start, end):
        cuts += [found.start(), found.end()]
    cuts.append(end)
    for first, last in zip(cuts[::2], cuts[1::2], strict=True):
        opener = _OPENER.match(text, first, last)
        first = opener.end() if opener else first
        if first < last:
            yield first, last


def normal(sentence: str) -> str:
    """Return what two sentences are compared by: words alone, in lower case."""
    return " ".join(re.findall(r"[a-z0-9']+", plain(sentence).lower()))
