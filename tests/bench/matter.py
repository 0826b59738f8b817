"""Fit, and test, what tells questions about the user's own matters from general ones.

Usage: matter.py [DATA], with MINDFUL_DSN. Questions about own matters are those of tests/bench/shown*.json, each
asked beside the memories of its world. General ones are the package's (facts.json) and small talk, and with DATA, the
folder of `make bench-confidence`, those of SelfAware and NQ-open; each is asked beside the memories of some worlds.
The weights are fitted to the halves that rules were made on, and printed for conversation/matter.py; the other halves
test them. Everything runs in one transaction that is rolled back.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import psycopg
from mindful import confidence
from mindful.confidence.question import questions
from mindful.conversation import bearing, matter
from mindful.core.ports import Database, Row, Vector
from mindful.core.vector import to_text
from psycopg.rows import dict_row
from shown import DATA, worlds
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

ROLE = "mindful_bench"
FITTED = ("design", "second", "third", "fourth", "changes", "sixth")
BESIDE = 60
"""General questions that are asked beside the memories of each world."""
ELSEWHERE = 6
"""Questions about own matters that are asked beside the memories of each other world, and without memories."""
ABOUT_IT = 12
"""General questions that are asked after the user has mentioned what they are about."""
MENTIONS = (
    "We talked about {} at dinner.",
    "{} came up in my class last week.",
    "My cousin Ana knows a lot about {}.",
    "Tomorrow I have a call because of {}.",
    "I wrote something about {} in 2019.",
)
MENTIONED = "package, beside a memory that mentions its subject"
UNRELATED = "own, beside other memories or none"
WEIGHED = 6
"""Recalled memories that a chat weighs."""


class Sql:
    """The server's own code, run by the bench: a database of statements with $1."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._cursor = psycopg.RawCursor(connection, row_factory=dict_row)

    def rows(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> list[Row]:
        for at, type_name in reversed(list(enumerate(types, 1))):
            sql = sql.replace(f"${at}", f"${at}::{type_name}")
        return list(self._cursor.execute(sql.encode(), list(arguments)))

    def one(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> Row:
        return self.rows(sql, types, arguments)[0]


class Embedder:
    """The default embedder, by SQL."""

    def __init__(self, db: Sql) -> None:
        self._db = db
        found = db.one("select name, sha256 from mindful.model where kind = 'embedder' and is_default")
        self.name, self.sha256 = found["name"], found["sha256"]
        self.relation = db.one("select _mindful.embedding_table($1) as found", ("text",), (self.name,))[
            "found"
        ]
        self._known: dict[str, Vector] = {}

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        if missing := [text for text in dict.fromkeys(texts) if text not in self._known]:
            sql = "select array(select e::text from unnest(mindful.llm_embed_many($1)) e) as found"
            found = self._db.one(sql, ("text[]",), (missing,))["found"]
            self._known |= zip(missing, map(json.loads, found), strict=True)
        return [self._known[text] for text in texts]


@dataclass(frozen=True)
class Asked:
    """A question, what it is about, and its signs."""

    half: str
    source: str
    own: bool
    signs: dict[str, float]


def general(data: Path | None) -> list[tuple[str, str]]:
    """Return general questions and their sources."""
    found = [("package", one.question) for one in questions() if not one.memories]
    found += [("small talk", text) for text in DATA["design"]["other"]]
    if data is not None:
        aware = json.loads((data / "selfaware_dev.json").read_text())["example"]
        found += [("SelfAware", one["question"]) for one in aware if one["answerable"]][:300]
        lines = (data / "nq_open_dev_half.jsonl").read_text().splitlines()
        found += [("NQ-open", f"{json.loads(line)['question']}?") for line in lines[:200]]
    return found


def subjects() -> list[tuple[str, str]]:
    """Return general questions of the package, and what each is about."""
    facts = json.loads((Path(confidence.__file__).parent / "facts.json").read_text())
    rows = [(one["questions"][0], row.split("|")[0]) for one in facts["general"] for row in one["rows"]]
    return [(subject, question.format(subject)) for question, subject in rows]


def asked(db: psycopg.Connection[Any], others: Sequence[tuple[str, str]]) -> Iterator[Asked]:
    """Ask all questions, and yield those that ask for a fact."""
    sql, drawn = Sql(db), random.Random(1)
    embedder: Any = Embedder(sql)
    for half in DATA:
        told = [world for world in worlds(half) if world[0]]
        own = [[(one.kind, one.text) for one in asked if "talk" not in one.kind] for _, asked in told]
        for number, (memories, _) in enumerate([*told, ([], [])]):
            elsewhere = [one for at, asked in enumerate(own) if at != number for one in asked]
            db.execute("savepoint world")
            db.execute("select memory_insert_many(%s)", (json.dumps([{"content": one} for one in memories]),))
            mine = own[number] if memories else []
            some = [(UNRELATED, text) for _, text in drawn.sample(elsewhere, min(ELSEWHERE, len(elsewhere)))]
            for source, text in [*mine, *some]:
                if signs := signs_of(sql, embedder, text):
                    yield Asked(half, source, True, signs)
            for source, text in drawn.sample(others, min(BESIDE, len(others))):
                if signs := signs_of(sql, embedder, text):
                    yield Asked(half, source, False, signs)
            for subject, text in drawn.sample(subjects(), ABOUT_IT):
                db.execute("select memory_insert(%s)", (drawn.choice(MENTIONS).format(subject),))
                if signs := signs_of(sql, embedder, text):
                    yield Asked(half, MENTIONED, False, signs)
            db.execute("rollback to world")


def signs_of(db: Sql, embedder: Any, text: str) -> dict[str, float] | None:
    """Return the signs of a question that asks for a fact."""
    vector = to_text(embedder.embed([text])[0])
    rows = db.rows(
        """select id, content from _mindful.memory_recall($1, _mindful.vector($2), $3, 15,
               _mindful.chat_filter(null::uuid))""",
        ("text", "text", "text"),
        (text, vector, embedder.name),
    )
    contents = {row["id"]: row["content"] for row in rows[:WEIGHED]}
    found = bearing.weigh(cast(Database, db), text, embedder, vector, contents)
    return matter._signs(embedder, found.question, bearing._common(found)) if found.asks else None


def matrix(rows: Sequence[Asked]) -> Any:
    return np.array([[float(row.signs[name]) for name in matter._WEIGHTS] for row in rows])


def table(rows: Sequence[Asked], odds: Any) -> Iterator[str]:
    """Print which share of the questions of each source counts as own."""
    for source in dict.fromkeys(row.source for row in rows):
        chosen = [
            value >= matter._LEAST for row, value in zip(rows, odds, strict=True) if row.source == source
        ]
        yield f"| {source} | {sum(chosen)} of {len(chosen)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path, nargs="?")
    options = parser.parse_args()
    with psycopg.connect(os.environ["MINDFUL_DSN"]) as db:
        db.execute(f"create role {ROLE} in role mindful_user")
        db.execute("set local search_path = public, mindful")
        db.execute(f"set local role {ROLE}")
        rows = list(asked(db, general(options.data)))
        db.rollback()
    fitted, tested = ([row for row in rows if (row.half in FITTED) is chosen] for chosen in (True, False))
    model = LogisticRegression(C=30, max_iter=10_000).fit(matrix(fitted), [row.own for row in fitted])
    weights = zip(matter._WEIGHTS, model.coef_[0], strict=True)
    print(
        "fitted:",
        ", ".join(f"{name} {value:.1f}" for name, value in weights),
        f"bias {model.intercept_[0]:.1f}",
    )
    for name, part in (("fitted to", fitted), ("not fitted to", tested)):
        odds = [matter._log_odds(row.signs) for row in part]
        print(
            f"\n| questions {name}: AUROC {roc_auc_score([row.own for row in part], odds):.4f} | own |\n|---|---|"
        )
        print("\n".join(table(part, odds)))


if __name__ == "__main__":
    main()
