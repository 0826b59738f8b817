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


LABELLED = """
    with decided as (
        insert into decision (model, with_memory, tier, signals, probability, action, reason)
        select %(model)s, false, 0, jsonb_build_object('logprob_sum', s.signal, 'log_tokens', 1), 0.5, 'flag', 'x'
        from generate_series(1, %(count)s) n, lateral (select ln(n + 0.5) - ln(%(count)s - n + 0.5) as signal) s
        order by n
        returning id, (signals ->> 'logprob_sum')::float8 as signal
    )
    insert into outcome (decision_id, correct, grader)
    select id, random() < 1 / (1 + exp(-%(slope)s * signal - %(shift)s)), 'rule' from decided order by id
"""
"""Answers whose log-odds of being right are slope x logprob_sum + shift."""


def label(connection: psycopg.Connection, count: int, slope: float = 2.0, shift: float = 0.0) -> None:
    connection.execute("select setseed(0.5)")
    connection.execute(
        LABELLED, {"model": SCRIPTED_GENERATOR, "count": count, "slope": slope, "shift": shift}
    )


def calibrated(
    connection: psycopg.Connection, budget: float = 0.2, kind: str = "answers"
) -> dict[str, object]:
    cursor = connection.execute(
        "select * from calibrate(%s, %s, budget_kind => %s)", (SCRIPTED_GENERATOR, budget, kind)
    )
    [row] = cursor.fetchall()
    assert cursor.description
    return dict(zip((column.name for column in cursor.description), row, strict=True))


def test_a_chain_is_judged_by_its_agreement_too(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    ana.execute("select setseed(0.5)")
    chain = f"{SCRIPTED_GENERATOR} > other"
    ana.execute(LABELLED, {"model": chain, "count": 200, "slope": 2.0, "shift": 0.0})
    db.execute(
        """update decision d set signals = signals || jsonb_build_object('second_agreement', o.correct::integer)
           from outcome o where o.decision_id = d.id"""
    )
    calibrated(ana)
    features, metrics = ana.execute("select features, metrics from calibrator").fetchone() or ((), {})
    assert "second_agreement" in features
    assert metrics["auroc"][0] > 0.99


def test_a_threshold_is_certified_and_held(ana: psycopg.Connection) -> None:
    label(ana, 1000)
    found = calibrated(ana)
    assert found["status"] == "certified", found
    metrics, threshold, bound = found["metrics"], found["threshold"], found["bound"]
    assert isinstance(metrics, dict)
    value, low, high = metrics["auroc"]
    assert 0.75 < low < value < high < 0.95
    assert metrics["ece"][0] < 0.08
    assert isinstance(threshold, float)
    assert isinstance(bound, float)
    assert bound <= 0.2
    # What is served is what was certified: of labelled answers that had no part in the fit, few above it are wrong.
    answered, wrong, budget_kind = ana.execute(
        "select answered, wrong, budget_kind from threshold"
    ).fetchone() or (0, 0, "")
    assert budget_kind == "answers"
    assert wrong < 0.2 * answered
    row = ana.execute(
        "select probability, action, threshold, decision_id from llm_chat_detail('Hi', model => %s, memories => 0)",
        (SCRIPTED_GENERATOR,),
    ).fetchone()
    assert row is not None
    assert row[1] == ("answer" if row[0] >= threshold else "flag")
    assert row[2] == pytest.approx(threshold)


def test_a_budget_over_all_questions(ana: psycopg.Connection) -> None:
    label(ana, 400)
    found = calibrated(ana, 0.1, "questions")
    assert found["status"] == "certified"
    row = ana.execute("select wrong, labels, bound from threshold").fetchone()
    assert row is not None
    assert (row[0] + 1) / (row[1] + 1) == pytest.approx(row[2])
    assert row[2] <= 0.1


def test_a_budget_that_cannot_be_met_is_said_plainly(ana: psycopg.Connection) -> None:
    label(ana, 60)
    found = calibrated(ana, 0.05)
    assert (found["status"], found["threshold"], found["coverage"]) == ("infeasible", None, 0.0)
    assert "labels without error needed" in str(found["reason"])
    row = ana.execute(
        "select action, reason from llm_chat_detail('Hi', model => %s, memories => 0)", (SCRIPTED_GENERATOR,)
    ).fetchone()
    assert row == ("flag", found["reason"])


def test_a_repeated_test_spends_delta_and_keeps_the_calibrator(ana: psycopg.Connection) -> None:
    label(ana, 300)
    first, second = calibrated(ana), calibrated(ana, 0.3)
    assert first["calibrator_id"] == second["calibrator_id"]
    rows = ana.execute("select run, delta_spent, supersedes from threshold order by id").fetchall()
    assert [row[0] for row in rows] == [1, 2]
    assert rows[0][1] == pytest.approx(0.1 * 6 / 3.14159265**2)
    assert rows[1][1] == pytest.approx(rows[0][1] / 4)
    assert rows[1][2] == first["threshold_id"]


def test_a_better_calibrator_takes_over_and_another_does_not(ana: psycopg.Connection) -> None:
    label(ana, 600)
    first = calibrated(ana)
    label(ana, 80)
    assert calibrated(ana)["calibrator_id"] == first["calibrator_id"]
    label(ana, 1500, slope=-2)  # what was a sign of being right is now one of being wrong
    second = calibrated(ana)
    assert second["calibrator_id"] != first["calibrator_id"]
    assert ana.execute("select adopted from calibrator order by id").fetchall() == [
        (True,),
        (False,),
        (True,),
    ]


def test_what_cannot_be_calibrated(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    def fails_with(connection: psycopg.Connection, says: str) -> None:
        with fails("55000") as caught:
            connection.execute("select calibrate(%s, 0.1)", (SCRIPTED_GENERATOR,))
        assert says in str(caught.value)

    fails_with(ana, "have no labels")
    label(ana, 29)
    fails_with(ana, "30 labels are needed, 29 are there")
    ana.execute("insert into outcome (decision_id, correct, grader) select id, false, 'rule' from decision")
    label(ana, 10, shift=-100)
    fails_with(ana, "all 39 labels say wrong")
    fails_with(bob, "have no labels")
    for sqlstate, arguments in (
        ("22004", "error_budget => null"),
        ("22004", "delta => null"),
        ("22023", "error_budget => 0"),
        ("22023", "error_budget => 1"),
        ("22023", "error_budget => 'nan'"),
        ("22023", "delta => 1"),
        ("22023", "budget_kind => 'all'"),
        ("42704", "model => 'nosuch'"),
    ):
        with fails(sqlstate):
            ana.execute(f"select calibrate({arguments})")
    assert ana.execute("select count(*) from calibrator").fetchone() == (0,)
