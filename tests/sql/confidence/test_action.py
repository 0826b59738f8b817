"""What follows where a model is not sure: a second model is asked, or the answer is withheld."""

from collections.abc import Sequence

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, fails

FIRST, SECOND = "first", "second"
ASK = """select reply, action, probability, reason, decision_id, message_id, threshold
    from llm_chat_detail(%s, model => 'first', memories => 0, session_id => %s)"""


@pytest.fixture
def pair(db: psycopg.Connection) -> psycopg.Connection:
    """A model that does not know, and its fallback that does."""
    for name, reply in ((FIRST, "Perhaps Lyon."), (SECOND, "Paris.")):
        db.execute(
            "select model_register(%s, 'generator', 'scripted', '', %s)",
            (name, Jsonb({"default": reply, "logprob": -0.5})),
        )
    db.execute("update model set fallback = 'second' where name = 'first'")
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    return db


def calibrator(
    connection: psycopg.Connection,
    model: str,
    tier: int,
    probability: float,
    threshold: float,
    ways: Sequence[str] = (),
) -> None:
    """Put a calibrator in force that gives every answer a probability."""
    connection.execute(
        """with c as (
               insert into calibrator (model, ways, second_model, with_memory, signal_tier,
                   features, means, scales, weights, intercept, labels,
                   wrong, metrics, last_outcome, adopted)
               values (%s, %s, %s, false, %s, '{}', '{}', '{}', '{}', ln(%s::float8 / (1 - %s::float8)), 100,
                   5, '{}', 1, true)
               returning id)
           insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, value, status, labels,
               answered, wrong, bound, reason)
           select id, 'answers', 0.1, 0.1, 1, 0.06, %s, 'certified', 100, 100, 5, 0.1, 'tested' from c""",
        (
            model,
            list(ways),
            SECOND if "escalate" in ways else None,
            tier,
            probability,
            probability,
            threshold,
        ),
    )


@pytest.mark.smoke
def test_the_second_models_answer_is_given_where_it_is_likely_enough(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    calibrator(ana, FIRST, 0, 0.3, 0.9)
    calibrator(ana, FIRST, 0, 0.95, 0.9, ["escalate"])
    ana.execute("select setting_set('chat_escalate', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Paris.", "escalate")
    assert row[2] == pytest.approx(0.95)
    assert ana.execute(
        """select p.model, p.action, p.answer, p.message_id, d.second_model, d.message_id, d.answer
           from decision d join decision p on p.id = d.parent_id where d.id = %s""",
        (row[4],),
    ).fetchone() == (FIRST, "escalate", "Perhaps Lyon.", None, SECOND, row[5], None)
    stored = ana.execute("select content from memory where id = %s", (row[5],)).fetchone()
    assert stored == ("Paris.",)
    assert ana.execute("select signal_ms ? 'second', total_ms > 0 from decision order by id").fetchall()[
        0
    ] == (
        True,
        True,
    )


def test_a_second_answer_that_is_no_likelier_is_kept_as_an_alternative(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    calibrator(ana, FIRST, 0, 0.3, 0.9)
    calibrator(ana, FIRST, 0, 0.5, 0.9, ["escalate"])
    ana.execute("select setting_set('chat_escalate', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "flag")
    assert ana.execute(
        """select ways, action, alternatives, signal_tier, answer, message_id, replaced_by_id, parent_id
           from decision order by id"""
    ).fetchall() == [
        ([], "flag", [{"model": SECOND, "answer": "Paris."}], 2, None, row[5], None, None),
        (["escalate"], "flag", [], 0, "Paris.", None, row[5], row[4]),
    ]


def test_an_answer_that_is_sure_asks_nobody(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    calibrator(ana, FIRST, 0, 0.95, 0.9)
    ana.execute("select setting_set('chat_escalate', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "answer")
    assert ana.execute("select count(*) from generation").fetchone() == (1,)


@pytest.mark.smoke
def test_a_second_model_that_fails_loses_nothing(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    pair.execute(
        """insert into model (name, kind, provider, source, sha256)
           values ('gone', 'generator', 'llama_cpp', '/none', 'x')"""
    )
    pair.execute("update model set fallback = 'gone' where name = 'first'")
    ana.execute("select setting_set('chat_escalate', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "uncalibrated")
    assert "/none" in row[3]
    assert ana.execute("select signal_tier, signals ? 'question_similarity' from decision").fetchone() == (
        1,
        True,
    )


def test_a_second_model_that_fails_midway_loses_nothing(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    pair.execute(
        """update model set options = '{"default": "It is Paris.", "fails_after": 2}' where name = 'second'"""
    )
    ana.execute("select setting_set('chat_escalate', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "uncalibrated")
    assert "the script fails" in row[3]
    assert ana.execute("select content, role from memory order by id").fetchall() == [
        ("What is the capital of France?", "user"),
        ("Perhaps Lyon.", "assistant"),
    ]
    # The answer, and the same model's brief answer.
    assert ana.execute("select count(*) from generation").fetchone() == (2,)


def test_a_session_has_a_budget_of_its_own(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    calibrator(ana, FIRST, 0, 0.6, 0.5)
    ana.execute(
        """insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, value, status, labels,
               answered, wrong, bound, reason)
           select calibrator_id, budget_kind, 0.05, delta, 2, 0.02, 0.9, status, labels, answered, wrong, 0.05, reason
           from threshold"""
    )
    session = ana.execute("select session_start()").fetchone()
    assert session is not None

    def action(budget: float) -> tuple[object, ...]:
        ana.execute(
            "select setting_set('error_budget', to_jsonb(%s::float8), 'session', %s)", (budget, *session)
        )
        row = ana.execute(ASK, ("What is the capital of France?", *session)).fetchone()
        assert row is not None
        return row[1], row[6], row[3]

    assert action(0)[:2] == ("flag", pytest.approx(0.9))  # the newest
    assert action(0.1)[:2] == ("answer", pytest.approx(0.5))
    assert action(0.2) == ("flag", None, "calibrate() was not called with the error budget 0.2")
    for budget in ("1", "-0.1", '"much"'):
        with fails("22023"):
            ana.execute("select setting_set('error_budget', %s)", (budget,))
    # An error under one budget leaves the other's threshold alone.
    row = ana.execute("select message_id from decision where action = 'answer'").fetchone()
    for _ in range(2):
        action(0.1)
    for (message,) in ana.execute("select message_id from decision where action = 'answer'").fetchall():
        ana.execute("select answer_label(%s, false)", (message,))
    assert row is not None
    assert action(0.1)[:2] == ("flag", None)
    assert "more errors" in str(action(0.1)[2])
    assert action(0)[:2] == ("flag", pytest.approx(0.9))


@pytest.mark.smoke
def test_more_signals_can_lift_an_answer_over_the_threshold(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    calibrator(ana, FIRST, 0, 0.3, 0.9)
    calibrator(ana, FIRST, 3, 0.92, 0.9)
    ana.execute("select setting_set('signal_tier', '3')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "answer")
    signals = ana.execute("select signals from decision").fetchone()
    assert signals is not None
    assert signals[0]["sample_agreement"] == 1.0
    assert signals[0]["semantic_entropy"] == 0.0
    assert signals[0]["second_agreement"] == 0.0
    assert signals[0]["second_similarity"] < 0.5


@pytest.mark.smoke
def test_an_unlikely_answer_is_withheld_and_kept(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    calibrator(ana, FIRST, 0, 0.1, 0.9)
    session = ana.execute("select session_start()").fetchone()
    assert session is not None
    ana.execute("select setting_set('chat_abstain_below', '0.2', 'session', %s)", session)
    row = ana.execute(ASK, ("What is the capital of France?", session[0])).fetchone()
    assert row is not None
    assert row[:2] == ("I do not know.", "abstain")
    assert ana.execute("select action, answer from decision").fetchall() == [("abstain", "Perhaps Lyon.")]
    other = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert other is not None
    assert other[:2] == ("Perhaps Lyon.", "flag")


def test_a_flagged_reply_can_say_so(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    calibrator(ana, FIRST, 0, 0.3, 0.9)
    ana.execute("select setting_set('chat_flag_notice', 'true')")
    for function in ("llm_chat", "llm_chat_stream"):
        pieces = ana.execute(f"select {function}('Hi', model => 'first', memories => 0)").fetchall()
        assert (
            "".join(piece for (piece,) in pieces)
            == "Perhaps Lyon.\n\n[I am not sure about this (about 30%).]"
        )
    assert ana.execute("select distinct content from memory where role = 'assistant'").fetchall() == [
        ("Perhaps Lyon.",)
    ]


def test_what_was_streamed_is_not_taken_back(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    calibrator(ana, FIRST, 0, 0.1, 0.9)
    ana.execute("select setting_set('chat_abstain_below', '0.2')")
    pieces = ana.execute("select llm_chat_stream('Hi', model => 'first', memories => 0)").fetchall()
    assert "".join(piece for (piece,) in pieces) == "Perhaps Lyon."
    assert ana.execute("select action from decision").fetchall() == [("flag",)]


@pytest.mark.smoke
def test_gold_labels_both_models(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    gold = '[{"question": "What is the capital of France?", "answers": ["Paris"]}]'
    assert ana.execute("select gold_evaluate(%s, 'first', signal_tier => 3)", (gold,)).fetchone() == (1,)
    assert ana.execute(
        """select d.ways, d.signal_tier, l.correct, p.model from decision d
           join latest_outcome l on l.decision_id = d.id left join decision p on p.id = d.parent_id order by d.id"""
    ).fetchall() == [([], 3, False, None), (["escalate"], 0, True, FIRST)]
    with fails("55000") as caught:
        ana.execute("select gold_evaluate(%s, 'second', signal_tier => 2)", (gold,))
    assert "has no fallback" in str(caught.value)
    with fails("22023"):
        ana.execute("select gold_evaluate(%s, 'first', signal_tier => 4)", (gold,))


@pytest.mark.smoke
def test_what_recall_says_is_among_the_signals(ana: psycopg.Connection) -> None:
    ana.execute("select memory_insert('Marta moved to Toronto in 2019.')")
    ana.execute("select memory_insert('Rex barks at the postman.')")
    ana.execute("select setting_set('chat_unknown', 'false')")  # no memory tells where she flew
    ana.execute("select llm_chat('Where did Marta fly?', model => 'scripted')")
    row = ana.execute("select signals, with_memory from decision").fetchone()
    assert row is not None
    signals, with_memory = row
    assert with_memory
    # Marta is held by one memory and "fly" by none, which makes it the rarer: ln(1 + 2 / 2) against ln(1 + 2 / 1).
    assert signals["coverage"] == pytest.approx(0.6931 / (0.6931 + 1.0986), abs=1e-3)
    assert signals["coverage_best"] == signals["coverage"]
    # The one that holds "Marta" has four lexemes; neither asks.
    assert signals["best_length"] == pytest.approx(1.6094, abs=1e-3)
    assert signals["asking"] == 0
    assert signals["similarity_top"] > 0
    assert signals["bm25_top"] > 0


def test_a_tiers_signals_come_with_their_cost(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    ana.execute("select setting_set('signal_tier', '1')")
    ana.execute(ASK, ("What is the capital of France?", None))
    row = ana.execute("select signal_tier, signals, signal_ms from decision").fetchone()
    assert row is not None
    tier, signals, cost = row
    assert tier == 1
    assert {"question_similarity", "brief_within", "logprob_sum"} <= signals.keys()
    assert cost.keys() == {"free", "question", "brief"}
    assert all(ms > 0 for ms in cost.values())
