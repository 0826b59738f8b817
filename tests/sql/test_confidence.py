"""Views that show how far confidence can be trusted."""

import math

import psycopg
import pytest
from sql.test_calibration import calibrated, label
from support import SCRIPTED_GENERATOR

VIEWS = ("reliability_curve", "risk_coverage", "signal_quality")


def test_a_decision_can_be_told_in_full(ana: psycopg.Connection) -> None:
    label(ana, 300)
    calibrated(ana)
    row = ana.execute(
        "select decision_id, message_id from llm_chat_detail('Hi', model => %s, memories => 0)",
        (SCRIPTED_GENERATOR,),
    ).fetchone()
    assert row is not None
    told = ana.execute(
        """select l.probability, l.weights, c.intercept, l.budget, l.action, l.reason, l.correct
           from decision_log l join calibrator c on c.id = l.calibrator_id where decision_id = %s""",
        row[:1],
    ).fetchone()
    assert told is not None
    probability, weights, intercept, budget, _, reason, correct = told
    assert probability == pytest.approx(1 / (1 + math.exp(-intercept - sum(weights.values()))), abs=1e-3)
    assert (budget, correct) == (0.2, None)
    assert reason
    queue = ana.execute("select message_id, question, answer from label_queue").fetchall()
    assert queue == [(row[1], "Hi", "I do not know.")]
    ana.execute("select review_label(%s, false)", row[1:])
    assert ana.execute("select * from label_queue").fetchall() == []


def test_a_signals_quality_is_its_auroc(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    label(ana, 200)
    found = ana.execute(
        "select auroc, low, high, right_answers + wrong_answers from signal_quality where signal = 'logprob_sum'"
    ).fetchone()
    pairs = db.execute(
        """select avg(case when a.s > b.s then 1 when a.s = b.s then 0.5 else 0 end)::float8
           from (select (d.signals ->> 'logprob_sum')::float8 as s, l.correct from mindful.decision d
                 join mindful.latest_outcome l on l.decision_id = d.id) a,
                (select (d.signals ->> 'logprob_sum')::float8 as s, l.correct from mindful.decision d
                 join mindful.latest_outcome l on l.decision_id = d.id) b
           where a.correct and not b.correct"""
    ).fetchone()
    assert found is not None
    assert pairs is not None
    auroc, low, high, answers = found
    assert auroc == pytest.approx(pairs[0])
    assert low < auroc < high
    assert answers == 200
    constant = ana.execute("select auroc from signal_quality where signal = 'log_tokens'").fetchone()
    assert constant == (0.5,)


def test_curves(ana: psycopg.Connection) -> None:
    label(ana, 200)
    assert ana.execute("select * from reliability_curve").fetchall() == []  # nothing is calibrated yet
    last = ana.execute("select coverage, risk from risk_coverage order by coverage desc limit 1").fetchone()
    wrong = ana.execute("select avg((not correct)::int)::float8 from latest_outcome").fetchone()
    assert last is not None
    assert wrong is not None
    assert last == (1.0, pytest.approx(wrong[0]))


def test_figures_of_others_are_for_readers(
    ana: psycopg.Connection, bob: psycopg.Connection, reader: psycopg.Connection
) -> None:
    label(ana, 100)
    for view in VIEWS:
        assert bob.execute(f"select * from {view}").fetchall() == [], view
    for view in VIEWS[1:]:
        assert reader.execute(f"select count(*) from {view}").fetchone() != (0,), view
    for view in ("decision_log", "label_queue", "latest_outcome"):
        assert bob.execute(f"select * from {view}").fetchall() == [], view
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(f"select * from {view}")
