"""DRY: answers of small models that would repeat whole sentences."""

from __future__ import annotations

import re

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import GENERATOR, fails, one
from support.models import model_files

PROMPTS = ("Please summarize what you can do.", "How do I make pancakes?", "What is love?")


@pytest.fixture
def plain(admin: psycopg.Connection, db: psycopg.Connection) -> str:
    """The default generator under another name, without DRY."""
    admin.execute(
        "select model_register('plain', 'generator', 'llama_cpp', %s)", (model_files(db)["generator"],)
    )
    return "plain"


def longest_repeated(text: str) -> int:
    """Return the words of the longest phrase that a text has twice."""
    words = re.findall(r"[\w']+", text.lower())
    length = 0
    while len(set(parts := [tuple(words[at : at + length + 1]) for at in range(len(words) - length)])) < len(
        parts
    ):
        length += 1
    return length


def test_the_default_model_repeats_less(ana: psycopg.Connection, plain: str) -> None:
    sql = "select llm_generate(%s, %s, max_tokens => 128)"
    repeated = {
        model: [longest_repeated(one(ana, sql, prompt, model)) for prompt in PROMPTS]
        for model in (plain, GENERATOR)
    }
    assert max(repeated[GENERATOR]) < 10 <= max(repeated[plain])
    assert sum(repeated[GENERATOR]) < sum(repeated[plain])


def test_many_prompts_are_answered_without_repetitions_too(ana: psycopg.Connection, plain: str) -> None:
    sql = "select llm_generate_many(%s, %s, max_tokens => 128)"
    answers = {model: one(ana, sql, list(PROMPTS), model) for model in (plain, GENERATOR)}
    assert sum(map(longest_repeated, answers[GENERATOR])) < sum(map(longest_repeated, answers[plain]))


def test_a_schema_may_ask_for_the_same_again(ana: psycopg.Connection) -> None:
    word = {"const": "the same long words again and again and again"}
    schema = Jsonb({"type": "object", "properties": dict.fromkeys("abc", word), "required": ["a", "b", "c"]})
    found = one(ana, "select llm_extract('Repeat.', %s)", schema)
    assert found == dict.fromkeys("abc", word["const"])


@pytest.mark.parametrize("value", [-1, 11, "0.8", True, None])
def test_a_multiplier_out_of_range_is_refused(
    admin: psycopg.Connection, db: psycopg.Connection, value: object
) -> None:
    with fails("22023", hint="between 0 and 10"):
        admin.execute(
            "select model_register('bad', 'generator', 'llama_cpp', %s, %s)",
            (model_files(db)["generator"], Jsonb({"dry_multiplier": value})),
        )
