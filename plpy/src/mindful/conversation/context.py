"""What the model is shown for a message: chosen from the session, the memories, the summaries and the tools."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from mindful.conversation import assistant, bearing, change, clarification, named
from mindful.conversation.about import known
from mindful.conversation.bearing import Bearing
from mindful.conversation.bridge import named_instead
from mindful.conversation.clarification import Clarified
from mindful.conversation.correction import ASKED, FOLLOWING, corrected, is_bare, is_correction_of
from mindful.conversation.expected import answers, kind_of
from mindful.conversation.lesson import Lesson, lessons
from mindful.conversation.matter import BEARS
from mindful.conversation.near import Given
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
from mindful.conversation.statement import states
from mindful.conversation.tool import Toolbox
from mindful.conversation.window import cost, first, fitting, from_user, turn_of, without_refrains
from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.core.ports import Database, Generator, ModelSpec, Row, Sampling
from mindful.core.vector import to_text
from mindful.generate.call import SYSTEM_PROMPT, tokens_of
from mindful.generate.sampling import sampling_of
from mindful.models import runtime
from mindful.models.runtime import FoundEmbedder

_RELEVANT = 0.6
"""Share of the best memory's score that others must reach to be shown: weak ones mislead a small model."""
_RELATED = 0.3
"""Cosine similarity below which a memory that shares no word with the message has nothing to do with it."""
_WEIGHED = 6
"""Recalled memories, and newest turns, that are weighed as answers to the message."""
_BRIDGES = 3
"""Names that are tried in place of what the message describes. Each takes another recall."""
TURNS = 2
"""Turns that are read beyond chat_window: one may be the pending message, one more tells that there are others."""
_SUMMARY_SHARE = 8
"""Part of the context that summaries may fill: an eighth."""
_DEFAULT_PROMPT = "the default system prompt"
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
        self._considered: Sequence[Row] = ()
        self._lessons: Sequence[Lesson] = ()
        self._bearing: Bearing | None = None

    def compose(self, message: str | None, sampling: Sampling, memories: int) -> Context:
        system, turns, reply_to = self.system_prompt(), self._reading.turns, None
        if message is None:
            message, reply_to, turns = self._pending(turns)
        changes, reply = named.wanted(self._reading.settings, self._reading.prompts, message)
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
        said = self._said(turns)
        # Turns that leave the window must stay recallable, so those that surely stay are chosen first.
        core_ids = {part.memory_id for part in core}
        staying = self._window(said, room * 2 // 3)
        shown = {part.memory_id for part in staying if part.role == "user"}  # replies are not recalled
        if self._given:
            recalled = self._shown_as_given(message)
        else:
            found = self._recall(message, shown, core_ids, 0 if acknowledges else memories, clarified)
            recalled = fitting(found, room // 3 - around)
        calls = self._tools.use(message, room // 4) if self._tools else []
        called = [
            self.part("tool", "user", call.content, f"{call.outcome}, called for the message")
            for call in calls
        ]
        if recalled or called or acknowledges:
            room -= around + cost(recalled) + cost(called)
        summaries, window = self._told(turns, said, room)
        shown_from = turn_of(window[0], turns) if window else None
        told = {part.memory_id for part in window} - self._answering()
        recalled = [part for part in recalled if part.memory_id not in told]
        parts = [system, *settings, *core, *summaries, *called, *recalled, *window, last]
        is_plain = not (changes or calls or self._lessons) and system.reason == _DEFAULT_PROMPT
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
            with_example,
            acknowledges,
            self._bearing if is_plain and self._reading.settings["chat_unknown"] else None,
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

    def _told(self, turns: Sequence[Row], said: Sequence[Part], room: int) -> tuple[list[Part], list[Part]]:
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

    def _said(self, turns: Sequence[Row]) -> list[Part]:
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

    def _recall(
        self,
        message: str,
        shown: set[int | None],
        core: set[int | None],
        memories: int,
        clarified: Clarified | None,
    ) -> Iterator[Part]:
        if memories == 0:
            return
        embedder = runtime.default_embedder(self._db)
        name = embedder.name if embedder else None
        vector = to_text(embedder.embed(_compared(message))[0]) if embedder else None
        self._considered = rows = self._found(message, vector, name, memories + len(shown | core) + 5)
        if self._reading.labeled and self._reading.settings["chat_lessons"]:
            self._lessons = lessons(self._db, message, vector, name)
        lesson = next((one for one in self._lessons if one.content), None)
        if lesson and lesson.content:
            yield self.part("memory", "user", lesson.content, lesson.reason, lesson.memory_id)
            memories -= 1
        kept = related(rows, core | {one.memory_id for one in self._lessons}, message)
        if clarified is not None:
            kept = [row for row in kept if not clarified.rules_out(row["content"])]
        if embedder is not None and vector is not None and len(message) <= bearing.LONGEST:
            told = known(
                self._db,
                message,
                self._reading.settings["user_name"],
                self._reading.session_id,
                embedder,
                2 * memories,
                self._found,
            )
            if told is None:
                kept = self._weighed(kept, message, embedder, vector, max(_WEIGHED, memories))
            else:
                self._bearing, self._considered, memories = told[0], told[1], 2 * memories
                ruled_out = clarified.rules_out if clarified is not None else lambda _content: False
                kept = [row for row in told[1] if row["id"] not in core and not ruled_out(row["content"])]
        # A small model finds an answer among the memories, beside the message, far more often than among the turns.
        unshown = shown - self._answering()
        kept = [row for row in kept if row["id"] not in unshown]
        best = max((row["score"] for row in kept), default=0)
        takes_weak = self._bearing is not None and (self._bearing.everything or self._bearing.unknown)
        for row in self._interruptibly(kept[:memories]):
            if row["score"] < _RELEVANT * best and not takes_weak:
                continue
            found = {"similarity": row["similarity"], "BM25": row["bm25"]}
            reason = ", ".join(f"{name} {value:.2f}" for name, value in found.items() if value is not None)
            reason = reason or "tells of the user"
            yield self.part("memory", "user", row["content"], reason, row["id"], row["score"])

    def _answering(self) -> set[int | None]:
        """Return the memories that answer a question about the user's own matters."""
        return set(self._bearing.answering) if self._bearing is not None and self._bearing.own else set()

    def _shown_as_given(self, message: str) -> list[Part]:
        """Return the given texts as memories, and weigh them as answers to the message."""
        parts = [
            self.part("memory", "user", text, "given with the question", -at)
            for at, text in enumerate(self._given, start=1)
        ]
        embedder = runtime.default_embedder(self._db)
        if embedder is not None and len(message) <= bearing.LONGEST:
            contents = {-at: text for at, text in enumerate(self._given, start=1)}
            vector = to_text(embedder.embed([message])[0])
            near = Given(self._db, embedder, contents)
            self._bearing = bearing.weigh(self._db, message, embedder, vector, contents, near)
            self._considered = [
                {"id": id_, "content": text, "kind": "fact"} for id_, text in contents.items()
            ]
        return parts

    def _found(self, message: str, vector: str | None, embedder: str | None, most: int) -> Sequence[Row]:
        # A summary repeats turns that are recalled themselves, beside others that have nothing to do with the message.
        rows = self._db.rows(
            # LIMIT ends the scan of each session's index after the turns that may correct a statement.
            """select r.id, r.content, r.kind, r.role, r.score, r.similarity, r.bm25,
                   extract(epoch from r.created_at) as said_at, n.said_next
               from _mindful.memory_recall($1, _mindful.vector($2), $3, $4,
                   _mindful.chat_filter($5)) r
               left join lateral (
                   select array_agg(case when t.role = 'user' then left(t.content, 200) else $7 end order by t.turn)
                       filter (where t.role = 'user' or _mindful.ends_asking(t.content)) as said_next
                   from (
                       select m.content, m.role, m.turn from mindful.memory m
                       where m.tenant = (select _mindful.tenant()) and m.session_id = r.session_id and m.turn > r.turn
                       order by m.turn
                       limit $6
                   ) t
               ) n on r.role = 'user'
               where r.kind <> 'summary'""",
            ("text", "text", "text", "integer", "uuid", "integer", "text"),
            (message, vector, embedder, most, self._reading.session_id, FOLLOWING, ASKED),
        )
        corrections = self._corrections(
            [row for row in rows if row["role"] == "user" and is_bare(row["content"])]
        )
        return [
            {**row, "content": corrected(row["content"], row["said_next"] or ())}
            for row in rows
            if row["id"] not in corrections
        ]

    def _corrections(self, messages: Sequence[Row]) -> set[int]:
        """Return which messages only correct the statement before them."""
        if not messages:
            return set()
        before = self._db.rows(
            """select m.id, m.content, (
                   select b.content from mindful.memory b
                   where b.tenant = m.tenant and b.session_id = m.session_id and b.turn < m.turn and b.role = 'user'
                   order by b.turn desc
                   limit 1
               ) as statement
               from mindful.memory m
               where m.tenant = (select _mindful.tenant()) and m.id = any ($1)""",
            ("bigint[]",),
            ([message["id"] for message in messages],),
        )
        return {
            row["id"]
            for row in before
            if row["statement"] and is_correction_of(row["statement"], row["content"])
        }

    def _bridged(self, found: Bearing, embedder: FoundEmbedder, most: int) -> list[Row]:
        """Return the memory that answers the question about what another one names, and that other one."""
        for naming, name, question in islice(named_instead(found), _BRIDGES):
            if bridged := self._after_naming(found, naming, name, question, embedder, most):
                return bridged
        return []

    def _after_naming(
        self, found: Bearing, naming: int, name: str, question: str, embedder: FoundEmbedder, most: int
    ) -> list[Row]:
        """Return the memory that answers a question with a name, and the naming one, if it does better than `found`."""
        vector = to_text(embedder.embed([question])[0])
        rows = {
            row["id"]: row
            for row in self._found(question, vector, embedder.name, most)
            if row["role"] not in OWN and row["id"] != naming and row["id"] not in found.outdated
        }
        contents = {id_: row["content"] for id_, row in rows.items() if name in row["content"]}
        if not contents:
            return []
        then = bearing.weigh(self._db, question, embedder, vector, contents, is_described=True)
        then = then.replaced(change.outdated(self._db, then, [rows[id_] for id_ in contents]))
        if then.best <= found.best:
            return []
        self._bearing = then.after(found.contents[naming])
        second = rows[then.answering[0]]
        others = [row for row in self._considered if row["id"] != second["id"]]
        self._considered = [second, *others]
        return [second, *(row for row in others if row["id"] == naming)]

    def _weighed(
        self,
        kept: list[Row],
        message: str,
        embedder: FoundEmbedder,
        vector: str,
        most: int,
    ) -> list[Row]:
        """Weigh memories as answers: those that a newer one replaces are left out, and the most similar come first."""
        rows = [row for row in self._considered if row["role"] not in OWN][:most]
        known = (*rows, *self._reading.turns[:_WEIGHED], *self._reading.core)
        contents = {row["id"]: row["content"] for row in known}
        weigh = partial(bearing.weigh, self._db, message, embedder, vector)
        found = weigh(contents)
        kept = [
            row
            for row in kept
            if found.says_anything(row["id"]) and found.concerns(row["id"], row["similarity"] is not None)
        ]
        found, kept = self._newest(found, kept, most, embedder, weigh)
        self._bearing = found
        if bridged := self._bridged(found, embedder, most):
            return bridged
        if kind_of(found.question) != "other":  # else too much passes for an answer to leave the rest out
            kept = [row for row in kept if row["id"] in found.answering] or kept
        best = max((row["score"] for row in kept), default=1) or 1
        may_be = answers(found.question) if found.unknown else None
        answering = {id_: place for place, id_ in enumerate(found.answering)}
        rest = sorted(
            kept,
            key=lambda row: (
                answering.get(row["id"], len(answering)),
                may_be is not None and not may_be(row["content"]),
                -(row["score"] / best + (row["similarity"] or 0)),
            ),
        )
        return found.newest_first(rest)

    def _newest(
        self,
        found: Bearing,
        kept: list[Row],
        most: int,
        embedder: FoundEmbedder,
        weigh: Callable[[dict[int, str]], Bearing],
    ) -> tuple[Bearing, list[Row]]:
        """Leave out memories that newer ones replace, and add such newer ones as recall did not find."""
        found = found.replaced(change.outdated(self._db, found, kept[:most]))
        present = {row["id"] for row in kept}
        later = change.later_changes(self._db, found, embedder, self._reading.session_id)
        if later := [row for row in later if row["id"] not in present]:
            then = weigh(found.contents | {row["id"]: row["content"] for row in later})
            gone = change.outdated(self._db, then, [*later, *kept[:most]])
            if used := [row for row in later if row["id"] in gone.values()]:
                best = max((row["score"] for row in kept), default=0.0)
                found, kept = then.replaced(gone), [*({**row, "score": best} for row in used), *kept]
        return found, [row for row in kept if row["id"] not in found.outdated]

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


def _compared(message: str) -> list[str]:
    """Return what is compared with memories: two texts at once take little longer to embed than one."""
    question = bearing.question_of(message) if len(message) <= bearing.LONGEST else message
    return list(dict.fromkeys((message, question)))


def related(rows: Sequence[Row], shown: Container[int | None], message: str) -> list[Row]:
    """Keep the statements of a recall that bear on the message and are not in the prompt for another reason."""
    return [
        row
        for row in rows
        if row["id"] not in shown
        and row["content"] != message
        and (row["similarity"] is None or row["similarity"] >= BEARS)
        and (row["bm25"] is not None or (row["similarity"] or 0) >= _RELATED)
    ]
