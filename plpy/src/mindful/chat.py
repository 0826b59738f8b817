"""Conversations: what the model is shown, its reply, and both turns remembered."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mindful import runtime
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError, NotReadyError, NullValueError, UndefinedObjectError
from mindful.llm import BLANK, SYSTEM_PROMPT, Call, check_fits, sampling_of
from mindful.ports import Database, Generator, Message, Row, Sampling
from mindful.state import ConversationState

LAYOUT = "Context:\n{memories}\n\nQuestion: {message}\nAnswer:"
"""How memories and message make one turn; the model's option `layout` replaces it. Memories stand in the user's turn,
where a small model answers from them far more often than from the system prompt (docs/decisions.md), and quoted, so
that nothing in them can pass for an instruction."""
_PLACEHOLDER = re.compile(r"\{memories\}|\{message\}")
_RELEVANT = 0.6
"""Share of the best memory's score that others must reach to be shown: weak ones mislead a small model."""
_RELATED = 0.25
"""Cosine similarity below which a memory that shares no word with the message has nothing to do with it."""
_SILENCE = "..."
"""The reply where the model has nothing but an end token to say: that is a turn too."""
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

    @property
    def memory_ids(self) -> list[int]:
        """The recalled memories among the parts."""
        return [part.memory_id for part in self.parts if part.part == "memory" and part.memory_id is not None]

    def messages(self) -> list[Message]:
        """Lay the parts out as messages, the memories within the last one."""
        *before, last = [part for part in self.parts if part.part != "memory"]
        notes = [part.content for part in self.parts if part.part == "memory"]
        return [
            *(Message(part.role, part.content) for part in before),
            Message(last.role, with_notes(last.content, notes, self.layout)),
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


@sql_function
def session_context(
    db: Database,
    session_id: str | None,
    query: str | None,
    model: str | None,
    max_tokens: int | None,
    memories: int | None,
) -> list[dict[str, Any]]:
    """Tell what the model would be shown for a message."""
    if session_id is None:
        raise NullValueError("session_id is null", "Give a session, as session_start returns it.")
    chat = Chat(db, query, session_id, model, sampling_of(max_tokens, 0.0, None), memories)
    return [dataclasses.asdict(part) for part in chat.context.parts]


@sql_function
def llm_chat(
    db: Database,
    message: str | None,
    session_id: str | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    memories: int | None,
) -> str:
    """Answer a message."""
    chat = Chat(db, message, session_id, model, sampling_of(max_tokens, temperature, seed), memories)
    return chat.answer()


@sql_function
def llm_chat_detail(
    db: Database,
    message: str | None,
    session_id: str | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    memories: int | None,
) -> dict[str, Any]:
    """Answer a message, and tell where the reply is, what it rests on, what it cost and how sure it is."""
    chat = Chat(db, message, session_id, model, sampling_of(max_tokens, temperature, seed), memories)
    return {"reply": chat.answer()} | chat.outcome()


@sql_function
def llm_chat_stream(
    db: Database,
    message: str | None,
    session_id: str | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    memories: int | None,
) -> Iterator[str]:
    """Answer a message piece by piece."""
    yield from Chat(
        db, message, session_id, model, sampling_of(max_tokens, temperature, seed), memories
    ).stream()


class Chat:
    """One message and its reply.

    Everything is read first, then the reply is generated, then both turns are written: no row is locked
    while the model runs.
    """

    def __init__(
        self,
        db: Database,
        message: str | None,
        session_id: str | None,
        model: str | None,
        sampling: Sampling,
        memories: int | None,
    ) -> None:
        if memories is None or not 0 <= memories <= 50:
            raise InvalidParameterError(f"memories is {memories}", "It must be between 0 and 50.")
        if message is None and session_id is None:
            raise NullValueError(
                "message is null", "Give a message, or a session whose last message waits for an answer."
            )
        if message is not None:
            db.rows("select mindful._text_argument('message', $1)", ("text",), (message,))
        self._db = db
        self._spec, self._generator = runtime.generator(db, model)
        self.session_id = session_id or str(uuid.uuid4())
        self._is_new = session_id is None
        system_prompt = None if session_id is None else self._system_prompt(session_id)
        self._new_message = message
        self._reply_to: int | None = None
        turns: Sequence[Row] = db.rows(
            "select id, turn, role, content from mindful._session_turns($1, $2)",
            ("uuid", "integer"),
            (self.session_id, _WINDOW + 2),  # the pending message, and one that tells there are more
        )
        if message is None:
            message, turns = self._pending(turns)
        self._shown_from: int | None = None
        self.context = self._build(system_prompt, self._since(turns), message, sampling, memories)
        tokens = self._generator.encode(self.context.messages())
        check_fits(tokens, self._generator)
        self._call = Call(self._spec, self._generator, tokens, sampling)
        self._tokens, self._sampling = tokens, sampling
        self._state = ConversationState(db, self._spec, self._generator, self.session_id)
        self._message_id: int | None = None

    def answer(self) -> str:
        """Generate the whole reply, and store both turns."""
        self._prepare()
        reply = self._call.answer(self._db, self.context.memory_ids)
        if not reply.strip(BLANK):
            reply += _SILENCE
        self._finish(reply)
        return reply

    def stream(self) -> Iterator[str]:
        """Yield the reply as it is made, then store both turns."""
        self._prepare()
        reply = ""
        for piece in self._call.stream(self._db, self.context.memory_ids):
            reply += piece
            yield piece
        if not reply.strip(BLANK):
            reply += _SILENCE
            yield _SILENCE
        self._finish(reply)

    def outcome(self) -> dict[str, Any]:
        """Tell the rest of a finished chat, as columns of `chat_detail`."""
        return self._call.outcome() | {
            "session_id": self.session_id,
            "message_id": self._message_id,
            "action": "answer",
            "threshold": None,
            "memory_ids": self.context.memory_ids,
            "model": self._spec.name,
        }

    def _system_prompt(self, session_id: str) -> str | None:
        rows = self._db.rows(
            """select system_prompt from mindful.session
               where tenant = (select mindful._tenant()) and session_id = $1""",
            ("uuid",),
            (session_id,),
        )
        if not rows:
            raise UndefinedObjectError(
                f"there is no session {session_id}",
                "Start one with session_start(), or look in mindful.session.",
            )
        prompt: str | None = rows[0]["system_prompt"]
        return prompt

    def _pending(self, turns: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        if not turns or turns[0]["role"] != "user":
            raise NotReadyError(
                f"session {self.session_id} has no message that waits for an answer",
                "Insert the user's message with message_insert, or pass it as message.",
            )
        self._reply_to = turns[0]["id"]
        return turns[0]["content"], turns[1:]

    def _build(
        self, system: str | None, turns: Sequence[Row], message: str, sampling: Sampling, memories: int
    ) -> Context:
        generator = self._generator
        system = system or self._spec.options.get("system_prompt", SYSTEM_PROMPT)
        first = _part(generator, "system", "system", system)
        last = _part(generator, "message", "user", message)
        length = generator.context_length
        room = length - min(sampling.max_tokens, length // 2) - first.tokens - last.tokens
        layout = self._spec.options.get("layout", LAYOUT)
        shown = {row["id"] for row in turns}
        recalled = _fitting(self._recall(message, shown, memories), room // 3 - generator.count(layout))
        if recalled:
            room -= generator.count(layout) + sum(part.tokens for part in recalled)
        window = self._window(turns, room)[::-1]
        return Context([first, *recalled, *window, last], layout)

    def _since(self, turns: Sequence[Row]) -> list[Row]:
        """Take the turns from where the last reply's window began; all, if that is not known."""
        shown_from = self._db.one(
            "select mindful._session_shown_from($1, $2) as turn",
            ("uuid", "text"),
            (self.session_id, self._spec.name),
        )["turn"]
        return [turn for turn in turns if turn["turn"] >= (shown_from or 1)]

    def _window(self, turns: Sequence[Row], room: int) -> list[Part]:
        """Choose the turns that are shown, newest first: all while they fit, then half as many at once."""
        parts = [
            _part(self._generator, "turn", turn["role"], turn["content"], turn["id"])
            for turn in self._interruptibly(turns)
            if turn["role"] in ("user", "assistant")
        ]
        parts = [part for part in parts if part.tokens <= room]  # one that would never fit hides no other
        window = _from_user(_first(parts[:_WINDOW], room))
        if len(window) < len(_from_user(parts)):
            window = _from_user(_first(parts[: _WINDOW // 2], room // 2)) or window
        if window:
            self._shown_from = next(turn["turn"] for turn in turns if turn["id"] == window[-1].memory_id)
        return window

    def _recall(self, message: str, shown: set[int], memories: int) -> Iterator[Part]:
        if memories == 0:
            return
        rows = self._db.rows(
            "select id, content, role, score, similarity, bm25 from mindful.memory_recall($1, $2)",
            ("text", "integer"),
            (message, memories + len(shown) + 5),
        )
        # The model's own words are not evidence, and the question asked before is not its answer.
        kept = [
            row
            for row in rows
            if row["id"] not in shown
            and row["role"] != "assistant"
            and row["content"] != message
            and (row["bm25"] is not None or (row["similarity"] or 0) >= _RELATED)
        ]
        for row in self._interruptibly(kept[:memories]):
            if row["score"] < _RELEVANT * kept[0]["score"]:
                break
            yield _part(self._generator, "memory", "user", row["content"], row["id"], row["score"])

    def _interruptibly(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Look for a cancel between rows: to count the tokens of a long text takes up to a second."""
        for row in rows:
            self._db.check()
            yield row

    def _prepare(self) -> None:
        # A seed asks for the same text again: its prompt is evaluated anew.
        if self._sampling.seed is None:
            self._state.restore(self._tokens)

    def _finish(self, reply: str) -> None:
        reply = reply.strip(BLANK)
        self._store(reply)
        if not self._generator.held(
            self._tokens
        ):  # the model was unloaded, or served another, while a cursor rested
            return
        with contextlib.suppress(InvalidParameterError):  # a template need not like what comes next
            self._state.keep(self._generator.encode(self.context.next_messages(reply)))

    def _store(self, reply: str) -> None:
        outcome = self.outcome()
        metadata = {key: outcome[key] for key in ("model", "confidence", "action", "memory_ids")}
        metadata["shown_from"] = self._shown_from
        turns: list[dict[str, Any]] = [{"role": "assistant", "content": reply, "metadata": metadata}]
        if self._new_message is None:
            metadata["reply_to"] = self._reply_to
        else:
            turns.insert(0, {"role": "user", "content": self._new_message})
        if self._is_new:
            self._db.rows(
                "insert into mindful.session (session_id, title) values ($1, $2)",
                ("uuid", "text"),
                (self.session_id, (self._new_message or "")[:60]),
            )
        ids = self._db.rows(
            "select mindful.message_insert_many($1, $2) as id",
            ("uuid", "jsonb"),
            (self.session_id, json.dumps(turns)),
        )
        self._message_id = ids[-1]["id"]


def _part(
    generator: Generator,
    part: str,
    role: str,
    content: str,
    memory_id: int | None = None,
    score: float | None = None,
) -> Part:
    shown = quote(content) if part == "memory" else content
    return Part(part, role, content, generator.count(shown) + _MESSAGE_OVERHEAD, memory_id, score)


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
