"""Gold questions, and what is fitted to labels."""

import json
import time

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, fails

FRANCE = {"question": "What is the capital of France?", "answers": ["Paris"]}
MARS = {"question": "What is the capital of Mars?", "answers": []}


def lines(*rows: object) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def test_gold_is_answered_and_graded(ana: psycopg.Connection) -> None:
    spain = FRANCE | {"question": "What is the capital of Spain?", "answers": ["Madrid"], "source": "quiz"}
    told = {"question": "Who sings?", "answers": ["know"], "memories": ["Ann sings.", "Bo hums."]}
    assert ana.execute(
        "select calibration_import(%s, %s, source => 'set')",
        (f"\n{lines(FRANCE, MARS)}\n\n{lines(spain, told)}\n", SCRIPTED_GENERATOR),
    ).fetchone() == (4,)
    assert ana.execute(
        """select g.question, g.source, d.answer, l.correct, l.grader, d.with_memory, d.signals ? 'grounding'
           from gold g join decision d on d.gold_id = g.id join latest_outcome l on l.decision_id = d.id
           order by g.id"""
    ).fetchall() == [
        (FRANCE["question"], "set", "The capital of France is Paris.", True, "gold", False, False),
        (MARS["question"], "set", "I do not know.", False, "gold", False, False),
        (spain["question"], "quiz", "I do not know.", False, "gold", False, False),
        (told["question"], "set", "I do not know.", True, "gold", True, True),
    ]
    assert ana.execute("select count(*) from memory").fetchone() == (0,)
    assert ana.execute("select count(*) from generation").fetchone() == (4,)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("{", "line 2 of gold is no JSON"),
        ("[1]", "line 2 of gold is no JSON object"),
        (lines({"answers": ["x"]}), "line 2 of gold has no question"),
        (lines({"question": " ", "answers": ["x"]}), "line 2 of gold has no question"),
        (lines({"question": "x"}), "line 2 of gold has no array of answers"),
        (lines({"question": "x", "answers": "y"}), "line 2 of gold has no array of answers"),
        (lines({"question": "x", "answers": [1]}), "line 2 of gold has no array of answers"),
        (lines(FRANCE | {"memories": [""]}), "line 2 of gold has memories"),
        (lines(FRANCE | {"source": 1}), "line 2 of gold has a source"),
        (lines(FRANCE | {"answer": "x"}), 'line 2 of gold has an unknown field "answer"'),
        (lines(FRANCE | {"answers": ["a\0b"]}), "line 2 of gold holds NUL"),
        ("[" * 100_000, "line 2 of gold is no JSON"),
    ],
)
def test_a_broken_line_is_named_and_nothing_imported(ana: psycopg.Connection, broken: str, says: str) -> None:
    with fails("22023") as caught:
        ana.execute(
            "select calibration_import(%s, %s)",
            (f"{lines(FRANCE)}\n{broken}\n{lines(MARS)}", SCRIPTED_GENERATOR),
        )
    assert says in str(caught.value)
    for table in ("gold", "decision", "outcome", "generation"):
        assert ana.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_bad_arguments(ana: psycopg.Connection) -> None:
    with fails("22004"):
        ana.execute("select calibration_import(null)")
    with fails("42704"):
        ana.execute("select calibration_import(%s, 'nosuch')", (lines(FRANCE),))
    with fails("54000") as caught:
        ana.execute("select calibration_import(%s)", (lines(FRANCE, FRANCE | {"question": "why " * 4000}),))
    assert "line 2" in str(caught.value)
    assert ana.execute("select calibration_import('')").fetchone() == (0,)


def test_an_import_hears_cancels(ana: psycopg.Connection) -> None:
    ana.execute("select llm_generate('Hi', max_tokens => 1)")
    ana.execute("set statement_timeout = '1s'")
    started = time.monotonic()
    with fails("57014", hint=None):
        ana.execute(
            "select calibration_import(%s, max_tokens => 200)",
            (lines(*({"question": f"What is {number}?", "answers": ["x"]} for number in range(200))),),
        )
    assert time.monotonic() - started < 1.5
    ana.execute("reset statement_timeout")
    assert ana.execute("select count(*) from gold").fetchone() == (0,)
