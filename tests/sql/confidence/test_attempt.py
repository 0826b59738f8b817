"""Other ways to an answer: more memories, and other sampling where it was measured to help."""

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sql.confidence.test_action import ASK, FIRST, calibrator
from sql.confidence.test_action import pair as pair
from support import SCRIPTED_EMBEDDER, fails
from support.query import one

DECISIONS = "select model, action, answer, probability, message_id, replaced_by_id from decision order by id"
GOLD = '{"question": "What is the capital of France?", "answers": ["Paris"]}'


def options(connection: psycopg.Connection, **changed: object) -> None:
    connection.execute("update model set options = options || %s where name = 'first'", (Jsonb(changed),))


@pytest.fixture
def forgetful(db: psycopg.Connection, ana: psycopg.Connection) -> psycopg.Connection:
    """Nine memories, of which the model sees the one that is needed only where it is shown many."""
    db.execute(
        "select model_register('first', 'generator', 'scripted', '', %s)",
        (Jsonb({"default": "I cannot tell.", "replies": [["pier at noon", "At noon."]]}),),
    )
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    for name in ("Marta", "Tomas", "Erika", "Jonas", "Paula", "Ingrid"):
        ana.execute("select memory_insert(%s)", (f"{name} says that the old ferry leaves.",))
    ana.execute("select memory_insert('Every ferry goes from the pier at noon, as ever in summer.')")
    ana.execute("select setting_set('chat_unknown', 'false')")  # it would say so before the model is asked
    ana.execute("select setting_set('chat_retrieve', 'true')")
    ana.execute("select setting_set('chat_retrieve_below', '0.9')")
    return ana


ASK_FERRY = """select reply, action, decision_id, message_id, memory_ids, reason from llm_chat_detail(
    'When does the old ferry leave tomorrow morning?', model => 'first', memories => %s)"""


@pytest.mark.smoke
def test_an_answer_without_evidence_is_made_again_with_more_memories(forgetful: psycopg.Connection) -> None:
    row = forgetful.execute(ASK_FERRY, (1,)).fetchone()
    assert row is not None
    assert row[:2] == ("At noon.", "flag")
    assert len(row[4]) > 1
    assert forgetful.execute(
        """select p.model, p.action, p.answer, p.replaced_by_id, d.ways, d.action, d.answer, d.message_id,
               d.total_ms > 0, d.with_memory
           from decision d join decision p on p.id = d.parent_id where d.id = %s""",
        (row[2],),
    ).fetchone() == (
        (FIRST, "retrieve", "I cannot tell.", row[3], ["retrieve"], "flag", None, row[3], True, True)
    )
    stored = forgetful.execute("select content, metadata -> 'memory_ids' from memory where id = %s", row[3:4])
    assert stored.fetchone() == ("At noon.", row[4])


def test_evidence_that_is_there_is_not_looked_for_again(forgetful: psycopg.Connection) -> None:
    forgetful.execute("select setting_set('chat_retrieve_below', '0')")
    assert forgetful.execute(ASK_FERRY, (1,)).fetchone()[:2] == ("I cannot tell.", "uncalibrated")  # type: ignore[index]
    forgetful.execute("select setting_set('chat_retrieve_below', '1')")
    forgetful.execute("select setting_set('chat_retrieve', 'false')")
    assert forgetful.execute(ASK_FERRY, (1,)).fetchone()[:2] == ("I cannot tell.", "uncalibrated")  # type: ignore[index]
    assert forgetful.execute("select count(*) from decision where parent_id is not null").fetchone() == (0,)


def test_silence_takes_no_place(db: psycopg.Connection, forgetful: psycopg.Connection) -> None:
    options(db, replies=[["pier at noon", " "]])
    assert forgetful.execute(ASK_FERRY, (1,)).fetchone()[:2] == ("I cannot tell.", "uncalibrated")  # type: ignore[index]
    assert forgetful.execute("select count(*) from generation").fetchone() == (2,)


def test_a_second_recall_that_fails_loses_nothing(
    db: psycopg.Connection, forgetful: psycopg.Connection
) -> None:
    # More memories than the first recall asked for are one more than this one allows.
    db.execute(
        """create or replace function mindful.memory_recall(query text, k integer default 5, kinds text[] default null,
               metadata jsonb default null, session_id uuid default null, as_of timestamptz default now(),
               max_tokens integer default null, diversity real default 0, rerank boolean default false,
               statements boolean default false, source text default null, scope text default null)
           returns setof mindful.recalled_memory language plpgsql stable as $$
           begin
               if k > 9 then raise exception 'recall is broken'; end if;
               return query select r.* from _mindful.memory_recall(query, mindful.llm_embed(query), 'scripted_embedder',
                   k, row(null, null, null, now(), true)::mindful.recall_filter, null, 0, false) r;
           end $$"""
    )
    row = forgetful.execute(ASK_FERRY, (1,)).fetchone()
    assert row is not None
    assert row[:2] == ("I cannot tell.", "uncalibrated")
    assert "recall is broken" in row[5]
    assert forgetful.execute("select count(*) from decision").fetchone() == (1,)


def test_retries_wait_for_a_measurement(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    options(pair, samples=["Paris.", "Paris.", "It is Paris.", "Lyon."])
    ana.execute("select setting_set('chat_retry', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "uncalibrated")
    assert "not retried" in row[3]


def measured(connection: psycopg.Connection, questions: int = 5) -> tuple[object, ...]:
    connection.execute("select gold_evaluate(%s, 'first')", (f"[{', '.join([GOLD] * questions)}]",))
    row = connection.execute(
        """select model, temperature, answers, changed, gained, lost, p_value, helps
           from action_evaluate('retry', 'first')"""
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.smoke
def test_a_retry_that_helps_takes_what_most_samples_say(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    options(pair, samples=["Paris.", "Paris.", "It is Paris.", "Lyon."])
    assert measured(ana) == (FIRST, 0.5, 5, 5, 5, 0, pytest.approx(0.5**5), True)
    labels = ana.execute(
        """select p.ways, d.ways, l.correct, d.gold_id = p.gold_id
           from decision d join decision p on p.id = d.parent_id join latest_outcome l on l.decision_id = d.id"""
    ).fetchall()
    assert labels == [([], ["retry"], True, True)] * 5
    ana.execute("select setting_set('chat_retry', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Paris.", "flag")
    assert ana.execute("select alternatives from decision where id = %s", (row[4],)).fetchone() == (
        [
            {"model": FIRST, "answer": "Paris.", "times": 2},
            {"model": FIRST, "answer": "It is Paris.", "times": 1},
            {"model": FIRST, "answer": "Lyon.", "times": 1},
        ],
    )
    # What was measured at another temperature, for another tenant or model says nothing.
    ana.execute("select setting_set('chat_retry_temperature', '0.7')")
    assert ana.execute(ASK, ("What is the capital of France?", None)).fetchone()[1] == "uncalibrated"  # type: ignore[index]
    assert ana.execute("select count(*) from decision where action = 'retry'").fetchone() == (1,)


@pytest.mark.smoke
def test_a_retry_that_does_not_help_is_not_made(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    options(pair, samples=["Rome.", "Rome."])
    assert measured(ana) == (FIRST, 0.5, 5, 5, 0, 0, 1.0, False)
    ana.execute("select setting_set('chat_retry', 'true')")
    assert ana.execute(ASK, ("What is the capital of France?", None)).fetchone()[:2] == (  # type: ignore[index]
        "Perhaps Lyon.",
        "uncalibrated",
    )


def test_only_labels_of_its_own_let_a_retry_pass(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    options(pair, samples=["Paris.", "Paris."], replies=[["Spain", "Madrid."]])
    measured(ana)
    ana.execute("select setting_set('chat_retry', 'true')")
    calibrator(ana, FIRST, 0, 0.3, 0.2)  # by this one any answer would pass
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "answer")
    ana.execute(
        """insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, status, labels, reason)
           select min(id), 'answers', 0.05, 0.1, 2, 0.01, 'infeasible', 100, 'too few labels' from calibrator"""
    )
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Paris.", "flag")
    assert row[2] == pytest.approx(0.3)
    calibrator(ana, FIRST, 0, 0.95, 0.9, ["retry"])
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Paris.", "retry")
    assert row[2] == pytest.approx(0.95)


@pytest.mark.smoke
def test_measuring_says_what_it_lacks(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    for sqlstate, arguments in (
        ("22004", "null"),
        ("22004", "'retry', max_answers => null"),
        ("22023", "'escalate'"),
        ("22023", "'retry', max_answers => 0"),
        ("42704", "'retry', 'nosuch'"),
        ("55000", "'retry', 'first'"),
    ):
        with fails(sqlstate):
            ana.execute(f"select action_evaluate({arguments})")
    ana.execute("select gold_evaluate(%s, 'first')", (f"[{GOLD}]",))
    row = ana.execute(
        "select answers, changed, p_value, helps from action_evaluate('retrieve', 'first')"
    ).fetchone()
    assert row == (1, 0, 1.0, False)


def test_nobody_elses_measurement_counts(
    pair: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    options(pair, samples=["Paris.", "Paris."])
    measured(ana)
    bob.execute("select setting_set('chat_retry', 'true')")
    assert "not retried" in bob.execute(ASK, ("What is the capital of France?", None)).fetchone()[3]  # type: ignore[index]
    assert bob.execute("select * from action_gain").fetchall() == []
    assert bob.execute("select * from _mindful.action_pending('retry', 'first', 10)").fetchall() == []
    with fails("55000"):
        bob.execute("select action_evaluate('retry', 'first')")


def test_how_long_each_way_takes_is_shown(
    pair: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection, reader: psycopg.Connection
) -> None:
    options(pair, samples=["Paris.", "Paris."])
    ana.execute(ASK, ("What is the capital of France?", None))
    measured(ana)
    for name in ("retry", "escalate"):
        ana.execute("select setting_set('chat_' || %s, 'true')", (name,))
    ana.execute(ASK, ("What is the capital of France?", None))
    ana.execute(ASK, ("What is the capital of France?", None))
    shown = """select model, tried, action, replies, mean_ms > 0 and median_ms <= p95_ms
        from mindful.action_latency order by tried"""
    found = [(FIRST, [], "uncalibrated", 1, True), (FIRST, ["escalate", "retry"], "flag", 2, True)]
    assert ana.execute(shown).fetchall() == found
    assert reader.execute(shown).fetchall() == found
    assert bob.execute(shown).fetchall() == []


def test_a_cancel_is_heard_while_it_is_measured(brief: str, ana: psycopg.Connection) -> None:
    gold = f"[{', '.join([GOLD] * 30)}]"
    ana.execute("select gold_evaluate(%s, max_tokens => 4)", (gold,))
    ana.execute("set statement_timeout = '300ms'")
    with fails("57014", hint=None):
        ana.execute("select action_evaluate('retry', max_tokens => 200)")
    ana.execute("reset statement_timeout")
    assert ana.execute("select count(*) from action_gain").fetchone() == (0,)


@pytest.mark.parametrize("scope", ["session", "work"])
@pytest.mark.parametrize("of", ["user", "session"])
def test_a_second_recall_is_kept_to_the_scope(forgetful: psycopg.Connection, scope: str, of: str) -> None:
    session = one(forgetful, "select session_start()")
    setting = "select setting_set('recall_scope', to_jsonb(%s::text), %s, %s)"
    forgetful.execute(setting, (scope, of, session if of == "session" else None))
    ask = """select reply, cardinality(memory_ids) from llm_chat_detail(
        'When does the old ferry leave tomorrow morning?', %s, model => 'first', memories => 1)"""
    admit = """update memory set session_id = %s, metadata = '{"scope": "work"}' where content ~ %s"""
    forgetful.execute(admit, (session, "Marta"))
    assert one(forgetful, ask, session) == ("I cannot tell.", 1)
    forgetful.execute(admit, (session, "ferry"))
    assert one(forgetful, ask, session)[0] == "At noon."
