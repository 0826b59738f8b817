"""What labels say of answers to questions like the one that is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mindful.ports import Database, Row
from mindful.signal import Signals, words

_ALIKE = 0.8
"""Cosine similarity from which on two questions ask much the same (docs/decisions.md)."""


@dataclass(frozen=True)
class Lesson:
    """A like question that was asked before, its answer, and whether that was right."""

    memory_id: int
    question: str
    message_id: int
    answer: str
    correct: bool
    note: str | None
    similarity: float

    @property
    def content(self) -> str | None:
        """What there is to be learned: the right answer, or what its label notes of a wrong one.

        That an answer was wrong is not said: a small model takes up whatever stands in its prompt.
        """
        known = self.answer if self.correct else self.note
        return f"{self.question} {known}" if known else None

    @property
    def reason(self) -> str:
        """Why it is shown."""
        verdict = "right" if self.correct else "wrong, and what the label notes"
        return (
            f"asked before, similarity {self.similarity:.2f}: answer {self.message_id} was labelled {verdict}"
        )


def lessons(db: Database, recalled: Sequence[Row], session_id: str | None) -> list[Lesson]:
    """Find what labels say of the like questions among recalled memories, the likest first."""
    alike = {
        row["id"]: row["similarity"]
        for row in recalled
        if row["role"] == "user" and (row["similarity"] or 0) >= _ALIKE
    }
    if not alike:
        return []
    rows = db.rows(
        """select * from mindful._lesson($1) where mindful.setting_get('chat_lessons', $2) = 'true'""",
        ("bigint[]", "uuid"),
        (list(alike), session_id),
    )
    found = [Lesson(**row, similarity=alike[row["memory_id"]]) for row in rows]
    return sorted(found, key=lambda lesson: -lesson.similarity)


def learned(lessons: Sequence[Lesson], answer: str) -> Signals:
    """How like a question was answered rightly, or wrongly if negative; and with this same answer."""
    same = [lesson for lesson in lessons if words(lesson.answer) == words(answer)]
    return {"lesson": _verdict(lessons), "lesson_same": _verdict(same)}


def _verdict(lessons: Sequence[Lesson]) -> float:
    signed = (lesson.similarity if lesson.correct else -lesson.similarity for lesson in lessons)
    return max(signed, key=abs, default=0.0)


def is_repeated(signals: Mapping[str, float]) -> bool:
    """Tell whether the answer is one that was labelled wrong as the answer to a like question."""
    return signals.get("lesson_same", 0.0) < 0
