"""Attacks on the keys of the service."""

from __future__ import annotations

import psycopg
import pytest
from support import Connect, fails, one

TENANT = "customer-7"


@pytest.fixture
def application(connect: Connect) -> psycopg.Connection:
    """The role that the service logs in with, for one tenant."""
    application = connect("application")
    application.execute("select set_config('mindful.tenant', %s, false)", (TENANT,))
    return application


@pytest.mark.parametrize("maker", ["admin", "application"])
def test_a_leaked_key_that_another_role_made(
    maker: str, admin: psycopg.Connection, application: psycopg.Connection
) -> None:
    """Goes on with a leaked key, which the tenant or an administrator revokes though the other made it."""
    roles = {"admin": admin, "application": application}
    key = one(roles.pop(maker), "select key_create('laptop', %s)", TENANT)
    (other,) = roles.values()
    other.execute("select key_revoke(id) from key_list()")
    with fails("28000"):
        application.execute("select * from key_use(%s)", (key,))


def test_a_revoked_key_that_is_taken_back(admin: psycopg.Connection, application: psycopg.Connection) -> None:
    """Makes a revoked key valid again, by the table."""
    key = one(application, "select key_create('laptop')")
    application.execute("select key_revoke(id) from key_list()")
    for role in (admin, application):
        assert role.execute("update api_key set revoked_at = null").rowcount == 0
        role.execute("select key_revoke(id) from key_list()")
    with fails("28000"):
        application.execute("select * from key_use(%s)", (key,))


def test_a_key_made_in_the_table(bob: psycopg.Connection, ana: psycopg.Connection) -> None:
    """Enters a key of its own choice for another tenant, or in another role's name, into the table."""
    for statement, tenant in (
        (
            "insert into api_key (tenant, name, hash, scopes) values (%s, 'x', _mindful.key_hash('k'), '{chat}')",
            ana,
        ),
        (
            "insert into api_key (created_by, name, hash, scopes) values (%s, 'x', _mindful.key_hash('k'), '{chat}')",
            ana,
        ),
        ("update api_key set tenant = %s", ana),
        ("select hash from api_key where tenant = %s", bob),
    ):
        with fails("42501", hint=None):
            bob.execute(statement.encode(), (tenant.info.user,))
