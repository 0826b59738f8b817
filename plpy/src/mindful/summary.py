"""Summaries of any length of text: parts that fit the context, then the summaries of the parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mindful import runtime
from mindful.call import Call
from mindful.entry import sql_function
from mindful.ports import Database, Generator, Message, ModelSpec, Sampling

_SYSTEM = "You summarize texts. Keep names, numbers and decisions. Answer with two or three sentences."
_LENGTH = 128
"""Tokens of a summary at most: well below what fits into a part, so that every round leaves fewer parts."""
_CHARACTERS = 8
"""Characters a token that are cut into a piece: few texts have longer tokens, and then a part has more pieces."""


@sql_function
def summary_text(db: Database, state: Sequence[str] | None) -> str | None:
    """Summarize texts in their order."""
    texts = [text for text in state or () if text.strip()]
    if not texts:
        return None
    return summarize(db, *runtime.generator(db, None), texts)


def summarize(db: Database, spec: ModelSpec, generator: Generator, texts: Sequence[str]) -> str:
    """Summarize texts in their order, at least one, with a generator."""
    room = generator.context_length - _LENGTH - len(generator.encode(_messages("")))
    while True:
        parts = list(_parts(texts, generator, room))
        texts = [_summarize(db, spec, generator, part) for part in parts]
        if len(texts) == 1:
            return texts[0]


def _summarize(db: Database, spec: ModelSpec, generator: Generator, text: str) -> str:
    tokens = generator.encode(_messages(text))
    return Call(spec, generator, tokens, Sampling(max_tokens=_LENGTH)).answer(db).strip()


def _messages(text: str) -> list[Message]:
    return [Message("system", _SYSTEM), Message("user", f"Summarize this:\n\n{text}")]


def _parts(texts: Iterable[str], generator: Generator, room: int) -> Iterator[str]:
    """Join texts in their order into parts that fit, and cut those that alone do not."""
    part, used = "", 0
    for text in texts:
        for piece in _pieces(text, generator, room):
            tokens = generator.count(f"\n\n{piece}")
            if part and used + tokens > room:
                yield part
                part, used = "", 0
            part, used = f"{part}\n\n{piece}" if part else piece, used + tokens
    if part:
        yield part


def _pieces(text: str, generator: Generator, room: int) -> Iterator[str]:
    """Cut a text into pieces of less than `room` tokens, at white space where there is some."""
    begin = 0
    while begin < len(text):
        near = text[begin : begin + room * _CHARACTERS]
        piece = generator.truncate(near, room - 8)  # cutting can change how the rest is tokenized
        if begin + len(piece) < len(text):
            piece = piece[: piece.rfind(" ") + 1] or piece
        piece = piece or near[:1]
        yield piece
        begin += len(piece)
