"""Measure mindful against plain llama-cpp-python, and against itself without what is measured, in one run, as ratios.

Usage: run.py [--only SECTION ...] [--repeats N] [--write FILE]. The server comes from MINDFUL_DSN, as `make dsn`
prints it. Every figure is a median over repeats in which the two sides take turns, with the spread of the ratio,
because machines are noisy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import batch
import cancel
import concurrency
import log
import lookup
import psycopg
import repetition
import review
import session
import state
import turn
from psycopg.types.json import Jsonb

PROMPT = "Write a long story about a lighthouse keeper and the sea."
TOKENS = 128
ROWS = 500
SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly."


@dataclass(frozen=True)
class Figure:
    """One line of the report: what ours and the peer's values are, pair by pair, and what the ratio should be."""

    what: str
    unit: str
    ours: Sequence[float]
    peers: Sequence[float]
    goal: str

    def row(self) -> str:
        """Write it as a row of a Markdown table."""
        ratios = [a / b for a, b in zip(self.ours, self.peers, strict=True)]
        return (
            f"| {self.what} | {statistics.median(self.ours):.4g} {self.unit} | "
            f"{statistics.median(self.peers):.4g} {self.unit} | **{statistics.median(ratios):.2f}** "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {self.goal} |"
        )


class Plain:
    """The peer process; used as a context, as it holds models."""

    def __init__(self, python: str, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("plain.py")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"},
        )

    def order(self, **order: Any) -> dict[str, Any]:
        """Give an order and wait for what it gave, `seconds` among it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def __enter__(self) -> "Plain":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@dataclass(frozen=True)
class Setting:
    """What all measurements share."""

    dsn: str
    plain: Callable[[], Plain]
    repeats: int

    def connect(self) -> psycopg.Connection:
        """Open a connection that has loaded nothing."""
        return psycopg.connect(self.dsn, autocommit=True)


def decode(setting: Setting) -> list[Figure]:
    """Tokens per second of a whole call, both sides warm; ours gathers confidence and logs the call."""
    ours, peers = [], []
    with setting.connect() as db, setting.plain() as plain:
        for repeat in range(setting.repeats + 1):
            started = time.perf_counter()
            made = _one(
                db, "select (llm_generate_detail(%s, max_tokens => %s)).completion_tokens", PROMPT, TOKENS
            )
            seconds = time.perf_counter() - started
            peer = plain.order(do="generate", prompt=PROMPT, max_tokens=TOKENS)
            if repeat:  # the first loads the models
                ours.append(made / seconds)
                peers.append(peer["tokens"] / peer["seconds"])
    return [Figure(f"generation, {TOKENS} tokens", "tokens/s", ours, peers, ">= 0.95")]


def first_call(setting: Setting) -> list[Figure]:
    """From opening a connection, or starting a Python process, to the first token and the first embedding."""
    tokens: tuple[list[float], list[float]] = ([], [])
    vectors: tuple[list[float], list[float]] = ([], [])
    for _ in range(setting.repeats):
        for (ours, peers), sql, order in (
            (
                tokens,
                "select llm_generate('Hi', max_tokens => 1)",
                {"do": "generate", "prompt": "Hi", "max_tokens": 1},
            ),
            (vectors, "select llm_embed('Hi')", {"do": "embed", "texts": ["Hi"]}),
        ):
            started = time.perf_counter()
            with setting.connect() as db:
                db.execute(sql)
                ours.append((time.perf_counter() - started) * 1000)
            started = time.perf_counter()
            with setting.plain() as plain:
                plain.order(**order)
                peers.append((time.perf_counter() - started) * 1000)
    return [
        Figure("new connection to first token", "ms", *tokens, "<= 1.2"),
        Figure("new connection to first embedding", "ms", *vectors, "<= 1.2"),
    ]


def writing(setting: Setting) -> list[Figure]:
    """Rows per second into memory, against the embedder alone on the same texts in the same backend."""
    embedded: list[float] = []
    rates: dict[str, list[float]] = {
        how: []
        for how in ("memory_insert_many", "COPY into an attached table", "embedding_run, from the queue")
    }
    sync_ms: list[float] = []
    async_ms: list[float] = []
    with setting.connect() as db:
        texts = [row[0] for row in db.execute(_TEXTS, (ROWS,))]
        many = Jsonb([{"content": text} for text in texts])
        _one(db, "select count(llm_embed('Hi'))")
        with db.transaction(force_rollback=True):
            db.execute("delete from embedding_job")
            db.execute("create table public.bench_note (id int primary key, body text)")
            db.execute("select memory_attach('public.bench_note', 'body')")
            for _ in range(setting.repeats):
                embedded.append(ROWS / _seconds(db, "select cardinality(llm_embed_many(%s))", texts))
                insert = "select count(*) from memory_insert_many(%s)"
                rates["memory_insert_many"].append(ROWS / _seconds(db, insert, many))
                rates["COPY into an attached table"].append(ROWS / _copy(db, texts))
                db.execute("delete from public.bench_note")
                sync_ms.append(_seconds(db, "select memory_insert(%s)", texts[0]) * 1000)
                db.execute("""select setting_set('embedding_mode', '"async"')""")
                async_ms.append(_seconds(db, "select memory_insert(%s)", texts[0]) * 1000)
                db.execute(insert, (many,))
                rates["embedding_run, from the queue"].append(
                    (ROWS + 1) / _seconds(db, "select embedding_run()")
                )
                db.execute("select setting_set('embedding_mode', null)")
    return [
        *(Figure(f"{how}, {ROWS} rows", "rows/s", rate, embedded, ">= 0.9") for how, rate in rates.items()),
        Figure("memory_insert of one row: async (ours), sync (peer)", "ms", async_ms, sync_ms, "< 1"),
    ]


def _copy(db: psycopg.Connection, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    with db.cursor().copy("copy public.bench_note from stdin") as copy:
        for number, text in enumerate(texts):
            copy.write_row((number, text))
    return time.perf_counter() - started


def memory(setting: Setting) -> list[tuple[str, float, float]]:
    """Private and shared megabytes of a connection by what it has used."""
    steps = (
        ("no model yet", "select 1"),
        ("embedder used", "select llm_embed('Hi')"),
        ("generator used too", "select llm_generate('Hi', max_tokens => 8)"),
        ("after model_unload()", "select model_unload()"),
        (
            "after a transaction with both, model_keep false",
            "select setting_set('model_keep', 'false'), llm_generate('Hi', max_tokens => 8), llm_embed('Hi')",
        ),
    )
    rows = []
    with setting.connect() as db:
        try:
            for what, sql in steps:
                db.execute(sql)
                private, shared = db.execute(
                    "select private_bytes, shared_bytes from mindful_status()"
                ).fetchone() or (0, 0)
                rows.append((what, private / 1e6, shared / 1e6))
        finally:
            db.execute("select setting_set('model_keep', 'null')")
    return rows


# Real sentences that every server has.
_TEXTS = """select t from (
    select short_desc || ' ' || coalesce(extra_desc, '') as t from pg_settings
    union all select description from pg_description where length(description) > 40) s limit %s"""


def _one(db: psycopg.Connection, sql: str, *arguments: object) -> Any:
    row = db.execute(sql, arguments).fetchone()
    return row and row[0]


def _seconds(db: psycopg.Connection, sql: str, *arguments: object) -> float:
    started = time.perf_counter()
    db.execute(sql, arguments)
    return time.perf_counter() - started


def _setting(repeats: int) -> Setting:
    dsn = os.environ["MINDFUL_DSN"]
    with psycopg.connect(dsn) as db:
        prefix = _one(db, "select python_prefix from mindful_status()")
        files: dict[str, str] = dict(db.execute("select kind, source from model where is_default").fetchall())
        context = _one(db, "select context_length from model where is_default and kind = 'generator'")
    arguments = (files["generator"], files["embedder"], SYSTEM_PROMPT, str(context))
    return Setting(dsn, lambda: Plain(f"{prefix}/bin/python", arguments), repeats)


Measure = Callable[[Setting], list[Figure]]


def _of(measure: Callable[[Callable[[], psycopg.Connection], int], list[Any]]) -> Measure:
    """Make Figures of what the other modules measure."""
    return lambda setting: [Figure(*row) for row in measure(setting.connect, setting.repeats)]


def _table(*measures: Measure) -> Callable[[Setting], list[str]]:
    def section(setting: Setting) -> list[str]:
        lines = ["| what | mindful | peer | ratio (spread) | goal |", "|---|---|---|---|---|"]
        return lines + [figure.row() for measure in measures for figure in measure(setting)]

    return section


def _memory(setting: Setting) -> list[str]:
    lines = ["| a connection's memory | private | shared with others |", "|---|---|---|"]
    return lines + [
        f"| {what} | {private:.0f} MB | {shared:.0f} MB |" for what, private, shared in memory(setting)
    ]


def _states(setting: Setting) -> list[str]:
    lines = ["", "| kept states | bytes | with their table |", "|---|---|---|"]
    rows = [
        f"| {what} | {held:.1f} MB | {table:.1f} MB |" for what, held, table in state.size(setting.connect)
    ]
    return _table(_of(state.late_turn), _of(state.other_connection), _of(state.cost))(setting) + lines + rows


SECTIONS: dict[str, Callable[[Setting], list[str]]] = {
    "speed": _table(decode, first_call, writing),
    "batch": _table(_of(batch.labels), _of(batch.label_quality), _of(batch.answers)),
    "state": _states,
    "session": _table(_of(session.without_model), _of(session.with_model), _of(session.reading)),
    "turn": lambda setting: turn.report(setting.connect, setting.repeats),
    "lookup": _table(_of(lookup.gain)),
    "repetition": _table(_of(repetition.gain)),
    "review": _table(_of(review.cost)),
    "log": _table(_of(log.cost)),
    "memory": _memory,
    "cancel": lambda setting: cancel.report(setting.connect, setting.repeats),
    "first-call": lambda setting: cancel.first_calls(setting.connect, setting.repeats),
    "concurrency": lambda setting: concurrency.report(setting.connect),
}


def report(setting: Setting, sections: Sequence[str]) -> str:
    """Measure sections and write them as Markdown."""
    parts = []
    for name in sections:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        parts.append("\n".join((f"## {name.capitalize()}", "", *SECTIONS[name](setting))))
    return "\n\n".join(parts) + "\n"


def _machine() -> str:
    models = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    return (
        f"{len(models)} shared processors ({models[0].split(':')[1].strip()})" if models else "this machine"
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--write", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    text = report(_setting(options.repeats), options.only)
    print(text, end="")
    if options.write:
        options.write.write_text(f"# Benchmarks\n\nAs `make bench` printed them on {_machine()}.\n\n{text}")


if __name__ == "__main__":
    main()
