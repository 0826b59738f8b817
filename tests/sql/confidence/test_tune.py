"""Settings are chosen by replay on labeled questions, adopted on unseen ones, and taken back."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, fails
from support.deletion import delete
from support.memories import remember_all

KEYS = ["chat_temperature", "chat_memories", "signal_tier", "chat_escalate"]


@pytest.fixture(autouse=True)
def quick(db: psycopg.Connection) -> None:
    """What is tested here is not how well texts are found."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))


def answered_from_memory(db: psycopg.Connection, user: psycopg.Connection, count: int = 100) -> None:
    """Questions that the model answers rightly where it is shown what is remembered, and else does not know."""
    facts = [
        [f"The code of room {at} is {at * 7 + 1000}", f"The code is {at * 7 + 1000}."] for at in range(count)
    ]
    script = json.dumps({"replies": facts, "default": "I do not know.", "logprob": -0.1})
    db.execute("update model set options = %s where name = %s", (script, SCRIPTED_GENERATOR))
    remember_all(user, *(fact for fact, _ in facts))
    gold = json.dumps(
        [
            {"question": f"What is the code of room {at}?", "answers": [str(at * 7 + 1000)]}
            for at in range(count)
        ]
    )
    assert user.execute("select gold_evaluate(%s, memories => 0)", (gold,)).fetchone() == (count,)


def keep_temperature(user: psycopg.Connection) -> None:
    """Set it by hand, as it is to stay then: trying four of them takes as long as all else."""
    user.execute("select setting_set('chat_temperature', '0')")


def adapt(user: psycopg.Connection, **arguments: Any) -> dict[str, dict[str, Any]]:
    named = ", ".join(f"{name} => %({name})s" for name in arguments)
    rows = user.cursor(row_factory=dict_row).execute(f"select * from confidence_tune({named})", arguments)
    found = {row["key"]: row for row in rows}
    assert list(found) == KEYS
    return found


@pytest.mark.smoke
def test_what_does_better_on_unseen_questions_is_adopted_and_undone(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    db.execute("select setting_set('chat_memories', '0', 'global')")
    keep_temperature(ana)
    answered_from_memory(db, ana)
    found = adapt(ana)
    memories = found["chat_memories"]
    assert memories["adopted"], memories
    assert (memories["current_value"], memories["candidate"]) == (0, 1)
    evidence = memories["evidence"]
    assert evidence["labels"] == [66, 34]
    assert evidence["tested"]["1"]["score"] > 0.9
    assert evidence["tested"]["0"]["score"] == 0
    assert evidence["recent"]["answers"] == 100
    assert evidence["recent"]["error"] == 1
    assert ana.execute("select setting_get('chat_memories')").fetchone() == (1,)
    assert bob.execute("select setting_get('chat_memories')").fetchone() == (0,)
    # It is what chats do from now on.
    shown = "select cardinality(memory_ids) from llm_chat_detail('What is the code of room 5?')"
    assert ana.execute(shown).fetchone() == (1,)
    # The change says why, by which evidence, and one call takes it back.
    kept = ana.execute(
        """select s.reason, s.changed_by, a.evidence from setting s join tuning a on a.change_id = s.id
           where s.key = 'chat_memories' and s.scope = 'user'"""
    ).fetchone()
    assert kept is not None
    assert "34 newer labels" in kept[0]
    assert kept[1] == f"confidence_tune for {ana.info.user}"
    assert kept[2] == evidence
    with fails("42704"):
        bob.execute("select setting_undo(%s)", (memories["change_id"],))
    assert ana.execute("select setting_undo(%s)", (memories["change_id"],)).fetchone() == (0,)
    # Who took it back is not asked again, until he gives it back.
    again = adapt(ana)["chat_memories"]
    assert (again["adopted"], again["reason"]) == (
        False,
        "not changed: the user set or undid this setting",
    )
    ana.execute("select setting_set('chat_memories', null)")
    assert "newer labels are needed, there are 100 and 0" in adapt(ana)["chat_memories"]["reason"]


@pytest.mark.long
def test_what_is_not_better_is_not_adopted(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    answered_from_memory(db, ana, 90)
    found = adapt(ana, max_questions=30)
    assert [row["adopted"] for row in found.values()] == [False] * 4
    assert found["chat_memories"]["reason"] == "no value does better than 3 on the older labels"
    assert found["chat_memories"]["candidate"] is None
    assert ana.execute(
        "select count(*) from setting where key = any(%s) and scope = 'user'", (KEYS,)
    ).fetchone() == (0,)


def test_a_choice_that_fails_on_unseen_questions_is_not_adopted(
    db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    db.execute("select setting_set('chat_memories', '0', 'global')")
    keep_temperature(ana)
    answered_from_memory(db, ana, 90)
    # What helped with the first 60 is gone for the others.
    delete(ana, "memory", "content ~ 'room [6-8][0-9] '")
    found = adapt(ana, max_questions=30)["chat_memories"]
    assert (found["candidate"], found["adopted"]) == (1, False)
    assert found["evidence"]["chosen"]["1"]["score"] > 0.9
    assert found["evidence"]["p"] > 0.05
    # The labels that it failed on are not used for a test again.
    assert "newer labels are needed, there are 90 and 0" in adapt(ana)["chat_memories"]["reason"]


SIGNALS = """
    with decided as (
        insert into decision (model, with_memory, signal_tier, signals, signal_ms, probability, action, reason)
        select %(model)s, false, 1,
            jsonb_build_object('logprob_sum', random(), 'question_similarity', n %% 2 + random()),
            '{"free": 1, "question": 5, "brief": 3, "second": 40}', 0.5, 'flag', 'x'
        from generate_series(1, %(count)s) n
        returning id, (signals ->> 'question_similarity')::float8 as signal
    )
    insert into outcome (decision_id, correct, grader)
    select id, signal > 1 and %(telling)s or random() < 0.2, 'rule' from decided order by id
"""


@pytest.mark.parametrize("telling", [True, False])
@pytest.mark.smoke
def test_a_tier_is_adopted_where_its_signals_tell(ana: psycopg.Connection, telling: bool) -> None:
    ana.execute("select setseed(0.5)")
    ana.execute(SIGNALS, {"model": SCRIPTED_GENERATOR, "count": 150, "telling": telling})
    found = adapt(ana)["signal_tier"]
    assert found["adopted"] == telling, found
    if telling:
        assert (found["current_value"], found["candidate"]) == (0, 1)
        assert found["evidence"]["tested"]["1"]["ms"] == 8
        assert found["evidence"]["tested"]["0"]["ms"] == 0
        assert found["evidence"]["tested"]["1"]["score"] > found["evidence"]["tested"]["0"]["score"]


CHAINS = """
    with first as (
        insert into decision (model, with_memory, signal_tier, signals, signal_ms, probability, action, reason)
        select %(model)s, false, 2, '{}', '{"question": 5, "second": 40}', 0.5, 'flag', 'x'
        from generate_series(1, 100) returning id
    ),
    second as (
        insert into decision (model, ways, second_model, with_memory, signal_tier, signals, probability, action,
            reason, parent_id)
        select %(model)s, '{escalate}', 'other', false, 0, '{}', 0.5, %(action)s, 'x', id from first returning id
    )
    insert into outcome (decision_id, correct, grader)
    select id, false, 'rule' from first union all select id, true, 'rule' from second order by 1
"""


@pytest.mark.parametrize("action", ["answer", "flag"])
@pytest.mark.smoke
def test_the_fallback_is_asked_where_what_it_shows_is_right(ana: psycopg.Connection, action: str) -> None:
    ana.execute(CHAINS, {"model": SCRIPTED_GENERATOR, "action": action})
    found = adapt(ana)["chat_escalate"]
    assert found["adopted"] == (action == "answer"), found
    if found["adopted"]:
        assert [found["evidence"]["tested"][value]["ms"] for value in ("false", "true")] == [0, 40]


@pytest.mark.smoke
def test_a_temperature_by_hand_holds_for_chats(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    session = ana.execute("select session_start()").fetchone()
    assert session is not None
    ana.execute("select setting_set('chat_temperature', '0.7', 'session', %s)", session)
    ana.execute("select llm_chat('Hi', %s)", session)
    ana.execute("select llm_chat('Hi')")
    ana.execute("select llm_chat('Hi', temperature => 0.2)")
    rows = db.execute("select temperature from generation order by id").fetchall()
    assert [row[0] for row in rows] == [pytest.approx(0.7), 0, pytest.approx(0.2)]
    assert adapt(ana)["chat_temperature"]["current_value"] == 0


def test_work_is_done_where_there_are_new_labels(
    ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    ana.execute(SIGNALS, {"model": SCRIPTED_GENERATOR, "count": 30, "telling": True})
    bob.execute(SIGNALS, {"model": SCRIPTED_GENERATOR, "count": 29, "telling": True})
    assert bob.execute("select tuning_run()").fetchone() == (0,)
    assert db.execute("select tuning_run()").fetchone() == (1,)
    assert db.execute("select distinct tenant from tuning").fetchall() == [(ana.info.user,)]
    assert db.execute("select tuning_run()").fetchone() == (0,)
    bob.execute(SIGNALS, {"model": SCRIPTED_GENERATOR, "count": 1, "telling": True})
    assert bob.execute("select tuning_run()").fetchone() == (1,)


def test_an_administrator_tunes_for_all(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    for user in (ana, bob):
        user.execute(SIGNALS, {"model": SCRIPTED_GENERATOR, "count": 30, "telling": True})
    assert admin.execute("select tuning_run()").fetchone() == (2,)
    for user in (ana, bob):
        assert user.execute("select count(*) > 0 from tuning").fetchone() == (True,)
    with fails("42501", hint=None):
        bob.execute("select _mindful.tuning_run_all(10)")


def test_drift_is_told_from_chance(ana: psycopg.Connection) -> None:
    """Of 500 samples of one distribution about one in a hundred exceeds the limit; of another, all."""
    query = """
        select count(*) filter (where d.drift > d.drift_limit), max(d.drift_limit)
        from generate_series(1, 500) n, lateral (
            select array_agg(m.before order by m.bin) as before, array_agg(m.now order by m.bin) as now
            from (
                select b.bin, count(*) filter (where s.at <= 400 and width_bucket(s.x, 0, 1, 10) = b.bin) as before,
                    count(*) filter (where s.at > 400 and width_bucket(s.x ^ %s, 0, 1, 10) = b.bin) as now
                from generate_series(1, 10) b (bin), (
                    select a as at, random() as x from generate_series(1, 500) a where n > 0 offset 0
                ) s
                group by b.bin
            ) m
        ) h, lateral _mindful.drift(h.before, h.now) d
    """
    ana.execute("select setseed(0.3)")
    same, limit = ana.execute(query, (1,)).fetchone() or (0, 0)
    assert limit == pytest.approx(21.67 * (1 / 100 + 1 / 400))
    assert same <= 12
    assert (ana.execute(query, (3,)).fetchone() or (0,))[0] == 500
    empty = ana.execute(
        "select drift from _mindful.drift(array_fill(0::bigint, '{10}'), array_fill(1::bigint, '{10}'))"
    )
    assert empty.fetchone() == (None,)


def test_bad_input(ana: psycopg.Connection) -> None:
    for sqlstate, arguments in (
        ("22004", "max_questions => null"),
        ("22004", "max_tokens => null"),
        ("22023", "max_questions => 29"),
        ("22023", "max_tokens => 0"),
        ("42704", "model => 'nosuch'"),
    ):
        with fails(sqlstate):
            ana.execute(f"select confidence_tune({arguments})")
    with fails("22023"):
        ana.execute("select tuning_run(0)")
    with fails("55000", hint="mindful worker"):
        ana.execute("select tuning_schedule()")
    assert ana.execute("select count(*) from tuning").fetchone() == (0,)


def test_a_cancelled_replay_leaves_nothing(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    answered_from_memory(db, ana, 60)
    ana.execute("set statement_timeout = '1s'")
    with db.transaction(), fails("57014", hint=None):
        db.execute("lock table tuning in share mode")  # it waits here, however quick it is
        ana.execute("select confidence_tune()")
    ana.execute("reset statement_timeout")
    assert ana.execute("select count(*) from tuning").fetchone() == (0,)
    assert ana.execute("select count(*) from setting where scope = 'user'").fetchone() == (0,)
