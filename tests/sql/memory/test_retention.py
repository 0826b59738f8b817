"""What is kept for how long."""

from typing import Any

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Connect, fails, memories, one
from support.memories import contents

DAY = 86400


def remember(connection: psycopg.Connection, content: str, days: float = 0, **fields: object) -> int:
    """Remember something so many days ago."""
    found = memories.remember(connection, content, **fields)
    age(connection, "id = %s", days, found)
    return found


def age(connection: psycopg.Connection, condition: str, days: float, *parameters: object) -> None:
    connection.execute(
        f"update memory set created_at = now() - make_interval(secs => {days * DAY}) where {condition}",
        parameters,
    )


def pruned(connection: psycopg.Connection, policy: str) -> list[int]:
    return [row[0] for row in connection.execute(f"select id from memory_prune({policy})")]


def totals(rows: list[tuple[Any, ...]]) -> dict[tuple[str, str], int]:
    return {(relation, action): count for relation, action, count in rows}


def retained(connection: psycopg.Connection) -> dict[tuple[str, str], int]:
    return totals(connection.execute("select relation, action, rows from mindful.retention_run()").fetchall())


def test_each_policy_takes_what_it_names(ana: psycopg.Connection) -> None:
    old = remember(ana, "Old.", 100)
    used = remember(ana, "Old and used.", 90)
    over = remember(ana, "Over.", valid_to="2001-01-01T00:00:00Z")
    minor = remember(ana, "Minor.", importance=0.1)
    wise = remember(ana, "Old and wise.", 80, level="wisdom")
    said = one(ana, "select message_insert(session_start(), 'user', 'Said.')")
    age(ana, "id = %s", 100, said)
    ana.execute("insert into memory_access (id, access_count) values (%s, 7)", (used,))
    for policy, expected in {
        "older_than => '30 days'": [old, used, wise],
        "unused_for => '30 days'": [old, wise],
        "invalid_for => '1 year'": [over],
        "max_importance => 0.2": [minor],
        "max_value => 0.1": [old, minor],
        "max_count => 3": [old, minor],
        "max_count => 0": [old, used, over, minor, wise],
        "older_than => '30 days', max_count => 3": [old],
        "older_than => '30 days', kinds => '{message}'": [said],
        "older_than => '30 days', kinds => '{document}'": [],
    }.items():
        assert sorted(pruned(ana, f"{policy}, dry_run => true")) == expected, policy
    assert len(contents(ana)) == 6


def test_a_value_is_the_formula(ana: psycopg.Connection) -> None:
    remember(ana, "A.", 30, importance=0.8)
    remember(ana, "B.", 60, importance=0.8)
    remember(ana, "C.", 480, importance=1, level="knowledge")
    remember(ana, "D.", 480, importance=1, level="wisdom")
    remember(ana, "E.", -10, importance=0.3)
    values = "select array_agg(value::real order by id) from memory_prune(max_count => 0, dry_run => true)"
    assert one(ana, values) == pytest.approx([0.4, 0.2, 0.5, 0.5**0.25, 0.3], abs=1e-4)
    ana.execute("select setting_set('retention_half_life_days', '60')")
    assert one(ana, values) == pytest.approx([0.8 * 0.5**0.5, 0.4, 0.5**0.5, 0.5**0.125, 0.3], abs=1e-4)
    ana.execute("insert into memory_access (id) select min(id) from memory")
    assert one(ana, values)[0] == pytest.approx(0.8, abs=1e-4)


def test_it_says_why_and_first_of_all_the_least_valuable(ana: psycopg.Connection) -> None:
    remember(ana, "Newer.", 40)
    worst = remember(ana, "Older.", 400)
    rows = ana.execute(
        "select id, kind, reason from memory_prune('30 days', max_importance => 0.5, dry_run => true)"
    ).fetchall()
    assert rows[0] == (worst, "fact", "older than 30 days, importance at most 0.5")
    assert len(rows) == 2


def test_pruning_takes_nothing_but_what_it_names(ana: psycopg.Connection) -> None:
    said = one(ana, "select message_insert(session_start('Tea'), 'user', 'I like green tea.')")
    fact = remember(ana, "Ana likes tea.", evidence=[{"source_id": said, "quote": "green tea"}])
    age(ana, "true", 100)
    policy = "older_than => '30 days', kinds => '{message}'"
    assert pruned(ana, policy + ", dry_run => true") == [said]
    assert len(contents(ana)) == 2
    assert pruned(ana, policy) == [said]
    assert ana.execute("select id from memory").fetchall() == [(fact,)]
    assert one(ana, "select count(*) from memory_evidence") == 0
    assert one(ana, "select scope, memory_ids, hashes, mentions from forget_receipt") == (
        "prune",
        [said],
        [],
        [],
    )
    assert pruned(ana, policy) == []


def test_drawn_facts_outlive_pruned_turns(ana: psycopg.Connection) -> None:
    ana.execute("select llm_chat('I live in Oslo.', model => %s)", (SCRIPTED_GENERATOR,))
    ana.execute("select memory_consolidate()")
    facts = "select content, confidence, valid_to from memory where kind = 'fact'"
    before = ana.execute(facts).fetchall()
    assert before
    pruned(ana, "max_count => 0, kinds => '{message}'")
    assert ana.execute("select distinct kind from memory").fetchall() == [("fact",)]
    assert ana.execute(facts).fetchall() == before
    assert one(ana, "select count(*) from generation") == 1


def test_what_is_not_due_outlives_its_session(ana: psycopg.Connection) -> None:
    session = one(ana, "select session_start()")
    ana.execute("select message_insert(%s, 'user', 'Long ago.')", (session,))
    fact = remember(ana, "I like tea.")
    ana.execute("update memory set session_id = %s where id = %s", (session, fact))
    ana.execute("update session set created_at = now() - interval '100 days'")
    age(ana, "true", 100)
    ana.execute("select setting_set('retention_message_days', '30')")
    assert retained(ana)["memory", "deleted"] == 1
    assert contents(ana) == ["I like tea."]


def test_rows_of_attached_tables_follow_their_table(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute(f'create schema shop authorization "{ana.info.user}"')
    ana.execute("create table shop.ticket (id int primary key, body text)")
    ana.execute("insert into shop.ticket values (1, 'No toner.')")
    ana.execute("select memory_attach('shop.ticket', 'body')")
    assert pruned(ana, "max_count => 0") == []
    assert contents(ana) == ["No toner."]


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "dry_run => true",
        "max_count => -1",
        "older_than => '-1 day'",
        "unused_for => '-1 day'",
        "max_value => 'NaN'",
        "max_importance => 'NaN'",
        "max_count => 0, kinds => null",
        "max_count => 0, kinds => '{gossip}'",
        "max_count => 0, kinds => '{fact,null}'",
    ],
)
@pytest.mark.shares
def test_a_bad_policy_is_refused(ana: psycopg.Connection, arguments: str) -> None:
    assert contents(ana) or remember(ana, "I like tea.")
    with fails("22023"):
        ana.execute(f"select memory_prune({arguments})")
    assert contents(ana) == ["I like tea."]


def test_nobody_prunes_anothers_memories(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    remember(ana, "I like tea.", 1000)
    assert pruned(bob, "max_count => 0, kinds => '{message,fact}'") == []
    bob.execute("select setting_set('retention_fact_days', '1')")
    assert retained(bob) == {}
    assert contents(ana) == ["I like tea."]


def test_retention_is_by_kind(ana: psycopg.Connection) -> None:
    remember(ana, "Old fact.", 100)
    remember(ana, "Old manual.", 100, kind="document")
    remember(ana, "New manual.", 10, kind="document")
    assert retained(ana) == {}
    ana.execute("select setting_set('retention_document_days', '30')")
    assert retained(ana)["memory", "deleted"] == 1
    assert contents(ana) == ["Old fact.", "New manual."]
    assert one(ana, "select scope from forget_receipt") == "retention"
    assert retained(ana) == {}


def test_sessions_that_are_over_go_with_their_messages(ana: psycopg.Connection) -> None:
    old, running = (one(ana, "select session_start(%s)", title) for title in ("Old", "Running"))
    for session in (old, running):
        ana.execute("select message_insert(%s, 'user', 'Long ago.')", (session,))
        ana.execute("update session set created_at = now() - interval '100 days'")
    age(ana, "true", 100)
    ana.execute("select message_insert(%s, 'user', 'Just now.')", (running,))
    ana.execute("select setting_set('retention_message_days', '30')")
    assert retained(ana)["session", "deleted"] == 1
    assert contents(ana) == ["Just now."]
    assert ana.execute("select title from session").fetchall() == [("Running",)]


def test_so_many_memories_are_kept(ana: psycopg.Connection) -> None:
    for n in range(6):
        remember(ana, f"Number {n}.", importance=n / 10)
    ana.execute("select message_insert(session_start(), 'user', 'Said.')")
    ana.execute("select setting_set('retention_memories', '2')")
    retained(ana)
    assert contents(ana) == ["Number 4.", "Number 5.", "Said."]


@pytest.mark.smoke
def test_states_that_no_call_has_continued_go_with_messages_of_their_age(
    db: psycopg.Connection, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Of a conversation that its client resends as a whole there is nothing but the state."""
    for first, days, thread in ((0, 40, 1), (1, 39, 1), (0, 40, 2), (1, 1, 2)):
        db.execute(
            """insert into mindful.kv_state (tenant, list_id, model, first, fingerprint, tokens, state, mac, used_at)
               values (%s, lpad(%s::text, 32, '0')::uuid, 'm', %s, '', '{1}', '', '',
                   now() - make_interval(days => %s))""",
            (ana.info.user, thread, first, days),
        )
    assert retained(admin) == {}
    ana.execute("select setting_set('retention_message_days', 30)")
    assert retained(admin) == {("kv_state", "deleted"): 2}
    left = ana.execute("select thread_id::text, first from kv_state order by 1, 2").fetchall()
    assert [(thread[-1], first) for thread, first in left] == [("2", 0), ("2", 1)]
    assert retained(ana) == {}


def test_a_worker_runs_it_for_whom_it_works(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    for connection in (ana, bob):
        remember(connection, "Old.", 100)
        connection.execute("select setting_set('retention_fact_days', '50')")
    assert retained(ana)["memory", "deleted"] == 1
    assert [contents(connection) for connection in (ana, bob)] == [[], ["Old."]]
    assert retained(admin)["memory", "deleted"] == 1
    assert contents(bob) == []


def test_an_administrator_runs_it_for_all(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    for connection in (ana, bob):
        for n in range(3):
            remember(connection, f"Fact {n}.", 100 * n)
        connection.execute("select llm_generate('x', model => %s)", (SCRIPTED_GENERATOR,))
    ana.execute("select setting_set('retention_fact_days', '150')")
    with fails("55000", hint="confirmed_rows => 2") as caught:  # ana's own setting keeps hers
        admin.execute("select setting_set('retention_fact_days', '50', 'global')")
    assert "2 rows of 1 tenants" in str(caught.value)
    admin.execute("select setting_set('retention_fact_days', '50', 'global', confirmed_rows => 2)")
    admin.execute("set mindful.tenant = 'nobody'")
    counts = retained(admin)
    assert counts["memory", "deleted"] == 3
    assert ("generation", "deleted") not in counts
    assert [contents(connection) for connection in (ana, bob)] == [["Fact 0.", "Fact 1."], ["Fact 0."]]
    assert one(admin, "show mindful.tenant") == "nobody"
    for connection in (ana, bob):
        with fails("42501", hint=None):
            connection.execute("select _mindful.retention_run_all()")


def test_what_fails_for_one_tenant_keeps_nobody_elses_memories(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    for connection in (ana, bob):
        remember(connection, "Old.", 100)
        connection.execute("select setting_set('retention_fact_days', '50')")
    db.execute("alter table mindful.setting disable trigger checked")
    ana.execute("insert into setting (scope, key, value) values ('user', 'retention_fact_days', '\"x\"')")
    warnings: list[str] = []
    admin.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    assert retained(admin)["memory", "deleted"] == 1
    assert [contents(connection) for connection in (ana, bob)] == [["Old."], []]
    assert [ana.info.user in warning for warning in warnings] == [True]


def test_records_have_a_retention_of_their_own(
    ana: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    message = one(ana, "select message_id from llm_chat_detail('Hello', model => %s)", SCRIPTED_GENERATOR)
    ana.execute("select self_review(%s, %s)", (message, SCRIPTED_GENERATOR))
    for value in ("1000", "2000"):
        ana.execute("select setting_set('model_slot_wait_ms', %s)", (value,))
    ana.execute("select memory_forget(array[memory_insert('Gone.')])")
    stamps = {
        "generation": "created_at",
        "review": "created_at",
        "setting": "changed_at",
        "forget_receipt": "forgotten_at",
    }
    for table, stamp in stamps.items():
        db.execute(f"update mindful.{table} set {stamp} = now() - interval '400 days'")
    assert retained(admin) == {}
    with fails("22023"):
        ana.execute("select setting_set('retention_audit_days', '1')")
    admin.execute("select setting_set('retention_audit_days', '365', 'global', confirmed_rows => 10)")
    assert retained(admin) == {
        ("generation", "deleted"): 1,
        ("review", "deleted"): 1,
        ("setting", "deleted"): 1,
        ("forget_receipt", "deleted"): 1,
    }
    assert one(ana, "select setting_get('model_slot_wait_ms')") == 2000
    assert len(contents(ana)) == 2


def test_a_tenant_that_locks_its_records_keeps_nobody_elses(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    for connection in (ana, bob):
        connection.execute("select llm_generate('x', %s)", (SCRIPTED_GENERATOR,))
        connection.execute("select memory_forget(array[memory_insert('Gone.')])")
    db.execute("update mindful.generation set created_at = now() - interval '400 days'")
    admin.execute("select setting_set('retention_audit_days', '365', 'global', confirmed_rows => 2)")
    warnings: list[str] = []
    admin.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    with ana.transaction():
        # A row that references another locks it until the transaction ends.
        ana.execute(
            """insert into generation overriding user value
               select (jsonb_populate_record(g, jsonb_build_object('parent_id', g.id, 'created_at', now()))).*
               from generation g"""
        )
        assert retained(admin) == {("generation", "deleted"): 1}
    assert [ana.info.user in warning for warning in warnings] == [True]
    assert one(bob, "select count(*) from generation") == 0
    assert retained(admin) == {("generation", "deleted"): 1}


@pytest.mark.parametrize("role", ["reader", "bob"])
def test_who_is_no_administrator_does_not_run_it_for_all(connect: Connect, role: str) -> None:
    with fails("42501", hint=None):
        connect(role).execute("select _mindful.retention_run_all()")
