"""What the model is shown for a message: chosen from the session, the memories, the summaries and the tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Sequence
from typing import Any

from mindful import assistant, clarification, runtime
from mindful.call import SYSTEM_PROMPT, sampling_of, tokens_of
from mindful.clarification import Clarified
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError, NotReadyError, NullValueError, UndefinedObjectError
from mindful.lesson import Lesson, lessons
from mindful.ports import Database, Generator, ModelSpec, Row, Sampling
from mindful.prompt import LAYOUT, OWN, Context, Part, lines
from mindful.setting import setting_get
from mindful.tool import Toolbox
from mindful.window import cost, first, fitting, from_user, turn_of

_RELEVANT = 0.6
"""Share of the best memory's score that others must reach to be shown: weak ones mislead a small model."""
_RELATED = 0.25
"""Cosine similarity below which a memory that shares no word with the message has nothing to do with it."""
_WINDOW = 30
"""Newest turns of a session that may be shown. When there are more, or they do not fit, half as many are: the prompt
then begins alike for many turns, and what was computed of it is used again (docs/decisions.md)."""
_SUMMARY_SHARE = 8
"""Part of the context that summaries may fill: an eighth."""
_SPEAKERS = {"user": "user"} | dict.fromkeys(OWN, "assistant")
"""Turns that are shown, and as whose: chat templates know no clarifications."""
_MESSAGE_OVERHEAD = 8
"""Tokens that a chat template adds to a message, at most, in the models this was tried with."""


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
    spec, generator = runtime.generator(db, model)
    context = compose(db, spec, generator, session_id, query, sampling_of(max_tokens, 0.0, None), memories)
    tokens_of(generator, context.messages())  # raises where they do not fit
    return [dataclasses.asdict(part) for part in context.parts]


def compose(
    db: Database,
    spec: ModelSpec,
    generator: Generator,
    session_id: str | None,
    message: str | None,
    sampling: Sampling,
    memories: int | None,
    tools: Toolbox | None = None,
) -> Context:
    """Put together what a generator is shown for a message; without one, for the session's last message.

    With tools, those that the message asks for are called. Memories are as many as the setting says where it is None.
    """
    if memories is None:
        memories = setting_get(db, "chat_memories", session_id)
    if not 0 <= memories <= 50:
        raise InvalidParameterError(f"memories is {memories}", "It must be between 0 and 50.")
    if message is None and session_id is None:
        raise NullValueError(
            "message is null", "Give a message, or a session whose last message waits for an answer."
        )
    if message is not None:
        db.rows("select mindful._text_argument('message', $1)", ("text",), (message,))
    return _Composer(db, spec, generator, session_id, tools).compose(message, sampling, memories)


def shown_again(
    db: Database, spec: ModelSpec, generator: Generator, message_id: int, subject: Row
) -> Context:
    """Put together again what was shown for a stored answer, as far as rows tell; see _review_subject."""
    composer = _Composer(db, spec, generator, subject["session_id"], None)
    turns = db.rows(
        "select role, content from mindful._review_turns($1)",
        ("bigint",),
        (message_id,),
    )
    return Context(
        [
            composer.system_prompt(),
            *(composer.part("memory", "user", text, "shown for the answer") for text in subject["memories"]),
            *(composer.part("turn", turn["role"], turn["content"], "before the answer") for turn in turns),
            composer.part("message", "user", subject["question"], "answered"),
        ],
        spec.options.get("layout", LAYOUT),
    )


class _Composer:
    def __init__(
        self,
        db: Database,
        spec: ModelSpec,
        generator: Generator,
        session_id: str | None,
        tools: Toolbox | None,
    ) -> None:
        self._db = db
        self._spec = spec
        self._generator = generator
        self._session_id = session_id
        self._tools = tools
        self._considered: Sequence[Row] = ()
        self._lessons: Sequence[Lesson] = ()

    def compose(self, message: str | None, sampling: Sampling, memories: int) -> Context:
        system, turns, reply_to = self.system_prompt(), self._turns(), None
        if message is None:
            message, reply_to, turns = self._pending(turns)
        changes = assistant.wanted(self._db, self._session_id, message)
        clarified = self._clarified(turns, message)
        if clarified is not None:
            message = clarified.message or message
        last = self.part("message", "user", message, "to be answered")
        length = self._generator.context_length
        room = length - min(sampling.max_tokens, length // 2) - system.tokens - last.tokens
        settings = list(self._settings(changes))
        room -= cost(settings)
        core = self._core(room // 4)
        room -= cost(core)
        layout = self._spec.options.get("layout", LAYOUT)
        around = self._generator.count(layout)
        turns = self._since(turns)
        shown = {row["id"] for row in turns} | {part.memory_id for part in core}
        recalled = fitting(self._recall(message, shown, memories), room // 3 - around)
        calls = self._tools.use(message, room // 4) if self._tools else []
        called = [
            self.part("tool", "user", call.content, f"{call.outcome}, called for the message")
            for call in calls
        ]
        if recalled or called:
            room -= around + cost(recalled) + cost(called)
        summaries, window = self._told(turns, room)
        shown_from = turn_of(window[0], turns) if window else None
        parts = [system, *settings, *core, *summaries, *called, *recalled, *window, last]
        return Context(
            parts,
            layout,
            shown_from,
            reply_to,
            changes,
            calls,
            self._considered,
            clarified,
            self._lessons,
        )

    def system_prompt(self) -> Part:
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
        if prompt:
            return self.part("system", "system", prompt, "the session's system prompt")
        if prompt := self._spec.options.get("system_prompt"):
            return self.part("system", "system", str(prompt), "the model's option system_prompt")
        return self.part("system", "system", SYSTEM_PROMPT, "the default system prompt")

    def _settings(self, changes: Sequence[assistant.Change]) -> Iterator[Part]:
        asked = {change.key for change in changes}
        for row in assistant.prompt(self._db, self._session_id, changes):
            reason = f"setting {row['key']}" + (", as the message asks for" if row["key"] in asked else "")
            yield self.part("setting", "system", row["line"], reason)

    def _core(self, room: int) -> list[Part]:
        rows = self._db.rows(
            """select c.id, c.content, mindful.setting_get('core_memory_tokens', $1)::integer as tokens
               from mindful._core_memory() c""",
            ("uuid",),
            (self._session_id,),
        )
        parts = (
            self.part("core", "system", row["content"], "its metadata say core", row["id"])
            for row in self._interruptibly(rows)
        )
        return fitting(parts, min(room, rows[0]["tokens"])) if rows else []

    def _told(self, turns: Sequence[Row], room: int) -> tuple[list[Part], list[Part]]:
        """Choose the turns that are shown, and the summaries of those before them."""
        window = self._window(turns, room)
        summaries = self._summaries(turns, window, room)
        if cost(summaries) + cost(window) > room:  # then the window moves, to where it leaves room for them
            window = self._window(turns, room - cost(summaries))
            summaries = self._summaries(turns, window, room - cost(window))
        return summaries, window

    def _summaries(self, turns: Sequence[Row], window: Sequence[Part], room: int) -> list[Part]:
        """Choose summaries of what was said before the window, the newest that fit a share of the context."""
        begins = turn_of(window[0], turns) if window else turns[0]["turn"] + 1 if turns else 1
        if begins == 1:
            return []
        rows = self._db.rows(
            "select id, content, first, last from mindful._recap_shown($1, $2)",
            ("uuid", "integer"),
            (self._session_id, begins),
        )
        parts = (
            self.part(
                "summary",
                "system",
                row["content"],
                f"turns {row['first']} to {row['last']}, which left the window",
                row["id"],
            )
            for row in rows
        )
        return fitting(parts, min(room, self._generator.context_length // _SUMMARY_SHARE))[::-1]

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

    def _clarified(self, turns: Sequence[Row], message: str) -> Clarified | None:
        """Read the message as the reply to a question that was asked back, if that is the turn before it."""
        if not turns or turns[0]["role"] != "clarification":
            return None
        return clarification.resolve(self._db, turns[0]["id"], message)

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
            self.part(
                "turn",
                _SPEAKERS[turn["role"]],
                turn["content"],
                f"turn {turn['turn']} of the window",
                turn["id"],
            )
            for turn in self._interruptibly(turns)
            if turn["role"] in _SPEAKERS
        ]
        parts = [part for part in parts if part.tokens <= room]  # one that would never fit hides no other
        window = from_user(first(parts[:_WINDOW], room))
        if len(window) < len(from_user(parts)):
            window = from_user(first(parts[: _WINDOW // 2], room // 2)) or window
        return window[::-1]

    def _recall(self, message: str, shown: set[int | None], memories: int) -> Iterator[Part]:
        if memories == 0:
            return
        rows = self._db.rows(
            """select id, content, role, score, similarity, bm25 from mindful.memory_recall($1, $2)
               where kind <> 'summary' or session_id is distinct from $3""",
            ("text", "integer", "uuid"),
            (message, memories + len(shown) + 5, self._session_id),
        )
        self._considered = rows
        self._lessons = lessons(self._db, rows, self._session_id)
        lesson = next((one for one in self._lessons if one.content), None)
        if lesson and lesson.content:
            yield self.part("memory", "user", lesson.content, lesson.reason, lesson.memory_id)
            memories -= 1
        kept = related(rows, shown | {one.memory_id for one in self._lessons}, message)
        for row in self._interruptibly(kept[:memories]):
            if row["score"] < _RELEVANT * kept[0]["score"]:
                break
            found = {"similarity": row["similarity"], "BM25": row["bm25"]}
            reason = ", ".join(f"{name} {value:.2f}" for name, value in found.items() if value is not None)
            yield self.part("memory", "user", row["content"], reason, row["id"], row["score"])

    def part(
        self,
        part: str,
        role: str,
        content: str,
        reason: str,
        memory_id: int | None = None,
        score: float | None = None,
    ) -> Part:
        tokens = self._generator.count("\\n".join(lines(part, content))) + _MESSAGE_OVERHEAD
        return Part(part, role, content, tokens, memory_id, score, reason)

    def _interruptibly(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Look for a cancel between rows."""
        for row in rows:
            self._db.check()
            yield row


def related(rows: Sequence[Row], shown: Container[int | None], message: str) -> list[Row]:
    """Keep what recall found that has to do with the message and is not shown anyway.

    The model's own words are not evidence, and the question asked before is not its answer.
    """
    return [
        row
        for row in rows
        if row["id"] not in shown
        and row["role"] not in OWN
        and row["content"] != message
        and (row["bm25"] is not None or (row["similarity"] or 0) >= _RELATED)
    ]
