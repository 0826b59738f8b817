"""Labels by chance: a random share of flagged answers is offered, and counts for those that were not."""

import psycopg
import pytest
from sql.confidence.test_action import FIRST, calibrator
from sql.confidence.test_action import pair as pair

ASK = "select decision_id, message_id from llm_chat_detail('Hi', model => 'first', memories => 0)"
QUEUE = "select decision_id, need, why from label_queue"


def asked(connection: psycopg.Connection, count: int = 1) -> list[tuple[int, int]]:
    return [connection.execute(ASK).fetchone() for _ in range(count)]  # type: ignore[misc]


def test_a_share_of_flagged_answers_is_offered_with_its_propensity(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    ana.execute("select setting_set('label_share', '0.3')")
    asked(ana, 5)  # without a threshold none is drawn, as all answers are flagged
    assert ana.execute("select count(*) from decision where offered").fetchone() == (0,)
    calibrator(ana, FIRST, 0, 0.3, 0.9)
    asked(ana, 60)
    rows = ana.execute(
        "select offered, propensity, count(*) from decision group by 1, 2 order by 1"
    ).fetchall()
    assert [row[:2] for row in rows] == [(False, 1.0), (True, 0.3)]
    assert 5 <= rows[1][2] <= 33  # of 60 with probability 0.3: outside of it once in 10,000 runs
    first = ana.execute(
        "select count(*) filter (where offered) from (select offered from label_queue limit 5) q"
    )
    assert first.fetchone() == (5,)


def test_what_is_given_without_doubt_is_not_offered_and_nobody_elses_share_counts(
    pair: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    ana.execute("select setting_set('label_share', '1')")
    for one in (ana, bob):
        calibrator(one, FIRST, 0, 0.3, 0.9)
    asked(bob, 10)
    bob.execute("select setting_set('label_share', '0')")
    before = bob.execute("select count(*) from decision where offered").fetchone()
    assert before is not None
    assert before[0] <= 5  # 5%
    asked(bob, 20)
    assert bob.execute("select count(*) from decision where offered").fetchone() == before
    asked(ana)
    calibrator(ana, FIRST, 0, 0.95, 0.9)
    asked(ana)
    rows = ana.execute("select action, offered, propensity from decision order by id").fetchall()
    assert rows == [("flag", True, 1.0), ("answer", False, 1.0)]


@pytest.mark.smoke
def test_the_queue_says_what_most_needs_a_label_and_why(
    pair: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    ana.execute("select setting_set('label_share', '0')")
    [(uncalibrated, _)] = asked(ana)
    calibrator(ana, FIRST, 0, 0.3, 0.9)
    [(far, _)] = asked(ana)
    calibrator(ana, FIRST, 0, 0.85, 0.9)
    [(near, _)] = asked(ana)
    ana.execute("select setting_set('label_share', '1')")
    [(offered, message)] = asked(ana)
    assert ana.execute(QUEUE).fetchall() == [
        (offered, "random", "drawn at random: the label counts for 1 flagged answer"),
        (
            uncalibrated,
            "uncalibrated",
            "answers of first without memories are not calibrated yet and need labels",
        ),
        (near, "near", "the probability 0.85 is near the threshold 0.90"),
        (far, "any", "low priority: the model is already calibrated here"),
    ]
    assert bob.execute(QUEUE).fetchall() == []
    ana.execute("select answer_label(%s, true)", (message,))
    assert ana.execute(QUEUE).fetchall()[0][0] == uncalibrated


def test_an_answer_that_was_withheld_is_shown_in_the_queue(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    calibrator(ana, FIRST, 0, 0.1, 0.9)
    ana.execute("select setting_set('chat_abstain_below', '0.2')")
    asked(ana)
    row = ana.execute("select question, answer, action from label_queue").fetchone()
    assert row == ("Hi", "Perhaps Lyon.", "abstain")


def test_labels_weigh_as_much_as_what_they_stand_for(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    calibrator(ana, FIRST, 0, 0.5, 0.9)
    ana.execute(
        """with decided as (
               insert into decision (model, with_memory, signal_tier,
                   signals, probability, calibrator_id, action, reason,
                   offered, propensity)
               select 'first', false, 0, '{}', 0.5, (select max(id) from calibrator), 'flag', 'x', n <= 2,
                   case when n <= 2 then 0.05 else 1 end
               from generate_series(1, 10) n
               returning id, offered)
           insert into outcome (decision_id, correct, grader) select id, not offered, 'rule' from decided"""
    )
    # 2 wrong answers stand for 40, 8 right ones for themselves.
    row = ana.execute("select coverage, risk from risk_coverage limit 1").fetchone()
    assert row == (1.0, pytest.approx(40 / 48))
    curve = ana.execute("select share_right, answers from reliability_curve order by bin").fetchall()
    assert sum(answers for _, answers in curve) == 10


@pytest.mark.parametrize(("labels", "bins"), [(39, 1), (60, 3), (200, 10), (300, 10)])
def test_the_curve_is_weighted_within_its_bins(
    pair: psycopg.Connection, ana: psycopg.Connection, labels: int, bins: int
) -> None:
    ana.execute(
        """insert into calibrator (model, with_memory, signal_tier, features, means, scales, weights, intercept,
               labels, wrong, metrics, last_outcome, adopted)
           values ('first', false, 0, '{x}', '{1}', '{2}', '{2}', 1, 100, 5, '{}', 1, true)"""
    )
    ana.execute(
        """with decided as (
               insert into decision (model, with_memory, signal_tier,
                   signals, probability, calibrator_id, action, reason,
                   offered, propensity)
               select 'first', false, 0,
                   jsonb_build_object('x', ln(n / 1000.0 / (1 - n / 1000.0))), 0.5,
                   (select max(id) from calibrator), 'flag', 'x',
                   n %% 2 = 1, case when n %% 2 = 1 then 0.25 else 1 end
               from generate_series(1, %s) n
               returning id, offered)
           insert into outcome (decision_id, correct, grader) select id, offered, 'rule' from decided""",
        (labels,),
    )
    rows = ana.execute(
        "select answers, mean_probability, share_right from reliability_curve order by bin"
    ).fetchall()
    size = labels / bins
    weighed = [
        [(4 if n % 2 else 1, n) for n in range(int(at * size) + 1, int((at + 1) * size) + 1)]
        for at in range(bins)
    ]
    assert rows == [
        (
            len(part),
            pytest.approx(sum(weight * n for weight, n in part) / sum(weight for weight, _ in part) / 1000),
            pytest.approx(sum(weight for weight, n in part if n % 2) / sum(weight for weight, _ in part)),
        )
        for part in weighed
    ]
