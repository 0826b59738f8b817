"""Kept answers of deterministic calls."""

import psycopg
import pytest
from support import Connect, one

ASK = "select llm_generate('Name a color.', max_tokens => 4)"


def calls(db: psycopg.Connection) -> int:
    found: int = one(db, "select count(*) from generation")
    return found


@pytest.fixture
def keeping(brief: str, ana: psycopg.Connection) -> psycopg.Connection:
    ana.execute("select setting_set('result_cache', 'true')")
    return ana


def test_the_same_call_is_not_computed_again(keeping: psycopg.Connection) -> None:
    first = one(keeping, ASK)
    assert calls(keeping) == 1
    assert one(keeping, ASK) == first
    assert (
        one(keeping, "select llm_generate_many('{Name a color.,Name a color.}', max_tokens => 4)")
        == [first] * 2
    )
    assert calls(keeping) == 1
    keeping.execute("select llm_generate('Name a color.', max_tokens => 5)")
    keeping.execute("select llm_generate('Name a fruit.', max_tokens => 4)")
    assert calls(keeping) == 3


def test_kept_answers_of_many_fit_their_schema_as_new_ones_do(keeping: psycopg.Connection) -> None:
    arguments = (
        "array['Name a color.', 'Name a fruit.'], max_tokens => 4, json_schema => '{\"type\": \"boolean\"}'"
    )
    first = one(keeping, f"select llm_generate_many({arguments})")
    made = calls(keeping)
    assert one(keeping, f"select llm_generate_many({arguments})") == first
    rows = keeping.execute(
        f"select result, error from llm_generate_many({arguments}, on_error => 'null')"
    ).fetchall()
    assert rows == [(answer, None) for answer in first]
    assert calls(keeping) == made


def test_without_the_setting_and_at_random_nothing_is_kept(brief: str, ana: psycopg.Connection) -> None:
    ana.execute(ASK)
    assert one(ana, "select count(*) from cached_result") == 0
    ana.execute("select setting_set('result_cache', 'true')")
    ana.execute("select llm_generate('Name a color.', max_tokens => 2, temperature => 1)")
    assert one(ana, "select count(*) from cached_result") == 0
    ana.execute("select llm_generate('Name a color.', max_tokens => 2, temperature => 1, seed => 5)")
    assert one(ana, "select count(*) from cached_result") == 1


def test_a_tenant_sees_its_own_answers_only(keeping: psycopg.Connection, connect: Connect) -> None:
    keeping.execute(ASK)
    bob = connect("bob")
    bob.execute("select setting_set('result_cache', 'true')")
    assert one(bob, "select count(*) from cached_result") == 0
    bob.execute(ASK)
    assert calls(bob) == 1


@pytest.mark.parametrize(
    "change",
    [
        "select count(*) from memory_forget(ids => %s)",
        "update memory set content = 'Tea is green.' where id = any (%s)",
    ],
)
def test_forgetting_and_changing_a_text_empties_the_cache(keeping: psycopg.Connection, change: str) -> None:
    memory = one(keeping, "select memory_insert('Tea is red.')")
    other = one(keeping, "select memory_insert('Salt is white.')")
    keeping.execute(ASK)
    keeping.execute("select memory_access_record(%s)", ([other],))
    keeping.execute("update memory set importance = 0.9 where id = %s", (other,))
    assert one(keeping, "select count(*) from cached_result") == 1
    keeping.execute(change.encode(), ([memory],))
    assert one(keeping, "select count(*) from cached_result") == 0


def test_the_cache_is_bounded_and_can_be_cleared(keeping: psycopg.Connection, db: psycopg.Connection) -> None:
    keeping.execute(
        "select _mindful.cached_result_insert(array[repeat('a', 64)], array[repeat('x', 600000)])"
    )
    db.execute("select setting_set('result_cache_mb', '1', 'global')")
    keeping.execute(
        "select _mindful.cached_result_insert(array[repeat('b', 64)], array[repeat('x', 600000)])"
    )
    assert one(keeping, "select min(key) = repeat('b', 64) and count(*) = 1 from cached_result") is True
    assert one(keeping, "select result_cache_clear()") == 1
    assert one(keeping, "select count(*) from cached_result") == 0


def test_a_read_only_transaction_reads_the_cache(keeping: psycopg.Connection) -> None:
    first = one(keeping, ASK)
    keeping.execute("begin read only")
    assert one(keeping, ASK) == first
    keeping.execute("select llm_generate('Name a fruit.', max_tokens => 2)")
    keeping.execute("rollback")


@pytest.mark.parametrize(
    ("call", "entries"),
    [
        ("llm_classify(%s, '{praise,complaint}')", 1),
        ("llm_if(%s, 'The writer is happy.')", 1),
        ("to_jsonb(llm_classify_many(array[%s, 'It broke.'], '{praise,complaint}'))", 2),
        ("llm_if_many(array[%s, 'It broke.'], 'The writer is happy.')", 2),
    ],
)
def test_labels_are_kept_as_answers_are(keeping: psycopg.Connection, call: str, entries: int) -> None:
    first = one(keeping, f"select {call}", "Superb!")
    assert one(keeping, "select count(*) from cached_result") == entries
    keeping.execute("update cached_result set used_at = '2020-01-01'")
    assert one(keeping, f"select {call}", "Superb!") == first
    reused = "select count(*) from cached_result where used_at > '2020-01-02'"
    assert one(keeping, reused) == entries
    one(keeping, f"select {call}", "Dull.")
    assert one(keeping, "select count(*) from cached_result") == entries + 1


def test_a_repeated_text_of_one_call_is_kept_once(keeping: psycopg.Connection) -> None:
    keeping.execute("select llm_if_many('{Superb!,Superb!}', 'The writer is happy.')")
    assert one(keeping, "select count(*) from cached_result") == 1
