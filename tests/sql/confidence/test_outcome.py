"""Labels: who may give them, that they are kept, and that errors are noticed."""

import math

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, fails
from support.deletion import delete

ASK = "select message_id, decision_id, probability, action, reason from llm_chat_detail(%s, model => %s, memories => 0)"


def asked(connection: psycopg.Connection, message: str = "What is the capital of France?") -> tuple[int, int]:
    row = connection.execute(ASK, (message, SCRIPTED_GENERATOR)).fetchone()
    assert row is not None
    return row[0], row[1]


def given_under_a_threshold(connection: psycopg.Connection, budget: float = 0.1, delta: float = 0.1) -> None:
    """Put a calibrator in force that finds every answer likely enough."""
    connection.execute(
        """insert into calibrator (model, with_memory, signal_tier, features, means, scales, weights, intercept, labels,
               wrong, metrics, last_outcome, adopted)
           values (%s, false, 0, '{logprob_sum}', '{0}', '{1}', '{0}', 3, 100, 5, '{}', 1, true)""",
        (SCRIPTED_GENERATOR,),
    )
    connection.execute(
        """insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, value, status, labels,
               answered, wrong, bound, reason)
           select id, 'answers', %s, %s, 1, 0.06, 0.9, 'certified', 100, 100, 5, 0.1, 'tested' from calibrator""",
        (budget, delta),
    )


def test_without_labels_everything_is_flagged(ana: psycopg.Connection) -> None:
    row = ana.execute(ASK, ("What is the capital of France?", SCRIPTED_GENERATOR)).fetchone()
    assert row is not None
    assert row[2:4] == (0.5, "uncalibrated")
    assert "0 labels" in row[4]
    ana.execute("select answer_label(%s, true)", row[:1])
    again = ana.execute(ASK, ("What is the capital of France?", SCRIPTED_GENERATOR)).fetchone()
    assert again is not None
    assert again[2] == pytest.approx(2 / 3)


@pytest.mark.smoke
def test_a_decision_says_what_it_rests_on(ana: psycopg.Connection) -> None:
    message, decision = asked(ana)
    row = ana.execute(
        """select d.message_id, d.signals, g.signals, d.model, d.with_memory, d.threshold
           from decision d join generation g on g.id = d.generation_id where d.id = %s""",
        (decision,),
    ).fetchone()
    assert row is not None
    assert (row[0], *row[3:]) == (message, SCRIPTED_GENERATOR, False, None)
    assert row[1]["logprob_sum"] == pytest.approx(row[2]["logprob_sum"])
    assert row[1]["echo"] == pytest.approx(2 / 3)  # "capital" and "France", but not "Paris"


def test_with_a_threshold_answers_are_given(ana: psycopg.Connection) -> None:
    given_under_a_threshold(ana)
    row = ana.execute(
        "select probability, action, threshold from llm_chat_detail('Hi', model => %s, memories => 0)",
        (SCRIPTED_GENERATOR,),
    ).fetchone()
    assert row == (pytest.approx(1 / (1 + math.exp(-3))), "answer", pytest.approx(0.9))


def test_a_later_label_counts_and_none_is_lost(ana: psycopg.Connection) -> None:
    message, decision = asked(ana)
    for correct in (True, False):
        ana.execute("select answer_label(%s, %s, 'As I said.')", (message, correct))
    assert ana.execute("select decision_id, correct from latest_outcome").fetchall() == [(decision, False)]
    assert ana.execute("select correct, grader, note from outcome order by id").fetchall() == [
        (True, "user", "As I said."),
        (False, "user", "As I said."),
    ]


def test_only_ones_own_answers_are_labeled(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    message, _ = asked(ana)
    for connection, number in ((bob, message), (ana, message - 1), (ana, -1)):
        with fails("42704"):
            connection.execute("select answer_label(%s, true)", (number,))
    for arguments in ((None, True), (message, None)):
        with fails("22004"):
            ana.execute("select answer_label(%s::bigint, %s::boolean)", arguments)
    with fails("54000"):
        ana.execute("select answer_label(%s, true, repeat('x', 8193))", (message,))
    assert ana.execute("select count(*) from outcome").fetchone() == (0,)


def test_what_is_forgotten_takes_its_labels_along(ana: psycopg.Connection) -> None:
    message, _ = asked(ana)
    ana.execute("select answer_label(%s, true, 'A secret.')", (message,))
    delete(ana, "memory", "id = %s", message)
    for table in ("decision", "outcome"):
        assert ana.execute(f"select count(*) from {table}").fetchone() == (0,)


@pytest.mark.smoke
def test_too_many_errors_tighten_at_once(ana: psycopg.Connection) -> None:
    given_under_a_threshold(ana)
    errors = 0
    while ana.execute("select status from threshold order by id desc limit 1").fetchone() == ("certified",):
        message, _ = asked(ana)
        ana.execute("select answer_label(%s, false)", (message,))
        errors += 1
        assert errors < 10
    # Each error multiplies the evidence by 1 + 0.15 x 0.9 / 0.1: 2.35 makes 10 the third time.
    assert errors == 3
    row = ana.execute(
        "select action, threshold, reason from llm_chat_detail('Hi', model => %s, memories => 0)",
        (SCRIPTED_GENERATOR,),
    ).fetchone()
    assert row is not None
    assert row[:2] == ("flag", None)
    assert "more errors" in row[2]


def test_users_who_label_errors_more_often_raise_no_false_alarm(ana: psycopg.Connection) -> None:
    given_under_a_threshold(ana)
    # 7 of 100 answers are wrong, and all of these are labeled, but only one in eight of the right ones.
    ana.execute(
        """with decided as (
               insert into decision (model, with_memory, signal_tier, signals, probability, threshold_id, action,
                   reason)
               select %s, false, 0, '{}', 0.95, (select max(id) from threshold), 'answer', 'x'
               from generate_series(0, 99) n order by n returning id)
           insert into outcome (decision_id, correct, grader)
           select id, id %% 14 <> 0, 'user' from decided where id %% 14 = 0 or id %% 8 = 1 order by id""",
        (SCRIPTED_GENERATOR,),
    )
    found = "select _mindful.threshold_watch(max(id)), count(*) from threshold"
    assert ana.execute(found).fetchone() == (False, 1)


def test_right_answers_raise_no_alarm(ana: psycopg.Connection) -> None:
    given_under_a_threshold(ana)
    for correct in (True, True, False, True, True):
        message, _ = asked(ana)
        ana.execute("select answer_label(%s, %s)", (message, correct))
    assert ana.execute("select status from threshold").fetchall() == [("certified",)]


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("Paris", ["Paris"], True),
        ("The capital of France is Paris.", ["PARIS!"], True),
        ("Parisian", ["Paris"], False),
        ("the Beatles", ["Beatles", "The Fab Four"], True),
        ("12,000", ["12 000"], True),
        ("1945", ["194"], False),
        ("São Paulo", ["são paulo"], True),
        ("anything", [], False),
        ("the", ["a"], False),
        ("", ["Paris"], False),
    ],
)
def test_grading(ana: psycopg.Connection, answer: str, gold: list[str], right: bool) -> None:
    assert ana.execute("select _mindful.answer_grade(%s, %s::text[])", (answer, gold)).fetchone() == (right,)
