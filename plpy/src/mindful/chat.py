"""Conversations: a message, its reply, and both turns remembered."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import uuid
from collections.abc import Iterator
from typing import Any

from mindful import action, assistant, clarification, runtime
from mindful.action import Trail
from mindful.call import BLANK, Call, sampling_of, tokens_of
from mindful.context import compose
from mindful.decision import Decision
from mindful.entry import writing_function
from mindful.errors import InvalidParameterError
from mindful.ports import Database
from mindful.recap import keep_up
from mindful.setting import setting_get
from mindful.state import ConversationState
from mindful.tool import Toolbox

_SILENCE = "..."
"""The reply where the model has nothing but an end token to say: that is a turn too."""


@writing_function
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
    return Chat(db, message, session_id, model, max_tokens, temperature, seed, memories).answer()


@writing_function
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
    chat = Chat(db, message, session_id, model, max_tokens, temperature, seed, memories)
    return {"reply": chat.answer()} | chat.outcome()


@writing_function
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
    yield from Chat(db, message, session_id, model, max_tokens, temperature, seed, memories).stream()


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
        max_tokens: int | None,
        temperature: float | None,
        seed: int | None,
        memories: int | None,
    ) -> None:
        self._db = db
        if temperature is None:
            temperature = setting_get(db, "chat_temperature", session_id)
        self._sampling = sampling_of(max_tokens, temperature, seed)
        self._spec, self._generator = runtime.generator(db, model)
        tools = Toolbox(db, self._spec, self._generator, session_id)
        self.context = compose(
            db, self._spec, self._generator, session_id, message, self._sampling, memories, tools
        )
        self.session_id = session_id or str(uuid.uuid4())
        self._is_new = session_id is None
        self._new_message = message
        self._tokens = tokens_of(self._generator, self.context.messages())
        self._call = Call(self._spec, self._generator, self._tokens, self._sampling)
        self._state = ConversationState(db, self._spec, self._generator, self.session_id)
        self._message_id: int | None = None
        self._wanted = action.settings(db, session_id)
        self._decision: Decision | None = None
        self._decision_id: int | None = None

    def answer(self) -> str:
        """Generate the whole reply, and store both turns."""
        self._prepare()
        reply = self._call.answer(self._db, self.context.memory_ids)
        if not reply.strip(BLANK):
            reply += _SILENCE
        return self._finish(reply, self._wanted) + self._notice()

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
        # What has been read cannot be taken back: nothing else is done than to flag it.
        self._finish(reply, self._wanted.flagging())
        if notice := self._notice():
            yield notice

    def outcome(self) -> dict[str, Any]:
        """Tell the rest of a finished chat, as columns of `chat_detail`."""
        assert self._decision is not None
        return self._call.outcome() | {
            "session_id": self.session_id,
            "message_id": self._message_id,
            "action": self._decision.action,
            "threshold": self._decision.threshold,
            "probability": self._decision.probability,
            "reason": self._decision.reason,
            "decision_id": self._decision_id,
            "memory_ids": self.context.memory_ids,
            "model": self._spec.name,
        }

    def _prepare(self) -> None:
        # A seed asks for the same text again: its prompt is evaluated anew.
        if self._sampling.seed is None:
            self._state.restore(self._tokens)

    def _notice(self) -> str:
        assert self._decision is not None
        flagged = self._wanted.flag_notice and self._decision.action == "flag"
        return action.notice(self._decision) if flagged else ""

    def _finish(self, reply: str, wanted: action.Settings) -> str:
        """Do what follows from how sure the reply is, store it, and return what is shown."""
        trail = action.act(self._db, wanted, self._call, self.context, self._sampling, reply.strip(BLANK))
        reply, self._decision = trail.reply, trail.decision
        self.context, self._call = trail.standing.context, trail.standing.call
        self._store(trail)
        clarified = self.context.clarified
        asked = None if clarified is None else clarified.decision_id
        self._decision_id = trail.record(self._message_id, asked)
        if clarified is not None:
            clarification.close(self._db, clarified)
        keep_up(self._db, self._spec, self._generator, self.session_id)
        self._keep(reply)
        return reply

    def _keep(self, reply: str) -> None:
        """Keep the conversation's state for its next turn."""
        if not self._generator.held(
            self._tokens
        ):  # the model was unloaded, or served another, while a cursor rested
            return
        with contextlib.suppress(InvalidParameterError):  # a template need not like what comes next
            self._state.keep(self._generator.encode(self.context.next_messages(reply)))

    def _store(self, trail: Trail) -> None:
        outcome = self.outcome()
        metadata = {
            key: outcome[key] for key in ("model", "confidence", "probability", "action", "memory_ids")
        }
        metadata["shown_from"] = self.context.shown_from
        if trail.question is not None:
            metadata["clarification"] = dataclasses.asdict(trail.question)
        turns: list[dict[str, Any]] = [call.turn() for call in self.context.calls]
        turns.append({"role": trail.role, "content": trail.reply, "metadata": metadata})
        if self._new_message is None:
            metadata["reply_to"] = self.context.reply_to
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
        asked = ids[0]["id"] if self.context.reply_to is None else self.context.reply_to
        assistant.apply(self._db, self.session_id, asked, self.context.changes)
        self._db.rows("select mindful._memory_shown($1)", ("bigint[]",), (self.context.memory_ids,))
