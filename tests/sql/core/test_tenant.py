"""Tenants: an application names them, a role is one."""

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Connect, fails, one


@pytest.mark.smoke
def test_the_role_of_applications_is_enough(connect: Connect, db: psycopg.Connection) -> None:
    application = connect("application")
    application.execute("set mindful.tenant = 'customer-7'")
    application.execute("select memory_insert('The order is late.')")
    found = application.execute("select content from memory_recall('order')").fetchall()
    assert found == [("The order is late.",)]
    assert one(application, "select llm_token_count('one two', %s)", SCRIPTED_GENERATOR) == 2
    assert one(db, "select count(*) from tenant_claim where tenant = 'customer-7' and not by_role") == 1
    application.execute("select set_config('mindful.tenant', current_user, false)")
    application.execute("select memory_insert('My own.')")
    assert application.execute("select content from memory").fetchall() == [("My own.",)]
    with fails("42501", hint=None):
        application.execute("select model_register('x', 'generator', 'scripted', '')")


def test_a_tenant_is_set_for_the_transaction_alone(connect: Connect, ana: psycopg.Connection) -> None:
    application = connect("application")
    with application.transaction():
        assert one(application, "select tenant_set('customer-7')") == "customer-7"
        application.execute("select memory_insert('The order is late.')")
    assert one(application, "select _mindful.tenant()") is None
    with application.transaction():
        assert one(application, "select tenant_set('customer-7')") == "customer-7"
        assert one(application, "select count(*) from memory") == 1
        assert one(application, "select tenant_set(null)") is None
        assert one(application, "select count(*) from memory") == 0
    for connection, tenant in ((application, ana.info.user), (ana, "customer-7")):
        with fails("42501"):
            connection.execute("select tenant_set(%s)", (tenant,))
    assert one(ana, "select tenant_set(current_user)") == ana.info.user


def test_writes_of_an_application_go_to_the_tenant_of_their_transaction(connect: Connect) -> None:
    application = connect("application")
    for tenant in ("customer-7", "customer-8"):
        with application.transaction():
            application.execute("select tenant_set(%s)", (tenant,))
            application.execute("select llm_chat('Hello', model => %s)", (SCRIPTED_GENERATOR,))
            assert one(application, "select array_agg(distinct tenant) from memory") == [tenant]


def test_a_superuser_is_its_own_tenant_or_any(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    assert one(db, "select _mindful.tenant()") == db.info.user
    with db.transaction():
        assert one(db, "select tenant_set(%s)", ana.info.user) == ana.info.user
