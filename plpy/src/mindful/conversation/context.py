"""What the model is shown for a message: chosen from the session, the memories, the summaries and the tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mindful.conversation import assistant, clarification, named
from mindful.conversation.clarification import Clarified
from mindful.conversation.correction import is_correction_of
from mindful.conversation.fixed import Fixed, fixed
from mindful.conversation.prompt import (
    LAYOUT,
    OWN,
    Context,
    Part,
    acknowledgements,
    example_of,
    lines,
    unframed,
)
from mindful.conversation.reading import Reading, read
from mindful.conversation.recall import Recall
from mindful.conversation.statement import states
from mindful.conversation.tool import Toolbox
from mindful.conversation.window import cost, first, fitting, from_user, turn_of, without_refrains
from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.core.ports import Database, Generator, ModelSpec, Row, Sampling
from mindful.generate.call import SYSTEM_PROMPT, tokens_of
from mindful.generate.sampling import sampling_of
from mindful.models import runtime

TURNS = 2
"""Turns that are read beyond chat_window: one may be the pending message, one more tells that there are others."""
_SUMMARY_SHARE = 8
"""Part of the context that summaries may fill: an eighth."""
_DEFAULT_PROMPT = "the default system prompt"
_SPEAKERS = {"user": "user"} | dict.fromkeys(OWN, "assistant")
"""Turns that are shown, and as whose: chat templates know no clarifications."""
_CANNOT = "the message asks to change what the assistant cannot (setting assistant_changes)"
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
    sampling, reading = sampling_of(max_tokens, 0.0, None), read(db, session_id, TURNS, spec.name, query)
    context = compose(db, spec, generator, reading, query, sampling, memories)
    tokens_of(generator, context.messages())  # raises where they do not fit
    return [part._asdict() for part in context.parts]


def compose(
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
    """Put together what a generator is shown for a message; without one, for the session's last message.

    With tools, those that the message asks for are called. Memories are as many as the setting says where it is None.
    The given texts stand in the prompt as memories, as they are, and nothing is recalled.
    """
    if memories is None:
        memories = reading.settings["chat_memories"]
    if not 0 <= memories <= 50:
        raise InvalidParameterError(f"memories is {memories}", "It must be between 0 and 50.")
    if message is None and reading.session_id is None:
        raise NullValueError(
            "message is null", "Give a message, or a session whose last message waits for an answer."
        )
    return _Composer(db, spec, generator, reading, tools, given).compose(message, sampling, memories)


def shown_again(
    db: Database, spec: ModelSpec, generator: Generator, message_id: int, subject: Row
) -> Context:
    """Put together again what was shown for a stored answer, as far as rows tell; see _review_subject."""
    composer = _Composer(db, spec, generator, read(db, subject["session_id"], 0, spec.name), None)
    turns = db.rows(
        "select role, content from _mindful.review_turns($1)",
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
        reading: Reading,
        tools: Toolbox | None,
        given: Sequence[str] = (),
    ) -> None:
        self._db = db
        self._spec = spec
        self._generator = generator
        self._reading = reading
        self._tools = tools
        self._given = given
        self._recall = Recall(db, reading, self.part)

    def compose(self, message: str | None, sampling: Sampling, memories: int) -> Context:
        system, turns, reply_to = self.system_prompt(), self._reading.turns, None
        if message is None:
            message, reply_to, turns = self._pending(turns)
        changes, refused = named.wanted(self._reading.settings, self._reading.prompts, message)
        reply = fixed(self._db, message) if refused is None else Fixed(refused, "abstain", _CANNOT)
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
        with_example = self._spec.options.get("example", True)
        acknowledges = self._acknowledges(message, turns, changes, clarified)
        around = self._around(layout, with_example, acknowledges)
        turns = self._since(turns)
        said = self._turn_parts(turns)
        # Turns that leave the window must stay recallable, so those that surely stay are chosen first.
        core_ids = {part.memory_id for part in core}
        staying = self._window(said, room * 2 // 3)
        shown = {part.memory_id for part in staying if part.role == "user"}  # replies are not recalled
        if self._given:
            recalled = self._recall.given(message, self._given)
        else:
            found = self._recall.parts(message, shown, core_ids, 0 if acknowledges else memories, clarified)
            recalled = fitting(found, room // 3 - around)
        calls = self._tools.use(message, room // 4) if self._tools else []
        called = [
            self.part("tool", "user", call.content, f"{call.outcome}, called for the message")
            for call in calls
        ]
        if recalled or called or acknowledges:
            room -= around + cost(recalled) + cost(called)
        summaries, window = self._summaries_and_window(turns, said, room)
        shown_from = turn_of(window[0], turns) if window else None
        told = {part.memory_id for part in window} - self._recall.answering()
        recalled = [part for part in recalled if part.memory_id not in told]
        parts = [system, *settings, *core, *summaries, *called, *recalled, *window, last]
        is_plain = not (changes or calls or self._recall.lessons) and system.reason == _DEFAULT_PROMPT
        return Context(
            parts,
            layout,
            shown_from,
            reply_to,
            changes,
            calls,
            self._recall.considered,
            clarified,
            self._recall.lessons,
            with_example,
            acknowledges,
            self._recall.bearing if is_plain and self._reading.settings["chat_unknown"] else None,
            reply,
        )

    def _acknowledges(
        self,
        message: str,
        turns: Sequence[Row],
        changes: Sequence[assistant.Change],
        clarified: Clarified | None,
    ) -> bool:
        wanted = self._spec.options.get("acknowledge", False)
        if not wanted or changes or clarified is not None:
            return False
        before = next((turn["content"] for turn in turns if turn["role"] == "user"), None)
        return states(message) or (before is not None and is_correction_of(before, message))

    def _around(self, layout: str, with_example: bool, acknowledges: bool) -> int:
        """Return the tokens that the layout, and the examples before it, add to a message."""
        example = acknowledgements() if acknowledges else example_of(layout) if with_example else []
        texts = [layout, *(message.content for message in example)]
        return sum(map(self._generator.count, texts)) + _MESSAGE_OVERHEAD * len(example)

    def system_prompt(self) -> Part:
        if prompt := self._reading.system_prompt:
            return self.part("system", "system", prompt, "the session's system prompt")
        if prompt := self._reading.settings["chat_system_prompt"]:
            return self.part("system", "system", prompt, "the setting chat_system_prompt")
        if prompt := self._spec.options.get("system_prompt"):
            return self.part("system", "system", str(prompt), "the model's option system_prompt")
        return self.part("system", "system", SYSTEM_PROMPT, _DEFAULT_PROMPT)

    def _settings(self, changes: Sequence[assistant.Change]) -> Iterator[Part]:
        asked = {change.key for change in changes}
        for key, line in assistant.prompt(self._reading.settings, self._reading.prompts, changes):
            reason = f"setting {key}" + (", as the message asks for" if key in asked else "")
            yield self.part("setting", "system", line, reason)

    def _core(self, room: int) -> list[Part]:
        parts = (
            self.part("core", "system", row["content"], "its metadata say core", row["id"])
            for row in self._interruptibly(self._reading.core)
        )
        return fitting(parts, min(room, self._reading.settings["core_memory_tokens"]))

    def _summaries_and_window(
        self, turns: Sequence[Row], said: Sequence[Part], room: int
    ) -> tuple[list[Part], list[Part]]:
        """Choose the turns that are shown, and the summaries of those before them."""
        window = self._window(said, room)
        summaries = self._summaries(turns, window, room)
        if cost(summaries) + cost(window) > room:  # then the window moves, to where it leaves room for them
            window = self._window(said, room - cost(summaries))
            summaries = self._summaries(turns, window, room - cost(window))
        return summaries, window

    def _summaries(self, turns: Sequence[Row], window: Sequence[Part], room: int) -> list[Part]:
        """Choose summaries of what was said before the window, the newest that fit a share of the context."""
        begins = turn_of(window[0], turns) if window else turns[0]["turn"] + 1 if turns else 1
        if begins == 1:
            return []
        rows = self._db.rows(
            "select id, content, first, last from _mindful.recap_shown($1, $2)",
            ("uuid", "integer"),
            (self._reading.session_id, begins),
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

    def _pending(self, turns: Sequence[Row]) -> tuple[str, int, Sequence[Row]]:
        if not turns or turns[0]["role"] != "user":
            raise NotReadyError(
                f"session {self._reading.session_id} has no message that waits for an answer",
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
        return [turn for turn in turns if turn["turn"] >= (self._reading.shown_from or 1)]

    def _turn_parts(self, turns: Sequence[Row]) -> list[Part]:
        """Return the turns that may be shown, newest first."""
        return [
            self.part(
                "turn",
                _SPEAKERS[turn["role"]],
                unframed(turn["content"]) if turn["role"] in OWN else turn["content"],
                f"turn {turn['turn']} of the window",
                turn["id"],
            )
            for turn in without_refrains(self._interruptibly(turns))
            if turn["role"] in _SPEAKERS
        ]

    def _window(self, said: Sequence[Part], room: int) -> list[Part]:
        """Choose the turns that are shown, oldest first: all while they fit, then half as many at once."""
        parts = [part for part in said if part.tokens <= room]  # one that would never fit hides no other
        # Half as many at once: the prompt then begins alike for many turns, and its state is used again.
        most = self._reading.settings["chat_window"]
        window = from_user(first(parts[:most], room))
        if len(window) < len(from_user(parts)):
            window = from_user(first(parts[: most // 2], room // 2)) or window
        return window[::-1]

    def part(
        self,
        part: str,
        role: str,
        content: str,
        reason: str,
        memory_id: int | None = None,
        score: float | None = None,
    ) -> Part:
        tokens = self._generator.count("\n".join(lines(part, content))) + _MESSAGE_OVERHEAD
        return Part(part, role, content, tokens, memory_id, score, reason)

    def _interruptibly(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Look for a cancel between rows."""
        for row in rows:
            self._db.check()
            yield row
