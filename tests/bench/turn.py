"""What a chat turn costs beyond its models, and what memory_recall costs beyond the embedding of its query."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from session import EARLY, LATE, Connecting, _told

_SETTLE = 12
"""Turns and calls before the measured ones: plans are made, and summaries written, then."""
_TIMES = 5
"""Measured turns and calls for each repeat: a single one says little on a shared machine."""
_WATCH = """do language plpython3u $do$
import time
from collections import Counter
from mindful.core.backend import Backend
from mindful.models.providers.llama.embedder import LlamaEmbedder
from mindful_scripted import ScriptedGenerator

class Watch:
    embedder, generator = [0.0, 0.0], [0.0, 0.0]
    statements, ms, within = Counter(), Counter(), [0.0]

def watched(call, note):
    def timed(self, *arguments):
        Watch.within.append(0.0)
        clock, processor = time.perf_counter(), time.process_time()
        try:
            return call(self, *arguments)
        finally:
            clock, processor = 1000 * (time.perf_counter() - clock), 1000 * (time.process_time() - processor)
            inner = Watch.within.pop()
            Watch.within[-1] += processor
            note(arguments[0], clock, processor, processor - inner)
    return timed

def spent(sums):
    def add(_argument, clock, processor, own):
        sums[0] += clock
        sums[1] += processor
    return add

def streamed(call):
    step = watched(lambda self, _tokens, pieces: next(pieces, None), spent(Watch.generator))
    def stream(self, tokens, *arguments):
        pieces = call(self, tokens, *arguments)
        while (piece := step(self, tokens, pieces)) is not None:
            yield piece
    return stream

LlamaEmbedder.embed = watched(LlamaEmbedder.embed, spent(Watch.embedder))
ScriptedGenerator.encode = watched(ScriptedGenerator.encode, spent(Watch.generator))
ScriptedGenerator.count = watched(ScriptedGenerator.count, spent(Watch.generator))
ScriptedGenerator.stream = streamed(ScriptedGenerator.stream)
Watch.watched = watched
Backend.watch = Watch
$do$"""
_WATCH_STATEMENTS = """do language plpython3u $do$
from mindful.core.backend import Backend

def executed(sql, clock, processor, own):
    Backend.watch.statements[sql] += 1
    Backend.watch.ms[sql] += own

Backend.rows = Backend.watch.watched(Backend.rows, executed)
$do$"""
"""To watch them takes 0.2 ms of a turn, so they are watched in other turns than those that are timed."""
_SPENT = """create function pg_temp.spent() returns double precision[] language plpython3u as $$
import time
from mindful.core.backend import Backend
return [*Backend.watch.embedder, *Backend.watch.generator, time.process_time() * 1000]
$$"""
_STATEMENTS = """create function pg_temp.statements(out sql text, out number bigint, out ms double precision)
returns setof record language plpython3u as $$
from mindful.core.backend import Backend
watch = Backend.watch
found = [(sql, number, watch.ms[sql]) for sql, number in watch.statements.items()]
watch.statements.clear(), watch.ms.clear()
return found
$$"""
_PARTS = (
    ("recall", "_mindful.memory_recall("),
    ("storing both turns, without their embeddings", "_mindful.turn_insert("),
    ("words that memories lack, and similarities", "words_beyond(", "similarity("),
    ("look-ups of models and slots", "model_find(", "#>> '{}')::pg_catalog.int4"),
    ("storing embeddings", "memory_embedding_", "from new_rows"),
    ("reading the session", "session_read("),
    ("summaries of turns that left the window", "recap_", "recall_coverage("),
    ("decision, calibrator and log", "decision", "calibrator", "generation", "r.form"),
    ("other statements", ""),
)
"""Parts of a turn, each with a text that its statements have."""
Spent = tuple[float, float]
"""Milliseconds of a call: by the clock, and of the backend's processor time."""
Part = tuple[str, float, float]
"""A part of a turn: its name, statements and milliseconds of processor time."""


def report(connect: Connecting, repeats: int) -> list[str]:
    """Measure both, and write them as Markdown."""
    beyond, embedding, parts = _turns(connect, repeats * _TIMES)
    recalls, embeds = _recalls(connect, repeats * _TIMES)
    more = [(a[0] - b[0], a[1] - b[1]) for a, b in zip(recalls, embeds, strict=True)]
    rows = (
        (f"a chat turn at {LATE} turns, beyond the generator and the embedder", beyond, "<= 12"),
        ("the embedder in such a turn: message and reply", embedding, ""),
        (f"`memory_recall` among {LATE + EARLY} memories, k = 5, as a client sees it", recalls, ""),
        ("`llm_embed` of such a query", embeds, ""),
        ("what `memory_recall` takes more than `llm_embed`, pair by pair", more, "< 4"),
    )
    return [
        "| what | median ms (quartiles) | processor ms (quartiles) | goal |",
        "|---|---|---|---|",
        *(
            f"| {what} | {_shown([a for a, _ in ms])} | {_shown([b for _, b in ms])} | {goal} |"
            for what, ms, goal in rows
        ),
        "",
        "| of a turn | statements | processor ms, mean |",
        "|---|---|---|",
        *(f"| {what} | {number:.1f} | {ms:.2f} |" for what, number, ms in parts),
        "",
        f"The load average was {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors.",
    ]


def _shown(values: list[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"**{median:.1f}** ({low:.1f} to {high:.1f})"


def _turns(connect: Connecting, count: int) -> tuple[list[Spent], list[Spent], list[Part]]:
    """Time turns with a generator that repeats a line; the models' own time is taken off."""
    with connect() as db, _settled(db) as session:
        turns = [_turn(db, session, number) for number in range(_SETTLE + count)][_SETTLE:]
        db.execute("reset role")
        db.execute(_WATCH_STATEMENTS)
        db.execute("set role bench_user")
        watched = [_turn(db, session, number)[0] for number in range(_SETTLE + count, _SETTLE + 2 * count)]
        parts = _parts(db, count, statistics.fmean(processor for _, processor in watched))
    return [beyond for beyond, _ in turns], [embedding for _, embedding in turns], parts


def _turn(db: psycopg.Connection, session: str, number: int) -> tuple[Spent, Spent]:
    """Return what a turn takes beyond its models, and the embedder in it."""
    chat = "select llm_chat(%s, %s, model => 'bench-scripted')"
    total, embedded, generated = _spent(db, chat, f"Tell me a long story about number {number}.", session)
    clock, processor = (a - b - c for a, b, c in zip(total, embedded, generated, strict=True))
    return (clock, processor), embedded


def _parts(db: psycopg.Connection, count: int, total: float) -> list[Part]:
    """Add up the statements of the turns by what they do; the rest is Python's."""
    numbers = dict.fromkeys((name for name, *_ in _PARTS), 0.0)
    spent = dict(numbers)
    for sql, number, ms in db.execute("select * from pg_temp.statements()").fetchall():
        name = next(name for name, *texts in _PARTS if any(text in sql for text in texts))
        numbers[name] += number / count
        spent[name] += ms / count
    rest = total - sum(spent.values())
    return [
        *((name, numbers[name], spent[name]) for name in numbers),
        ("Python, and the watch itself", 0.0, rest),
    ]


def _recalls(connect: Connecting, count: int) -> tuple[list[Spent], list[Spent]]:
    """Time recalls and embeddings in turns, of queries that are alike in length."""
    recalls, embeds = [], []
    with connect() as db, _settled(db):
        for number in range(_SETTLE + count):
            recall = _spent(db, "select * from memory_recall(%s)", f"What does function {number} return?")
            embed = _spent(db, "select llm_embed(%s)", f"What does operator {number} return?")
            if number >= _SETTLE:
                recalls.append(recall[0])
                embeds.append(embed[0])
    return recalls, embeds


@contextmanager
def _settled(db: psycopg.Connection) -> Iterator[str]:
    with _told(db) as sessions:
        for session in sessions.values():
            db.execute("select mindful.session_summarize(%s, 'extract')", (session,))
        db.execute("reset role")
        db.execute("analyze")  # As autovacuum does, so that each run plans by the same sizes.
        db.execute("select llm_embed('Hi')")
        db.execute(_WATCH)
        db.execute(_SPENT)
        db.execute(_STATEMENTS)
        db.execute("set role bench_user")
        yield sessions[LATE]


def _spent(db: psycopg.Connection, sql: str, *arguments: object) -> tuple[Spent, Spent, Spent]:
    """Time a call, and the embedder and the generator within it."""
    before = _read(db)
    started = time.perf_counter()
    db.execute(sql, arguments).fetchall()
    ms = (time.perf_counter() - started) * 1000
    after = _read(db)
    *models, processor = (b - a for a, b in zip(before, after, strict=True))
    return (ms, processor), (models[0], models[1]), (models[2], models[3])


def _read(db: psycopg.Connection) -> list[float]:
    row = db.execute("select pg_temp.spent()").fetchone()
    assert row
    return list(row[0])
