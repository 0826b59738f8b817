"""Many prompts side by side with the real model."""

import psycopg
import pytest
from support import GENERATOR, fails
from support.copies import register_copy

PROMPTS = [
    "What is the capital of France?",
    "Name three rivers.",
    "Tell me about cats.",
    "Repeat: \u00fc\u4f60\u597d\U0001f600",
]


_CASTS = {"temperature": "::real", "seed": "::int", "max_tokens": "::int"}


def many(db: psycopg.Connection, prompts: list[str | None], **arguments: object) -> list[str | None]:
    named = "".join(f", {name} => %s{_CASTS.get(name, '')}" for name in arguments)
    row = db.execute(
        f"select llm_generate_many(%s::text[]{named})".encode(), (prompts, *arguments.values())
    ).fetchone()
    assert row is not None
    found: list[str | None] = row[0]
    return found


@pytest.mark.smoke
@pytest.mark.shares
def test_answers_stand_in_the_order_of_the_prompts(ana: psycopg.Connection) -> None:
    found = many(ana, [None, PROMPTS[0], None, PROMPTS[1]], max_tokens=24)
    assert found[0] is found[2] is None
    assert "Paris" in str(found[1])
    assert "river" in str(found[3]).lower()


@pytest.mark.shares
def test_answers_are_those_of_single_calls_with_flash_attention(
    db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    model = register_copy(db, "flash", flash_attention=True, dry_multiplier=0.8)
    single = [
        row[0]
        for row in ana.execute(
            "select llm_generate(t, %s, max_tokens => 12) from unnest(%s::text[]) t", (model, PROMPTS)
        )
    ]
    assert many(ana, [*PROMPTS], model=model, max_tokens=12) == single


@pytest.mark.shares
def test_a_single_prompt_in_the_kept_context_gets_the_answer_that_it_gets_among_others(
    ana: psycopg.Connection,
) -> None:
    together = many(ana, [*PROMPTS], max_tokens=8)
    alone = [many(ana, [prompt], max_tokens=8)[0] for prompt in PROMPTS * 2]
    assert sum(a == b for a, b in zip(alone, together * 2, strict=True)) >= 2 * len(PROMPTS) - 2


def test_more_prompts_than_places(brief: str, ana: psycopg.Connection) -> None:
    prompts: list[str | None] = [f"What is {at} plus 1?" for at in range(70)]
    found = many(ana, prompts, max_tokens=4)
    assert len(found) == 70
    assert all(found)
    made = ana.execute(
        "select count(*), max(completion_tokens), min(cached_tokens) from generation"
    ).fetchone()
    assert made is not None
    assert made[:2] == (70, 4)


def test_answers_too_long_to_stand_side_by_side_wait_for_each_other(
    brief: str, ana: psycopg.Connection
) -> None:
    long = "word and other " * 400
    found = many(ana, [f"{at} {long}" for at in range(4)], max_tokens=3)
    made = ana.execute("select count(*), min(prompt_tokens) from generation").fetchone() or (0, 0)
    assert (len(found), made[0]) == (4, 4)
    assert made[1] > 1024


def test_every_answer_is_logged_as_a_single_one_is(ana: psycopg.Connection) -> None:
    found = many(ana, [PROMPTS[0], None, PROMPTS[1]], max_tokens=16, temperature=0.5, seed=7)
    rows = ana.execute(
        """select model, temperature, seed, max_tokens, cardinality(token_logprobs) = completion_tokens,
               (signals ->> 'tokens')::int = completion_tokens, confidence between 0 and 1,
               first_token_ms <= total_ms, memory_ids, g::text
           from generation g order by id"""
    ).fetchall()
    assert [row[:9] for row in rows] == [
        (GENERATOR, 0.5, seed, 16, True, True, True, True, []) for seed in (7, 9)
    ]
    assert not any(str(text) in rows[0][9] for text in found if text)


@pytest.mark.shares
def test_a_seed_gives_the_same_texts_again_and_a_prompt_given_twice_two_answers(
    brief: str,
    ana: psycopg.Connection,
) -> None:
    prompts: list[str | None] = ["Name an animal and tell about it."] * 3
    first = many(ana, prompts, temperature=1.5, seed=1, max_tokens=24)
    many(ana, ["Name an animal and tell a lie about it."], max_tokens=5)
    assert many(ana, prompts, temperature=1.5, seed=1, max_tokens=24) == first
    assert len(set(first)) == 3


@pytest.mark.shares
def test_a_stop_string_ends_an_answer(ana: psycopg.Connection) -> None:
    whole = str(many(ana, [PROMPTS[0], PROMPTS[1]], max_tokens=12)[0])
    found = many(ana, [PROMPTS[0], PROMPTS[1]], stop=["Paris"], max_tokens=12)
    assert "Paris" in whole
    assert found[0] == whole.partition("Paris")[0]


@pytest.mark.parametrize(
    ("arguments", "sqlstate", "where"),
    [
        ("array['x', '']", "22023", "prompt 2"),
        ("array['x', repeat('word ', 3000)]", "54000", "prompt 2"),
        ("array['x'], max_tokens => 0", "22023", ""),
        ("array['x'], max_tokens => null", "22004", ""),
        ("array['x'], seed => -1", "22023", ""),
        ("array['x'], model => 'nobody'", "42704", ""),
    ],
)
@pytest.mark.smoke
@pytest.mark.shares
def test_bad_arguments_are_refused(
    ana: psycopg.Connection, arguments: str, sqlstate: str, where: str
) -> None:
    with fails(sqlstate) as caught:
        ana.execute(f"select llm_generate_many({arguments})".encode())
    assert where in str(caught.value)


def test_nothing_gives_nothing(ana: psycopg.Connection) -> None:
    row = ana.execute(
        "select llm_generate_many(null), llm_generate_many('{}'), llm_generate_many('{null}')"
    ).fetchone()
    assert row == (None, [], [None])
    assert ana.execute("select count(*) from generation").fetchone() == (0,)


@pytest.mark.shares
def test_a_read_only_transaction_can_generate(brief: str, ana: psycopg.Connection) -> None:
    ana.execute("set default_transaction_read_only = on")
    assert many(ana, ["Hi"], max_tokens=3)


def test_the_memory_is_given_back(ana: psycopg.Connection) -> None:
    many(ana, [*PROMPTS], max_tokens=2)
    sql = "select private_bytes from mindful_status()"
    before = ana.execute(sql).fetchone() or (0,)
    many(ana, [f"Write a story about number {at}." for at in range(32)], max_tokens=2)
    after = ana.execute(sql).fetchone() or (0,)
    assert after[0] - before[0] < 10e6
