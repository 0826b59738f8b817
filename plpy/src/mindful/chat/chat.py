"""Conversations: a message, its reply, and both turns remembered."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mindful.confidence import action
from mindful.confidence.action import Trail
from mindful.confidence.decision import Decision
from mindful.conversation import assistant, clarification
from mindful.conversation.context import TURNS
from mindful.conversation.reading import read
from mindful.conversation.recap import keep_up
from mindful.conversation.reply import (
    Reply,
    is_checked,
    is_unanswered,
    prepared,
    settled,
    spoken,
)
from mindful.conversation.state import ConversationState
from mindful.conversation.tool import Toolbox
from mindful.core.entry import writing_function
from mindful.core.errors import InvalidParameterError
from mindful.core.ports import Database, Sampling
from mindful.generate.call import BLANK, Call, tokens_of
from mindful.generate.sampling import Drawing, most, sampling_of
from mindful.models import runtime


class Arguments(NamedTuple):
    """How a message is answered: the arguments of llm_chat after the message, in their order."""

    session_id: str | None
    model: str | None
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    memories: int | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repeat_penalty: float | None

    def sampling(self, settings: Mapping[str, Any]) -> Sampling:
        """Check the sampling arguments and return them; the settings chat_... replace those that are NULL."""

        def value(name: str) -> Any:
            passed = getattr(self, name)
            return settings[f"chat_{name}"] if passed is None else passed

        sampling = sampling_of(most(self.max_tokens), value("temperature"), self.seed)
        return Drawing(*map(value, Drawing._fields)).of(sampling)


# `arguments` are the fields of Arguments. The SQL functions name them, with their defaults.


@writing_function
def llm_chat(db: Database, message: str | None, *arguments: Any) -> str:
    """Answer a message."""
    return Chat(db, message, Arguments(*arguments)).answer()


@writing_function
def llm_chat_detail(db: Database, message: str | None, *arguments: Any) -> dict[str, Any]:
    """Answer a message, and tell where the reply is, what it rests on, what it cost and how sure it is."""
    chat = Chat(db, message, Arguments(*arguments))
    return {"reply": chat.answer()} | chat.outcome()


@writing_function
def llm_chat_stream(db: Database, message: str | None, *arguments: Any) -> Iterator[str]:
    """Answer a message piece by piece."""
    yield from Chat(db, message, Arguments(*arguments)).stream()


class Chat:
    """One message and its reply.

    Everything is read first, then the reply is generated, then both turns are written: no row is locked
    while the model runs.
    """

    def __init__(
        self,
        db: Database,
        message: str | None,
        given: Arguments,
    ) -> None:
        self._db = db
        self._spec, self._generator = runtime.generator(db, given.model)
        reading = read(db, given.session_id, TURNS, self._spec.name, message)
        self._settings = reading.settings
        self._sampling = given.sampling(reading.settings)
        tools = Toolbox(db, self._spec, self._generator, reading.settings)
        self.context = prepared(
            db, self._spec, self._generator, reading, message, self._sampling, given.memories, tools
        )
        self.session_id = given.session_id or str(uuid.uuid4())
        self._is_new = given.session_id is None
        self._new_message = message
        self._tokens = tokens_of(self._generator, self.context.messages())
        room = self._generator.context_length - len(self._tokens)
        self._sampling = self._sampling._replace(max_tokens=min(self._sampling.max_tokens, room))
        self._call = Call(
            self._spec,
            self._generator,
            self._tokens,
            self._sampling,
            logged=reading.settings["generation_log"],
        )
        self._state = ConversationState(db, self._spec, self._generator, self.session_id)
        self._message_id: int | None = None
        self._wanted = action.settings(reading.settings)
        self._decision: Decision | None = None
        self._decision_id: int | None = None

    def answer(self) -> str:
        """Generate the whole reply, and store both turns."""
        if is_unanswered(self.context):
            return self._without_answer()
        self._prepare()
        text = self._call.answer(self._db, self.context.memory_ids)
        return self._finish(settled(self.context, text), self._wanted) + self._notice()

    def stream(self) -> Iterator[str]:
        """Yield the reply as it is made, then store both turns. One that memories must bear out comes whole."""
        if is_unanswered(self.context):
            yield self._without_answer()
            return
        if asked := self._asked_before():
            yield asked
            return
        self._prepare()
        pieces = self._call.stream(self._db, self.context.memory_ids)
        if is_checked(self.context):  # What has been read cannot be taken back.
            yield self._finish(settled(self.context, "".join(pieces)), self._wanted)
        else:
            text = ""
            for piece in pieces:
                text += piece
                yield piece
            reply = spoken(text)
            if not text.strip(BLANK):
                yield reply.text
            self._finish(reply, self._wanted.flagging(), streamed=True)
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

    def _without_answer(self) -> str:
        self._call.skip()
        trail = action.without_answer(self._db, self._wanted, self._call, self.context, self._sampling)
        return self._stored(trail)

    def _asked_before(self) -> str | None:
        trail = action.before_answer(self._db, self._wanted, self._call, self.context, self._sampling)
        if trail is None:
            return None
        self._call.skip()
        return self._stored(trail)

    def _prepare(self) -> None:
        # A seed asks for the same text again: its prompt is evaluated anew.
        if self._sampling.seed is None:
            self._state.restore(self._tokens)

    def _notice(self) -> str:
        assert self._decision is not None
        flagged = self._wanted.chat_flag_notice and self._decision.unsure and bool(self._decision.signals)
        return action.notice(self._decision) if flagged else ""

    def _finish(self, reply: Reply, wanted: action.Settings, streamed: bool = False) -> str:
        """Do what follows from how sure the reply is, store it, and return what is shown."""
        stored = None if self._is_new else self.session_id
        trail = action.act(self._db, wanted, self._call, self.context, self._sampling, reply, stored)
        if not streamed:
            action.withhold(trail)
        return self._stored(trail)

    def _stored(self, trail: Trail) -> str:
        """Store an attempt's turns and decisions, and return the reply."""
        reply, self._decision = trail.reply, trail.decision
        self.context, self._call = trail.standing.context, trail.standing.call
        self._store(trail)
        clarified = self.context.clarified
        asked = None if clarified is None else clarified.decision_id
        self._decision_id = trail.record(self._message_id, asked)
        if clarified is not None:
            clarification.close(self._db, clarified)
        keep_up(self._db, self._spec, self._generator, self.session_id, self._settings["session_summary"])
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
            metadata["clarification"] = trail.question._asdict()
        turns: list[dict[str, Any]] = [call.turn() for call in self.context.calls]
        turns.append({"role": trail.role, "content": trail.reply, "metadata": metadata})
        if self._new_message is None:
            metadata["reply_to"] = self.context.reply_to
        else:
            turns.insert(0, {"role": "user", "content": self._new_message})
        ids = self._db.rows(
            "select _mindful.turn_insert($1, $2, $3, $4) as id",
            ("uuid", "text", "jsonb", "bigint[]"),
            (
                self.session_id,
                (self._new_message or "")[:60] if self._is_new else None,
                json.dumps(turns),
                self.context.memory_ids,
            ),
        )
        self._message_id = ids[-1]["id"]
        asked = ids[0]["id"] if self.context.reply_to is None else self.context.reply_to
        assistant.apply(self._db, self.session_id, asked, self.context.changes)
