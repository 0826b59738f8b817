"""llm_aggregate and llm_rank."""

import psycopg
import pytest
from support import fails, one
from support.models import say_little

PASSAGES = [
    "Rome is an old city with many fountains.",
    "Photosynthesis turns light into sugar.",
    "Paris is the capital of France.",
    "A triangle has three sides.",
    "Water boils at 100 degrees Celsius.",
]


@pytest.mark.shares
def test_texts_are_aggregated_by_an_instruction(ana: psycopg.Connection) -> None:
    answer = one(
        ana,
        """select llm_aggregate(t, 'Which animal do the texts name?' order by t)
           from unnest(array['A dog barked.', null, ' ', 'The dog slept.']) t""",
    )
    assert "dog" in answer.lower()
    assert one(ana, "select llm_aggregate(t, 'Sum up.') from unnest('{}'::text[]) t") is None
    assert one(ana, "select llm_aggregate(t, 'Sum up.') from unnest('{null}'::text[]) t") is None


def test_texts_past_the_context_are_aggregated_in_rounds(
    brief: str, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    say_little(db, brief)
    ana.execute(
        """select llm_aggregate('Report ' || n || repeat(' the ship bore grain.', 60), 'What was carried?' order by n)
           from generate_series(1, 8) n"""
    )
    calls = ana.execute("select count(*), max(prompt_tokens) from generation").fetchone()
    assert calls is not None
    assert 3 <= calls[0] <= 6
    assert calls[1] <= 2048 - 128


@pytest.mark.parametrize(
    ("content", "instruction", "sqlstate"),
    [
        ("'a'", "null", "22004"),
        ("'a'", "' '", "22023"),
        ("'a'", "n::text", "22023"),
        ("repeat('x', 200000)", "'Sum up.'", "54000"),
        ("'a'", "repeat('word ', 3000)", "54000"),
    ],
)
@pytest.mark.shares
def test_bad_arguments_are_refused(
    ana: psycopg.Connection, content: str, instruction: str, sqlstate: str
) -> None:
    with fails(sqlstate):
        ana.execute(f"select llm_aggregate({content}, {instruction}) from generate_series(1, 9) n".encode())


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("What is the capital of France?", 3),
        ("How many sides does a triangle have?", 4),
        ("At which temperature does water boil?", 5),
        ("How do plants make sugar?", 2),
    ],
)
@pytest.mark.shares
def test_the_generator_ranks_where_no_reranker_is(ana: psycopg.Connection, query: str, best: int) -> None:
    rows = ana.execute(
        "select number, content, score from llm_rank(%s, %s)", (query, [*PASSAGES, None])
    ).fetchall()
    assert rows[0][:2] == (best, PASSAGES[best - 1])
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)
    assert sorted(row[0] for row in rows) == [1, 2, 3, 4, 5]


@pytest.mark.shares
def test_nothing_to_rank_gives_no_rows(ana: psycopg.Connection) -> None:
    for arguments in ("null, '{a}'", "'q', null", "'q', '{}'", "'q', '{null}'"):
        assert ana.execute(f"select * from llm_rank({arguments})".encode()).fetchall() == []
    with fails("22023"):
        ana.execute("select * from llm_rank(' ', '{a}')")
