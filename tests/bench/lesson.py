"""What labels of earlier answers do when a like question is asked: lesson.py FILE [--questions N] [--model GGUF].

FILE is SelfAware's JSON; TriviaQA's questions of it are asked, graded, and labeled. Every second wrong answer's label
notes the right one. Then the same is asked in other words, with what labels say kept in mind and without, and so are
questions that nobody asked before. Each of these is undone before the next. The server comes from MINDFUL_TEST_DSN.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from support.cluster import Cluster
from support.models import model_files, register_models

ASK = """select message_id, reply, _mindful.answer_grade(reply, %s), decision_id, action
    from llm_chat_detail(%s, max_tokens => 24, seed => 1)"""


@dataclass(frozen=True)
class Answer:
    """An answer, and what is known of it."""

    message_id: int
    text: str
    right: bool
    signals: dict[str, float]
    action: str


def main() -> None:
    """Ask, label, ask again, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="SelfAware.json, or a part of it")
    parser.add_argument("--questions", type=int, default=100, help="asked before; half as many are new")
    parser.add_argument("--model", type=Path, help="GGUF file of another generator")
    arguments = parser.parse_args()
    rows = [
        row
        for row in json.loads(arguments.file.read_text())["example"]
        if row["source"].startswith("triviaqa") and row["answer"]
    ]
    asked, new = rows[: arguments.questions], rows[arguments.questions :][: arguments.questions // 2]
    cluster = Cluster.of_environment()
    with cluster.connect() as connection:
        files = model_files(connection)
    if arguments.model:
        files["generator"] = str(arguments.model)
    with cluster.database() as name, cluster.connect(name) as db:
        db.execute("set search_path = public, mindful; set client_min_messages = warning")
        db.execute("create extension mindful cascade")
        register_models(db, files)
        run(db, asked, new)


def run(db: psycopg.Connection, asked: Sequence[Any], new: Sequence[Any]) -> None:
    """Print what labels change."""
    first = [ask(db, row["question"], row["answer"]) for row in asked]
    for at, (row, answer) in enumerate(zip(asked, first, strict=True)):
        note = f"The answer is {row['answer'][0]}." if at % 2 and not answer.right else None
        db.execute("select answer_label(%s, %s, %s)", (answer.message_id, answer.right, note))
    parts = {
        "answered rightly before": [at for at, one in enumerate(first) if one.right],
        "wrongly, the label notes the right answer": [
            at for at, one in enumerate(first) if not one.right and at % 2
        ],
        "wrongly, the label notes nothing": [
            at for at, one in enumerate(first) if not one.right and not at % 2
        ],
    }
    print(
        "| asked in other words | questions | right without labels in mind | right with | gain (95% interval) |"
    )
    print("|---|---|---|---|---|")
    again: list[tuple[Answer, Answer]] = [
        both(db, in_other_words(row["question"]), row["answer"]) for row in asked
    ]
    for part, places in parts.items():
        print(line(part, [again[at] for at in places]))
    unasked = [both(db, row["question"], row["answer"]) for row in new]
    print(line("never asked before", unasked))
    with_labels = [pair[1] for pair in again]
    found = sum(one.signals["lesson"] != 0 for one in with_labels)
    print(f"\nThe label was found for {found} of {len(again)}, and for", end=" ")
    print(f"{sum(pair[1].signals['lesson'] != 0 for pair in unasked)} of {len(unasked)} never asked before.")
    wrong = [at for at, one in enumerate(first) if not one.right]
    same = sum(with_labels[at].signals["lesson_same"] < 0 for at in wrong)
    print(f"{same} of {len(wrong)} wrong answers were given again word by word, and are flagged for it.")
    signed = [(one.signals["lesson_same"], one.right) for one in with_labels]
    for verdict, meaning in ((1, "labeled right"), (0, "other"), (-1, "labeled wrong")):
        rights = [right for value, right in signed if np.sign(value) == verdict]
        print(f"answer {meaning}: {sum(rights)} of {len(rights)} right")
    ids = [row[0] for row in db.execute("select id from memory where role = 'user' order by id limit 8")]
    started = time.perf_counter()
    for _ in range(100):
        db.execute("select * from _mindful.lesson(%s, null)", (ids,)).fetchall()
    print(f"Looking labels up took {(time.perf_counter() - started) * 10:.2f} ms an answer.")


def ask(db: psycopg.Connection, question: str, answers: list[str]) -> Answer:
    """Ask in a new session."""
    row = db.execute(ASK, (answers, question)).fetchone()
    assert row is not None
    message_id, reply, right, decision_id, action = row
    signals = db.execute("select signals from decision where id = %s", (decision_id,)).fetchone()
    assert signals is not None
    return Answer(message_id, reply, right, signals[0], action)


def both(db: psycopg.Connection, question: str, answers: list[str]) -> tuple[Answer, Answer]:
    """Ask without labels in mind, and with."""
    found = []
    for kept in ("false", "true"):
        with db.transaction(force_rollback=True):
            db.execute("select setting_set('chat_lessons', %s)", (kept,))
            found.append(ask(db, question, answers))
    return found[0], found[1]


def in_other_words(question: str) -> str:
    """Put a question otherwise."""
    return f"Could you please tell me {question[0].lower()}{question[1:].rstrip('?. ')}"


def line(part: str, pairs: Sequence[tuple[Answer, Answer]]) -> str:
    """Write a row of the table."""
    if not pairs:
        return f"| {part} | 0 | | | |"
    right = np.array([[one.right for one in pair] for pair in pairs], dtype=float)
    gain = right[:, 1] - right[:, 0]
    picks = np.random.default_rng(0).integers(0, len(gain), (1000, len(gain)))
    low, high = np.quantile(gain[picks].mean(axis=1), (0.025, 0.975))
    without, with_labels = right.mean(axis=0)
    return (
        f"| {part} | {len(pairs)} | {without:.0%} | **{with_labels:.0%}** "
        f"| {gain.mean():+.0%} ({low:+.0%} to {high:+.0%}) |"
    )


if __name__ == "__main__":
    main()
