"""The router offers what mindful offers: the same names, arguments, defaults, results and comments."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support import Cluster
from support.routed import Routed

FUNCTIONS = """
    select p.proname, p.prokind, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile,
        p.proisstrict, obj_description(p.oid, 'pg_proc'),
        array(select r.rolname::text from pg_roles r where r.rolname like 'mindful\\_%'
            and has_function_privilege(r.oid, p.oid, 'execute') order by 1)
    from pg_proc p
    where p.pronamespace = 'mindful'::regnamespace and p.prorettype <> 'trigger'::regtype
        and p.proname <> 'partition_find'
    order by 1, 3"""
VIEWS = """
    select c.relname, obj_description(c.oid, 'pg_class'),
        array(select array[a.attname::text, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)]
            from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum)
    from pg_class c
    where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'v' and c.relname not like 'partition%'
    order by 1"""


@pytest.fixture
def router(routed: Routed) -> psycopg.Connection:
    return routed.connect()


@pytest.fixture
def direct(cluster: Cluster, bare_template: str) -> Iterator[psycopg.Connection]:
    with cluster.database(bare_template) as name, cluster.connect(name) as connection:
        yield connection


def test_every_public_function_has_the_same_signature_result_comment_and_grants(
    router: psycopg.Connection, direct: psycopg.Connection
) -> None:
    expected = direct.execute(FUNCTIONS).fetchall()
    assert len(expected) > 90
    assert router.execute(FUNCTIONS).fetchall() == expected


def test_every_view_has_the_same_columns_and_comments(
    router: psycopg.Connection, direct: psycopg.Connection
) -> None:
    expected = direct.execute(VIEWS).fetchall()
    names = [name for name, _, _ in expected]
    assert len(names) > 12
    assert [row for row in router.execute(VIEWS).fetchall() if row[0] in names] == expected


def test_the_public_may_call_nothing(router: psycopg.Connection) -> None:
    assert (
        router.execute(
            """select p.oid::regprocedure from pg_proc p
               where p.pronamespace in ('mindful'::regnamespace, '_mindful'::regnamespace) and (
                   p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))"""
        ).fetchall()
        == []
    )
