"""Parallel queries: what runs Python takes no part in them, whatever label a user's own function has."""

from __future__ import annotations

import re

import psycopg
import pytest
from support import one

EXCEPTION_BLOCK = re.compile(r"\mexception\s+when".replace(r"\m", r"\b"), re.IGNORECASE)


def functions(db: psycopg.Connection) -> dict[str, tuple[str, str, str, bool]]:
    """Schema and name, language, definition and whether it is parallel unsafe, by signature."""
    rows = db.execute(
        """select p.oid::regprocedure::text, p.proname, l.lanname, pg_get_functiondef(p.oid), p.proparallel = 'u'
           from pg_proc p join pg_language l on l.oid = p.prolang
           where p.pronamespace = any ('{mindful,_mindful}'::regnamespace[]) and p.prokind = 'f'"""
    )
    return {signature: (name, language, body, unsafe) for signature, name, language, body, unsafe in rows}


def test_all_that_reaches_python_or_an_exception_block_is_parallel_unsafe(db: psycopg.Connection) -> None:
    found = functions(db)
    assert len(found) > 400
    # A hint's text may name a function: what stands in quotes is no call.
    bodies = {
        signature: re.sub(r"'(?:[^']|'')*'", "''", body) for signature, (_, _, body, _) in found.items()
    }
    reaching = {
        signature
        for signature, (_, language, body, _) in found.items()
        if language == "plpython3u" or EXCEPTION_BLOCK.search(body)
    }
    while True:
        names = {found[signature][0] for signature in reaching}
        calls = re.compile(rf"\b(?:{'|'.join(sorted(names))})\(")
        more = {
            signature
            for signature in found.keys() - reaching
            if calls.search(
                bodies[signature].partition("$function$")[2] or bodies[signature].partition("BEGIN ATOMIC")[2]
            )
        }
        if not more:
            break
        reaching |= more
    assert [signature for signature in sorted(reaching) if not found[signature][3]] == []


@pytest.mark.parametrize(
    "call",
    [
        "llm_token_count('Hi')",
        "llm_embed('Hi')",
        "llm_generate('Hi', max_tokens => 1)",
        "memory_insert('Hi')",
        "(select content from memory_recall('Hi'))",
        "(select backend_pid from mindful_status())",
    ],
)
def test_a_function_of_a_wrong_label_gets_an_error_and_the_server_lives(
    ana: psycopg.Connection, call: str
) -> None:
    ana.execute(
        "create function pg_temp.mislabeled() returns text language sql parallel safe "
        f"as $$ select ({call})::text $$".encode()
    )
    ana.execute("set force_parallel_mode = on")
    for _ in range(2):
        with pytest.raises(psycopg.Error) as caught:
            ana.execute("select pg_temp.mislabeled()").fetchall()
        assert caught.value.sqlstate in ("25000", "25006"), caught.value
    ana.execute("set force_parallel_mode = off")
    assert one(ana, "select llm_token_count('Hi')") == 1
    assert (
        one(ana, "select llm_token_count('Hi') + memory_insert('Hi') - memory_insert('Ho') + 1") is not None
    )


def test_a_query_that_could_be_parallel_counts_tokens(
    db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    for setting in ("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"):
        ana.execute(f"set {setting}".encode())
    ana.execute(
        "create temp table word as select i, md5(i::text) as x from generate_series(1, 20000) i; analyze word"
    )
    assert one(ana, "select llm_token_count(max(x)) from word where x like '%%a%%'") > 0
    assert one(ana, "select count(llm_embed(x)) from word where i = 7") == 1
