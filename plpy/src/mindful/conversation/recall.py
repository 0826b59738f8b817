"""Which memories a chat is shown for a message, and how they bear on it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import islice

from mindful.conversation import bearing, change
from mindful.conversation.about import known
from mindful.conversation.bearing import Bearing
from mindful.conversation.bridge import named_instead
from mindful.conversation.clarification import Clarified
from mindful.conversation.expected import answers, kind_of, sentences
from mindful.conversation.lesson import Lesson, lessons
from mindful.conversation.matter import BEARS
from mindful.conversation.near import Given
from mindful.conversation.prompt import OWN, Part
from mindful.conversation.reading import Reading
from mindful.conversation.restated import restated
from mindful.conversation.statement import declares
from mindful.core.ports import Database, Row
from mindful.core.vector import to_text
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


class Recall:
    """Finds memories for one message; what it found out is kept for the rest of the turn."""

    def __init__(self, db: Database, reading: Reading, part: Callable[..., Part]) -> None:
        self._db = db
        self._reading = reading
        self._part = part
        self.considered: Sequence[Row] = ()
        """All that was found, as answers may be checked against it."""
        self.lessons: Sequence[Lesson] = ()
        self.bearing: Bearing | None = None

    def parts(
        self,
        message: str,
        shown: set[int | None],
        core: set[int | None],
        memories: int,
        clarified: Clarified | None,
    ) -> Iterator[Part]:
        """Yield the memories to show, the best first; those in the prompt for another reason are left out."""
        if memories == 0:
            return
        embedder = runtime.default_embedder(self._db)
        name = embedder.name if embedder else None
        vector = to_text(embedder.embed(_compared(message))[0]) if embedder else None
        self.considered = rows = self._found(message, vector, name, memories + len(shown | core) + 5)
        if self._reading.labeled and self._reading.settings["chat_lessons"]:
            self.lessons = lessons(self._db, message, vector, name, self._reading.session_id)
        lesson = next((one for one in self.lessons if one.content), None)
        if lesson and lesson.content:
            yield self._part("memory", "user", lesson.content, lesson.reason, lesson.memory_id)
            memories -= 1
        ruled_out = clarified.rules_out if clarified is not None else lambda _content: False
        kept = related(rows, core | {one.memory_id for one in self.lessons}, message)
        kept = [row for row in kept if not ruled_out(row["content"])]
        if embedder is not None and vector is not None and len(message) <= bearing.LONGEST:
            told = self._known(message, embedder, 2 * memories)
            if told is None:
                kept = self._weighed(kept, message, embedder, vector, max(_WEIGHED, memories))
            else:
                memories *= 2
                kept = [row for row in told if row["id"] not in core and not ruled_out(row["content"])]
        # A small model finds an answer among the memories, beside the message, far more often than among the turns.
        unshown = shown - self.answering()
        yield from self._shown([row for row in kept if row["id"] not in unshown], memories)

    def answering(self) -> set[int | None]:
        """Return the memories that answer a question about the user's own matters."""
        return set(self.bearing.answering) if self.bearing is not None and self.bearing.own else set()

    def given(self, message: str, texts: Sequence[str]) -> list[Part]:
        """Return the given texts as memories, and weigh them as answers to the message."""
        parts = [
            self._part("memory", "user", text, "given with the question", -at)
            for at, text in enumerate(texts, start=1)
        ]
        embedder = runtime.default_embedder(self._db)
        if embedder is not None and len(message) <= bearing.LONGEST:
            self.bearing = self._weighed_as_answers(message, texts, embedder)
            self.considered = [
                {"id": -at, "content": text, "kind": "fact"} for at, text in enumerate(texts, start=1)
            ]
        return parts

    def _shown(self, kept: Sequence[Row], most: int) -> Iterator[Part]:
        """Yield memories with the reasons to show them; those that match far less than the best are left out."""
        best = max((row["score"] for row in kept), default=0)
        takes_weak = self.bearing is not None and (self.bearing.everything or self.bearing.unknown)
        for row in kept[:most]:
            self._db.check()
            if row["score"] < _RELEVANT * best and not takes_weak:
                continue
            found = {"similarity": row["similarity"], "BM25": row["bm25"]}
            reason = ", ".join(f"{name} {value:.2f}" for name, value in found.items() if value is not None)
            reason = reason or "tells of the user"
            yield self._part("memory", "user", row["content"], reason, row["id"], row["score"])

    def _known(self, message: str, embedder: FoundEmbedder, most: int) -> Sequence[Row] | None:
        """Return what is known of what the message asks to be told of; None for another message."""
        name, session_id = self._reading.settings["user_name"], self._reading.session_id
        told = known(self._db, message, name, session_id, embedder, most, self._found)
        if told is None:
            return None
        self.bearing, self.considered = told
        return self.considered

    def _found(self, message: str, vector: str | None, embedder: str | None, most: int) -> Sequence[Row]:
        # A summary repeats turns that are recalled themselves, beside others that have nothing to do with the message.
        rows = self._db.rows(
            """select r.id, r.content, r.kind, r.role, r.score, r.similarity, r.bm25,
                   extract(epoch from r.created_at) as said_at, n.said_next
               from _mindful.memory_recall($1, _mindful.vector($2), $3, $4,
                   _mindful.chat_filter($5)) r
               left join lateral _mindful.said_next(r.session_id, r.turn) n on r.role = 'user'
               where r.kind <> 'summary'""",
            ("text", "text", "text", "integer", "uuid"),
            (message, vector, embedder, most, self._reading.session_id),
        )
        return restated(self._db, rows)

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
        self.bearing = then.after(found.contents[naming])
        second = rows[then.answering[0]]
        others = [row for row in self.considered if row["id"] != second["id"]]
        self.considered = [second, *others]
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
        rows = [row for row in self.considered if row["role"] not in OWN][:most]
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
        if found.unknown and self._tells_itself(message, embedder):
            found = found._replace(own=False)  # the model answers from the message
        self.bearing = found
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

    def _tells_itself(self, message: str, embedder: FoundEmbedder) -> bool:
        """Return whether a message states what it then asks: "I have two dogs, Rex and Bo. What are they called?"."""
        said = sentences(message)
        told = [sentence for sentence in said[:-1] if declares(sentence)]
        if not told or not said[-1].endswith("?"):
            return False
        return bool(self._weighed_as_answers(said[-1], told, embedder).answering)

    def _weighed_as_answers(self, question: str, texts: Sequence[str], embedder: FoundEmbedder) -> Bearing:
        """Weigh texts that are no memories, as answers to a question. Their ids are -1, -2, ..."""
        contents = {-at: text for at, text in enumerate(texts, start=1)}
        vector = to_text(embedder.embed([question])[0])
        near = Given(self._db, embedder, contents)
        return bearing.weigh(self._db, question, embedder, vector, contents, near)

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
