"""DRY: answers of small models that would repeat whole sentences."""

from __future__ import annotations

import re

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import GENERATOR, fails, one
from support.copies import register_copy

PROMPTS = ("Please summarize what you can do.", "How do I make pancakes?")


@pytest.fixture
def plain(db: psycopg.Connection) -> str:
    """The default generator under another name, without DRY."""
    return register_copy(db, "plain")


def longest_repeated(text: str) -> int:
    """Return the words of the longest phrase that a text has twice."""
    words = re.findall(r"[\w']+", text.lower())
    length = 0
    while len(set(parts := [tuple(words[at : at + length + 1]) for at in range(len(words) - length)])) < len(
        parts
    ):
        length += 1
    return length


@pytest.mark.shares
def test_the_default_model_repeats_less(ana: psycopg.Connection, plain: str) -> None:
    sql = "select llm_generate(%s, %s, max_tokens => 96)"
    repeated = {model: longest_repeated(one(ana, sql, PROMPTS[0], model)) for model in (plain, GENERATOR)}
    assert repeated[GENERATOR] < 10 <= repeated[plain]


@pytest.mark.shares
def test_many_prompts_are_answered_without_repetitions_too(ana: psycopg.Connection, plain: str) -> None:
    sql = "select llm_generate_many(%s, %s, max_tokens => 64)"
    answers = {model: one(ana, sql, list(PROMPTS), model) for model in (plain, GENERATOR)}
    assert max(map(longest_repeated, answers[GENERATOR])) < 10
    assert sum(map(longest_repeated, answers[GENERATOR])) < sum(map(longest_repeated, answers[plain]))


@pytest.mark.shares
def test_a_schema_turns_it_off(ana: psycopg.Connection, plain: str) -> None:
    sentences = [f"The {thing} is as good as it was in all the years before." for thing in ("code", "data")]
    schema = Jsonb({"type": "array", "items": {"enum": sentences}, "minItems": 3, "maxItems": 3})
    sql = "select llm_generate(%s, %s, json_schema => %s)"
    texts = {model: one(ana, sql, PROMPTS[0], model, schema) for model in (plain, GENERATOR)}
    assert texts[GENERATOR] == texts[plain]
    assert longest_repeated(texts[plain]) > 10  # DRY would change it


def test_memory_is_taken_only_for_what_the_context_holds(ana: psycopg.Connection) -> None:
    sql = "select llm_generate('Say hello.', max_tokens => %s, repeat_penalty => 1.1)"
    private = "select private_bytes / 1e6 from mindful_status()"
    one(ana, sql, 8)
    before = one(ana, private)
    one(ana, sql, 2147483647)
    assert one(ana, private) < before + 20


@pytest.mark.parametrize("value", [-1, 11, "0.8", True, None])
@pytest.mark.shares
def test_a_multiplier_out_of_range_is_refused(
    brief_file: str, admin: psycopg.Connection, value: object
) -> None:
    with fails("22023", hint="between 0 and 10"):
        admin.execute(
            "select model_register('bad', 'generator', 'llama_cpp', %s, %s)",
            (brief_file, Jsonb({"dry_multiplier": value})),
        )
