"""Views that show how far confidence can be trusted."""

import itertools
import math

import psycopg
import pytest
from mindful.confidence.calibrator import Calibrator
from sql.confidence.test_calibration import calibrated, label
from support import SCRIPTED_GENERATOR

VIEWS = ("reliability_curve", "risk_coverage", "signal_quality", "roc_curve", "label_probability")


@pytest.mark.smoke
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
    ana.execute("select answer_label(%s, false)", row[1:])
    assert ana.execute("select * from label_queue").fetchall() == []


QUALITY = """select auroc, low, high, right_answers, wrong_answers from signal_quality where signal = 'logprob_sum'"""
PAIRS = """
    with s as (
        select (d.signals ->> 'logprob_sum')::float8 as value, l.correct, 1 / d.propensity as weight
        from mindful.decision d join mindful.latest_outcome l on l.decision_id = d.id
    )
    select sum(a.weight * b.weight * case when a.value > b.value then 1 when a.value = b.value then 0.5 else 0 end)
        / sum(a.weight * b.weight)
    from s a, s b where a.correct and not b.correct"""
"""Probability that a right answer ranks above a wrong one, pair by pair."""


def test_a_signals_quality_is_its_auroc(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    label(ana, 200)
    auroc, low, high, right, wrong = ana.execute(QUALITY).fetchone() or ()
    assert auroc == pytest.approx((db.execute(PAIRS).fetchone() or ())[0])
    assert low < auroc < high
    assert right + wrong == 200
    constant = ana.execute("select auroc from signal_quality where signal = 'log_tokens'").fetchone()
    assert constant == (0.5,)


def test_a_label_that_stands_for_others_counts_for_them(
    ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    label(ana, 200)
    plain, low, high, *_ = ana.execute(QUALITY).fetchone() or ()
    db.execute("update decision set signals = signals || '{\"logprob_sum\": -3}' where id % 5 = 0")
    db.execute("update decision set propensity = 0.1, offered = true where id % 3 = 0")
    auroc, weighted_low, weighted_high, right, wrong = ana.execute(QUALITY).fetchone() or ()
    assert auroc == pytest.approx((db.execute(PAIRS).fetchone() or ())[0])
    assert auroc != pytest.approx(plain, abs=0.01)
    assert right + wrong == 200
    # A third of the labels weighs five sixths of all: as much is known as from some eighty.
    assert weighted_high - weighted_low > 1.3 * (high - low)


def test_curves(ana: psycopg.Connection) -> None:
    label(ana, 200)
    assert ana.execute("select * from reliability_curve").fetchall() == []  # nothing is calibrated yet
    last = ana.execute("select coverage, risk from risk_coverage order by coverage desc limit 1").fetchone()
    wrong = ana.execute("select avg((not correct)::int)::float8 from latest_outcome").fetchone()
    assert last is not None
    assert wrong is not None
    assert last == (1.0, pytest.approx(wrong[0]))


def test_labels_of_before_a_calibration_are_shown_by_the_calibrator_in_force(ana: psycopg.Connection) -> None:
    label(ana, 1300)
    calibrated(ana)
    rows = ana.execute("select sum(answers), count(*) from reliability_curve").fetchone()
    assert rows == (1300, 10)
    fitted = ana.execute(
        "select features, means, scales, weights, intercept, knots_x, knots_y from calibrator"
    ).fetchone()
    assert fitted is not None
    found = {row[0] for row in ana.execute("select probability from label_probability")}
    signals = [row[0] for row in ana.execute("select signals from decision")]
    assert sorted(found) == pytest.approx(sorted({Calibrator(*fitted).probability(one) for one in signals}))
    points = ana.execute(
        "select false_positive_rate, true_positive_rate from roc_curve order by probability desc"
    ).fetchall()
    assert points[-1] == (1, 1)
    area = sum(
        (right[0] - left[0]) * (right[1] + left[1]) / 2
        for left, right in itertools.pairwise([(0, 0), *points])
    )
    assert 0.75 < area < 0.95


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


def test_the_report_compares_with_the_probabilities_before_the_labels(ana: psycopg.Connection) -> None:
    label(ana, 300)
    calibrated(ana)
    row = ana.execute("select confidence_report()").fetchone()
    assert row is not None
    after, before = row[0], row[0]["before"]
    assert _area(before["roc"]) == pytest.approx(0.5)  # all had the same probability
    assert _area(after["roc"]) > 0.7
    [start] = before["reliability"]
    assert (start["mean_probability"], start["answers"]) == (0.5, 300)
    assert len(after["reliability"]) > 1
    [single] = before["risk"]
    assert single["coverage"] == 1
    assert single["risk"] == pytest.approx(after["risk"][-1]["risk"])


def _area(rows: list[dict[str, float]]) -> float:
    points = [(0.0, 0.0), *((row["false_positive_rate"], row["true_positive_rate"]) for row in rows)]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))
