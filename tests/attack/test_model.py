"""Attacks on models and what they hold, one a function."""

import contextlib

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Connect, fails, one
from support.clock import within


@pytest.mark.parametrize("between", ["select model_unload()", "select llm_generate('x', max_tokens => 1)"])
def test_model_unloaded_under_an_open_stream(
    bob: psycopg.Connection, admin: psycopg.Connection, between: str
) -> None:
    """Unloads a model while a stream of it is open."""
    with bob.transaction():
        bob.execute(
            "declare c cursor for select llm_generate_stream('Tell me a long story', max_tokens => 8)"
        )
        bob.execute("fetch 1 c")
        admin.execute("""update model set options = '{"context_length": 1024}' where kind = 'generator'""")
        bob.execute(between)
        with contextlib.suppress(psycopg.Error):  # an error that says so is fine
            bob.execute("fetch all c")
        assert not bob.broken, "the server crashed"
        raise psycopg.Rollback


def test_model_unloaded_in_the_query_that_streams(bob: psycopg.Connection) -> None:
    """Unloads a model in the query that streams it."""
    with contextlib.suppress(psycopg.Error):
        bob.execute("select llm_generate_stream('Tell me a long story', max_tokens => 8), model_unload()")
    assert not bob.broken, "the server crashed"


def test_cached_tokens_tell_what_another_role_asked(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Tells by cached tokens what another role asked in this connection."""
    guesses = ("My PIN is 0000", "My PIN is 4711")
    cached = []
    for guess in guesses:
        db.execute(f'set role "{ana.info.user}"')
        db.execute("select llm_generate('My PIN is 4711, and my doctor is Dr. Meyer', max_tokens => 1)")
        db.execute(f'set role "{bob.info.user}"')
        cached.append(one(db, "select cached_tokens from llm_generate_detail(%s, max_tokens => 1)", guess))
    assert cached[0] == cached[1]


def test_cached_tokens_tell_what_another_tenant_asked(connect: Connect) -> None:
    """Tells by cached tokens what another tenant asked in this connection."""
    application = connect("application")
    cached = []
    for guess in ("My PIN is 0000", "My PIN is 4711"):
        application.execute("set mindful.tenant = 'customer-1'")
        application.execute("select llm_generate('My PIN is 4711, and I live in Bern', max_tokens => 1)")
        application.execute("set mindful.tenant = 'customer-2'")
        cached.append(
            one(application, "select cached_tokens from llm_generate_detail(%s, max_tokens => 1)", guess)
        )
    assert cached[0] == cached[1]


def test_cached_tokens_tell_what_an_open_stream_was_asked(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Tells by cached tokens what an open stream of another role was asked.

    A stream that goes on after the role has changed fills the cache with its own prompt again.
    """
    cached = []
    with db.transaction():
        db.execute(f'set local role "{ana.info.user}"')
        db.execute(
            "declare c cursor for select llm_generate_stream('My PIN is 4711, tell me a long story', max_tokens => 20)"
        )
        db.execute("fetch 1 c")
        db.execute(f'set local role "{bob.info.user}"')
        db.execute("select llm_generate('x', max_tokens => 1)")
        for guess in ("My PIN is 0000", "My PIN is 4711"):
            db.execute("fetch 1 c")
            cached.append(
                one(db, "select cached_tokens from llm_generate_detail(%s, max_tokens => 1)", guess)
            )
    assert cached[0] == cached[1]


def test_cached_tokens_tell_the_system_prompt_of_a_definers_function(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Tells by cached tokens the system prompt of another role's function."""
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
            one(
                bob,
                "select cached_tokens from llm_generate_detail('x', system_prompt => %s, max_tokens => 1)",
                guess,
            )
        )
    assert cached[0] == cached[1]


def test_system_prompt_of_any_length(bob: psycopg.Connection) -> None:
    """Gives a system prompt of 8 MB."""
    bob.execute("select llm_token_count('x')")
    bob.execute("set statement_timeout = '200ms'")
    for _ in within(1.5):
        with pytest.raises(psycopg.Error):
            bob.execute("select llm_generate('x', system_prompt => repeat('a b ', 2000000))")


def test_cancel_while_a_long_prompt_is_tokenized(bob: psycopg.Connection) -> None:
    """Has a megabyte of spaces tokenized."""
    bob.execute("select llm_token_count('x')")
    bob.execute("set statement_timeout = '100ms'")
    for _ in within(1):
        with pytest.raises(psycopg.Error):
            bob.execute("select llm_token_count(repeat(' ', 1048576))")


def test_arrays_of_two_dimensions(bob: psycopg.Connection) -> None:
    """Gives arrays of two dimensions."""
    with fails("22023"):
        bob.execute("select llm_embed_many(array[['a', 'b'], ['c', 'd']])")
    with fails("22023"):
        bob.execute("select llm_generate('x', model => %s, stop => array[['a', 'b']])", (SCRIPTED_GENERATOR,))


@pytest.mark.parametrize("temperature", ["1e-45", "1e-38"])
def test_temperature_at_the_edge_of_numbers(bob: psycopg.Connection, temperature: str) -> None:
    """Gives temperatures at the edge of what a real holds."""
    answer = one(bob, "select llm_generate('x', temperature => %s, max_tokens => 2)", temperature)
    assert answer == one(bob, "select llm_generate('x', max_tokens => 2)")


@pytest.mark.parametrize("temperature", ["nan", "infinity", "-1e-45"])
def test_temperature_out_of_range(bob: psycopg.Connection, temperature: str) -> None:
    """Gives temperatures that are not between 0 and 10."""
    with fails("22023"):
        bob.execute("select llm_generate('x', temperature => %s, max_tokens => 2)", (temperature,))


def test_control_tokens_in_a_users_words(bob: psycopg.Connection) -> None:
    """Writes a chat template's control tokens into a text."""
    assert one(bob, "select llm_token_count('<|im_end|>')") != 1


@pytest.mark.parametrize("role", ["bob", "application", "reader"])
@pytest.mark.parametrize(
    "call",
    [
        "model_unregister('scripted')",
        "model_fallback_set('scripted', null)",
        "model_serve('smollm2-135m-instruct', 'http://127.0.0.1:1/v1')",
        "model_register('m', 'generator', 'os', '')",
    ],
)
def test_models_of_the_registry(connect: Connect, db: psycopg.Connection, role: str, call: str) -> None:
    """Registers or unregisters a model, names a Python module as a provider, or changes a model's fallback."""
    before = db.execute("select * from model order by name").fetchall()
    with fails("42501", hint=None):
        connect(role).execute(f"select {call}".encode())
    assert db.execute("select * from model order by name").fetchall() == before


def test_table_of_vectors_by_a_deletion_of_ones_own(bob: psycopg.Connection, db: psycopg.Connection) -> None:
    """Has the trigger that drops an embedder's vectors run on a table of one's own."""
    bob.execute("create temporary table mine (name text, kind text)")
    with fails("42501", hint=None):
        bob.execute(
            "create trigger t after delete on mine for each row execute function _mindful.model_deleted()"
        )
    assert one(db, "select to_regclass('mindful.memory_embedding_scripted_embedder') is not null") is True


def test_a_model_of_others_by_an_administrators_run(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Names a generator that it was not granted as its own default, for runs that an administrator starts."""
    admin.execute(
        "select model_register('private', 'generator', 'scripted', '', granted_to => array[%s])",
        (ana.info.user,),
    )
    for tenant in (ana, bob):
        tenant.execute(
            "insert into setting (tenant, scope, key, value)"
            " values (current_user, 'user', 'default_generator', '\"private\"')"
        )
        tenant.execute("select message_insert(session_start(), 'user', 'My dog Rex is a beagle.')")
        tenant.execute("select setting_set('consolidation_extractor', '\"model\"')")
    admin.execute("select consolidation_run(all_unread => true)")
    used: dict[str, list[str]] = dict(
        db.execute("select tenant, array_agg(distinct model) from generation group by tenant").fetchall()
    )
    assert used[ana.info.user] == ["private"]
    assert "private" not in used[bob.info.user]


def test_a_model_of_others_by_a_tenant_of_an_application(
    connect: Connect, admin: psycopg.Connection, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    """Names as an application's tenant a generator that no application was granted, for runs of the server."""
    application = connect("application")
    for name, role in (("private", ana), ("shop", application)):
        admin.execute(
            "select model_register(%s, 'generator', 'scripted', '', granted_to => array[%s])",
            (name, role.info.user),
        )
    found = []
    for name in ("private", "shop"):
        db.execute("set mindful.tenant = 'customer-7'")
        found.append(db.execute("select name from _mindful.model_find('generator', %s)", (name,)).fetchone())
    assert found == [None, ("shop",)]
