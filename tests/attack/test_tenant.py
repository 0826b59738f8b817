"""Attacks, one a function: each says what an attacker must not get, and is named after the way he tries.

Those that hold stay as a guard; those that fail are findings.
"""

import contextlib
from collections.abc import Mapping

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Cluster, fails, one

EMBEDDINGS = "memory_embedding_all_minilm_l6_v2"
SECRET = "The safe opens with 4711."


@pytest.fixture
def victim(ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, with a secret."""
    ana.execute("select memory_insert(%s)", (SECRET,))
    return ana


# Another tenant's rows.


def test_a_view_of_a_user_who_reads_seen_as_reader(
    db: psycopg.Connection, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Reads all texts by a view of its own, as user and reader."""
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
    """Reads memories with pg_read_all_data."""
    db.execute(f'grant pg_read_all_data to "{reader.info.user}"')
    try:
        assert reader.execute("select content from mindful.memory").fetchall() == []
    finally:
        db.execute(f'revoke pg_read_all_data from "{reader.info.user}"')


def test_words_in_what_readers_see(ana: psycopg.Connection, reader: psycopg.Connection) -> None:
    """Looks for words of others in what readers may see: sources, hashes, log-probabilities."""
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
    """Charges its own usage to another role."""
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
    """Tells by a planted vector whether another tenant remembers a text.

    The index of vectors holds all tenants': what the search of bob finds depends on who else is near.
    """
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
        probe = one(bob, "select llm_embed(%s)::text", guess)
        planted = one(bob, "select memory_insert(%s)", f"decoy {guess}")
        near = one(bob, "select (%s::vector::real[])[1] + 0.01", probe)
        bob.execute(
            f"""update {EMBEDDINGS} set embedding = (%s::real || (%s::vector::real[])[2:])::vector
                where id = %s""",
            (near, probe, planted),
        )
        nearest = f"select id from {EMBEDDINGS} order by embedding <=> %s::vector limit 1"
        found[guess] = len(bob.execute(nearest, (probe,)).fetchall())
    assert len(set(found.values())) == 1, found


def test_who_else_remembers_this_text_by_explain(victim: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Tells by EXPLAIN ANALYZE whether another tenant remembers a text."""
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
    """Tells by the planner's estimates which words another tenant uses."""
    ana.execute(
        """select memory_insert_many(jsonb_agg(jsonb_build_object('content', 'layoff ' || i)))
           from generate_series(1, 40) i"""
    )
    bob.execute("select memory_insert('x')")
    db.execute("analyze memory_term")
    estimates = {
        str(one(bob, f"explain select from memory_term where lexeme = '{lexeme}'")).split("rows=")[1]
        for lexeme in ("layoff", "picnic")
    }
    assert len(estimates) == 1


def test_leaky_function_in_a_where_clause(
    db: psycopg.Connection, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Has a cheap function in WHERE report the rows that policies hide."""
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
    """Goes for rows by TRUNCATE, COPY, statistics, sequences, upserts, inheritance, triggers and row_security."""
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
        "create trigger t after insert on memory for each statement execute function _mindful.memory_embed()",
        "create statistics pg_temp.s on kind, role from memory",
        "select _mindful.embedding_table_create('x', 1)",
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
    """Reviews the answer that another tenant got."""
    message = one(victim, "select message_id from llm_chat_detail('safe?', model => %s)", SCRIPTED_GENERATOR)
    with fails("42704"):
        bob.execute("select self_review(%s, %s)", (message, SCRIPTED_GENERATOR))
    with fails("23503", hint=None):
        bob.execute(
            """insert into review (message_id, reviewer, prompt_version, score, verdict, signals, total_ms)
               values (%s, 'x', 1, 1, 'supported', '{}', 1)""",
            (message,),
        )


def test_metadata_that_breaks_a_view(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    """Breaks a view for all by metadata of the wrong type."""
    ana.execute(
        """select message_insert(session_start(), 'user', 'x', '{"confidence": "none of your business"}')"""
    )
    assert db.execute("select confidence from mindful.conversation").fetchall() == [(None,)]


def test_trigger_functions_on_a_table_of_ones_own(
    db: psycopg.Connection, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Binds the extension's trigger functions to a table of its own.

    Plans that this connection keeps must not be spoilt for the next role that has it.
    """
    db.execute(f'create schema own authorization "{bob.info.user}"')
    db.execute(f'set role "{bob.info.user}"')
    db.execute("create table own.fake (content_hash text, content text, id bigint, tenant text)")
    for event, function in (("a", "_mindful.memory_embed"), ("b", "_mindful.memory_index")):
        with fails("42501", hint=None):
            db.execute(
                f"create trigger {event} after insert on own.fake referencing new table as new_rows"
                f" for each statement execute function {function}()"
            )
    db.execute(f'set role "{victim.info.user}"')
    assert one(db, "select memory_insert('still works')") is not None
    db.execute("reset role")


def test_prompts_in_errors(bob: psycopg.Connection) -> None:
    """Has errors repeat what was asked, where another role reads the log."""
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


# Administrators, and the extension itself.


@pytest.mark.parametrize("dims", [1, 384])
def test_an_administrator_drops_everybodys_embeddings(
    db: psycopg.Connection, victim: psycopg.Connection, admin: psycopg.Connection, dims: int
) -> None:
    """Makes the table of embeddings anew, so that all are lost."""
    with contextlib.suppress(psycopg.Error):
        admin.execute("select _mindful.embedding_table_create('all-minilm-l6-v2', %s)", (dims,))
    assert one(db, f"select count(*) from {EMBEDDINGS}") == 1


EMBEDDER_ENTERED = """insert into model (name, kind, provider, source, options, sha256, dims)
    values ('entered.by-hand', 'embedder', 'scripted', '', '{"dims": 3}', '', 3)"""


def test_an_administrator_enters_an_embedder_by_hand(
    victim: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Inserts an embedder into the registry's table, so that the status of all fails for want of a table."""
    admin.execute(EMBEDDER_ENTERED)
    assert one(victim, "select missing from embedding_status where model = 'entered.by-hand'") == 1
    for call in (
        "embedding_compare('vault')",
        "embedding_enqueue('entered.by-hand')",
        "memory_export()",
        "memory_recall('vault')",
        "mindful_status()",
        "embedding_run()",
    ):
        victim.execute(f"select count(*) from {call}".encode())
    assert one(victim, "select embedded from embedding_status where model = 'entered.by-hand'") == 1


def test_an_administrator_makes_tables_of_any_name(admin: psycopg.Connection) -> None:
    """Makes tables for embedders that are not registered, or with other dimensions than registered."""
    for name, dims in (("nothing", 3), (SCRIPTED_GENERATOR, 3), ("all-minilm-l6-v2", 7), (None, 3)):
        with fails("42704"):
            admin.execute("select _mindful.embedding_table_create(%s, %s)", (name, dims))


def test_an_administrator_overwrites_another_table(
    db: psycopg.Connection, victim: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Names a model so that its table is another one, or SQL."""
    for name in ("'; drop table mindful.memory; --", '"; drop table mindful.memory; --', "x" * 100, "."):
        with contextlib.suppress(psycopg.Error):
            admin.execute("select _mindful.embedding_table_create(%s, 3)", (name,))
        with pytest.raises(psycopg.Error):
            admin.execute(
                "select mindful.model_register(%s, 'embedder', 'scripted', '', '{\"dims\": 3}')", (name,)
            )
    assert one(db, "select count(*) from memory") == 1
    unguarded = db.execute(
        """select relname from pg_class where relnamespace = 'mindful'::regnamespace and relkind = 'r'
           and not (relrowsecurity and relforcerowsecurity)"""
    ).fetchall()
    assert unguarded == []


def test_an_administrators_deeply_nested_options(admin: psycopg.Connection) -> None:
    """Registers a model with options of 3,000 levels."""
    with fails("22023"):
        admin.execute(
            "select mindful.model_register('deep', 'embedder', 'scripted', '',"
            " ('{\"a\":' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb)"
        )


def test_an_administrator_asks_for_unreadable_files(admin: psycopg.Connection) -> None:
    """Tells by errors of registering which files are there: missing, unreadable, a directory, no model, a device."""
    answers = set()
    for source in (
        "/nonexistent",
        "/root/.bashrc",
        "/etc",
        "/etc/passwd",
        "/proc/self/environ",
        "/dev/zero",
        "PG_VERSION",
    ):
        for call, arguments in (
            ("model_register('q', 'generator', 'llama_cpp', %s)", (source,)),
            ("adapter_register('q', 'smollm2-135m-instruct', %s, granted_to => '{}')", (source,)),
            ("model_register('q', 'embedder', 'sentence_transformers', %s)", (source,)),
            ("model_register('q', 'generator', 'openai', 'unix:' || %s)", (source,)),
        ):
            with pytest.raises(psycopg.Error) as caught:
                admin.execute(f"select mindful.{call}", arguments)
            answers.add((caught.value.sqlstate, str(caught.value.diag.message_primary).replace(source, "")))
    assert answers == {
        ("58P01", 'mindful: there is no GGUF file "" that the server can read'),
        ("58P01", 'mindful: there is no model folder "" that the server can read'),
        ("08006", "mindful: there is no socket "),
        ("22023", "mindful: source is not the absolute path of a Unix socket of at most 107 bytes"),
    }


def test_a_schema_made_before_the_extension(
    cluster: Cluster, roles: Mapping[str, str], bob: psycopg.Connection
) -> None:
    """Owns the schema mindful before the extension is created.

    Its owner could place functions in it, where those of mindful would find them.
    """
    with cluster.database() as name, cluster.connect(name) as connection:
        connection.execute("set client_min_messages = warning")
        connection.execute(f'create schema mindful authorization "{roles["bob"]}"')
        with pytest.raises(psycopg.Error):
            connection.execute("create extension mindful cascade")
