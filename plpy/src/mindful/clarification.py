"""Asking back: a question made of the choices that an answer has, and what the reply to it settles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mindful.ports import Database
from mindful.signal import words

_MOST = 3
_LONGEST = 100
"""Characters of an answer that a question can name."""
_ENOUGH = 2
"""How often an answer must have been given to compete: what was said once is noise."""
_TEMPLATES = {
    "name": "Which one do you mean: {}?",
    "answer": "My answers differ: {}. Which one fits what you mean?",
}
"""Fixed wordings: a small model asks about anything but what is unclear."""
_NAME = re.compile(r"\b[^\W\d_a-z][\w-]*(?: [^\W\d_a-z][\w-]*)*")
_OPENS = re.compile(r"(?:^|[.!?:]\s+|\n\s*)[\"']?$")


@dataclass(frozen=True)
class Question:
    """What the user is asked back: which of these names, or of these answers."""

    of: str
    choices: Sequence[str]

    def __str__(self) -> str:
        """Word it."""
        quoted = [f'"{choice}"' if self.of == "answer" else choice for choice in self.choices]
        return _TEMPLATES[self.of].format(f"{', '.join(quoted[:-1])} or {quoted[-1]}")


@dataclass(frozen=True)
class Clarified:
    """What a reply to a clarification settles."""

    decision_id: int
    """The decision to ask."""
    message: str | None = None
    """The first question, with the choice that the reply names; None: the reply names none."""
    correct: bool | None = None
    """Whether the answer that was held back is the one that was chosen, where answers were asked about."""


def of_names(question: str, memories: Iterable[str]) -> Question | None:
    """Ask which one is meant where memories know a name of the question as part of more than one full name."""
    known = [
        (found[0].split(), _opens(text, found.start())) for text in memories for found in _NAME.finditer(text)
    ]
    for word in dict.fromkeys(word for name in _NAME.findall(question) for word in name.split()):
        rivals = list(dict.fromkeys(filter(None, (_full_name(word, *one) for one in known))))
        rivals = [name for name in rivals if not any(one != name and one in name for one in rivals)]
        if len(rivals) > 1 and not any(name in question for name in rivals):
            return Question("name", sorted(rivals[:_MOST]))
    return None


def _full_name(word: str, parts: Sequence[str], opens: bool) -> str | None:
    """Read words as a full name that the word is part of; the first of a sentence may be capital for that alone."""
    if opens and parts[0] != word:
        parts = parts[1:]
    return " ".join(parts) if word in parts and len(parts) > 1 else None


def _opens(text: str, start: int) -> bool:
    return _OPENS.search(text[:start]) is not None


def of_answers(counts: Mapping[str, int]) -> Question | None:
    """Ask which answer fits where at least two were given more than once; counts are by meaning, best first."""
    rivals = [_tidy(text) for text, count in counts.items() if count >= _ENOUGH]
    rivals = [text for text in rivals if text and len(text) <= _LONGEST and "\n" not in text]
    return Question("answer", rivals[:_MOST]) if len(set(rivals)) > 1 else None


def _tidy(answer: str) -> str:
    return answer.strip().rstrip(".").replace('"', "'")


def resolve(db: Database, message_id: int, reply: str) -> Clarified | None:
    """Read what a reply to a clarification settles; None where no decision led to that."""
    rows = db.rows(
        """select decision_id, question, answer, clarification::text from mindful._clarification($1)""",
        ("bigint",),
        (message_id,),
    )
    if not rows:
        return None
    row = rows[0]
    asked = Question(**json.loads(row["clarification"]))
    choice = chosen(asked.choices, reply)
    if choice is None:
        return Clarified(row["decision_id"])
    if asked.of == "name":
        return Clarified(row["decision_id"], named(row["question"], choice))
    message = f"{row['question']} ({choice})"
    return Clarified(row["decision_id"], message, choice == _tidy(row["answer"]))


def named(question: str, name: str) -> str:
    """Put a full name where the question has a part of it."""
    parts = "|".join(map(re.escape, name.split()))
    return re.sub(rf"\b({parts})\b", lambda _: name, question, count=1)


def chosen(choices: Sequence[str], reply: str) -> str | None:
    """Tell which choice a reply names: the only one of whose own words it holds any."""
    said = set(words(reply))
    named = []
    for choice in choices:
        others = {word for other in choices if other != choice for word in words(other)}
        if said & (set(words(choice)) - others):
            named.append(choice)
    return named[0] if len(named) == 1 else None


def close(db: Database, clarified: Clarified) -> None:
    """Label the answer that was held back by the user's choice."""
    if clarified.correct is not None:
        db.rows(
            """insert into mindful.outcome (decision_id, correct, grader, note)
               values ($1, $2, 'user', 'chosen in reply to a clarification')""",
            ("bigint", "boolean"),
            (clarified.decision_id, clarified.correct),
        )
