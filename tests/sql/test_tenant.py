"""Tenants: an application names them, a role is one."""

import psycopg
from support import SCRIPTED_GENERATOR, Connect, fails, one


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
        application.execute("select model_default_set('x')")
