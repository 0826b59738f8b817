"""Attacks, one a function: each says what an attacker must not get, and is named after the way he tries.

Those that hold stay as a guard; those that fail are findings.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Cluster, Connect, fails

EMBEDDINGS = "memory_embedding_all_minilm_l6_v2"
SECRET = "The safe opens with 4711."


@pytest.fixture
def victim(ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, with a secret."""
    ana.execute("select memory_insert(%s)", (SECRET,))
    return ana


@pytest.fixture
def team(db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection) -> Iterator[None]:
    """A schema that ana and bob share."""
    db.execute("create schema team")
    db.execute(f'grant create, usage on schema team to "{ana.info.user}", "{bob.info.user}"')
    yield
    db.execute("drop schema team cascade")


def value(connection: psycopg.Connection, query: str, *arguments: object) -> object:
    """First column of the first row."""
    row = connection.execute(query, arguments).fetchone()
    assert row is not None
    return row[0]


# A model's memory.


@pytest.mark.skipif("MINDFUL_TEST_CRASH" not in os.environ, reason="ends every connection of the cluster")
@pytest.mark.parametrize("between", ["select model_unload()", "select llm_generate('x', max_tokens => 1)"])
def test_model_unloaded_under_an_open_stream(
    bob: psycopg.Connection, admin: psycopg.Connection, between: str
) -> None:
    with bob.transaction():
        bob.execute("declare c cursor for select llm_stream('Tell me a long story', max_tokens => 8)")
        bob.execute("fetch 1 c")
        admin.execute("""update model set options = '{"context_length": 1024}' where kind = 'generator'""")
        bob.execute(between)
        with contextlib.suppress(psycopg.Error):  # an error that says so is fine
            bob.execute("fetch all c")
        assert not bob.broken, "the server crashed"
        raise psycopg.Rollback


@pytest.mark.skipif("MINDFUL_TEST_CRASH" not in os.environ, reason="ends every connection of the cluster")
def test_model_unloaded_in_the_query_that_streams(bob: psycopg.Connection) -> None:
    with contextlib.suppress(psycopg.Error):
        bob.execute("select llm_stream('Tell me a long story', max_tokens => 8), model_unload()")
    assert not bob.broken, "the server crashed"


def test_cached_tokens_tell_what_another_role_asked(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    guesses = ("My PIN is 0000", "My PIN is 4711")
    cached = []
    for guess in guesses:
        db.execute(f'set role "{ana.info.user}"')
        db.execute("select llm_generate('My PIN is 4711, and my doctor is Dr. Meyer', max_tokens => 1)")
        db.execute(f'set role "{bob.info.user}"')
        cached.append(value(db, "select cached_tokens from llm_generate_detail(%s, max_tokens => 1)", guess))
    assert cached[0] == cached[1]


def test_cached_tokens_tell_what_another_tenant_asked(connect: Connect) -> None:
    application = connect("application")
    cached = []
    for guess in ("My PIN is 0000", "My PIN is 4711"):
        application.execute("set mindful.tenant = 'customer-1'")
        application.execute("select llm_generate('My PIN is 4711, and I live in Bern', max_tokens => 1)")
        application.execute("set mindful.tenant = 'customer-2'")
        cached.append(
            value(application, "select cached_tokens from llm_generate_detail(%s, max_tokens => 1)", guess)
        )
    assert cached[0] == cached[1]


def test_cached_tokens_tell_what_an_open_stream_was_asked(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """A stream that goes on after the role has changed fills the cache with its own prompt again."""
    cached = []
    with db.transaction():
        db.execute(f'set local role "{ana.info.user}"')
        db.execute(
            "declare c cursor for select llm_stream('My PIN is 4711, tell me a long story', max_tokens => 20)"
        )
        db.execute("fetch 1 c")
        db.execute(f'set local role "{bob.info.user}"')
        db.execute("select llm_generate('x', max_tokens => 1)")
        for guess in ("My PIN is 0000", "My PIN is 4711"):
            db.execute("fetch 1 c")
            cached.append(
                value(db, "select cached_tokens from llm_generate_detail(%s, max_tokens => 1)", guess)
            )
    assert cached[0] == cached[1]


def test_cached_tokens_tell_the_system_prompt_of_a_definers_function(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    db.execute(f'create schema helper authorization "{ana.info.user}"')
    ana.execute(
        """create function helper.ask(question text) returns text language sql security definer
           set search_path = mindful, pg_catalog begin atomic
           select llm_generate(question, system_prompt => 'The code is tango-seven.', max_tokens => 1); end"""
    )
    ana.execute("grant usage on schema helper to public")
    cached = []
    for guess in ("The code is alpha-one.", "The code is tango-seven."):
        bob.execute("select helper.ask('Hello')")
        cached.append(
            value(
                bob,
                "select cached_tokens from llm_generate_detail('x', system_prompt => %s, max_tokens => 1)",
                guess,
            )
        )
    assert cached[0] == cached[1]


def test_system_prompt_of_any_length(bob: psycopg.Connection) -> None:
    bob.execute("select llm_token_count('x')")
    bob.execute("set statement_timeout = '200ms'")
    started = time.perf_counter()
    with pytest.raises(psycopg.Error):
        bob.execute("select llm_generate('x', system_prompt => repeat('a b ', 2000000))")
    assert time.perf_counter() - started < 1.5


def test_cancel_while_a_long_prompt_is_tokenized(bob: psycopg.Connection) -> None:
    bob.execute("select llm_token_count('x')")
    bob.execute("set statement_timeout = '100ms'")
    started = time.perf_counter()
    with pytest.raises(psycopg.Error):
        bob.execute("select llm_token_count(repeat(' ', 1048576))")
    assert time.perf_counter() - started < 1


def test_arrays_of_two_dimensions(bob: psycopg.Connection) -> None:
    with fails("22023"):
        bob.execute("select llm_embed_many(array[['a', 'b'], ['c', 'd']])")
    with fails("22023"):
        bob.execute("select llm_generate('x', model => %s, stop => array[['a', 'b']])", (SCRIPTED_GENERATOR,))


@pytest.mark.parametrize("temperature", ["1e-45", "1e-38", "nan", "infinity"])
def test_temperature_at_the_edge_of_numbers(bob: psycopg.Connection, temperature: str) -> None:
    with contextlib.suppress(psycopg.errors.InvalidParameterValue):
        bob.execute("select llm_generate('x', temperature => %s, max_tokens => 2)", (temperature,))


def test_control_tokens_in_a_users_words(bob: psycopg.Connection) -> None:
    assert value(bob, "select llm_token_count('<|im_end|>')") != 1


# Another tenant's rows.


def test_a_view_of_a_user_who_reads_seen_as_reader(
    db: psycopg.Connection, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    db.execute(f'grant mindful_reader to "{bob.info.user}"')
    try:
        bob.execute("create temp view loot as select tenant, content from mindful.memory")
        bob.execute("grant select on loot to mindful_reader")
        bob.execute("set role mindful_reader")
        assert bob.execute("select * from pg_temp.loot").fetchall() == []
    finally:
        db.execute(f'revoke mindful_reader from "{bob.info.user}"')


def test_a_reader_who_reads_all_data(
    db: psycopg.Connection, victim: psycopg.Connection, reader: psycopg.Connection
) -> None:
    db.execute(f'grant pg_read_all_data to "{reader.info.user}"')
    try:
        assert reader.execute("select content from mindful.memory").fetchall() == []
    finally:
        db.execute(f'revoke pg_read_all_data from "{reader.info.user}"')


def test_words_in_what_readers_see(ana: psycopg.Connection, reader: psycopg.Connection) -> None:
    ana.execute("select memory_insert('x', source => 'Diary: I quit my job')")
    ana.execute("select llm_generate('My PIN is 4711', model => %s)", (SCRIPTED_GENERATOR,))
    for statement in (
        "select source from mindful.memory",
        "select prompt_sha256 from mindful.generation",
        "select token_logprobs from mindful.generation",
    ):
        with fails("42501", hint=None):
            reader.execute(statement)


def test_usage_put_to_anothers_account(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    with fails("42501", hint=None):
        bob.execute(
            """insert into generation (model, model_sha256, temperature, max_tokens, prompt_sha256, prompt_tokens,
                   cached_tokens, completion_tokens, finish_reason, total_ms, confidence, signals, token_logprobs, role)
               values ('x', '', 0, 1, '', 2000000000, 0, 0, 'stop', 1, 1, '{}', '{}', %s)""",
            (ana.info.user,),
        )


def test_who_else_remembers_this_text_by_a_planted_vector(
    victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """The index of vectors holds all tenants': what the search of bob finds depends on who else is near."""
    for setting in (
        "enable_seqscan = off",
        "enable_sort = off",
        "enable_bitmapscan = off",
        "hnsw.iterative_scan = off",
        "hnsw.ef_search = 1",
    ):
        bob.execute(f"set {setting}")
    found = {}
    for guess in (SECRET, "The bicycle is in the cellar."):
        probe = value(bob, "select llm_embed(%s)::text", guess)
        planted = value(bob, "select memory_insert(%s)", f"decoy {guess}")
        near = value(bob, "select (%s::vector::real[])[1] + 0.01", probe)
        bob.execute(f"delete from {EMBEDDINGS} where id = %s", (planted,))
        bob.execute(
            f"""insert into {EMBEDDINGS} (id, embedding, content_hash)
                values (%s, (%s::real || (%s::vector::real[])[2:])::vector, '')""",
            (planted, near, probe),
        )
        nearest = f"select id from {EMBEDDINGS} order by embedding <=> %s::vector limit 1"
        found[guess] = len(bob.execute(nearest, (probe,)).fetchall())
    assert len(set(found.values())) == 1, found


def test_who_else_remembers_this_text_by_explain(victim: psycopg.Connection, bob: psycopg.Connection) -> None:
    bob.execute("set enable_seqscan = off")
    bob.execute("set enable_sort = off")
    bob.execute("set enable_bitmapscan = off")
    bob.execute("select memory_insert('The bicycle is in the cellar.')")
    plan = bob.execute(
        f"""explain (analyze, costs off, timing off, summary off)
            select id from {EMBEDDINGS} order by embedding <=> (select llm_embed(%s)) limit 1""",
        (SECRET,),
    ).fetchall()
    assert "Rows Removed by Filter" not in str(plan)


def test_words_of_others_by_the_planners_estimates(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    ana.execute(
        """select memory_insert_many(jsonb_agg(jsonb_build_object('content', 'layoff ' || i)))
           from generate_series(1, 40) i"""
    )
    bob.execute("select memory_insert('x')")
    db.execute("analyze memory_term")
    estimates = {
        str(value(bob, f"explain select from memory_term where lexeme = '{lexeme}'")).split("rows=")[1]
        for lexeme in ("layoff", "picnic")
    }
    assert len(estimates) == 1


def test_leaky_function_in_a_where_clause(
    db: psycopg.Connection, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    victim.execute("select session_start(title => 'private')")
    notices: list[str] = []
    bob.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    bob.execute(
        """create function pg_temp.leak(value text) returns boolean language plpgsql cost 0.0000001
           as $$ begin raise notice 'LEAK %', value; return true; end $$"""
    )
    for table, column in (
        ("memory", "content"),
        ("memory_term", "lexeme"),
        ("session", "title"),
        ("attachment", "content"),
        ("generation", "prompt_sha256"),
        ("conversation", "content"),
        ("memory_overview", "kind"),
    ):
        bob.execute(f"select from {table} where pg_temp.leak({column}::text)")
    assert notices == []


def test_other_doors_to_anothers_rows(victim: psycopg.Connection, bob: psycopg.Connection) -> None:
    tenant = victim.info.user
    for statement in (
        "truncate memory",
        "copy memory (content) from stdin",
        "select * from pg_statistic",
        "select last_value from memory_id_seq",
        "select setval('memory_id_seq', 1)",
        f"insert into memory (tenant, id, content) overriding system value values ('{tenant}', 1, 'x')"
        " on conflict do nothing",
        f"insert into memory (tenant, id, content) overriding system value values ('{tenant}', 1, 'x')"
        " on conflict (tenant, id) do update set content = 'x'",
        f"update memory set tenant = '{tenant}' where content = 'mine'",
        "create index on memory (content)",
        "create table pg_temp.kid () inherits (memory)",
        "create trigger t after insert on memory for each statement execute function _memory_embed()",
        "create statistics pg_temp.s on kind, role from memory",
        "select _embedding_table_create('x', 1)",
        "update model set granted_to = '{}'",
    ):
        bob.execute("select memory_insert('mine')")
        with pytest.raises(psycopg.Error):
            bob.execute(statement)
    bob.execute("set row_security = off")
    with fails("42501", hint=None):
        bob.execute("select * from memory")
    with fails("42501", hint=None):
        bob.execute("insert into memory (content) values ('x')")
    assert victim.execute("select content from memory").fetchall() == [(SECRET,)]


def test_review_of_anothers_answer(
    victim: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    message = value(
        victim, "select message_id from llm_chat_detail('safe?', model => %s)", SCRIPTED_GENERATOR
    )
    with fails("42704"):
        bob.execute("select self_review(%s, %s)", (message, SCRIPTED_GENERATOR))
    with fails("23503", hint=None):
        bob.execute(
            """insert into review (message_id, reviewer, prompt_version, score, verdict, signals, total_ms)
               values (%s, 'x', 1, 1, 'supported', '{}', 1)""",
            (message,),
        )


def test_metadata_that_breaks_a_view(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    ana.execute(
        """select message_insert(session_start(), 'user', 'x', '{"confidence": "none of your business"}')"""
    )
    assert db.execute("select confidence from mindful.conversation").fetchall() == [(None,)]


def test_trigger_functions_on_a_table_of_ones_own(
    db: psycopg.Connection, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Plans that this connection keeps must not be spoilt for the next role that has it."""
    db.execute(f'create schema own authorization "{bob.info.user}"')
    db.execute(f'set role "{bob.info.user}"')
    db.execute("create table own.fake (content_hash text, content text, id bigint, tenant text)")
    for event, function in (("a", "_memory_embed"), ("b", "_memory_index")):
        db.execute(
            f"create trigger {event} after insert on own.fake referencing new table as new_rows"
            f" for each statement execute function mindful.{function}()"
        )
    with fails("42501", hint=None):
        db.execute("insert into own.fake values ('', 'x', 1, %s)", (victim.info.user,))
    db.execute(f'set role "{victim.info.user}"')
    assert value(db, "select memory_insert('still works')") is not None
    db.execute("reset role")


def test_prompts_in_errors(bob: psycopg.Connection) -> None:
    secret = "SECRETMARK"
    for statement, argument in (
        ("select llm_generate(%s)", secret * 4000),
        ("select llm_generate(%s, max_tokens => 0)", secret),
        ("select llm_chat(%s)", secret * 8000),
        ("select memory_insert(%s)", secret * 40000),
        ("select memory_insert(%s, 'bad')", secret),
        ("select message_insert(session_start(), 'boss', %s)", secret),
        ("insert into memory (kind, content) values ('message', %s)", secret),
        (
            "insert into memory (content, source, source_key) select %s, 'a', 'b' from generate_series(1, 2)",
            secret,
        ),
        ("select memory_recall(%s, 0)", secret),
        ("select llm_embed(%s, 'nope')", secret),
    ):
        with pytest.raises(psycopg.Error) as caught:
            bob.execute(statement, (argument,))
        found = caught.value.diag
        for part in (found.message_primary, found.message_detail, found.message_hint, found.context):
            assert secret not in (part or ""), statement


# Attached tables.


def test_operator_in_a_shared_schema_runs_as_who_attached(
    team: None, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    victim.execute("create table team.ticket (id int primary key, subject varchar(50), body varchar(200))")
    victim.execute(f'grant insert on team.ticket to "{bob.info.user}"')
    victim.execute("select memory_attach('team.ticket', 'subject || body')")
    bob.execute("create table team.loot (who text, what text)")
    bob.execute("grant all on team.loot to public")
    bob.execute(
        """create function team.steal(varchar, varchar) returns text language plpgsql as $$
           begin insert into team.loot select current_user, content from mindful.memory; return ''; end $$"""
    )
    bob.execute("create operator team.|| (leftarg = varchar, rightarg = varchar, function = team.steal)")
    bob.execute("insert into team.ticket values (1, 'a', 'b')")
    assert bob.execute("select * from team.loot").fetchall() == []


def test_a_superuser_who_attaches_a_users_table(db: psycopg.Connection, bob: psycopg.Connection) -> None:
    """The owner of the table chooses what its values do when they become text."""
    db.execute(f'create schema own authorization "{bob.info.user}"')
    bob.execute("create table own.t (id int primary key, body text)")
    bob.execute("create table own.loot (who text)")
    try:
        db.execute("select memory_attach('own.t', 'body')")
    except psycopg.Error:
        return  # refused: fine
    bob.execute("create type own.trap as (x text)")
    bob.execute(
        """create function own.spring(own.trap) returns text language plpgsql as $$
           begin insert into own.loot values (current_user); return 'x'; end $$"""
    )
    bob.execute("create cast (own.trap as text) with function own.spring(own.trap)")
    try:
        bob.execute("alter table own.t alter body type own.trap using row(body)::own.trap")
        bob.execute("insert into own.t values (1, row('x'))")
    except psycopg.Error:
        pass
    assert bob.execute("select * from own.loot").fetchall() == []


def test_a_trigger_function_made_beforehand(
    team: None, db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Replacing a function leaves its owner as he is, and a superuser may replace anybody's."""
    trigger_function = """select p.proname, p.proowner::regrole::text
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where t.tgrelid = 'team.doc'::regclass and t.tgname = 'remember_inserted'"""
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute("select memory_attach('team.doc', 'body')")
    name = value(ana, trigger_function)
    ana.execute("select memory_detach('team.doc')")
    bob.execute(
        f'create function team."{name}"() returns trigger language plpgsql as $$ begin return null; end $$'
    )
    try:
        db.execute("select memory_attach('team.doc', 'body')")
    except psycopg.Error:
        return
    assert value(db, f"select owner from ({trigger_function}) f (name, owner)") == db.info.user


def test_a_function_of_the_triggers_name(team: None, ana: psycopg.Connection) -> None:
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute(
        "create function team.doc_remember() returns trigger language plpgsql as $$ begin return old; end $$"
    )
    try:
        ana.execute("select memory_attach('team.doc', 'body')")
    except psycopg.Error:
        return
    assert "return old" in str(
        value(ana, "select string_agg(prosrc, '') from pg_proc where proname = 'doc_remember'")
    )


def test_tables_whose_names_begin_alike(team: None, ana: psycopg.Connection) -> None:
    names = [f"team.{'a' * 50}_{end}" for end in "xy"]
    for name, column in zip(names, ("one", "two"), strict=True):
        ana.execute(f"create table {name} (id int primary key, {column} text)")
        ana.execute("select memory_attach(%s::regclass, %s)", (name, column))
    for name in names:
        ana.execute(f"insert into {name} values (1, 'text')")
    sources = ana.execute("select source from memory order by source").fetchall()
    assert sources == [(name,) for name in names]


def test_hostile_names_of_columns_and_tables(team: None, ana: psycopg.Connection) -> None:
    column = '"id$function$;select 1;select $function$"'
    table = """team."t %1$s '"" \\ x\""""
    ana.execute(f"create table {table} ({column} int primary key, body text)".replace("%", "%%"), ())
    ana.execute("select memory_attach(%s::regclass, 'body')", (table,))
    ana.execute(f"insert into {table} values (1, 'text')".replace("%", "%%"), ())
    assert ana.execute("select source_key, content from memory").fetchall() == [("1", "text")]
    assert value(ana, "select memory_detach(%s::regclass)", table) == 1


def test_primary_keys_that_read_alike(team: None, ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Bob may touch his own rows only, and must not overwrite or forget the memory of another."""
    ana.execute(
        "create table team.doc (a text, b text, owner name default current_user, body text, primary key (a, b))"
    )
    ana.execute("alter table team.doc enable row level security")
    ana.execute("create policy own on team.doc using (owner = current_user)")
    ana.execute(f'grant insert, select, delete on team.doc to "{bob.info.user}"')
    ana.execute("select memory_attach('team.doc', 'body')")
    ana.execute("insert into team.doc (a, b, body) values ('x,y', 'z', 'The price is 100.')")
    bob.execute("insert into team.doc (a, b, body) values ('x', 'y,z', 'The price is 1.')")
    bob.execute("delete from team.doc")
    assert ana.execute("select content from memory").fetchall() == [("The price is 100.",)]


@pytest.mark.parametrize("setting", ["timezone = 'Asia/Tokyo'", "datestyle = 'German'"])
def test_a_writers_settings_change_the_key(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection, setting: str
) -> None:
    ana.execute("create table team.doc (at timestamptz primary key, body text)")
    ana.execute(f'grant all on team.doc to "{bob.info.user}"')
    ana.execute("select memory_attach('team.doc', 'body')")
    ana.execute("insert into team.doc values ('2024-01-31 00:00+0', 'x')")
    bob.execute(f"set {setting}")
    bob.execute("delete from team.doc")
    assert value(ana, "select count(*) from memory") == 0


def test_a_writer_turns_the_triggers_off(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute(f'grant all on team.doc to "{bob.info.user}"')
    ana.execute("select memory_attach('team.doc', 'body')")
    ana.execute("insert into team.doc values (1, 'x')")
    bob.execute("set row_security = off")
    bob.execute("delete from team.doc")
    assert value(ana, "select count(*) from memory") == 0


def test_detaching_anothers_table(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection, roles: Mapping[str, str]
) -> None:
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute("select memory_attach('team.doc', 'body')")
    with fails("42704"):
        bob.execute("select memory_detach('team.doc')")
    bob.execute(
        """insert into attachment (relation, source, content, mode)
           values ('team.doc', 'team.doc', 'body', 'sync')"""
    )
    with fails("42501", hint=None):
        bob.execute("select memory_detach('team.doc')")
    with fails("42501", hint=None):
        bob.execute(
            "insert into attachment (tenant, relation, source, content, mode)"
            " values (%s, 'team.doc', 'x', 'body', 'sync')",
            (roles["ana"],),
        )
    ana.execute("insert into team.doc values (1, 'x')")
    assert value(ana, "select count(*) from memory") == 1


# Administrators, and the extension itself.


@pytest.mark.parametrize("dims", [1, 384])
def test_an_administrator_drops_everybodys_embeddings(
    db: psycopg.Connection, victim: psycopg.Connection, admin: psycopg.Connection, dims: int
) -> None:
    with contextlib.suppress(psycopg.Error):
        admin.execute("select mindful._embedding_table_create('all-minilm-l6-v2', %s)", (dims,))
    assert value(db, f"select count(*) from {EMBEDDINGS}") == 1


def test_an_administrator_overwrites_another_table(
    db: psycopg.Connection, victim: psycopg.Connection, admin: psycopg.Connection
) -> None:
    for name in ("'; drop table mindful.memory; --", '"; drop table mindful.memory; --', "x" * 100, "."):
        with contextlib.suppress(psycopg.Error):
            admin.execute("select mindful._embedding_table_create(%s, 3)", (name,))
        with pytest.raises(psycopg.Error):
            admin.execute(
                "select mindful.model_register(%s, 'embedder', 'scripted', '', '{\"dims\": 3}')", (name,)
            )
    assert value(db, "select count(*) from memory") == 1
    unguarded = db.execute(
        """select relname from pg_class where relnamespace = 'mindful'::regnamespace and relkind = 'r'
           and not (relrowsecurity and relforcerowsecurity)"""
    ).fetchall()
    assert unguarded == []


def test_an_administrators_deeply_nested_options(admin: psycopg.Connection) -> None:
    with fails("22023"):
        admin.execute(
            "select mindful.model_register('deep', 'embedder', 'scripted', '',"
            " ('{\"a\":' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb)"
        )


def test_an_administrator_asks_for_unreadable_files(admin: psycopg.Connection) -> None:
    for source in ("/nonexistent", "/root/.bashrc", "PG_VERSION", "/proc/self/environ", "/dev/zero"):
        with pytest.raises(psycopg.Error) as caught:
            admin.execute("select mindful.model_register('q', 'generator', 'llama_cpp', %s)", (source,))
        assert caught.value.sqlstate in {"58P01", "XX001"}, source


def test_a_schema_made_before_the_extension(cluster: Cluster, roles: Mapping[str, str]) -> None:
    """Its owner could place functions in it, where those of mindful would find them."""
    with cluster.database() as name, cluster.connect(name) as connection:
        connection.execute("set client_min_messages = warning")
        connection.execute(f'create schema mindful authorization "{roles["bob"]}"')
        with pytest.raises(psycopg.Error):
            connection.execute("create extension mindful cascade")
