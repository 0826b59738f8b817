"""What a chat replies: the model's own words, a memory's in their place, or that the answer is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mindful.conversation.bearing import invents
from mindful.conversation.context import compose
from mindful.conversation.prompt import Context
from mindful.conversation.reading import Reading
from mindful.conversation.tool import Toolbox
from mindful.core.ports import Database, Generator, ModelSpec, Sampling
from mindful.generate.call import BLANK

_SILENCE = "..."
"""The reply where the model has nothing but an end token to say: that is a turn too."""


class Reply(NamedTuple):
    """A reply, and whether it is a memory's words: the model's own did not rest on the memory that answers."""

    text: str
    quoted: bool = False


def prepared(
    db: Database,
    spec: ModelSpec,
    generator: Generator,
    reading: Reading,
    message: str | None,
    sampling: Sampling,
    memories: int | None,
    tools: Toolbox | None = None,
    given: Sequence[str] = (),
) -> Context:
    """Compose the prompt, with more memories if none answers the message and the setting chat_retrieve is on."""
    context = compose(db, spec, generator, reading, message, sampling, memories, tools, given)
    if not given and context.reply is None and is_unanswered(context) and reading.settings["chat_retrieve"]:
        widest = reading.settings["chat_retrieve_memories"]
        return compose(db, spec, generator, reading, message, sampling, widest)
    return context


def is_unanswered(context: Context) -> bool:
    """Return whether the message is answered without the model: no memory answers it, or no setting fits it."""
    return context.reply is not None or (context.bearing is not None and context.bearing.unknown)


def unanswered(context: Context) -> Reply:
    """Return what is shown for such a message."""
    return Reply(context.reply.text if context.reply else context.unknown())


def asked(contexts: Sequence[Context]) -> list[int]:
    """Return the places of the prompts that the model answers."""
    return [at for at, context in enumerate(contexts) if not is_unanswered(context)]


def settled(context: Context, text: str) -> Reply:
    """Return what is shown for the model's text."""
    return spoken(text) if is_grounded(context, text) else extracted(context)


def spoken(text: str) -> Reply:
    """Return the model's own words."""
    return Reply(text.strip(BLANK) or _SILENCE)


def extracted(context: Context) -> Reply:
    """Return the words of the memories that answer the message."""
    return Reply(context.extract().strip(BLANK), quoted=True)


def replies(contexts: Sequence[Context], texts: Sequence[str]) -> Iterator[Reply]:
    """Yield what is shown for each prompt. The texts are the model's, of those that are asked."""
    rest = iter(texts)
    for context in contexts:
        yield unanswered(context) if is_unanswered(context) else settled(context, next(rest))


def is_checked(context: Context) -> bool:
    """Return whether a reply must rest on memories: the message asks for what only they can tell."""
    return context.bearing is not None and context.bearing.own


def is_grounded(context: Context, text: str) -> bool:
    """Return whether a text rests on a memory that answers the message, if any."""
    found = context.bearing
    if found is None or not found.own:
        return True
    if context.repeats_example(text) or not found.is_grounded(text, context.shown_ids):
        return False
    return not found.quoted(context.shown_ids) or not invents(text, _sources(context))


def is_invented(context: Context, text: str) -> bool:
    """Return whether a reply to a question that only memories can answer has a name or a number of its own."""
    return is_checked(context) and invents(text, _sources(context))


def _sources(context: Context) -> Iterator[str]:
    return (part.content for part in context.parts)
