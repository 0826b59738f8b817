"""Clarifications: a question that offers choices to the user, and the effect of the reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mindful.core.jsontext import loads
from mindful.core.pattern import CAPITAL, IGNORECASE, Short, linear
from mindful.core.ports import Database
from mindful.core.text import words

_MOST = 3
_RIVALS = 50
"""Most full names to choose from."""
_PARTS = 6
"""Words of a name."""
_LONGEST = 100
"""Most characters of an answer that a question offers."""
_ENOUGH = 2
"""How often the model must give an answer before a question offers it: a single answer is noise."""
_TEMPLATES = {
    "name": "Which one do you mean: {}?",
    "answer": "My answers differ: {}. Which one fits what you mean?",
    "reference": 'What do you mean by "{}"?',
}
"""Fixed wordings: a small model asks about the wrong thing."""
_NAME = linear(rf"\b{CAPITAL}[\w-]*(?: {CAPITAL}[\w-]*)*")
_OPENS = Short(r"(?:^|[.!?:]\s+|\n\s*)[\"']?$", 20)
_POINTS = Short(
    r"\b(?!(?:is|are|was|were|time|about|like|all|so)\b)\w+ (?P<end>it|this|that|them|these|those|him|her)\W*$|"
    r"^\W*(?:who|where|how old|how tall) (?:is|are|was|were|did|does|do) (?P<subject>he|she|they|(?<!who is )it)\b",
    100,
    IGNORECASE,
)
"""Questions whose pronoun refers to what was said before."""
_LONGEST_REFERENCE = 100
"""Most characters of a reply that says what a pronoun refers to."""
_LONGEST_QUESTION = 1000
"""Most characters of a question: longer messages are not clarified."""
_READ = 4000
"""Characters of a memory that are searched for names."""


class Question(NamedTuple):
    """A question to the user: which of these names, or of these answers, is meant, or what a pronoun refers to."""

    of: str
    choices: Sequence[str]

    def __str__(self) -> str:
        """Return the text of the question."""
        if self.of == "reference":
            return _TEMPLATES[self.of].format(self.choices[0])
        quoted = [f'"{choice}"' if self.of == "answer" else choice for choice in self.choices]
        return _TEMPLATES[self.of].format(f"{', '.join(quoted[:-1])} or {quoted[-1]}")


class Clarified(NamedTuple):
    """The effect of a reply to a clarification."""

    decision_id: int
    """Id of the decision to ask."""
    message: str | None = None
    """The first question with the choice of the reply; None if the reply names no choice."""
    correct: bool | None = None
    """Whether the user chose the answer that was withheld; None if the choices were names."""
    name: str | None = None
    """The name that the user chose."""
    rivals: Sequence[str] = ()
    """The names that the user did not choose."""

    def rules_out(self, memory: str) -> bool:
        """Return whether a memory is about a rival and not about the choice."""
        return any(rival in memory for rival in self.rivals) and (self.name or "") not in memory


def of_reference(question: str) -> Question | None:
    """Ask what a pronoun refers to, in a question that begins a conversation. The rules are of English."""
    found = _POINTS.search(question.strip()) if question.strip().endswith("?") else None
    if found is None or any(name != "I" for name in _NAME.findall(question[1:])):
        return None
    return Question("reference", [found["end"] or found["subject"]])


def of_names(question: str, memories: Iterable[str]) -> Question | None:
    """Ask which full name is meant, if a name in the question is part of several full names in memories."""
    if len(question) > _LONGEST_QUESTION:
        return None
    known = _full_names(memories)
    for word in dict.fromkeys(word for name in _NAME.findall(question) for word in name.split()):
        rivals = list(known.get(word, ()))[:_RIVALS]
        rivals = [name for name in rivals if not any(one != name and one in name for one in rivals)]
        if len(rivals) > 1 and not any(name in question for name in rivals):
            return Question("name", sorted(rivals[:_MOST]))
    return None


def _full_names(memories: Iterable[str]) -> dict[str, dict[str, None]]:
    """Return the full names in memories, by each of their words."""
    known: dict[str, dict[str, None]] = {}
    for text in memories:
        for found in _NAME.finditer(text[:_READ]):
            parts, opens = found[0].split()[:_PARTS], _opens(text, found.start())
            for word in parts:
                if full := _full_name(word, parts, opens):
                    known.setdefault(word, {})[full] = None
    return known


def _full_name(word: str, parts: Sequence[str], opens: bool) -> str | None:
    """Read words as a full name with the given word. The first word of a sentence has a capital anyway."""
    if opens and parts[0] != word:
        parts = parts[1:]
    return " ".join(parts) if len(parts) > 1 else None


def _opens(text: str, start: int) -> bool:
    before = text[max(start - 19, 0) : start]
    return _OPENS.search(before if start < 20 else f"-{before}") is not None


def of_answers(counts: Mapping[str, int]) -> Question | None:
    """Ask which answer fits, if the model gave at least two of them repeatedly; counts are by meaning, best first."""
    rivals = [_tidy(text) for text, count in counts.items() if count >= _ENOUGH]
    rivals = [text for text in rivals if text and len(text) <= _LONGEST and "\n" not in text]
    return Question("answer", rivals[:_MOST]) if len(set(rivals)) > 1 else None


def _tidy(answer: str) -> str:
    return answer.strip().rstrip(".").replace('"', "'")


def resolve(db: Database, message_id: int, reply: str) -> Clarified | None:
    """Return the effect of a reply to a clarification; None if no decision led to the clarification."""
    rows = db.rows(
        """select decision_id, question, answer, clarification::text from _mindful.clarification($1)""",
        ("bigint",),
        (message_id,),
    )
    if not rows:
        return None
    row = rows[0]
    stored = loads(row["clarification"])
    asked = Question(stored["of"], stored["choices"])
    if asked.of == "reference":
        return Clarified(row["decision_id"], referring(row["question"], asked.choices[0], reply))
    choice = chosen(asked.choices, reply)
    if choice is None:
        return Clarified(row["decision_id"])
    if asked.of == "name":
        rivals = [name for name in asked.choices if name != choice]
        return Clarified(row["decision_id"], named(row["question"], choice), name=choice, rivals=rivals)
    message = f"{row['question']} ({choice})"
    return Clarified(row["decision_id"], message, choice == _tidy(row["answer"]))


def referring(question: str, pronoun: str, reply: str) -> str | None:
    """Replace a pronoun in the question by what the reply says; None if the reply is another question or long."""
    said = reply.strip().rstrip(".! ")
    if not said or said.endswith("?") or len(said) > _LONGEST_REFERENCE:
        return None
    at = question.lower().rfind(pronoun.lower())
    while at > 0 and (
        question[at - 1].isalnum() or question[at + len(pronoun) : at + len(pronoun) + 1].isalnum()
    ):
        at = question.lower().rfind(pronoun.lower(), 0, at)
    return f"{question[:at]}{said}{question[at + len(pronoun) :]}" if at >= 0 else None


def named(question: str, name: str) -> str:
    """Replace a part of a name in the question by the full name."""
    places = [(at, part) for part in name.split() if (at := _find_word(part, question)) >= 0]
    if not places:
        return question
    at, part = min(places)
    return f"{question[:at]}{name}{question[at + len(part) :]}"


def _find_word(word: str, text: str) -> int:
    """Find the position of a whole word in a text; -1 if it is absent."""
    at = text.find(word)
    while at >= 0 and (text[at - 1 : at].isalnum() or text[at + len(word) : at + len(word) + 1].isalnum()):
        at = text.find(word, at + 1)
    return at


def chosen(choices: Sequence[str], reply: str) -> str | None:
    """Return the choice that a reply names: the only one with a distinctive word in the reply."""
    reply_words = set(words(reply))
    named = []
    for choice in choices:
        others = {word for other in choices if other != choice for word in words(other)}
        if reply_words & (set(words(choice)) - others):
            named.append(choice)
    return named[0] if len(named) == 1 else None


def close(db: Database, clarified: Clarified) -> None:
    """Label the withheld answer by the choice of the user."""
    if clarified.correct is not None:
        db.rows(
            """insert into mindful.outcome (decision_id, correct, grader, note)
               values ($1, $2, 'user', 'chosen in reply to a clarification')""",
            ("bigint", "boolean"),
            (clarified.decision_id, clarified.correct),
        )
