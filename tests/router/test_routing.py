"""A call runs on its tenant's partition, as its tenant, and a wrong map or role is refused."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support import one
from support.routed import Routed, refused, remember


def test_each_tenant_of_an_application_is_on_its_own_partition(routed: Routed) -> None:
    application = routed.connect("application")
    for number in (0, 1):
        for tenant in routed.tenants(number, 2):
            remember(application, tenant, f"I am {tenant}.")
            direct = routed.partition(number)
            assert direct.execute(
                "select content from mindful.memory where tenant = %s", (tenant,)
            ).fetchall() == [(f"I am {tenant}.",)]
            with application.transaction():
                application.execute("select tenant_set(%s)", (tenant,))
                assert application.execute("select content from memory_recall('who')").fetchall() == [
                    (f"I am {tenant}.",)
                ]
                assert application.execute("select content from memory").fetchall() == [(f"I am {tenant}.",)]


@pytest.mark.parametrize(
    "tenant",
    ["a'; select pg_sleep(9) --", "x\\' || current_user || '", '"; reset role; "', "$1", "a b=c host=evil"],
)
def test_a_tenants_name_is_data(routed: Routed, tenant: str) -> None:
    application = routed.connect("application")
    remember(application, tenant, "I like tea.")
    number = one(routed.connect(), "select number from partition_find(%s)", tenant)
    assert (
        one(routed.partition(number), "select tenant from mindful.memory where tenant = %s", tenant) == tenant
    )


def test_the_tenant_does_not_outlive_its_transaction(routed: Routed) -> None:
    application = routed.connect("application")
    remember(application, "customer-1", "I like tea.")
    assert application.execute("select content from memory_recall('tea')").fetchall() == []
    with refused("55000", "no tenant is set"):
        application.execute("select memory_insert('I like rye.')")


def test_a_user_may_not_act_for_others(routed: Routed) -> None:
    ana = routed.connect("ana")
    with refused("42501", ""):
        ana.execute("select tenant_set('customer-1')")
    ana.execute("set mindful.tenant = 'customer-1'")
    ana.execute("select memory_insert('I am Ana.')")
    assert one(ana, "select tenant from partition_find() f, memory m limit 1") == routed.roles["ana"]


def test_a_mapping_to_another_role_is_refused(routed: Routed) -> None:
    router = routed.connect()
    ana, bob = routed.roles["ana"], routed.roles["bob"]
    router.execute(f"alter user mapping for {ana} server mindful options (set user '{bob}')".encode())
    try:
        with refused("42501", f"for the tenant {ana} as the role {bob}"):
            routed.connect("ana").execute("select memory_insert('I am Ana.')")
    finally:
        router.execute("select _mindful.role_map(%s, null)", (ana,))


def test_a_role_without_a_mapping_is_named(routed: Routed) -> None:
    router = routed.connect()
    router.execute(f"drop user mapping for {routed.roles['bob']} server mindful".encode())
    try:
        with refused("28000", f"role {routed.roles['bob']} has no user mapping") as caught:
            routed.connect("bob").execute("select memory_insert('I am Bob.')")
        assert "mindful partition role" in str(caught.value.diag.message_hint)
    finally:
        router.execute("select _mindful.role_map(%s, null)", (routed.roles["bob"],))


def test_a_stranger_may_call_nothing(routed: Routed) -> None:
    with refused("42501", ""):
        routed.connect("stranger").execute("select mindful.memory_insert('x')")


def test_an_error_is_the_partitions_own(routed: Routed) -> None:
    routed_error, direct_error = (
        failure(connection, "select memory_recall('tea', k => 0)")
        for connection in (routed.connect("ana"), routed.partition(0, "ana"))
    )
    assert routed_error == direct_error
    assert routed_error[0] == "22023"


def failure(connection: psycopg.Connection, statement: str) -> tuple[str | None, ...]:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    diag = caught.value.diag
    return diag.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint


def test_a_call_through_the_router_is_cancelled_on_the_partition(routed: Routed) -> None:
    ana = routed.connect("ana")
    ana.execute("set statement_timeout = '700ms'")
    with refused("57014", ""):
        ana.execute("select llm_generate('Tell me a long story.', max_tokens => 2000)")
    number = one(ana, "select number from partition_find()")
    assert (
        one(
            routed.partition(number),
            "select count(*) from pg_stat_activity where datname = current_database() and state = 'active'",
        )
        == 1
    )


def test_functions_on_objects_of_the_partition_say_where_it_is(routed: Routed) -> None:
    ana = routed.connect("ana")
    for call in ("select memory_detach('pg_class')", "call worker_run()"):
        if call.startswith("call"):
            ana = routed.connect()
        with refused("0A000", "cannot be routed") as caught:
            ana.execute(call.encode())
        assert "database " + routed.prefix in str(caught.value.diag.message_hint)


def test_a_key_leads_to_its_tenants_partition(routed: Routed) -> None:
    application = routed.connect("application")
    for number in (0, 1):
        (tenant,) = routed.tenants(number)
        made = one(routed.connect("admin"), "select key_create('phone', tenant => %s)", tenant)
        assert one(application, "select tenant from key_use(%s)", made) == tenant
        late = one(routed.partition(number, "admin"), "select key_create('late', tenant => %s)", tenant)
        assert one(application, "select tenant from key_use(%s)", late) == tenant
    with refused("28000", "the key is unknown"):
        application.execute("select * from key_use('mk_x')")


def test_a_pinned_tenant_is_on_the_chosen_partition(routed: Routed) -> None:
    from mindful_client.partition import change

    (tenant,) = routed.tenants(0)
    pinned = f"{tenant}-pinned"
    usual = one(routed.connect(), "select number from partition_find(%s)", pinned)
    change.pin(routed.servers, pinned, 1 - usual)
    remember(routed.connect("application"), pinned, "I am pinned.")
    assert (
        one(routed.partition(1 - usual), "select count(*) from mindful.memory where tenant = %s", pinned) == 1
    )
    with pytest.raises(Exception, match="has rows on partition"):
        change.pin(routed.servers, pinned, usual)


def test_a_role_reads_the_pin_of_its_own_tenant_only(routed: Routed) -> None:
    pinned = ("pinned-1", "pinned-2", routed.roles["bob"])
    for tenant in pinned:
        usual = one(routed.connect(), "select _mindful.partition_of(%s)", tenant)
        routed.connect().execute("insert into mindful.partition_pin values (%s, %s)", (tenant, 1 - usual))
    listed = "select array_agg(tenant) from mindful.partition_pin"
    found = "select number from partition_find(%s)"
    try:
        for role in ("ana", "admin", "reader", "application"):
            assert one(routed.connect(role), listed) is None, role
        assert one(routed.connect("bob"), listed) == [routed.roles["bob"]]
        application = routed.connect("application")
        with application.transaction():
            application.execute("select tenant_set('pinned-1')")
            assert one(application, listed) == ["pinned-1"]
            assert one(application, "select number from partition_find()") == one(
                routed.connect(), found, "pinned-1"
            )
        for role in ("admin", "application"):
            assert one(routed.connect(role), found, "pinned-2") == one(routed.connect(), found, "pinned-2")
        with refused("42501", "cannot find the partition of the tenant 'pinned-2'"):
            one(routed.connect("ana"), found, "pinned-2")
        for table in ("partition", "partition_map"):
            with refused("42501", "permission denied"):
                routed.connect("ana").execute(f"select * from mindful.{table}".encode())
    finally:
        routed.connect().execute("delete from mindful.partition_pin where tenant = any (%s)", (list(pinned),))


def test_every_table_of_the_router_with_tenants_has_row_level_security(routed: Routed) -> None:
    read = (
        routed.connect()
        .execute(
            """select c.relname, c.relrowsecurity and c.relforcerowsecurity
           from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
           where c.relnamespace in ('mindful'::regnamespace, '_mindful'::regnamespace) and c.relkind = 'r'
               and has_any_column_privilege('mindful_user', c.oid, 'select')"""
        )
        .fetchall()
    )
    assert read == [("partition_pin", True)]


def test_a_setting_takes_numbers_and_texts_through_the_router(routed: Routed) -> None:
    ana = routed.connect("ana")
    for key, given, stored in (
        ("chat_memories", "5", 5),
        ("chat_clarify", "true", True),
        ("answer_length", "'short'", "short"),
        ("user_name", "'\"Ana\"'::jsonb", "Ana"),
        ("user_name", "null", None),
    ):
        assert one(ana, f"select setting_set('{key}', {given})") == stored
    ana.execute("select setting_reset()")


def test_another_version_of_the_extension_is_refused_by_name(own: Routed) -> None:
    partition = own.partition(0)
    partition.execute("update pg_extension set extversion = '9.9.9' where extname = 'mindful'")
    (tenant,), (other,) = own.tenants(0), own.tenants(1)
    application = own.connect("application")
    with refused("0A000", "partition 0 has version 9.9.9"):
        remember(application, tenant, "x")
    remember(application, other, "x")


def test_a_router_with_another_map_is_refused(own: Routed) -> None:
    (tenant,) = own.tenants(0)
    with own.cluster.database() as name, own.cluster.connect(name) as second:
        second.execute("set client_min_messages = warning")
        second.execute("create extension mindful_router cascade")
        second.execute("insert into mindful.partition_map select true, gen_random_uuid(), 0, 2")
        copy_map(own, second, swapped=False)
        second.execute("select _mindful.role_map(%s, null)", (own.roles["application"],))
        with own.cluster.connect(name, own.roles["application"]) as application:
            with refused("55000", "belongs to the map"):
                remember(application, tenant, "x")
            second.execute("update mindful.partition_map set id = %s, version = 0", (own.atlas.id,))
            copy_map(own, second, swapped=True)
            with refused("40001", "partition 0 is not in the database"):
                remember(application, tenant, "x")
            second.execute("update mindful.partition_map set version = 7")
            copy_map(own, second, swapped=False)
            with refused("40001", "version 8 of the place of partition 0"):
                remember(application, tenant, "x")
            second.execute("update mindful.partition_map set version = %s", (own.atlas.version - 1,))
            copy_map(own, second, swapped=False)
            remember(application, tenant, "x")
    assert one(own.partition(0), "select count(*) from mindful.memory") == 1


def copy_map(own: Routed, second: psycopg.Connection, *, swapped: bool) -> None:
    from dataclasses import replace

    from mindful_client.partition.atlas import write

    places = own.atlas.places
    if swapped:
        places = tuple(replace(one, number=1 - one.number) for one in places)
    write(second, places)


def test_the_router_needs_the_password_of_the_partition(routed: Routed) -> None:
    assert "password" not in make_conninfo(routed.servers.of(routed.atlas.place(0)))
    ana = routed.connect("ana")
    assert (
        ana.execute(
            "select umoptions from pg_user_mappings where umoptions is not null and usename <> current_user"
        ).fetchall()
        == []
    )


def test_aggregates_run_on_the_partition(routed: Routed) -> None:
    ana = routed.connect("ana")
    direct = routed.partition(one(ana, "select number from partition_find()"), "ana")
    texts = "(values (2, 'Rye is fine.'), (1, null), (3, 'Tea is good.')) v (n, content)"
    for call in ("llm_summarize(content order by n)", "llm_aggregate(content, 'What is good?' order by n)"):
        statement = f"select {call} from {texts}".encode()
        assert ana.execute(statement).fetchall() == direct.execute(statement).fetchall()
    assert one(ana, "select llm_summarize(content) from (values ('x')) v (content) where false") is None


def test_a_read_only_transaction_writes_nothing_on_the_partition(routed: Routed) -> None:
    ana = routed.connect("ana")
    with ana.transaction():
        ana.execute("set transaction read only")
        with refused("25006", "the transaction is read-only"), ana.transaction():
            ana.execute("select memory_insert('I like tea.')")
        ana.execute("select memory_recall('tea')")


def test_documents_are_listed_through_the_router(routed: Routed) -> None:
    ana = routed.connect("ana")
    ana.execute("select document_insert('# Tea' || chr(10) || 'Tea is good.', 'tea.md')")
    assert ana.execute("select source from document_list('tea.md')").fetchall() == [("tea.md",)]
