"""Questions whose answers are known, of the sets that confidence is measured on."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mindful.confidence.question import questions
from mindful.core.text import words

Row = dict[str, Any]

ADVERSARIAL = 5
"""LoCoMo's category of questions about what was never said."""


INVENTED = "package, invented facts"


@dataclass
class Questions:
    """Gold questions of one kind, as gold_evaluate reads them."""

    name: str
    rows: list[Row] = field(default_factory=list)
    memories: int = 0
    tenant: str = "bench"
    turns: list[Row] = field(default_factory=list)
    """A conversation that is remembered before the questions are asked."""
    evidence: dict[str, list[str]] = field(default_factory=dict)
    """The turns that hold the answer to a question, by their dia_id."""


def sets(data: Path, limit: int) -> list[Questions]:
    """Read every set, at most `limit` questions of each, those that say most first."""
    first = [passages(data, limit), trivia(data, limit), told(data, limit), invented()]
    return [*first, *_locomo(data, limit), *_others(data, limit)]


def invented() -> Questions:
    """Give those questions of model_calibrate that memories answer, or do not."""
    rows = [
        _gold(one.question, one.answers, memories=list(one.memories), source=one.source)
        for one in questions()
        if one.memories
    ]
    return Questions(INVENTED, rows, tenant="package")


def trivia(data: Path, limit: int) -> Questions:
    """Read SelfAware's questions of TriviaQA."""
    rows = [row for row in _selfaware(data) if row["source"].startswith("triviaqa")]
    return Questions("TriviaQA", [_gold(row["question"], row["answer"]) for row in _spread(rows, limit)])


def told(data: Path, limit: int) -> Questions:
    """Read NQ-open, to be asked in other words after the answers to three of four were told."""
    rows = _spread(_lines(data / "nq_open_dev_half.jsonl"), limit)
    turns = [{"role": "user", "content": f"{row['question']}? {row['answer'][0]}."} for row in rows]
    turns = [turn for at, turn in enumerate(turns) if at % 4]
    asked = [_gold(f"Could you please tell me {row['question']}", row["answer"]) for row in rows]
    return Questions("NQ-open, three of four told", asked, 3, "told", turns)


def unlike(data: Path, limit: int) -> list[Questions]:
    """Read NQ-open's questions whose known answers share no word, two of them at least, and those with one answer."""
    rows = _lines(data / "nq_open_dev_half.jsonl")
    several = [row for row in rows if _unlike(row["answer"])]
    kinds = {"several answers": several, "one answer": [row for row in rows if len(row["answer"]) == 1]}
    return [
        Questions(
            name, [_gold(row["question"], row["answer"]) for row in _spread(part, limit)], tenant="clarify"
        )
        for name, part in kinds.items()
    ]


def _unlike(answers: Sequence[str]) -> bool:
    sets = [set(words(answer)) for answer in answers]
    return any(not one & other for one, other in itertools.combinations(sets, 2))


def _others(data: Path, limit: int) -> Iterator[Questions]:
    rows = [row for row in _selfaware(data) if not row["answerable"]]
    yield Questions("unanswerable", [_gold(row["question"], []) for row in _spread(rows, limit)])
    rows = _lines(data / "nq_open_dev_half.jsonl")
    yield Questions("NQ-open", [_gold(row["question"], row["answer"]) for row in _spread(rows, limit)])


def _selfaware(data: Path) -> list[Row]:
    rows: list[Row] = json.loads((data / "selfaware_dev.json").read_text())["example"]
    return rows


_KINDS = ("positive", "positive_wrong", "negative")


def passages(data: Path, limit: int, kinds: Sequence[str] = _KINDS, name: str = "RGB") -> Questions:
    """Read RGB: each question with passages that support the answer, contradict it, and are about other things."""
    rows = [
        _gold(row["query"], _flat(row["answer"]), memories=row[kind][:3], source=row["query"])
        for row in _lines(data / "rgb_en_fact_dev.jsonl")
        for kind in kinds
    ]
    return Questions(name, rows[:limit])


def halves(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Split rows at random into two halves that share no source."""
    names = sorted({_source(row) for row in rows})
    random.Random(0).shuffle(names)
    first = set(names[: (len(names) + 1) // 2])
    return [row for row in rows if _source(row) in first], [row for row in rows if _source(row) not in first]


def _source(row: Row) -> str:
    return str(row.get("source") or row["question"])


def _locomo(data: Path, limit: int) -> Iterator[Questions]:
    """The questions about each conversation, its turns, and where the evidence is."""
    told = json.loads((data / "locomo_dev.json").read_text())
    for at, row in enumerate(told):
        turns = [
            {
                "role": "user",
                "content": f"{turn['speaker']}: {turn['text']}",
                "metadata": {"dia_id": turn["dia_id"]},
            }
            for session in row["conversation"].values()
            if isinstance(session, list)
            for turn in session
        ]
        tenant = f"locomo-{at}"
        asked = [
            _gold(
                one["question"],
                [] if one["category"] == ADVERSARIAL else [str(one["answer"])],
                source=tenant,
            )
            for one in _spread(row["qa"], limit // len(told))
        ]
        evidence = {one["question"]: one["evidence"] for one in row["qa"] if one["category"] != ADVERSARIAL}
        yield Questions("LoCoMo", asked, 3, tenant, turns, evidence)


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _spread(rows: Sequence[Row], limit: int) -> Sequence[Row]:
    """Take at most so many, evenly."""
    return rows[:: max(math.ceil(len(rows) / max(limit, 1)), 1)]


def _flat(answers: Any) -> list[str]:
    return [answers] if isinstance(answers, str) else [text for one in answers for text in _flat(one)]


def _gold(question: str, answers: Sequence[str], **more: Any) -> Row:
    return {"question": question.strip(), "answers": [text for text in answers if text.strip()], **more}
