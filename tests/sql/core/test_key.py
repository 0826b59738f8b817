"""Keys of the service: whose they are, what they allow, and when they end."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pytest
from support import Connect, fails
from support.query import one


@pytest.fixture
def application(connect: Connect) -> psycopg.Connection:
    """The role that the service logs in with."""
    return connect("application")


def use(connection: psycopg.Connection, key: str) -> tuple[object, ...]:
    return connection.execute("select tenant, scopes, wait_s from key_use(%s)", (key,)).fetchone() or ()


def test_a_key_speaks_for_its_tenant(admin: psycopg.Connection, application: psycopg.Connection) -> None:
    key = one(admin, "select key_create('notebook', 'customer-7', '{chat}')")
    assert use(application, key) == ("customer-7", ["chat"], 0)
    assert one(admin, "select last_used_at is not null from key_list()")
    with fails("28000"):
        use(application, key + "x")


def test_the_key_itself_is_not_stored(admin: psycopg.Connection, db: psycopg.Connection) -> None:
    key = one(admin, "select key_create('notebook', 'customer-7')")
    assert len(key) > 60
    assert one(db, "select count(*) from api_key k where position(%s in k::text) > 0", key[3:]) == 0
    with fails("42501", hint=None):
        admin.execute("select hash from api_key")


def test_a_key_ends_when_it_is_revoked_or_expires(
    admin: psycopg.Connection, application: psycopg.Connection
) -> None:
    key = one(admin, "select key_create('a', 'customer-7')")
    admin.execute("select key_revoke(id) from key_list()")
    late = one(admin, "select key_create('b', 'customer-7', expires_at => now() - interval '1 second')")
    for ended in (key, late):
        with fails("28000"):
            use(application, ended)
    with fails("42704"):
        admin.execute("select key_revoke(gen_random_uuid())")


def test_the_requests_of_a_minute_are_counted(
    admin: psycopg.Connection, application: psycopg.Connection
) -> None:
    key = one(admin, "select key_create('a', 'customer-7', requests_per_minute => 3)")
    waits = [use(application, key)[2] for _ in range(4)]
    if waits[3] == 0:  # a minute began meanwhile
        waits = [use(application, key)[2] for _ in range(4)]
    assert waits[:3] == [0, 0, 0]
    assert isinstance(waits[3], int)
    assert 0 < waits[3] <= 60


@pytest.mark.shares
def test_a_limit_holds_until_the_minute_ends(db: psycopg.Connection) -> None:
    seconds = [0, 0.2, 30, 59.4, 59.5, 59.999999]
    waits = [
        one(
            db,
            "select _mindful.minute_rest(timestamptz '2026-01-01 00:00' + make_interval(secs => %s))",
            second,
        )
        for second in seconds
    ]
    assert waits == [60, 60, 30, 1, 1, 1]


def test_an_application_makes_and_sees_the_keys_of_its_tenant_only(
    admin: psycopg.Connection, application: psycopg.Connection
) -> None:
    admin.execute("select key_create('a', 'customer-7')")
    with application.transaction():
        application.execute("select tenant_set('customer-8')")
        application.execute("select key_create('b')")
        assert one(application, "select array_agg(name) from key_list()") == ["b"]
        with fails("42501"), application.transaction():
            application.execute("select key_create('c', 'customer-7')")
        with fails("42704"), application.transaction():
            application.execute(
                "select key_revoke(%s)", (one(admin, "select id from key_list() where name = 'a'"),)
            )
    assert one(admin, "select array_agg(name order by name) from key_list()") == ["a", "b"]


def test_users_cannot_use_keys_or_make_them_for_roles(
    ana: psycopg.Connection, admin: psycopg.Connection, roles: Mapping[str, str]
) -> None:
    with fails("42501", hint=None):
        use(ana, "mk-x")
    with fails("22023"):
        ana.execute("select key_create('a')")
    with fails("22023"):
        admin.execute("select key_create('a', %s)", (roles["bob"],))
    with fails("42501"):
        ana.execute("select key_create('a', 'customer-7')")


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("key_create(null, 'c')", "22004"),
        ("key_create(' ', 'c')", "22023"),
        ("key_create(repeat('x', 2000), 'c')", "54000"),
        ("key_create('a', '')", "22023"),
        ("key_create('a', 'pg_x')", "22023"),
        ("key_create('a', 'c', '{all}')", "22023"),
        ("key_create('a', 'c', null)", "22023"),
        ("key_create('a', 'c', requests_per_minute => 0)", "22023"),
    ],
)
@pytest.mark.shares
def test_wrong_arguments_are_refused(admin: psycopg.Connection, call: str, sqlstate: str) -> None:
    with fails(sqlstate):
        admin.execute(f"select {call}".encode())
