"""What a tenant's name gives: never the rows of a role of that name, and without one nothing."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from support import SCRIPTED_GENERATOR, Cluster, Connect, fails, one


@pytest.fixture
def application(connect: Connect) -> psycopg.Connection:
    """A server that serves many customers by one role."""
    return connect("application")


@pytest.fixture
def new_role(cluster: Cluster, db: psycopg.Connection) -> Iterator[str]:
    """The name of a role that is yet to be made."""
    name = cluster.create_role("customer")
    cluster.drop_role(name)
    yield name
    cluster.drop_role(name)


def name_tenant(connection: psycopg.Connection, tenant: str) -> None:
    connection.execute("select set_config('mindful.tenant', %s, false)", (tenant,))


def make_role(db: psycopg.Connection, name: str) -> None:
    db.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
    db.execute(sql.SQL("grant mindful_user to {}").format(sql.Identifier(name)))


def test_an_application_that_names_a_role(
    application: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Reads and writes another role's rows by an application that names the role as its tenant."""
    ana.execute("select memory_insert('The safe opens with 4711.')")
    for name in (ana.info.user, db.info.user, "mindful_admin", "pg_monitor", "pg_made_in_a_later_version"):
        name_tenant(application, name)
        for statement in (
            "select content from memory",
            "select * from memory_recall('safe')",
            "select memory_insert('planted')",
            "insert into memory (content) values ('planted')",
            "update memory set content = 'planted'",
            "insert into deletion (relation, keys) values ('memory', '[]')",
            """select setting_set('chat_tools', '"write"')""",
            "select session_start()",
            f"select llm_chat('Hello', model => '{SCRIPTED_GENERATOR}')",
        ):
            with fails("42501"):
                application.execute(statement)
    assert ana.execute("select content from memory").fetchall() == [("The safe opens with 4711.",)]


@pytest.mark.parametrize("spelling", ["{0} ", " {0}", '"{0}"', "{0}\n", "{1}"])
def test_a_name_that_looks_like_a_roles(
    application: psycopg.Connection, ana: psycopg.Connection, spelling: str
) -> None:
    """Reads another role's rows by spaces, quotes or letters of the other case in the name."""
    ana.execute("select memory_insert('The safe opens with 4711.')")
    name_tenant(application, spelling.format(ana.info.user, ana.info.user.upper()))
    assert application.execute("select content from memory").fetchall() == []


def test_every_way_to_set_the_tenant(
    application: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection, connect: Connect
) -> None:
    """Names another role by SET LOCAL, a function's SET clause, or the role's own settings."""
    ana.execute("select memory_insert('The safe opens with 4711.')")
    role, victim = sql.Identifier(application.info.user), sql.Literal(ana.info.user)
    application.execute("select set_config('mindful.tenant', '', false)")
    with fails("42501"), application.transaction():
        application.execute(sql.SQL("set local mindful.tenant = {}").format(victim))
        application.execute("select * from memory")
    peek = "create function pg_temp.peek() returns bigint language sql set mindful.tenant = {}"
    with fails("42501", hint=None):
        application.execute(sql.SQL(peek + " return 1").format(victim))
    application.execute(
        """create function pg_temp.peek(tenant text) returns bigint language plpgsql as $$
           begin
               perform set_config('mindful.tenant', tenant, true);
               return count(*) from mindful.memory;
           end $$"""
    )
    with fails("42501"):
        application.execute("select pg_temp.peek(%s)", (ana.info.user,))
    db.execute(sql.SQL("alter role {} set mindful.tenant = {}").format(role, victim))
    try:
        with fails("42501"):
            connect("application").execute("select * from memory")
    finally:
        db.execute(sql.SQL("alter role {} reset mindful.tenant").format(role))


def test_a_users_setting_moves_nothing(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Reads another role's rows as a plain user that sets mindful.tenant."""
    ana.execute("select memory_insert('The safe opens with 4711.')")
    name_tenant(bob, ana.info.user)
    assert bob.execute("select content from memory").fetchall() == []
    bob.execute("select memory_insert('Mine.')")
    assert bob.execute("select tenant from memory").fetchall() == [(bob.info.user,)]


def test_a_claim_that_another_transaction_takes_back(
    application: psycopg.Connection, connect: Connect, db: psycopg.Connection, new_role: str
) -> None:
    """Reads a customer's rows by a role of its name, after the transaction that claimed the name first rolled back."""
    other = connect("application")
    for connection in (application, other):
        name_tenant(connection, new_role)
    other.execute("begin")
    other.execute("select memory_insert('one')")
    application.execute("select memory_insert('The safe opens with 4711.')")
    other.execute("rollback")
    make_role(db, new_role)
    for statement in ("select content from memory", "select * from memory_recall('safe')"):
        with fails("42501"), db.transaction():
            db.execute(sql.SQL("set local role {}").format(sql.Identifier(new_role)))
            db.execute(statement.encode())


def test_a_role_made_with_a_customers_name(
    application: psycopg.Connection, db: psycopg.Connection, new_role: str
) -> None:
    """Reads a customer's rows by a role that is made, or renamed, to have the customer's name."""
    name_tenant(application, new_role)
    application.execute("select memory_insert('The safe opens with 4711.')")
    make_role(db, new_role)
    with fails("42501"):
        application.execute("select * from memory")
    db.execute(sql.SQL("set role {}").format(sql.Identifier(new_role)))
    for statement in ("select * from memory", "select memory_insert('planted')"):
        with fails("42501"):
            db.execute(statement)
    db.execute("reset role")


def test_a_customer_with_a_former_roles_name(
    application: psycopg.Connection, db: psycopg.Connection, new_role: str
) -> None:
    """Reads a former role's rows by an application that names the role after it was dropped or renamed."""
    make_role(db, new_role)
    db.execute(sql.SQL("set role {}").format(sql.Identifier(new_role)))
    db.execute("select memory_insert('The safe opens with 4711.')")
    db.execute("reset role")
    db.execute(sql.SQL("drop role {}").format(sql.Identifier(new_role)))
    name_tenant(application, new_role)
    for statement in ("select * from memory", "select memory_insert('planted')"):
        with fails("42501"):
            application.execute(statement)


def test_a_claim_of_anothers_name(
    application: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection, new_role: str
) -> None:
    """Locks a role or a customer out, or learns who is there, by the table of claimed names."""
    ana.execute("select memory_insert('x')")
    for tenant in (ana.info.user, new_role):
        for by_role in (True, False):
            with fails("42501", hint=None):
                bob.execute("insert into tenant_claim values (%s, %s)", (tenant, by_role))
    with fails("42501", hint=None):
        bob.execute("insert into tenant_claim values (current_user, false)")
    assert bob.execute("select * from tenant_claim").fetchall() == []
    for statement in ("update tenant_claim set by_role = false", "delete from tenant_claim"):
        with fails("42501", hint=None):
            ana.execute(statement)
    name_tenant(application, new_role)
    with fails("42501", hint=None):
        application.execute("insert into tenant_claim values (%s, true)", (new_role,))


def test_an_application_without_a_tenant(
    application: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Reads or writes any row as an application that has set no tenant."""
    ana.execute("select memory_insert('The safe opens with 4711.')")
    db.execute("select memory_insert('A superuser''s.')")
    for name in ("", None):
        if name is not None:
            name_tenant(application, name)
        assert one(application, "select _mindful.tenant()") is None
        for relation in one(
            db,
            """select array_agg(c.relname::text) from pg_class c
               where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('r', 'v')
                   and has_table_privilege('mindful_application', c.oid, 'select')
                   and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant')""",
        ):
            seen = application.execute(
                sql.SQL("select tenant from {} where tenant <> ''").format(sql.Identifier(relation))
            )
            assert seen.fetchall() == [], relation
        for statement in (
            "select memory_insert('x')",
            'select memory_insert_many(\'[{"content": "x"}]\')',
            "insert into memory (content) values ('x')",
            "select session_start()",
            "select setting_set('chat_memories', '2')",
            f"select llm_chat('Hello', model => '{SCRIPTED_GENERATOR}')",
            f"select llm_chat_stream('Hello', model => '{SCRIPTED_GENERATOR}')",
            f"select llm_generate('Hello', model => '{SCRIPTED_GENERATOR}')",
            "select document_insert('A document.', 'a')",
        ):
            with fails("55000"):
                application.execute(statement)
    assert db.execute("select count(*) from memory").fetchone() == (2,)


def test_a_write_without_a_tenant_into_any_table(
    application: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Writes into a table of tenants whose policy forgot to ask for one."""
    unguarded = db.execute(
        """select p.polrelid::regclass::text, p.polname from pg_policy p
           where p.polrelid::regclass::text not in ('mindful.tenant_claim', 'tenant_claim')
               and exists (select from pg_attribute a where a.attrelid = p.polrelid and a.attname = 'tenant')
               and p.polpermissive and p.polcmd in ('*', 'a', 'w')
               and p.polroles && array[0, 'mindful_user'::regrole::oid]
               and coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '')
                   !~ 'tenant_claimed\\(\\)|tenant = ''''::text'"""
    ).fetchall()
    assert unguarded == []


def test_a_role_in_both_groups_is_an_application(db: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Falls back to the role's own rows where a user is a member of mindful_application, directly or by a group."""
    bob.execute("select memory_insert('Mine.')")
    db.execute(sql.SQL("grant mindful_application to {}").format(sql.Identifier(bob.info.user)))
    try:
        assert bob.execute("select * from memory").fetchall() == []
        name_tenant(bob, "customer-7")
        assert bob.execute("select * from memory").fetchall() == []
        name_tenant(bob, bob.info.user)
        assert bob.execute("select content from memory").fetchall() == [("Mine.",)]
    finally:
        db.execute(sql.SQL("revoke mindful_application from {}").format(sql.Identifier(bob.info.user)))


def test_a_function_of_an_application_run_by_others(
    application: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Writes for its caller, a superuser even, by a SECURITY DEFINER function that an application owns."""
    db.execute("grant create on schema public to public")
    application.execute(
        """create function public.plant() returns bigint language plpgsql security definer as $$
           begin
               perform set_config('mindful.tenant', session_user, true);
               return mindful.memory_insert('planted');
           end $$"""
    )
    for connection in (ana, db):
        with fails("42501"):
            connection.execute("select public.plant()")
