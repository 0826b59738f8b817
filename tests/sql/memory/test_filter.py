"""Which memories recall considers."""

import uuid

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import fails, one

ROWS = {
    "a": {"price": 5, "topic": "tea", "tags": ["hot", "green"], "size": {"cm": 10}},
    "b": {"price": 12.5, "topic": "coffee", "tags": ["hot"], "since": "2024-05-01"},
    "c": {"price": "12", "topic": "te\"a' $", "since": "2025-01-31"},
    "d": {"topic": None, "price": -3},
    "e": {},
}


@pytest.fixture
def drinks(ana: psycopg.Connection) -> psycopg.Connection:
    memories = [{"content": f"A drink named {name}.", "metadata": row} for name, row in ROWS.items()]
    ana.execute("select memory_insert_many(%s)", (Jsonb(memories),))
    return ana


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ({"price": {"$gte": 5, "$lt": 12.5}}, "a"),
        ({"price": {"$gt": 5}}, "b"),
        ({"price": {"$lt": 0}}, "d"),
        ({"price": {"$not": {"$gt": 5}}}, "acde"),
        ({"$not": {"price": {"$exists": True}}}, "e"),
        ({"topic": {"$eq": None}}, "d"),
        ({"topic": {"$ne": "tea"}}, "bcde"),
        ({"topic": {"$in": ["tea", "te\"a' $"]}}, "ac"),
        ({"$or": [{"topic": "coffee"}, {"size": {"cm": {"$gte": 10}}}]}, "ab"),
        ({"$and": [{"tags": "hot"}, {"$not": {"tags": ["green"]}}]}, "b"),
        ({"tags": ["hot", "green"], "price": {"$lte": 5}}, "a"),
        ({"since": {"$gte": "2024-01-01", "$lt": "2025-01-01"}}, "b"),
        ({"topic": "tea"}, "a"),
        ({}, "abcde"),
    ],
)
def test_conditions_on_metadata(drinks: psycopg.Connection, condition: object, names: str) -> None:
    for call in ("memory_recall('drink named', 9, metadata => %s)", "memory_list(metadata => %s)"):
        found = drinks.execute(f"select content from {call}".encode(), (Jsonb(condition),)).fetchall()
        assert sorted(row[0][-2] for row in found) == list(names), call


@pytest.mark.parametrize(
    ("condition", "sqlstate"),
    [
        ({"price": {"$between": [1, 2]}}, "22023"),
        ({"price": {"$gt": [1]}}, "22023"),
        ({"$or": []}, "22023"),
        ({"$or": {"a": 1}}, "22023"),
        ({"$not": 1}, "22023"),
        ({"a": {"$exists": 1}}, "22023"),
        (["$or"], "22023"),
    ],
)
def test_bad_conditions_are_refused(ana: psycopg.Connection, condition: object, sqlstate: str) -> None:
    with fails(sqlstate):
        ana.execute("select memory_recall('x', metadata => %s)", (Jsonb(condition),))


def test_conditions_are_not_nested_too_deep(ana: psycopg.Connection) -> None:
    condition: dict[str, object] = {"a": 1}
    for _ in range(20):
        condition = {"$not": condition}
    with fails("54000"):
        ana.execute("select memory_recall('x', metadata => %s)", (Jsonb(condition),))


def test_a_scope_holds_its_memories_and_the_messages_of_its_sessions(ana: psycopg.Connection) -> None:
    ana.execute("""select memory_insert('The garden gate is green.', metadata => '{"scope": "home"}')""")
    ana.execute("""select memory_insert('The office gate is grey.', metadata => '{"scope": "work"}')""")
    ana.execute("select memory_insert('The city gate is old.')")
    ana.execute(
        """insert into session (session_id, metadata) values (%s, '{"scope": "work"}')""", (uuid.UUID(int=5),)
    )
    ana.execute("select message_insert(%s, 'user', 'The factory gate is open.')", (uuid.UUID(int=5),))
    query = "select array_agg(content order by content) from memory_recall('Which gate?', 9, scope => %s)"
    assert one(ana, query, "work") == ["The factory gate is open.", "The office gate is grey."]
    assert one(ana, query, "home") == ["The garden gate is green."]
    assert len(one(ana, query, None)) == len(one(ana, query, "all")) == 4
    ana.execute("""select setting_set('recall_scope', '"home"')""")
    assert one(ana, query, None) == ["The garden gate is green."]
    assert len(one(ana, query, "all")) == 4
    with fails("22023"):
        ana.execute("select memory_recall('x', scope => 'session')")


def test_a_fact_can_be_bound_to_a_session(ana: psycopg.Connection) -> None:
    here, there = one(ana, "select session_start()"), one(ana, "select session_start()")
    ana.execute("select message_insert(%s, 'user', 'We talk about the roof.')", (here,))
    fact = one(ana, "select memory_insert('The roof costs 900 euros.', session_id => %s)", here)
    query = "select id from memory_recall('What does the roof cost?', 1, session_id => %s)"
    assert ana.execute(query, (here,)).fetchall() == [(fact,)]
    assert ana.execute(query, (there,)).fetchall() == []
    assert ana.execute(query, (None,)).fetchall() == [(fact,)]
    with fails("42704"):
        ana.execute("select memory_insert('x', session_id => %s)", (uuid.UUID(int=9),))
    with fails("42704"):
        ana.execute("""select memory_insert_many('[{"content": "x", "session_id": "none"}]')""")
    ana.execute("select session_delete(%s)", (here,))
    assert one(ana, "select count(*) from memory") == 0


def test_a_chat_can_be_kept_to_its_session(ana: psycopg.Connection) -> None:
    ana.execute("select memory_insert('The spare key is under the blue pot.')")
    session = one(ana, "select session_start()")
    query = "select count(*) from session_context(%s, 'Where is the spare key?') where part = 'memory'"
    assert one(ana, query, session) == 1
    ana.execute("""select setting_set('recall_scope', '"session"', 'session', %s)""", (session,))
    assert one(ana, query, session) == 0
    ana.execute("select memory_insert('The spare key is in the red box.', session_id => %s)", (session,))
    assert one(ana, query, session) == 1


def test_age_can_pull_more_strongly(ana: psycopg.Connection) -> None:
    ana.execute("select memory_insert('The team meets in room 4 on Monday.')")
    ana.execute("update memory set created_at = now() - interval '300 days'")
    ana.execute("select memory_insert('The team meets in a room.'), memory_insert('Bananas are yellow.')")
    query = "select content from memory_recall('In which room does the team meet on Monday?', 1)"
    assert one(ana, query) == "The team meets in room 4 on Monday."
    ana.execute("select setting_set('recall_boost_recency', '1')")
    assert one(ana, query) == "The team meets in a room."


def test_core_memories_are_kept_to_the_scope(ana: psycopg.Connection) -> None:
    here, there = one(ana, "select session_start()"), one(ana, "select session_start()")
    for scope in ("home", "work"):
        metadata = Jsonb({"core": True, "scope": scope})
        ana.execute("select memory_insert(%s, metadata => %s)", (f"I have a key of {scope}.", metadata))
    insert = """select memory_insert('I am here.', metadata => '{"core": true}', session_id => %s)"""
    ana.execute(insert, (here,))
    shown = (
        "select array_agg(content order by content) from session_context(%s, 'Hello?') where part = 'core'"
    )
    both = ["I am here.", "I have a key of home.", "I have a key of work."]
    assert one(ana, shown, here) == both
    ana.execute("""select setting_set('recall_scope', '"home"', 'session', %s)""", (here,))
    assert one(ana, shown, here) == ["I have a key of home."]
    assert one(ana, shown, there) == both
    ana.execute("""select setting_set('recall_scope', '"session"')""")
    assert one(ana, shown, here) == ["I have a key of home."]
    assert one(ana, shown, there) is None
    ana.execute("select setting_reset('recall_scope', 'session', %s)", (here,))
    assert one(ana, shown, here) == ["I am here."]
