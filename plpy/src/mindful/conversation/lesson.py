"""Labels of answers to questions similar to the present one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mindful.core.ports import Database
from mindful.core.text import words

_ALIKE = 0.85
"""Least cosine similarity of two questions that count as similar (docs/decisions.md)."""


_CANDIDATES = 20
"""Number of memories that are searched for similar questions."""


class Lesson(NamedTuple):
    """A similar earlier question, its answer, and whether the answer was right."""

    memory_id: int
    question: str
    message_id: int
    answer: str
    correct: bool
    note: str | None
    similarity: float

    @property
    def content(self) -> str | None:
        """What there is to be learned: what the label of a wrong answer notes.

        Right answers are not shown, which the model gives without them more often than with (docs/confidence.md), nor
        that one was wrong: a small model takes up whatever stands in its prompt.
        """
        return f"{self.question} {self.note}" if self.note and not self.correct else None

    @property
    def reason(self) -> str:
        """The reason for showing it."""
        return f"asked before, similarity {self.similarity:.2f}: answer {self.message_id} was labeled wrong"


def lessons(
    db: Database, question: str, vector: str | None, embedder: str | None, session_id: str | None = None
) -> list[Lesson]:
    """Return the labeled answers to questions like this one, the most similar question first.

    As recall for a chat does, it reads those within the setting recall_scope of the session.
    """
    recalled = db.rows(
        """select id, similarity
           from _mindful.memory_recall($1, _mindful.vector($2), $3, $4,
               _mindful.chat_filter($6, false, '{message}'))
           where role = 'user' and similarity >= $5""",
        ("text", "text", "text", "integer", "double precision", "uuid"),
        (question, vector, embedder, _CANDIDATES, _ALIKE, session_id),
    )
    alike = {row["id"]: row["similarity"] for row in recalled}
    if not alike:
        return []
    rows = db.rows(
        "select memory_id, question, message_id, answer, correct, note from _mindful.lesson($1, $2)",
        ("bigint[]", "uuid"),
        (list(alike), session_id),
    )
    found = [Lesson(**row, similarity=alike[row["memory_id"]]) for row in rows]
    return sorted(found, key=lambda lesson: -lesson.similarity)


def learned(lessons: Sequence[Lesson], answer: str) -> dict[str, float]:
    """Return the signal of the most similar labeled question, and of those that had this same answer.

    A signal is the similarity of the questions: positive if the earlier answer was right, negative if it was wrong.
    """
    same = [lesson for lesson in lessons if words(lesson.answer) == words(answer)]
    return {"lesson": _verdict(lessons), "lesson_same": _verdict(same)}


def _verdict(lessons: Sequence[Lesson]) -> float:
    signed = (lesson.similarity if lesson.correct else -lesson.similarity for lesson in lessons)
    return max(signed, key=abs, default=0.0)


def is_repeated(signals: Mapping[str, float]) -> bool:
    """Return whether the answer was labeled wrong as the answer to a similar question."""
    return signals.get("lesson_same", 0.0) < 0
