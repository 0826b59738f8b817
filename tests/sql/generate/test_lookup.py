"""Prompt lookup: faster where texts repeat, and never another answer."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import fails
from support.copies import register_copy

TEXT = (
    "Berlin is the capital of Germany, and its largest city. The river Spree flows through it. "
    "Its museums are well known, and about 3.7 million people live there."
)
PROMPTS = (
    f"{TEXT}\n\nQuote the text above from its beginning to its end.",
    f"Summarize: {TEXT}",
    "List twenty animals with one adjective each.",
)


@pytest.fixture
def plain(db: psycopg.Connection) -> str:
    """The default generator with flash attention, as lookup has it."""
    return register_copy(db, "plain", flash_attention=True, dry_multiplier=0.8)


@pytest.fixture
def looking(db: psycopg.Connection) -> str:
    """The default generator under another name, with prompt lookup."""
    return register_copy(db, "looking", prompt_lookup=15, dry_multiplier=0.8)


def test_answers_and_their_signals_are_the_same_to_the_bit(
    ana: psycopg.Connection, plain: str, looking: str
) -> None:
    def told(model: str, prompt: str) -> tuple[object, ...]:
        sql = """select text, completion_tokens, finish_reason, signals
                 from llm_generate_detail(%s, %s, max_tokens => 40)"""
        return ana.execute(sql, (prompt, model)).fetchone() or ()

    for prompt in PROMPTS:
        assert told(looking, prompt) == told(plain, prompt)
    schema = Jsonb({"type": "object", "properties": {"river": {"type": "string", "maxLength": 20}}})
    for model in (plain, looking):
        ana.execute("select llm_extract(%s, %s, model => %s)", (TEXT, schema, model))
    assert ana.execute(
        "select count(distinct token_logprobs) * 2 = count(*) and count(*) = 8 from generation"
    ).fetchone() == (True,)


def test_streams_that_take_turns_do_not_disturb_each_other(
    brief: str, ana: psycopg.Connection, looking: str
) -> None:
    prompts = (PROMPTS[0], PROMPTS[2])
    alone = [
        (ana.execute("select llm_generate(%s, %s, max_tokens => 40)", (prompt, looking)).fetchone() or ())[0]
        for prompt in prompts
    ]
    found = ["", ""]
    with ana.transaction(), ana.cursor("one") as one, ana.cursor("two") as two:
        for at, cursor in enumerate((one, two)):
            cursor.itersize = 1
            cursor.execute("select llm_generate_stream(%s, %s, max_tokens => 40)", (prompts[at], looking))
        open_cursors = {0: one, 1: two}
        while open_cursors:
            for at, cursor in list(open_cursors.items()):
                row = cursor.fetchone()
                if row is None:
                    del open_cursors[at]
                else:
                    found[at] += row[0]
    # A context that is evaluated anew is rounded otherwise, so only the beginnings must be the same.
    for text, wanted in zip(found, alone, strict=True):
        assert text[:20] == wanted[:20]


def test_an_answer_ends_at_the_contexts_end(db: psycopg.Connection) -> None:
    register_copy(db, "short", prompt_lookup=32, context_length=128)
    row = db.execute(
        """select finish_reason, prompt_tokens + completion_tokens
           from llm_generate_detail('Repeat: a b c d e f g a b c d e f g a b c d e f g a b c d e f g', 'short',
               system_prompt => '', max_tokens => 500)"""
    ).fetchone()
    assert row is not None
    assert row[0] == "stop" or row[1] == 128


@pytest.mark.parametrize("value", [-1, 33, "many", 1.5])
@pytest.mark.shares
def test_an_option_that_cannot_be_is_refused(brief_file: str, db: psycopg.Connection, value: object) -> None:
    with fails("22023", hint="between 0 and 32"):
        db.execute(
            "select model_register('m', 'generator', 'llama_cpp', %s, %s)",
            (brief_file, Jsonb({"prompt_lookup": value})),
        )


@pytest.mark.shares
def test_guesses_without_flash_attention_are_refused(brief_file: str, admin: psycopg.Connection) -> None:
    options = {"prompt_lookup": 15, "flash_attention": False}
    with fails("22023", hint="Leave flash_attention out of the model's options"):
        admin.execute(
            "select model_register('m', 'generator', 'llama_cpp', %s, %s)",
            (brief_file, Jsonb(options)),
        )
