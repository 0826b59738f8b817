"""Summaries of texts of any length: first of parts that fit the context, then of the summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mindful.core.entry import sql_function
from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.core.ports import Database, Generator, Message, ModelSpec, Sampling
from mindful.generate.cache import answers
from mindful.generate.call import Call
from mindful.models import runtime

_SYSTEM = "You summarize texts. Keep names, numbers and decisions. Answer with two or three sentences."
_AGGREGATE = "You follow an instruction about texts. Keep names and numbers. Answer briefly."
_LENGTH = 128
"""Largest number of tokens of a summary. It is far below the size of a part, so every round has fewer parts."""
_CHARACTERS = 8
"""Characters per token to read for a piece. A text with longer tokens only gets more pieces."""


@sql_function
def summary_text(db: Database, state: Sequence[str] | None) -> str | None:
    """Summarize texts in their order."""
    texts = [text for text in state or () if text.strip()]
    if not texts:
        return None
    return summarize(db, *runtime.generator(db, None), texts)


@sql_function
def aggregate_text(db: Database, state: Sequence[str] | None) -> str | None:
    """Follow an instruction, which comes first, over texts in their order."""
    texts = [text for text in (state or ())[1:] if text.strip()]
    if not state or not texts:
        return None
    if not state[0].strip():
        raise InvalidParameterError(
            "instruction is empty", "Pass a text with at least one visible character."
        )
    return _reduced(db, *runtime.generator(db, None), texts, _AGGREGATE, state[0].strip())


def summarize(db: Database, spec: ModelSpec, generator: Generator, texts: Sequence[str]) -> str:
    """Summarize at least one text, in their order, with a generator."""
    return _reduced(db, spec, generator, texts, _SYSTEM, "Summarize this:")


def _reduced(
    db: Database, spec: ModelSpec, generator: Generator, texts: Sequence[str], system: str, instruction: str
) -> str:
    """Answer for parts that fit the context, then for the answers, until one answer is left."""
    room = generator.context_length - _LENGTH - len(generator.encode(_messages(system, instruction, "")))
    before = sum(map(len, texts)) + 1
    while True:
        parts = list(_parts(texts, generator, room)) if room > 0 else []
        if not 0 < len(parts) < before:
            raise ContextLengthError(
                f"the instruction leaves {max(room, 0)} tokens of the context for texts",
                "Shorten the instruction.",
            )
        before = len(parts)
        calls = [
            Call(spec, generator, generator.encode(_messages(system, instruction, part)), Sampling(_LENGTH))
            for part in parts
        ]
        texts = [text for answer in answers(db, calls) if (text := answer.strip())]
        if len(texts) <= 1:
            return "".join(texts)


def _messages(system: str, instruction: str, text: str) -> list[Message]:
    return [Message("system", system), Message("user", f"{instruction}\n\n{text}")]


def _parts(texts: Iterable[str], generator: Generator, room: int) -> Iterator[str]:
    """Join texts in their order into parts of at most `room` tokens, and cut texts that are longer."""
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
    """Cut a text into pieces of less than `room` tokens, if possible at spaces."""
    begin = 0
    while begin < len(text):
        near = text[begin : begin + room * _CHARACTERS]
        piece = generator.truncate(near, room - 8)  # cutting can change how the rest is tokenized
        if begin + len(piece) < len(text):
            piece = piece[: piece.rfind(" ") + 1] or piece
        piece = piece or near[:1]
        yield piece
        begin += len(piece)
