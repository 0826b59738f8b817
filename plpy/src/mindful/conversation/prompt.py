"""The prompt for a message: its parts, and the messages that they form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mindful.conversation.assistant import Change
from mindful.conversation.bearing import Bearing
from mindful.conversation.clarification import Clarified
from mindful.conversation.fixed import Fixed
from mindful.conversation.lesson import Lesson
from mindful.conversation.tool import ToolCall
from mindful.core.pattern import IGNORECASE, linear
from mindful.core.ports import Message, Row

LAYOUT = "Context:\n{memories}\n\nQuestion: {message}\nAnswer:"
"""How memories and message make one turn; the model's option `layout` replaces it. Memories stand in the user's turn,
where a small model answers from them far more often than from the system prompt (docs/decisions.md), and quoted, so
that nothing in them can pass for an instruction."""
_EXAMPLE = ("The bakery closes at six.", "When does the bakery close?", "The bakery closes at six.")
"""A memory, a question and its answer, shown before a message with memories. Of 38 questions about one fact a model of
135M parameters answered 33 rightly without it and 38 with it (docs/decisions.md). The option `example` turns it off."""
_EXAMPLE_SUBJECT = linear(r"\bbakery\b", IGNORECASE)
_ACKNOWLEDGED = ("We have a new printer.", "My train leaves at nine.", "Hi, I am Eva, a teacher from Bonn.")
ACKNOWLEDGEMENT = "I will remember that."
"""Statements and the answer to each, shown before a statement if the model's option `acknowledge` is set: without them
a model of 135M parameters corrects the statement, or speaks as if it were the user (docs/decisions.md)."""
_QUOTE = json.JSONEncoder(ensure_ascii=False).encode
_PLACEHOLDER = linear(r"\{memories\}|\{message\}")
UNKNOWN = "I do not know."
UNSURE = "I do not know for sure. I remember: "
REMEMBERED = "I remember: "
OWN = ("assistant", "clarification")
"""Roles of the model's own messages."""


class Part(NamedTuple):
    """One part of the prompt; a row of session_context."""

    part: str
    role: str
    content: str
    tokens: int
    memory_id: int | None = None
    score: float | None = None
    reason: str = ""


_HEADINGS = {"setting": None, "core": "Keep in mind:", "summary": "Earlier in this conversation:"}
"""Parts of the system message, with their headings. It stays the same from turn to turn."""


class Context(NamedTuple):
    """The prompt for a message."""

    parts: Sequence[Part]
    layout: str = LAYOUT
    shown_from: int | None = None
    """The turn that the window begins with."""
    reply_to: int | None = None
    """The stored message that has no reply yet."""
    changes: Sequence[Change] = ()
    """The settings that the message asks to change. The context follows the new values."""
    calls: Sequence[ToolCall] = ()
    """The tools that were called for the message."""
    considered: Sequence[Row] = ()
    """The recalled memories, with their scores."""
    clarified: Clarified | None = None
    """The effect of the message on the clarification before it."""
    lessons: Sequence[Lesson] = ()
    """Labeled answers to similar questions."""
    with_example: bool = True
    """Whether an example comes before a message with memories."""
    acknowledges: bool = False
    """Whether the message states something, and the model is shown how such messages are acknowledged."""
    bearing: Bearing | None = None
    """How memories bear on the message, if the prompt has nothing else that may answer it."""
    reply: Fixed | None = None
    """The reply to a message for which the model is not asked."""

    def unknown(self) -> str:
        """Return the statement that the answer is unknown, with the nearest of the memories and turns shown."""
        turns = {part.memory_id for part in self.parts if part.part == "turn"}
        near = self.bearing.nearest(self.considered, set(self.shown_ids), turns) if self.bearing else []
        quoted = " ".join(f'"{content}"' for content in near)
        return f"{UNSURE}{quoted}" if quoted else UNKNOWN

    def repeats_example(self, reply: str) -> bool:
        """Return whether a reply is about the subject of the example, which nothing else in the prompt is about."""
        about = _EXAMPLE_SUBJECT.search
        return about(reply) is not None and not any(about(part.content) for part in self.parts)

    def extract(self) -> str:
        """Return the name that the message asks for, or the sentences of the memories shown that answer it."""
        assert self.bearing is not None
        if self.bearing.own_name is not None:
            return f"Your name is {self.bearing.own_name}."
        if name := self.bearing.name_answer(self.shown_ids):
            return name if name.endswith(".") else f"{name}."
        quoted = self.bearing.quoted(self.shown_ids)
        return f"{REMEMBERED}{quoted}" if quoted else self.unknown()

    @property
    def memory_ids(self) -> list[int]:
        """The recalled memories among the parts."""
        return [id_ for id_ in self.shown_ids if id_ > 0]

    @property
    def shown_ids(self) -> list[int]:
        """The memories among the parts. Texts given with the question have negative ids."""
        return [part.memory_id for part in self.parts if part.part == "memory" and part.memory_id is not None]

    @property
    def has_talk(self) -> bool:
        """Whether earlier turns, or summaries of them, are shown."""
        return bool(self._of("turn") or self._of("summary"))

    @property
    def notes(self) -> list[str]:
        """Contents of the tool results and memories among the parts."""
        return [*self._of("tool"), *self._of("memory")]

    @property
    def question(self) -> str:
        """The message to answer."""
        return self.parts[-1].content

    def messages(self) -> list[Message]:
        """Return the parts as messages, with the memories in the last one, the best memory last."""
        *earlier, last = self._laid_out()
        notes = [*self._of("tool"), *reversed(self._of("memory"))]
        shown = Message(last.role, with_notes(last.content, notes, self.layout))
        return [*earlier, *self._example(bool(notes)), shown]

    def _example(self, with_notes: bool) -> list[Message]:
        if with_notes:
            return example_of(self.layout) if self.with_example else []
        return acknowledgements() if self.acknowledges else []

    def next_messages(self, reply: str) -> list[Message]:
        """Return the messages that begin the next prompt: memories are shown for one turn only."""
        return [*self._laid_out(), Message("assistant", unframed(reply)), Message("user", "")]

    def _laid_out(self) -> list[Message]:
        talk = [Message(part.role, part.content) for part in self.parts if part.part in ("turn", "message")]
        return [Message("system", "\n\n".join(self._system())), *talk]

    def _system(self) -> Iterator[str]:
        yield from self._of("system")
        for part, heading in _HEADINGS.items():
            if listed := [line for content in self._of(part) for line in lines(part, content)]:
                yield "\n".join([*filter(None, [heading]), *listed])

    def _of(self, kind: str) -> list[str]:
        return [part.content for part in self.parts if part.part == kind]


def unframed(reply: str) -> str:
    """Return a reply as later prompts show it, without the words around a quote.

    A small model repeats them: after a few quoted memories it answered 'I remember: "I boil an egg."'.
    """
    if reply.startswith(UNSURE):
        return UNKNOWN
    return (
        reply.removeprefix(REMEMBERED).strip('"').replace('" "', " ")
        if reply.startswith(REMEMBERED)
        else reply
    )


def example_of(layout: str) -> list[Message]:
    """Return the example in a layout, as two messages."""
    note, question, answer = _EXAMPLE
    return [Message("user", with_notes(question, [note], layout)), Message("assistant", answer)]


def acknowledgements() -> list[Message]:
    """Return the examples of acknowledged statements, as messages."""
    answer = Message("assistant", ACKNOWLEDGEMENT)
    return [message for statement in _ACKNOWLEDGED for message in (Message("user", statement), answer)]


def quote(note: str) -> str:
    """Format a memory for the prompt: one line, a JSON string."""
    return f"- {_QUOTE(note)}"


def lines(part: str, content: str) -> list[str]:
    """Format the content of a part for the prompt; memories are quoted."""
    if part == "summary":
        return [quote(line) for line in content.splitlines() if line.strip()]
    return [quote(content)] if part in ("core", "memory", "tool") else [content]


def with_notes(message: str, notes: Sequence[str], layout: str = LAYOUT) -> str:
    """Insert quoted notes into the layout, if there are any."""
    if not notes:
        return message
    quoted = "\n".join(map(quote, notes))
    # One pass over the layout: a placeholder inside a memory or a message stays as it is.
    return _PLACEHOLDER.sub(lambda found: {"{memories}": quoted, "{message}": message}[found[0]], layout)
