"""What a generator is shown for a message, laid out: the parts, and the messages that they make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mindful.assistant import Change
from mindful.clarification import Clarified
from mindful.lesson import Lesson
from mindful.pattern import linear
from mindful.ports import Message, Row
from mindful.tool import ToolCall

LAYOUT = "Context:\n{memories}\n\nQuestion: {message}\nAnswer:"
"""How memories and message make one turn; the model's option `layout` replaces it. Memories stand in the user's turn,
where a small model answers from them far more often than from the system prompt (docs/decisions.md), and quoted, so
that nothing in them can pass for an instruction."""
_PLACEHOLDER = linear(r"\{memories\}|\{message\}")
OWN = ("assistant", "clarification")
"""Roles of what the model said itself."""


@dataclass(frozen=True)
class Part:
    """One part of what the model is shown; a row of session_context."""

    part: str
    role: str
    content: str
    tokens: int
    memory_id: int | None = None
    score: float | None = None
    reason: str = ""


_HEADINGS = {"setting": None, "core": "Keep in mind:", "summary": "Earlier in this conversation:"}
"""Parts of the system message, which stays as it is from turn to turn, and what stands above them."""


@dataclass(frozen=True)
class Context:
    """What the model is shown for a message."""

    parts: Sequence[Part]
    layout: str = LAYOUT
    shown_from: int | None = None
    """The turn that the window begins with."""
    reply_to: int | None = None
    """The stored message that waits for its answer."""
    changes: Sequence[Change] = ()
    """The settings that the message asks to be changed; the context is as if they were."""
    calls: Sequence[ToolCall] = ()
    """The tools that were called for the message."""
    considered: Sequence[Row] = ()
    """The memories that recall found, with their scores."""
    clarified: Clarified | None = None
    """What the message settles of the question that was asked back before it."""
    lessons: Sequence[Lesson] = ()
    """What labels say of answers to like questions."""

    @property
    def memory_ids(self) -> list[int]:
        """The recalled memories among the parts."""
        return [part.memory_id for part in self.parts if part.part == "memory" and part.memory_id is not None]

    @property
    def notes(self) -> list[str]:
        """What the tools' results and the memories among the parts say."""
        return [*self._of("tool"), *self._of("memory")]

    @property
    def question(self) -> str:
        """The message that is answered."""
        return self.parts[-1].content

    def messages(self) -> list[Message]:
        """Lay the parts out as messages, the memories within the last one."""
        *told, last = self._told()
        return [*told, Message(last.role, with_notes(last.content, self.notes, self.layout))]

    def next_messages(self, reply: str) -> list[Message]:
        """Lay out what the next turn's prompt begins with: memories are shown for one turn only."""
        return [*self._told(), Message("assistant", reply), Message("user", "")]

    def _told(self) -> list[Message]:
        talk = [Message(part.role, part.content) for part in self.parts if part.part in ("turn", "message")]
        return [Message("system", "\n\n".join(self._system())), *talk]

    def _system(self) -> Iterator[str]:
        yield from self._of("system")
        for part, heading in _HEADINGS.items():
            if told := [line for content in self._of(part) for line in lines(part, content)]:
                yield "\n".join([*filter(None, [heading]), *told])

    def _of(self, kind: str) -> list[str]:
        return [part.content for part in self.parts if part.part == kind]


def quote(note: str) -> str:
    """Write a memory as the model is shown it: one line, a JSON string."""
    return f"- {json.dumps(note, ensure_ascii=False)}"


def lines(part: str, content: str) -> list[str]:
    """Write a part's content as the model is shown it; what was remembered is quoted."""
    if part == "summary":
        return [quote(line) for line in content.splitlines() if line.strip()]
    return [quote(content)] if part in ("core", "memory", "tool") else [content]


def with_notes(message: str, notes: Sequence[str], layout: str = LAYOUT) -> str:
    """Put quoted notes where the layout wants them, if there are any."""
    if not notes:
        return message
    quoted = "\n".join(map(quote, notes))
    # One pass over the layout: a placeholder inside a memory or a message stays as it is.
    return _PLACEHOLDER.sub(lambda found: {"{memories}": quoted, "{message}": message}[found[0]], layout)
