"""What the model is shown for a message: the system prompt, recalled memories, the newest turns, the message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mindful.errors import InvalidParameterError, NotReadyError, NullValueError, UndefinedObjectError
from mindful.llm import SYSTEM_PROMPT
from mindful.ports import Database, Generator, Message, ModelSpec, Row, Sampling

LAYOUT = "Context:\n{memories}\n\nQuestion: {message}\nAnswer:"
"""How memories and message make one turn; the model's option `layout` replaces it. Memories stand in the user's turn,
where a small model answers from them far more often than from the system prompt (docs/decisions.md), and quoted, so
that nothing in them can pass for an instruction."""
_PLACEHOLDER = re.compile(r"\{memories\}|\{message\}")
_RELEVANT = 0.6
"""Share of the best memory's score that others must reach to be shown: weak ones mislead a small model."""
_RELATED = 0.25
"""Cosine similarity below which a memory that shares no word with the message has nothing to do with it."""
_WINDOW = 30
"""Newest turns of a session that may be shown. When there are more, or they do not fit, half as many are: the prompt
then begins alike for many turns, and what was computed of it is used again (docs/decisions.md)."""
_MESSAGE_OVERHEAD = 8
"""Tokens that a chat template adds to a message, at most, in the models this was tried with."""


@dataclass(frozen=True)
class Part:
    """One part of what the model is shown; a row of session_context."""

    part: str
    role: str
    content: str
    tokens: int
    memory_id: int | None = None
    score: float | None = None


@dataclass(frozen=True)
class Context:
    """What the model is shown for a message."""

    parts: Sequence[Part]
    layout: str = LAYOUT
    shown_from: int | None = None
    """The turn that the window begins with."""
    reply_to: int | None = None
    """The stored message that waits for its answer."""
    considered: Sequence[Row] = ()
    """The memories that recall found, with their scores."""

    @property
    def memory_ids(self) -> list[int]:
        """The recalled memories among the parts."""
        return [part.memory_id for part in self.parts if part.part == "memory" and part.memory_id is not None]

    @property
    def notes(self) -> list[str]:
        """What the memories among the parts say."""
        return [part.content for part in self.parts if part.part == "memory"]

    @property
    def question(self) -> str:
        """The message that is answered."""
        return self.parts[-1].content

    def messages(self) -> list[Message]:
        """Lay the parts out as messages, the memories within the last one."""
        *before, last = [part for part in self.parts if part.part != "memory"]
        return [
            *(Message(part.role, part.content) for part in before),
            Message(last.role, with_notes(last.content, self.notes, self.layout)),
        ]

    def next_messages(self, reply: str) -> list[Message]:
        """Lay out what the next turn's prompt begins with: memories are shown for one turn only."""
        told = [Message(part.role, part.content) for part in self.parts if part.part != "memory"]
        return [*told, Message("assistant", reply), Message("user", "")]


def quote(note: str) -> str:
    """Write a memory as the model is shown it: one line, a JSON string."""
    return f"- {json.dumps(note, ensure_ascii=False)}"


def with_notes(message: str, notes: Sequence[str], layout: str = LAYOUT) -> str:
    """Put quoted notes where the layout wants them, if there are any."""
    if not notes:
        return message
    quoted = "\n".join(map(quote, notes))
    # One pass over the layout: a placeholder inside a memory or a message stays as it is.
    return _PLACEHOLDER.sub(lambda found: {"{memories}": quoted, "{message}": message}[found[0]], layout)


def compose(
    db: Database,
    spec: ModelSpec,
    generator: Generator,
    session_id: str | None,
    message: str | None,
    sampling: Sampling,
    memories: int | None,
) -> Context:
    """Put together what a generator is shown for a message; without one, for the session's last message."""
    if memories is None or not 0 <= memories <= 50:
        raise InvalidParameterError(f"memories is {memories}", "It must be between 0 and 50.")
    if message is None and session_id is None:
        raise NullValueError(
            "message is null", "Give a message, or a session whose last message waits for an answer."
        )
    if message is not None:
        db.rows("select mindful._text_argument('message', $1)", ("text",), (message,))
    return _Composer(db, spec, generator, session_id).compose(message, sampling, memories)


class _Composer:
    def __init__(self, db: Database, spec: ModelSpec, generator: Generator, session_id: str | None) -> None:
        self._db = db
        self._spec = spec
        self._generator = generator
        self._session_id = session_id
        self._considered: Sequence[Row] = ()

    def compose(self, message: str | None, sampling: Sampling, memories: int) -> Context:
        system, turns, reply_to = self._system_prompt(), self._turns(), None
        if message is None:
            message, reply_to, turns = self._pending(turns)
        first = self._part("system", "system", system)
        last = self._part("message", "user", message)
        length = self._generator.context_length
        room = length - min(sampling.max_tokens, length // 2) - first.tokens - last.tokens
        layout = self._spec.options.get("layout", LAYOUT)
        around = self._generator.count(layout)
        turns = self._since(turns)
        shown = {row["id"] for row in turns}
        recalled = _fitting(self._recall(message, shown, memories), room // 3 - around)
        if recalled:
            room -= around + sum(part.tokens for part in recalled)
        window = self._window(turns, room)
        shown_from = next(
            (turn["turn"] for turn in turns if window and turn["id"] == window[0].memory_id), None
        )
        parts = [first, *recalled, *window, last]
        return Context(parts, layout, shown_from, reply_to, self._considered)

    def _system_prompt(self) -> str:
        prompt: str | None = None
        if self._session_id is not None:
            rows = self._db.rows(
                """select system_prompt from mindful.session
                   where tenant = (select mindful._tenant()) and session_id = $1""",
                ("uuid",),
                (self._session_id,),
            )
            if not rows:
                raise UndefinedObjectError(
                    f"there is no session {self._session_id}",
                    "Start one with session_start(), or look in mindful.session.",
                )
            prompt = rows[0]["system_prompt"]
        return prompt or str(self._spec.options.get("system_prompt", SYSTEM_PROMPT))

    def _turns(self) -> Sequence[Row]:
        """Read the newest turns, newest first."""
        if self._session_id is None:
            return ()
        return self._db.rows(
            "select id, turn, role, content from mindful._session_turns($1, $2)",
            ("uuid", "integer"),
            (self._session_id, _WINDOW + 2),  # the pending message, and one that tells there are more
        )

    def _pending(self, turns: Sequence[Row]) -> tuple[str, int, Sequence[Row]]:
        if not turns or turns[0]["role"] != "user":
            raise NotReadyError(
                f"session {self._session_id} has no message that waits for an answer",
                "Insert the user's message with message_insert, or pass it as message.",
            )
        return turns[0]["content"], turns[0]["id"], turns[1:]

    def _since(self, turns: Sequence[Row]) -> Sequence[Row]:
        """Take the turns from where the last reply's window began; all, if that is not known."""
        if not turns:
            return turns
        shown_from = self._db.one(
            "select mindful._session_shown_from($1, $2) as turn",
            ("uuid", "text"),
            (self._session_id, self._spec.name),
        )["turn"]
        return [turn for turn in turns if turn["turn"] >= (shown_from or 1)]

    def _window(self, turns: Sequence[Row], room: int) -> list[Part]:
        """Choose the turns that are shown, oldest first: all while they fit, then half as many at once."""
        parts = [
            self._part("turn", turn["role"], turn["content"], turn["id"])
            for turn in self._interruptibly(turns)
            if turn["role"] in ("user", "assistant")
        ]
        parts = [part for part in parts if part.tokens <= room]  # one that would never fit hides no other
        window = _from_user(_first(parts[:_WINDOW], room))
        if len(window) < len(_from_user(parts)):
            window = _from_user(_first(parts[: _WINDOW // 2], room // 2)) or window
        return window[::-1]

    def _recall(self, message: str, shown: set[int], memories: int) -> Iterator[Part]:
        if memories == 0:
            return
        rows = self._db.rows(
            "select id, content, role, score, similarity, bm25 from mindful.memory_recall($1, $2)",
            ("text", "integer"),
            (message, memories + len(shown) + 5),
        )
        self._considered = rows
        # The model's own words are not evidence, and the question asked before is not its answer.
        kept = [
            row
            for row in rows
            if row["id"] not in shown
            and row["role"] != "assistant"
            and row["content"] != message
            and (row["bm25"] is not None or row["similarity"] >= _RELATED)
        ]
        for row in self._interruptibly(kept[:memories]):
            if row["score"] < _RELEVANT * kept[0]["score"]:
                break
            yield self._part("memory", "user", row["content"], row["id"], row["score"])

    def _part(
        self, part: str, role: str, content: str, memory_id: int | None = None, score: float | None = None
    ) -> Part:
        shown = quote(content) if part == "memory" else content
        tokens = self._generator.count(shown) + _MESSAGE_OVERHEAD
        return Part(part, role, content, tokens, memory_id, score)

    def _interruptibly(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Look for a cancel between rows: to count the tokens of a long text takes up to a second."""
        for row in rows:
            self._db.check()
            yield row


def _fitting(parts: Iterable[Part], room: int) -> list[Part]:
    """Take parts, best first, for as long as they fit; one that would never fit hides no other."""
    return _first((part for part in parts if part.tokens <= room), room)


def _first(parts: Iterable[Part], room: int) -> list[Part]:
    """Take the first parts, as many as fit."""
    kept: list[Part] = []
    for part in parts:
        room -= part.tokens
        if room < 0:
            break
        kept.append(part)
    return kept


def _from_user(window: list[Part]) -> list[Part]:
    """Drop the oldest parts, the list's last, up to a user's: templates want the user to begin."""
    while window and window[-1].role == "assistant":
        window = window[:-1]
    return window
