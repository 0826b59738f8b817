"""Memory of models between transactions: kept, or given back."""

from __future__ import annotations

import psycopg
import pytest

HELD = "select jsonb_array_length(models), private_bytes from mindful_status()"


def held(db: psycopg.Connection) -> tuple[int, int]:
    row = db.execute(HELD).fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.fixture
def returning(ana: psycopg.Connection) -> psycopg.Connection:
    """A connection of a user whose connections keep no model."""
    ana.execute("select setting_set('model_keep', 'false')")
    return ana


def test_a_connection_keeps_its_models_unless_told_otherwise(ana: psycopg.Connection) -> None:
    ana.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
    models, kept = held(ana)
    ana.execute("select setting_set('model_keep', 'false')")
    ana.execute("select llm_embed('Hi')")
    assert models == 2
    none, returned = held(ana)
    assert none == 0
    assert kept - returned > 60_000_000
    ana.execute("select setting_set('model_keep', 'null')")
    ana.execute("select llm_embed('Hi')")
    assert held(ana)[0] == 1


@pytest.mark.smoke
def test_a_transaction_loads_once(returning: psycopg.Connection) -> None:
    with returning.transaction():
        returning.execute("select llm_generate('Hi', max_tokens => 1)")
        first = returning.execute("select models -> 0 ->> 'load_ms' from mindful_status()").fetchone()
        returning.execute("select llm_classify(t, '{good,bad}') from unnest('{Fine.,Awful.}'::text[]) t")
        assert returning.execute("select models -> 0 ->> 'load_ms' from mindful_status()").fetchone() == first
    assert held(returning)[0] == 0


def test_however_a_transaction_ends(returning: psycopg.Connection) -> None:
    returning.execute("select llm_generate('Hi', max_tokens => 1)")
    before = held(returning)[1]
    for end in (with_rollback, with_error, with_cancel, with_cursor):
        returning.execute("begin")
        end(returning)
        models, after = held(returning)
        assert models == 0, end
        assert after - before < 10_000_000, end


def with_rollback(connection: psycopg.Connection) -> None:
    connection.execute("select llm_generate('Hi', max_tokens => 1)")
    connection.execute("rollback")


def with_error(connection: psycopg.Connection) -> None:
    connection.execute("select llm_generate('Hi', max_tokens => 1)")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        connection.execute("select llm_generate(' ')")
    connection.execute("rollback")


def with_cancel(connection: psycopg.Connection) -> None:
    connection.execute("select llm_generate('Hi', max_tokens => 1)")
    connection.execute("set local statement_timeout = '200ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute("select llm_generate('Write a long story.', max_tokens => 1500)")
    connection.execute("rollback")


def with_cursor(connection: psycopg.Connection) -> None:
    connection.execute(
        "declare c cursor for select llm_generate_stream('Write a long story.', max_tokens => 50)"
    )
    connection.execute("fetch 3 from c")
    connection.execute("commit")


def test_a_subtransaction_that_fails_keeps_what_its_transaction_holds(
    brief: str, returning: psycopg.Connection
) -> None:
    with returning.transaction():
        returning.execute("select llm_generate('Hi', max_tokens => 1)")
        with pytest.raises(psycopg.Error), returning.transaction():
            returning.execute("select 1 / 0")
        assert held(returning)[0] == 1
    assert held(returning)[0] == 0


def test_what_is_loaded_again_answers_the_same(brief: str, returning: psycopg.Connection) -> None:
    sql = "select llm_generate('Name three rivers.', %s, max_tokens => 12)"
    answers = {returning.execute(sql, (brief,)).fetchone() for _ in range(3)}
    assert len(answers) == 1


def test_a_terminated_connection_ends_in_order(
    brief: str, returning: psycopg.Connection, db: psycopg.Connection
) -> None:
    returning.execute("begin")
    returning.execute("select llm_generate('Hi', max_tokens => 1)")
    db.execute("select pg_terminate_backend(%s, 5000)", (returning.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        returning.execute("select 1")
    assert db.execute("select llm_generate('Hi', max_tokens => 1)").fetchone()
