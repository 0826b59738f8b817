"""Replies that repeat themselves, with DRY and without."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import psycopg
from psycopg.types.json import Jsonb

Connect = Callable[[], psycopg.Connection]
Row = tuple[str, str, list[float], list[float], str]

WORDS = 8
"""Words of a phrase that no reply should have twice."""
TOKENS = 128
MESSAGES = (
    "hi!",
    "hello there",
    "Thanks, bye",
    "good morning",
    "How are you?",
    "I'm bored.",
    "Tell me a joke.",
    "Thank you so much!",
    "Good night",
    "What's up?",
    "I had a bad day.",
    "I'm so tired today.",
    "You're funny.",
    "Who are you?",
    "What can you do?",
    "That's wrong.",
    "Ok.",
    "lol",
    "Sorry, I didn't mean it.",
    "I feel lonely.",
    "It's raining again.",
    "Great weather today!",
    "I passed my exam!",
    "My boss is annoying.",
    "Write a haiku about rain.",
    "Give me an idea for dinner.",
    "Explain recursion.",
    "What is love?",
    "How do I learn Spanish?",
    "Tell me something interesting.",
    "Why is the sky blue?",
    "What is a transistor?",
    "I need motivation.",
    "Recommend a book.",
    "How do I make pancakes?",
    "See you tomorrow.",
    "Please summarize what you can do.",
    "Can you help me with my homework?",
    "I think I'm getting sick.",
    "What should I cook tonight?",
)
_WORD = re.compile(r"[\w']+")


def gain(connect: Connect, repeats: int) -> list[Row]:
    """Return replies that repeat a phrase, and tokens a second, of the default model with DRY against without."""
    with connect() as db, db.transaction(force_rollback=True):
        row = db.execute("select source from model where kind = 'generator' and is_default").fetchone()
        assert row is not None
        models = {"bench-dry": 0.8, "bench-plain": 0}
        for name, multiplier in models.items():
            db.execute(
                "select model_register(%s, 'generator', 'llama_cpp', %s, %s)",
                (name, row[0], Jsonb({"dry_multiplier": multiplier})),
            )
        repeated = dict.fromkeys(models, 0)
        rates: dict[str, list[float]] = {name: [] for name in models}
        for message in MESSAGES:
            for name in models:
                text, rate = _told(db, name, message)
                repeated[name] += repeats_itself(text)
                rates[name].append(rate)
    return [
        (
            f"replies of {len(MESSAGES)} that have {WORDS} words twice: with DRY, against without",
            "replies",
            [float(repeated["bench-dry"])],
            [float(repeated["bench-plain"])],
            "-",
        ),
        ("the same replies", "tokens/s", rates["bench-dry"], rates["bench-plain"], "-"),
    ]


def repeats_itself(text: str) -> bool:
    """Return whether a text has the same words in a row twice."""
    words = _WORD.findall(text.lower())
    runs = [tuple(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)]
    return len(set(runs)) < len(runs)


def _told(db: psycopg.Connection, model: str, message: str) -> tuple[str, float]:
    started = time.perf_counter()
    row = db.execute(
        "select text, completion_tokens from llm_generate_detail(%s, %s, max_tokens => %s)",
        (message, model, TOKENS),
    ).fetchone()
    assert row is not None
    return row[0], row[1] / (time.perf_counter() - started)
