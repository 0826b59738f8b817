"""Gold questions, and what is fitted to labels."""

import json
import re

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, fails
from support.clock import within

FRANCE = {"question": "What is the capital of France?", "answers": ["Paris"]}
MARS = {"question": "What is the capital of Mars?", "answers": []}


def array(*items: object) -> str:
    return json.dumps(items)


@pytest.mark.smoke
def test_gold_is_answered_and_graded(ana: psycopg.Connection) -> None:
    spain = FRANCE | {"question": "What is the capital of Spain?", "answers": ["Madrid"], "source": "quiz"}
    told = {"question": "Who sings?", "answers": ["Ann"], "memories": ["Ann sings.", "Bo hums."]}
    assert ana.execute(
        "select gold_evaluate(%s, %s, source => 'set')",
        (array(FRANCE, MARS, spain, told), SCRIPTED_GENERATOR),
    ).fetchone() == (4,)
    assert ana.execute(
        """select g.question, g.source, d.answer, l.correct, l.grader, d.with_memory, d.signals ? 'grounding'
           from gold g join decision d on d.gold_id = g.id join latest_outcome l on l.decision_id = d.id
           order by g.id"""
    ).fetchall() == [
        (FRANCE["question"], "set", "The capital of France is Paris.", True, "gold", False, False),
        (MARS["question"], "set", "I do not know.", False, "gold", False, False),
        (spain["question"], "quiz", "I do not know.", False, "gold", False, False),
        (told["question"], "set", 'I remember: "Ann sings."', True, "gold", True, True),
    ]
    assert ana.execute("select count(*) from memory").fetchone() == (0,)
    assert ana.execute("select count(*) from generation").fetchone() == (4,)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ([1], "item 2 of gold is not a JSON object"),
        ({"answers": ["x"]}, "item 2 of gold has no question"),
        ({"question": " ", "answers": ["x"]}, "item 2 of gold has no question"),
        ({"question": "x"}, "item 2 of gold has no array of answers"),
        ({"question": "x", "answers": "y"}, "item 2 of gold has no array of answers"),
        ({"question": "x", "answers": [1]}, "item 2 of gold has no array of answers"),
        (FRANCE | {"memories": [""]}, "item 2 of gold has memories"),
        (FRANCE | {"source": 1}, "item 2 of gold has a source"),
        (
            FRANCE | {"answer": "x"},
            "item 2 of gold has a field other than question, answers, memories and source",
        ),
    ],
)
@pytest.mark.shares
def test_a_broken_item_is_named_and_nothing_imported(
    ana: psycopg.Connection, broken: object, says: str
) -> None:
    with fails("22023") as caught:
        ana.execute("select gold_evaluate(%s, %s)", (array(FRANCE, broken, MARS), SCRIPTED_GENERATOR))
    assert says in str(caught.value)
    for table in ("gold", "decision", "outcome", "generation"):
        assert ana.execute(f"select count(*) from {table}").fetchone() == (0,)


@pytest.mark.parametrize("gold", ["{}", '"x"', "[" * 5000 + "]" * 5000])
def test_gold_is_an_array_of_objects(ana: psycopg.Connection, gold: str) -> None:
    with fails("22023", hint="an array|JSON object|question|Flatten"):
        ana.execute("select gold_evaluate(%s)", (gold,))


def test_bad_arguments(brief: str, ana: psycopg.Connection) -> None:
    with fails("22004"):
        ana.execute("select gold_evaluate(null)")
    with fails("42704"):
        ana.execute("select gold_evaluate(%s, 'nosuch')", (array(FRANCE),))
    with fails("54000") as caught:
        ana.execute(
            "select gold_evaluate(%s, max_tokens => 4)",
            (array(FRANCE, FRANCE | {"question": "why " * 4000}),),
        )
    assert "item 2" in str(caught.value)
    assert ana.execute("select gold_evaluate('[]')").fetchone() == (0,)


def test_an_import_hears_cancels(ana: psycopg.Connection) -> None:
    ana.execute("select llm_generate('Hi', max_tokens => 1)")
    ana.execute("set statement_timeout = '300ms'")
    for _ in within(0.8):
        with fails("57014", hint=None):
            ana.execute(
                "select gold_evaluate(%s, max_tokens => 200)",
                (array(*({"question": f"What is {number}?", "answers": ["x"]} for number in range(200))),),
            )
    ana.execute("reset statement_timeout")
    assert ana.execute("select count(*) from gold").fetchone() == (0,)


LABELLED = """
    with decided as (
        insert into decision (model, with_memory, signal_tier, signals, probability, action, reason)
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
    ana.execute(LABELLED, {"model": SCRIPTED_GENERATOR, "count": 200, "slope": 2.0, "shift": 0.0})
    db.execute("update decision set ways = '{escalate}', second_model = 'other'")
    db.execute(
        """update decision d set signals = signals || jsonb_build_object('second_agreement', o.correct::integer)
           from outcome o where o.decision_id = d.id"""
    )
    calibrated(ana)
    features, metrics = ana.execute("select features, metrics from calibrator").fetchone() or ((), {})
    assert "second_agreement" in features
    assert metrics["auroc"][0] > 0.99


@pytest.mark.smoke
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
    # What is served is what was certified: of labeled answers that had no part in the fit, few above it are wrong.
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


@pytest.mark.smoke
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
    assert "labels without an error" in str(found["reason"])
    row = ana.execute(
        "select action, reason from llm_chat_detail('Hi', model => %s, memories => 0)", (SCRIPTED_GENERATOR,)
    ).fetchone()
    assert row is not None
    assert row[0] == "flag"
    assert str(found["reason"]).startswith(row[1])
    assert re.search(
        r"; 0\.[235] is kept: SELECT setting_set\('error_budget', 0\.[235]\)$", str(found["reason"])
    )


@pytest.mark.smoke
def test_calls_without_new_labels_keep_the_certificate_and_spend_nothing(ana: psycopg.Connection) -> None:
    label(ana, 300)
    first = calibrated(ana)
    assert (first["status"], first["delta_spent"]) == ("certified", pytest.approx(0.075))
    for _ in range(5):
        again = calibrated(ana)
        assert again["delta_spent"] == 0
        for name in ("status", "threshold_id", "threshold", "calibrator_id", "coverage"):
            assert again[name] == first[name], name
    assert ana.execute("select distinct budget, run from threshold order by 1").fetchall() == [
        (budget, 1) for budget in (0.05, 0.1, 0.2, 0.3, 0.5)
    ]


@pytest.mark.smoke
def test_another_budget_is_selected_without_another_test(ana: psycopg.Connection) -> None:
    label(ana, 300)
    calibrated(ana, 0.2)
    third = calibrated(ana, 0.3)
    assert (third["status"], third["delta_spent"]) == ("certified", 0)
    found = "select threshold_id from _mindful.calibrator_find(%s, '{}', null, false, 0, %s, '{}')"
    assert ana.execute(found, (SCRIPTED_GENERATOR, 0)).fetchone() == (third["threshold_id"],)
    second = calibrated(ana, 0.2)
    assert ana.execute(found, (SCRIPTED_GENERATOR, 0)).fetchone() == (second["threshold_id"],)


def test_labels_that_speak_against_a_threshold_withdraw_it(ana: psycopg.Connection) -> None:
    label(ana, 300)
    assert calibrated(ana)["status"] == "certified"
    label(ana, 300, slope=-2)  # what was a sign of being right is now one of being wrong
    assert calibrated(ana)["status"] != "certified"
    assert ana.execute("select count(*) > 0 from threshold where status = 'tightened'").fetchone() == (True,)


def test_ten_labels_by_chance_do_not_undo_a_certificate(ana: psycopg.Connection) -> None:
    label(ana, 300)
    ana.execute(
        """with decided as (
               insert into decision (model, with_memory, signal_tier, signals, probability, action, reason,
                   offered, propensity)
               select %s, false, 0, '{"logprob_sum": 0.1, "log_tokens": 1}', 0.5, 'flag', 'x', true, 0.05
               from generate_series(1, 10) returning id)
           insert into outcome (decision_id, correct, grader) select id, id %% 2 = 0, 'rule' from decided""",
        (SCRIPTED_GENERATOR,),
    )
    assert calibrated(ana)["status"] == "certified"


def test_gold_from_one_file_is_enough(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    label(ana, 200)
    ana.execute(
        "insert into gold (question, answers, source) select n::text, '{x}', 'a file' from generate_series(1, 200) n"
    )
    db.execute(
        "update decision d set gold_id = (select min(id) from gold) + d.id - (select min(id) from decision)"
    )
    assert calibrated(ana, 0.3)["status"] == "certified"
    assert ana.execute("select unit from calibrator").fetchone() == ("question",)


def test_a_question_asked_twice_is_one_question(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    label(ana, 100)
    ana.execute("insert into gold (question, answers) select 'the same', '{x}' from generate_series(1, 100)")
    db.execute(
        "update decision d set gold_id = (select min(id) from gold) + d.id - (select min(id) from decision)"
    )
    found = ana.execute(
        "select count(distinct question), count(distinct source) from _mindful.labeled(%s, '{}', null, false, 0)",
        (SCRIPTED_GENERATOR,),
    )
    assert found.fetchone() == (1, 1)


@pytest.mark.smoke
def test_a_better_calibrator_takes_over_and_another_does_not(ana: psycopg.Connection) -> None:
    label(ana, 300)
    first = calibrated(ana)
    label(ana, 40)
    assert calibrated(ana)["calibrator_id"] == first["calibrator_id"]
    label(ana, 750, slope=-2)  # what was a sign of being right is now one of being wrong
    second = calibrated(ana)
    assert second["calibrator_id"] != first["calibrator_id"]
    assert ana.execute("select adopted from calibrator order by id").fetchall() == [
        (True,),
        (False,),
        (True,),
    ]


@pytest.mark.smoke
def test_what_cannot_be_calibrated(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    def fails_with(connection: psycopg.Connection, says: str) -> None:
        with fails("55000") as caught:
            connection.execute("select calibrate(%s, 0.1)", (SCRIPTED_GENERATOR,))
        assert says in str(caught.value)

    fails_with(ana, "have no labels")
    label(ana, 29)
    fails_with(ana, "30 labels are needed, there are 29")
    ana.execute("insert into outcome (decision_id, correct, grader) select id, false, 'rule' from decision")
    label(ana, 10, shift=-100)
    fails_with(ana, "all 39 labels are wrong")
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
