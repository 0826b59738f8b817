"""Measure how many of LoCoMo's evidence turns and sessions memory_recall finds.

Usage: recall.py LOCOMO.json [--write FILE]. The server comes from MINDFUL_DSN, as `make dsn` prints it. Weights are
chosen on the other conversations than the one that is scored; the scored figures come from memory_recall with these
settings. Everything runs in one transaction that is rolled back.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import assistant
import locomo
import numpy as np
import psycopg
from locomo import CATEGORIES, Conversation, Question, Turn
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

Array = NDArray[np.float64]
ARMS = ("bm25", "bm25_context", "similarity", "similarity_context")
SHARES = (0.3, 0.5, 0.7)
GRID = [
    (round(own, 2), round(lexical - own, 2), round(1 - lexical, 2), round((1 - lexical) * context, 3))
    for lexical, part, context in itertools.product(
        (0.5, 0.55, 0.6, 0.65, 0.7, 0.75), (0, 0.25), (0, 0.3, 0.6, 0.9)
    )
    for own in [lexical * part]
]
"""Weights of the arms that are tried: those of words and meaning make 1, meaning beside is less than meaning."""
SAMPLES = 10_000
PRIORS = tuple(f"recall_prior_{name}" for name in ("question", "length", "speaker", "reply"))


@dataclass(frozen=True)
class Weights:
    """The settings that are fitted."""

    arms: tuple[float, ...]
    share: float

    def settings(self) -> dict[str, float]:
        """Name them as mindful does."""
        return {f"recall_weight_{arm}": weight for arm, weight in zip(ARMS, self.arms, strict=True)} | {
            "recall_neighbor_share": self.share
        }


DEFAULT = Weights((0, 0.65, 0.25, 0.3), 0.5)
ALONE = {arm: Weights(tuple(float(arm == other) for other in ARMS), 0.5) for arm in ARMS[:3]} | {
    "bm25 + similarity": Weights((0.6, 0, 0.4, 0), 0.5)
}


@dataclass(frozen=True)
class Found:
    """What arms found for one question: the turns, and each arm's scaled scores by neighbor share."""

    turns: list[Turn]
    scores: dict[float, Array]

    def best(self, weights: Weights, k: int) -> list[Turn]:
        """Rank by a weighted sum."""
        order = np.argsort(-(self.scores[weights.share] @ np.array(weights.arms)), kind="stable")
        return [self.turns[at] for at in order[:k]]


def remember(db: psycopg.Connection, conversation: Conversation) -> None:
    """Store a conversation as a tenant of its own."""
    db.execute("select set_config('mindful.tenant', %s, true)", (f"bench {conversation.name}",))
    for turns in conversation.sessions.values():
        if turns:
            db.execute("select count(*) from message_insert_many(session_start(), %s)", (Jsonb(turns),))


def explore(db: psycopg.Connection, question: Question) -> Found:
    """Ask for all that the arms find, as memory_recall with k = 10 sees it."""
    scores: dict[float, Array] = {}
    turns: list[Turn] = []
    for share in SHARES:
        options = Jsonb(DEFAULT.settings() | {"recall_neighbor_share": share})
        rows = db.execute(
            """select (s.memory).metadata -> 'session', (s.memory).metadata -> 'turn', s.bm25, s.bm25_context,
                   s.similarity, s.similarity_context
               from _mindful.model_find('embedder', null) f
               cross join _mindful.recall_scores(%s, llm_embed(%s), f.name, 50, 100000, null, false, %s) s
               order by (s.memory).id desc""",
            (question.text, question.text, options),
        ).fetchall()
        turns = [(row[0], row[1]) for row in rows]
        scores[share] = _scaled(np.array([row[2:] for row in rows], dtype=float))
    return Found(turns, scores)


def _scaled(arms: Array) -> Array:
    """Scale the arms as _recall_scores does before it adds them up."""
    similarity = arms[:, 2]
    low, high = np.nanmin(similarity), np.nanmax(similarity)
    arms[:, 2] = 1 - (high - similarity) / max(high - low, 0.1)
    arms = np.nan_to_num(arms)
    highest = arms[:, :2].max(axis=0)
    arms[:, :2] /= np.where(highest > 0, highest, 1)
    return arms


def share_found(evidence: frozenset[Any], found: Sequence[Any]) -> float:
    """Recall of one question; LoCoMo counts one without evidence as answered."""
    return len(evidence & set(found)) / len(evidence) if evidence else 1.0


def choose(explored: Sequence[tuple[Question, Found]]) -> Weights:
    """Return the weights with the best sum of recall@5 and recall@10 on these questions."""

    def value(weights: Weights) -> float:
        return sum(
            share_found(question.evidence, best[:5]) + share_found(question.evidence, best)
            for question, found in explored
            for best in [found.best(weights, 10)]
        )

    return max((Weights(arms, share) for share in SHARES for arms in GRID), key=value)


def score(db: psycopg.Connection, conversation: Conversation, weights: Weights) -> Array:
    """Recall through memory_recall: a row a question, turn @5 and @10, session @10."""
    db.execute("select set_config('mindful.tenant', %s, true)", (f"bench {conversation.name}",))
    for key, value in weights.settings().items():
        db.execute("select setting_set(%s, %s)", (key, Jsonb(value)))
    return np.array([_score(db, question) for question in conversation.questions])


def _score(db: psycopg.Connection, question: Question) -> list[float]:
    turns = _recall(db, question, 10)
    sessions = list(dict.fromkeys(session for session, _ in _recall(db, question, 100)))
    wanted = frozenset(session for session, _ in question.evidence)
    return [
        share_found(question.evidence, turns[:5]),
        share_found(question.evidence, turns),
        share_found(wanted, sessions[:10]),
    ]


def _recall(db: psycopg.Connection, question: Question, k: int) -> list[Turn]:
    sql = "select metadata -> 'session', metadata -> 'turn' from memory_recall(%s, %s)"
    return [(row[0], row[1]) for row in db.execute(sql, (question.text, k))]


def interval(scores: Sequence[Array]) -> tuple[Array, Array]:
    """95% intervals of the mean by bootstrap: over questions, and over conversations, that are few."""
    rng = np.random.default_rng(0)
    questions = np.concatenate(scores)
    draws = (
        questions[rng.integers(len(questions), size=len(questions))].mean(axis=0)
        for _ in range(SAMPLES // 10)
    )
    over_questions = np.percentile(np.array(list(draws)), (2.5, 97.5), axis=0)
    sums, counts = np.array([part.sum(axis=0) for part in scores]), np.array([len(part) for part in scores])
    drawn = rng.integers(len(scores), size=(SAMPLES, len(scores)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)[:, None]
    return over_questions, np.percentile(means, (2.5, 97.5), axis=0)


def report(db: psycopg.Connection, conversations: Sequence[Conversation]) -> str:
    """Measure everything and write it as Markdown."""
    explored: dict[str, list[tuple[Question, Found]]] = {}
    for conversation in conversations:
        _progress(f"remembering {conversation.name}")
        remember(db, conversation)
        explored[conversation.name] = [
            (question, explore(db, question)) for question in conversation.questions
        ]
    folds = {
        name: choose([pair for other, pairs in explored.items() if other != name for pair in pairs])
        for name in explored
    }
    rows: dict[str, list[Array]] = {}
    for name, weights in ALONE.items():
        _progress(f"scoring {name}")
        rows[name] = [score(db, conversation, weights) for conversation in conversations]
    _progress("scoring all arms")
    rows["all, default weights"] = [score(db, conversation, DEFAULT) for conversation in conversations]
    rows["**all, weights of the other conversations**"] = [
        score(db, conversation, folds[conversation.name]) for conversation in conversations
    ]
    return "\n".join(_tables(conversations, rows, folds)) + "\n"


def with_assistant(db: psycopg.Connection) -> str:
    """Measure conversations of a person with an assistant, for which no weight was fitted."""
    made = [conversation for seed in (11, 12) for conversation in assistant.conversations(seed)]
    for conversation in made:
        remember(db, conversation)
    rows = {name: [score(db, each, weights) for each in made] for name, weights in ALONE.items()}
    for key in PRIORS:
        db.execute("select setting_set(%s, '0', 'global')", (key,))
    rows["all, without the priors"] = [score(db, each, DEFAULT) for each in made]
    for key in PRIORS:
        db.execute("select setting_set(%s, 'null', 'global')", (key,))
    rows["**all, default settings**"] = [score(db, each, DEFAULT) for each in made]
    return _others("A person and an assistant", "`tests/bench/assistant.py`", made, rows)


def of_long_messages(db: psycopg.Connection, conversations: Sequence[Conversation], number: int) -> str:
    """Measure conversations of which so many turns are one message, for which no weight was fitted."""
    made = [locomo.joined(conversation, number) for conversation in conversations]
    for conversation in made:
        remember(db, conversation)
    arms = ALONE | {"**all, default settings**": DEFAULT}
    rows = {name: [score(db, each, weights) for each in made] for name, weights in arms.items()}
    return _others("Long messages", f"LoCoMo, {number} turns joined to one message", made, rows)


def _others(
    title: str, source: str, made: Sequence[Conversation], rows: Mapping[str, Sequence[Array]]
) -> str:
    turns = [len(turn["content"]) for each in made for session in each.sessions.values() for turn in session]
    return "\n".join(
        [
            "",
            f"## {title}",
            "",
            f"{len(made)} conversations of {source}: {len(turns)} messages of {np.mean(turns):.0f} "
            f"characters on average, {sum(len(each.questions) for each in made)} questions.",
            "",
            "| arms | turn @5 | turn @10 | session @10 |",
            "|---|---|---|---|",
            *(f"| {name} | {_cells(np.concatenate(found).mean(axis=0))} |" for name, found in rows.items()),
            "",
        ]
    )


def _tables(
    conversations: Sequence[Conversation], rows: dict[str, list[Array]], folds: dict[str, Weights]
) -> list[str]:
    categories = np.concatenate([[q.category for q in c.questions] for c in conversations])
    sessions = [turns for conversation in conversations for turns in conversation.sessions.values() if turns]
    names = [f"{name} ({(categories == number).sum()})" for number, name in CATEGORIES.items()]
    lines = [
        f"{len(conversations)} conversations, {sum(map(len, sessions))} turns in {len(sessions)} sessions, "
        f"{len(categories)} questions.",
        "",
        "| arms | turn @5 | turn @10 | session @10 |",
        "|---|---|---|---|",
        *(f"| {name} | {_cells(np.concatenate(scores).mean(axis=0))} |" for name, scores in rows.items()),
    ]
    held_out = rows["**all, weights of the other conversations**"]
    for what, bounds in zip(("questions", "conversations"), interval(held_out), strict=True):
        cells = " | ".join(f"{low:.1f} to {high:.1f}" for low, high in bounds.T * 100)
        lines.append(f"| its 95% interval over {what} | {cells} |")
    lines += [
        "",
        "Turn @5 / @10 by category:",
        "",
        f"| arms | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for name, scores in rows.items():
        every = np.concatenate(scores) * 100
        means = [every[categories == number].mean(axis=0) for number in CATEGORIES]
        lines.append(f"| {name} | {' | '.join(f'{mean[0]:.1f} / {mean[1]:.1f}' for mean in means)} |")
    lines += ["", f"| scored | {' | '.join(ARMS)} | neighbor share | turn @5 | turn @10 | session @10 |"]
    lines.append("|---" * (len(ARMS) + 5) + "|")
    for part, (name, weights) in zip(held_out, folds.items(), strict=True):
        shown = " | ".join(f"{value:g}" for value in (*weights.arms, weights.share))
        lines.append(f"| {name} | {shown} | {_cells(part.mean(axis=0))} |")
    return lines


def _cells(means: Array) -> str:
    return " | ".join(f"{mean:.1f}" for mean in means * 100)


def _progress(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


_HEAD = """# Recall

As `make bench-recall LOCOMO=FILE` printed it. Recall is the share of a question's evidence among the first k, by the
protocol of LoCoMo's paper (Maharana et al. 2024): one index a conversation, a turn as `speaker said, "text"` with the
captions of pictures, the bare question, the mean over questions of all categories, 1 where there is no evidence.
Sessions are ranked by their best turn.

"""


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("locomo", type=Path, help="a file such as locomo10.json of snap-research/LoCoMo")
    parser.add_argument("--write", type=Path, help="also write the tables to this file")
    parser.add_argument("--joined", type=int, help="measure only long messages, each of so many turns")
    options = parser.parse_args()
    if not options.locomo.is_file():
        parser.error(
            f"there is no file {options.locomo}: LoCoMo is in github.com/snap-research/LoCoMo, data/locomo10.json"
        )
    with psycopg.connect(os.environ["MINDFUL_DSN"]) as db, db.transaction(force_rollback=True):
        conversations = locomo.read(options.locomo)
        if options.joined:
            text = of_long_messages(db, conversations, options.joined)
        else:
            text = report(db, conversations) + with_assistant(db)
    print(text, end="")
    if options.write:
        options.write.write_text(_HEAD + text)


if __name__ == "__main__":
    main()
