"""Prompt lookup where it helps and where it cannot, with the same answers."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
from psycopg.types.json import Jsonb

Connect = Callable[[], psycopg.Connection]
Row = tuple[str, str, list[float], list[float], str]

GUESSED = 15
TOKENS = 128
TEXT = (
    "Berlin is the capital of Germany, and its largest city. The river Spree flows through it. Its museums are well "
    "known, and about 3.7 million people live there. The first wall was built in 1961 and fell in 1989. Many lakes lie "
    "in the west of the city, where people swim in summer."
)
PROGRAM = (
    "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
    "    return total / len(value)\n\n"
    "def median(values):\n    ordered = sorted(values)\n    middle = len(ordered) // 2\n    return ordered[middle]\n"
)
TASKS = {
    "a text quoted": f"{TEXT}\n\nQuote the text above from its beginning to its end.",
    "a text repeated": f"Repeat this text word for word:\n\n{TEXT}",
    "a program corrected": f"Fix the bug, and write the whole program again:\n\n{PROGRAM}",
    "sentences picked out": f"Which sentences of this text name a number? Quote them. {TEXT}",
    "a text summarized": f"Summarize: {TEXT}",
    "a list": "List twenty animals with one adjective each.",
    "a story": "Write a long story about a lighthouse keeper and the sea.",
}


def gain(connect: Connect, repeats: int) -> list[Row]:
    """Tokens per second after the first, with prompt lookup against without; the answers must be the same."""
    rows: list[Row] = []
    with connect() as db, db.transaction(force_rollback=True):
        source, options = (
            db.execute("select source, options from model where kind = 'generator' and is_default").fetchone()
            or ()
        )
        for name, option in (
            ("bench-plain", {"flash_attention": True}),
            ("bench-lookup", {"prompt_lookup": GUESSED}),
        ):
            db.execute(
                "select model_register(%s, 'generator', 'llama_cpp', %s, %s)",
                (name, source, Jsonb({**options, **option})),
            )
        for what, prompt in TASKS.items():
            rates: dict[str, list[float]] = {"bench-plain": [], "bench-lookup": []}
            for repeat in range(repeats + 1):
                told = {model: _told(db, model, prompt) for model in rates}
                # The first evaluates the prompt, the others have it; each is rounded as the other model's is.
                assert len({text for text, _ in told.values()}) == 1, f"{what}: another answer"
                if repeat:
                    for model, (_, rate) in told.items():
                        rates[model].append(rate)
            title = f"{what}: with prompt lookup, against without"
            rows.append((title, "tokens/s", rates["bench-lookup"], rates["bench-plain"], "-"))
    return rows


def _told(db: psycopg.Connection, model: str, prompt: str) -> tuple[str, float]:
    started = time.perf_counter()
    row = db.execute(
        "select text, completion_tokens, first_token_ms from llm_generate_detail(%s, %s, max_tokens => %s)",
        (prompt, model, TOKENS),
    ).fetchone()
    assert row is not None
    return row[0], row[1] / (time.perf_counter() - started - row[2] / 1000)
