"""Answers to gold questions with their signals and labels, kept in a file, so that a run goes on where one stopped."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from mindful.confidence import fit, signal
from mindful.confidence.fit import Labeled
from psycopg import sql
from psycopg.conninfo import make_conninfo
from questions import Questions, Row

FIRST, SECOND = "qa", "qa-second"
_SHOTS = (
    ("What is the capital of France?", "Paris"),
    ("Who wrote the play Romeo and Juliet?", "William Shakespeare"),
    ("In which year did World War II end?", "1945"),
    ("What is the largest planet in our solar system?", "Jupiter"),
    ("Which metal has the chemical symbol Fe?", "Iron"),
)
_TEMPLATE = (
    "".join(f"Q: {question}\nA: {answer}\n\n" for question, answer in _SHOTS)
    + "{% for message in messages %}{% if message.role == 'user' %}Q: {{ message.content }}\nA:"
    + "{% elif message.role == 'assistant' %} {{ message.content }}\n\n{% endif %}{% endfor %}"
)
_LAYOUT = "{memories}\n\nQ: {message}"
FORMS: dict[str, Row] = {
    "chat": {},
    "template": {"template": _TEMPLATE, "stop": ["\n"], "system_prompt": "", "layout": _LAYOUT},
}
"""Options of the model by form. In chat form it is registered as the set-up registers it."""
_AT_ONCE = 64
TOKENS = 32
_FOUND = 5
_COMPARED = 10
_CONSIDERED = 20


class Kept:
    """A file of JSON Lines: first what the answers depend on, then an answer a line."""

    def __init__(self, path: Path, made_by: Row) -> None:
        self._path = path
        self.rows: list[Row] = []
        if not path.exists() or not path.stat().st_size:
            path.write_text(json.dumps(made_by) + "\n")
        first, *rest = path.read_text().splitlines()
        if json.loads(first) != made_by:
            raise SystemExit(f"{path} holds what other models, prompts or signals gave: name another file")
        self.rows += [json.loads(line) for line in rest]

    def add(self, rows: Sequence[Row]) -> None:
        """Append answers."""
        with self._path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        self.rows += rows

    @staticmethod
    def second(name: str) -> str:
        """Name the set of the second model's answers to a set."""
        return f"{name} > second"

    def chosen(self, *names: str, choose: Callable[[Row], bool] = lambda row: True) -> list[Row]:
        """Give the chosen rows of sets."""
        return [row for row in self.rows if row["set"] in names and choose(row)]

    def labeled(self, *names: str, choose: Callable[[Row], bool] = lambda row: True) -> Labeled:
        """Give the chosen answers of sets; what shares memories, or is one question, stays together.

        Replies for which the model was not asked are no answers.
        """
        rows = [row for row in self.chosen(*names, choose=choose) if row["signals"]]
        return fit.labeled(
            [row["signals"] for row in rows],
            [row["correct"] for row in rows],
            None,
            [row["source"] or row["question"] for row in rows],
        )


class Bench:
    """A database of its own, made for this run, in which what is missing of the answers is made."""

    def __init__(
        self, dsn: str, second: Path | None, path: Path, seconds: float, form: str = "template"
    ) -> None:
        self._dsn, self._name = dsn, f"mindful_confidence_{os.getpid()}"
        self._options = FORMS[form]
        self._until = time.monotonic() + seconds
        self.tier = 2 if second else 1
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute(sql.SQL("create database {}").format(sql.Identifier(self._name)))
        self.db = psycopg.connect(make_conninfo(dsn, dbname=self._name), autocommit=True)
        self.db.execute("create extension mindful cascade")
        self.db.execute("set search_path = mindful, public")
        self._register(_files(dsn), second)
        models: Row = dict(self.db.execute("select name, sha256 from model").fetchall())
        names = signal.features(self.tier, with_memory=True)
        self.kept = Kept(
            path, {"models": models, "options": self._options, "tokens": TOKENS, "signals": names}
        )

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()
        with psycopg.connect(self._dsn, autocommit=True) as db:
            db.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(self._name)))

    def _register(self, files: Row, second: Path | None) -> None:
        register = "select model_register(%s, %s, 'llama_cpp', %s, %s)"
        self.db.execute(register, (FIRST, "generator", files["generator"], json.dumps(self._options)))
        self.db.execute(register, ("embedder", "embedder", files["embedder"], '{"context_length": 256}'))
        if second is not None:
            self.db.execute(register, (SECOND, "generator", str(second), json.dumps(self._options)))
            self.db.execute("update model set fallback = %s where name = %s", (SECOND, FIRST))

    def answer(self, questions: Questions) -> None:
        """Have the questions answered that have not been, while there is time."""
        known = {_key(row) for row in self.kept.rows if row["set"] == questions.name}
        rows = [row for row in questions.rows if _key(row | {"tenant": questions.tenant}) not in known]
        self._in_parts(questions, rows, self._answered)

    def look_for_evidence(self, questions: Questions) -> None:
        """Recall for the questions whose evidence is known, and tell whether it was found."""
        for name in ("nearest", "recalled"):
            known = {row["question"] for row in self.kept.rows if row["set"] == name}
            asked = [{"question": one} for one in questions.evidence if one not in known]
            find = self._nearest if name == "nearest" else self._recalled
            self._in_parts(questions, asked, find)

    def _in_parts(
        self, questions: Questions, rows: Sequence[Row], work: Callable[[Questions, Sequence[Row]], list[Row]]
    ) -> None:
        for at in range(0, len(rows), _AT_ONCE):
            if time.monotonic() > self._until:
                print(f"{questions.name}: no time for {len(rows) - at} more", file=sys.stderr)
                return
            print(f"{questions.name}, {questions.tenant}: {at} of {len(rows)}", file=sys.stderr, flush=True)
            self.enter(questions)
            self.kept.add(work(questions, rows[at : at + _AT_ONCE]))

    def enter(self, questions: Questions) -> None:
        """Become the questions' tenant, who remembers what stands before them."""
        self.db.execute("select set_config('mindful.tenant', %s, false)", (questions.tenant,))
        if questions.turns and not self.one(
            "select count(*) from memory where tenant = %s", questions.tenant
        ):
            turns = json.dumps(questions.turns)
            self.db.execute("select count(*) from message_insert_many(session_start(), %s)", (turns,))

    def _answered(self, questions: Questions, rows: Sequence[Row]) -> list[Row]:
        before = self.one("select coalesce(max(id), 0) from gold where tenant = %s", questions.tenant)
        self.graded(rows, questions.memories)
        found = self.db.execute(
            """select d.second_model, g.question, g.memories, g.source, g.answers <> '{}', d.signals, d.signal_ms,
                   d.answer, o.correct, d.action, _mindful.answer_grade(array_to_string(g.memories, ' '), g.answers)
                   or exists (
                       select from generation n join memory m on m.id = any (n.memory_ids)
                       where n.id = d.generation_id and m.tenant = d.tenant
                           and _mindful.answer_grade(m.content, g.answers))
               from gold g
               join decision d on d.tenant = g.tenant and d.gold_id = g.id
               join latest_outcome o on o.tenant = d.tenant and o.decision_id = d.id
               where g.tenant = %s and g.id > %s order by d.second_model nulls first, g.id""",
            (questions.tenant, before),
        )
        names = (
            *("question", "memories", "source", "answerable", "signals", "signal_ms", "answer", "correct"),
            *("action", "stated"),
        )
        sets = {None: questions.name, SECOND: self.kept.second(questions.name)}
        return [
            {"set": sets[second], "tenant": questions.tenant} | dict(zip(names, row, strict=True))
            for second, *row in found
        ]

    def graded(self, rows: Sequence[Row], memories: int) -> None:
        """Have gold questions answered, and the answers labeled."""
        self.db.execute(
            "select gold_evaluate(%s, %s, memories => %s, max_tokens => %s, signal_tier => %s)",
            (json.dumps(rows), FIRST, memories, TOKENS, self.tier),
        )

    def _nearest(self, questions: Questions, rows: Sequence[Row]) -> list[Row]:
        """Tell whether evidence is among the five nearest embeddings, by them and by what memory_recall finds."""
        return [self._evidence(questions, row["question"], nearest=True) for row in rows]

    def _recalled(self, questions: Questions, rows: Sequence[Row]) -> list[Row]:
        """Tell whether evidence is among the five best of memory_recall."""
        return [self._evidence(questions, row["question"], nearest=False) for row in rows]

    def _evidence(self, questions: Questions, question: str, nearest: bool) -> Row:
        found = self.db.execute(
            "select id, score, similarity, bm25, bm25_context from memory_recall(%s, %s)",
            (question, _CONSIDERED),
        ).fetchall()
        best, signals = [row[0] for row in found[:_FOUND]], self._signals(question, found)
        if nearest:
            near = self.db.execute(
                """select id, similarity
                   from _mindful.recall_dense((select llm_embed(%s)), 'embedder', %s, null::recall_filter)""",
                (question, _COMPARED),
            ).fetchall()
            signals = {f"recalled_{name}": value for name, value in signals.items()}
            signals |= self._near_signals(question, near, found)
            best = [row[0] for row in near[:_FOUND]]
        told = self.db.execute(
            "select metadata ->> 'dia_id' from memory where tenant = %s and id = any (%s)",
            (questions.tenant, best),
        )
        # Some are malformed, such as "D8:6; D9:17".
        evidence = set(re.findall(r"D\d+:\d+", " ".join(questions.evidence[question])))
        return {
            "set": "nearest" if nearest else "recalled",
            "tenant": questions.tenant,
            "question": question,
            "source": questions.tenant,
            "signals": signals,
            "correct": any(row[0] in evidence for row in told),
        }

    def _signals(self, question: str, found: Sequence[Any]) -> Row:
        covered = self._covered(question, [row[0] for row in found[:_FOUND]])
        scores, similarities, bm25 = ([row[at] for row in found[:_COMPARED]] for at in (1, 2, 3))
        return signal.recalled(scores, similarities, bm25, covered)

    def _near_signals(self, question: str, near: Sequence[Any], found: Sequence[Any]) -> Row:
        ids = [row[0] for row in near]
        words = {row[0]: row[4] or 0.0 for row in found}
        return self._covered(question, ids[:_FOUND]) | {
            "coverage_first": self._covered(question, ids[:1])["coverage"],
            "coverage_ten": self._covered(question, ids)["coverage"],
            "similarity_top": near[0][1],
            "similarity_margin": near[0][1] - near[1][1],
            "similarity_gap": near[0][1] - near[-1][1],
            "words": max(words.get(at, 0.0) for at in ids[:_FOUND]) / max(*words.values(), 1e-9),
        }

    def _covered(self, question: str, ids: Sequence[int]) -> Row:
        query = "select to_jsonb(c) from _mindful.recall_coverage(%s, %s) c"
        found: Row = self.one(query, question, list(ids))
        return found

    def one(self, query: str, *arguments: object) -> Any:
        """Return a query's one value."""
        row = self.db.execute(query, arguments).fetchone()
        return row and row[0]


def _files(dsn: str) -> Row:
    """Find the default models' files: in the environment, or where the DSN's database has its defaults from."""
    files: Row = {}
    with psycopg.connect(dsn) as db:
        if db.execute("select to_regclass('mindful.model')").fetchone() != (None,):
            files |= db.execute("select kind, source from mindful.model where is_default").fetchall()
    for kind in ("generator", "embedder"):
        files.setdefault(kind, os.environ.get(f"MINDFUL_{kind.upper()}", ""))
    return files


def _key(row: Row) -> tuple[str, str, tuple[str, ...]]:
    return row["tenant"], row["question"], tuple(row.get("memories", ()))
