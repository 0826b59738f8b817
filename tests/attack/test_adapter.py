"""Attacks on weights that were trained on another tenant's texts, one a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Cluster, Connect, fails, one
from support.training import enter_adapter, tell, train_stand_in

SHARE = "select setting_set('training_share', 'true')"


@pytest.fixture(scope="module")
def trained(cluster: Cluster, template: str, roles: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Name of a template database with Ana's training, whose adapter is `tuned`, and the training."""
    with cluster.database(template) as name:
        with cluster.connect(name) as db, cluster.connect(name, roles["ana"]) as ana:
            db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
            db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
            db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))
            tell(ana)
            training = train_stand_in(ana, db, "tuned", SCRIPTED_GENERATOR)
        yield name, training


@pytest.fixture
def chosen_template(trained: tuple[str, int]) -> str:
    """A training takes longer than copying a database that has it."""
    return trained[0]


@pytest.fixture
def training(trained: tuple[str, int], database: str) -> int:
    """Ana's training, in this test's database."""
    return trained[1]


@pytest.fixture
def shared(training: int, ana: psycopg.Connection, admin: psycopg.Connection) -> str:
    """Ana's adapter, which serves all users with her consent."""
    ana.execute(SHARE)
    admin.execute("select adapter_share('tuned', '{mindful_user}')")
    return "tuned"


def default(connection: psycopg.Connection) -> str:
    return str(one(connection, "select name from _mindful.model_find('generator', null)"))


CALLS: tuple[LiteralString, ...] = (
    "select llm_generate('Hi', 'tuned')",
    "select llm_generate_many('{Hi}', model => 'tuned')",
    "select llm_generate_stream('Hi', 'tuned')",
    "select llm_chat('Hi', model => 'tuned')",
    "select llm_classify('Hi', '{a,b}', model => 'tuned')",
    "select llm_if('Hi', 'it greets', model => 'tuned')",
    "select llm_extract('Hi', '{\"type\": \"object\"}', model => 'tuned')",
    "select llm_token_count('Hi', 'tuned')",
    "select calibrate('tuned', 0.1)",
    "select model_default_set('tuned', scope => 'user')",
    "select replay_run('tuned')",
    "select adapter_activate('tuned')",
    "select training_evaluate(1, 'tuned')",
)


def test_a_private_adapter_serves_no_other_tenant(
    training: int, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Calls another tenant's adapter by its name."""
    assert one(ana, "select llm_generate('Hi', 'tuned')") == "I am tuned."
    for call in CALLS:
        with fails("42704"):
            bob.execute(call)


def test_a_private_adapter_and_its_file_are_invisible(
    training: int, bob: psycopg.Connection, connect: Connect, reader: psycopg.Connection
) -> None:
    """Reads the name, file path or tenant of another tenant's adapter."""
    application = connect("application")
    application.execute("set mindful.tenant = 'stranger'")
    for stranger in (bob, application):
        for query in (
            "select count(*) from model where name = 'tuned' or source ^@ '/adapters/'",
            "select count(*) from model_tenant",
            "select count(*) from _mindful.model_find('generator', 'tuned')",
            "select count(*) from model where base is not null",
        ):
            assert one(stranger, query) == 0, query
        assert one(stranger, "select _mindful.model_consented('tuned')") is False
        for query in (
            "select * from _mindful.model_consents('tuned')",
            "select adapter_share('tuned', '{}')",
        ):
            with fails("42501", hint=None):
                stranger.execute(query.encode())
    with fails("42501", hint=None):
        reader.execute("select * from model")


def test_an_administrator_does_not_use_a_private_adapter(
    training: int, db: psycopg.Connection, roles: dict[str, str], connect: Connect
) -> None:
    """Generates as an administrator with a tenant's adapter, after granting it to all roles."""
    db.execute(f'grant mindful_admin to "{roles["bob"]}"')
    try:
        bob = connect("bob")
        bob.execute("update model set granted_to = '{mindful_user,mindful_admin}' where name = 'tuned'")
        for call in ("llm_generate('Hi', 'tuned')", "model_default_set('tuned', scope => 'user')"):
            with pytest.raises(psycopg.Error):
                bob.execute(f"select {call}".encode())
        for change in ("trained_on = 0", "withdrawn_at = null", "base = null", "sha256 = ''"):
            with fails("42501", hint=None):
                bob.execute(f"update model set {change} where name = 'tuned'".encode())
        with fails("42501", hint=None):
            bob.execute("update model_tenant set tenant = current_user")
    finally:
        db.execute(f'revoke mindful_admin from "{roles["bob"]}"')


def test_a_default_for_all_needs_the_consent_of_every_tenant_in_it(
    training: int,
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    admin: psycopg.Connection,
    db: psycopg.Connection,
) -> None:
    """Makes an adapter the default of all without the consent of the tenants whose texts are in it."""
    tell(bob)
    bob_training = train_stand_in(bob, db, "bobs", SCRIPTED_GENERATOR)
    both = enter_adapter(
        db,
        "both",
        SCRIPTED_GENERATOR,
        {ana.info.user: training, bob.info.user: bob_training},
        default="Both.",
    )
    names = sorted((ana.info.user, bob.info.user))
    ana.execute(SHARE)
    for statement in (
        "select model_default_set('both')",
        "select model_default_set('both', force => true)",
        "select adapter_share('both', '{mindful_user}')",
    ):
        with pytest.raises(psycopg.Error) as refused:
            admin.execute(statement.encode())
        assert refused.value.sqlstate == "55000"
        told = f"Tenants of the training: {', '.join(names)}. Tenants that do not consent: {bob.info.user}."
        assert refused.value.diag.message_detail == told
    for tenant in (ana, bob):
        with fails("42704"):
            tenant.execute("select llm_generate('Hi', 'both')")
    bob.execute(SHARE)
    assert one(ana, "select llm_generate('Hi', 'both')") == "Both."
    with fails("55000", hint="adapter_share"):
        admin.execute("select model_default_set('both')")
    assert one(admin, "select adapter_share('both', '{mindful_user}')") == names
    admin.execute("select model_default_set('both')")
    assert (default(ana), default(bob)) == (both, both)


def test_consent_that_is_taken_back_ends_the_sharing(
    shared: str, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Goes on using a shared adapter after its tenant took the consent back."""
    admin.execute("select model_default_set('tuned')")
    assert (default(ana), default(bob)) == ("tuned", "tuned")
    assert one(bob, "select llm_generate('Hi')") == "I am tuned."
    ana.execute("select setting_set('training_share', 'false')")
    assert (default(ana), default(bob)) == ("tuned", SCRIPTED_GENERATOR)
    with fails("42704"):
        bob.execute("select llm_generate('Hi', 'tuned')")


def test_a_stranger_neither_consents_nor_withdraws(
    shared: str, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Forges a training on a shared adapter, and forgets its texts to have the adapter withdrawn."""
    tell(bob)
    bob.execute("select memory_consolidate()")
    bob.execute(
        """insert into training (consolidation_id, base, adapter, status, dataset_sha256, samples)
           select max(id), %s, 'tuned', 'completed', '', 1 from consolidation""",
        (SCRIPTED_GENERATOR,),
    )
    bob.execute(
        "insert into training_memory (training_id, memory_id) select t.id, m.id from training t, memory m"
    )
    for forged in (
        "insert into model_tenant select tenant, 'tuned', id from training",
        "delete from model_tenant",
        "update model set withdrawn_at = now() where name = 'tuned'",
    ):
        with fails("42501", hint=None):
            bob.execute(forged.encode())
    bob.execute("select memory_forget(everything => true)")
    assert one(ana, "select withdrawn_at is null from model where name = 'tuned'") is True


def test_a_stranger_does_not_consent_for_another_tenant(
    training: int, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Inserts the consent of another tenant, as a user and as an administrator."""
    consent = "insert into setting (tenant, scope, key, value) values (%s, %s, 'training_share', 'true')"
    for stranger in (bob, admin):
        for tenant, scope, sqlstate in ((ana.info.user, "user", "42501"), ("", "global", "22023")):
            with fails(sqlstate, hint=None if sqlstate == "42501" else "scopes"):
                stranger.execute(consent, (tenant, scope))
    with fails("55000"):
        admin.execute("select adapter_share('tuned', '{mindful_user}')")


def test_invented_figures_make_no_adapter_active(
    training: int, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Enters invented figures of an adapter that is no better than its base."""
    figures = {"held_out_f1": 1, "general_accuracy": 1}
    with fails("42883", hint=None):
        ana.execute(
            "select _mindful.training_finish(%s, 'tuned', %s, %s)", (training, Jsonb({}), Jsonb(figures))
        )
    ana.execute("update training set adapter_figures = %s, base_figures = '{}'", (Jsonb(figures),))
    assert one(ana, "select active from _mindful.training_finish(%s, 'tuned')", training) is False
    assert one(ana, "select (adapter_figures ->> 'held_out_f1')::numeric < 1 from training") is True
    assert (default(ana), default(bob)) == (SCRIPTED_GENERATOR, SCRIPTED_GENERATOR)


def test_an_adapter_of_ones_own_is_the_default_of_nobody_else(
    training: int, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Makes an adapter the default of other tenants by making it one's own."""
    ana.execute("select model_default_set('tuned', scope => 'user')")
    assert (default(ana), default(bob)) == ("tuned", SCRIPTED_GENERATOR)
    with fails("42501", hint="scope"):
        ana.execute("select model_default_set('tuned')")
    with pytest.raises(psycopg.Error):
        ana.execute("select setting_set('default_generator', '\"tuned\"', 'global')")
    bob.execute("select setting_set('default_generator', '\"tuned\"')")
    assert default(bob) == SCRIPTED_GENERATOR


def test_a_fallback_that_is_anothers_adapter_is_not_asked(
    training: int, admin: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Has another tenant's adapter answer as the fallback of a model of all."""
    admin.execute("update model set fallback = 'tuned' where name = %s", (SCRIPTED_GENERATOR,))
    for user, models in ((ana, ["scripted", "tuned"]), (bob, ["scripted"])):
        user.execute("select setting_set('chat_escalate', 'true')")
        user.execute("select setting_set('signal_tier', '2')")
        user.execute("select llm_chat('Who are you?')")
        assert one(user, "select array_agg(distinct model order by model) from generation") == models


def test_the_adapters_file_is_not_registered_anew(
    training: int, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Registers a private adapter's file again under another name, to have it serve all."""
    source, sha256 = one(db, "select source, sha256 from model where name = %s", GENERATOR)
    db.execute("update trained_weights set sha256 = %s", (sha256,))
    with fails("42710", hint="adapter_share"):
        admin.execute("select model_register('again', 'generator', 'llama_cpp', %s)", (source,))


def test_the_adapters_weights_are_not_entered_anew(
    training: int, admin: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Enters a private adapter's file and hash into the table again, for all or for another tenant."""
    enter = """insert into model (name, kind, provider, source, options, sha256, base, trained_on, granted_to)
        select 'again', kind, provider, source, options, sha256, base, {}, '{{mindful_user}}'
        from model where name = 'tuned'"""
    with fails("42710", hint="adapter_share"):
        admin.execute(enter.format(0).encode())
    tell(bob)
    own = train_stand_in(bob, db, "own", SCRIPTED_GENERATOR)
    admin.execute(enter.format(1).encode())
    with fails("42710", hint="adapter_share"):
        admin.execute("insert into model_tenant values (%s, 'again', %s)", (bob.info.user, own))
    with fails("42704"):
        bob.execute("select llm_generate('Hi', 'again')")


ENTER = """insert into model (name, kind, provider, source, options, sha256, base, trained_on, granted_to)
    select %s, kind, provider, source, options, 'tuned', name, %s, '{mindful_user}'
    from model where name = %s"""


@pytest.mark.parametrize("delete", ["delete from model where name = 'tuned'", "truncate model_tenant"])
def test_a_deleted_adapters_weights_are_not_entered_anew(
    training: int, bob: psycopg.Connection, db: psycopg.Connection, delete: str
) -> None:
    """Deletes the row of a private adapter as an owner, and enters its file for all or for another tenant."""
    db.execute(delete.encode())
    with fails("42710", hint="adapter_share"):
        db.execute(ENTER, ("again", 0, SCRIPTED_GENERATOR))
    tell(bob)
    own = train_stand_in(bob, db, "own", SCRIPTED_GENERATOR)
    db.execute(ENTER, ("again", 1, SCRIPTED_GENERATOR))
    with fails("42710", hint="adapter_share"):
        db.execute("insert into model_tenant values (%s, 'again', %s)", (bob.info.user, own))
    with fails("42704"):
        bob.execute("select llm_generate('Hi', 'again')")


def test_a_private_adapter_takes_no_further_tenant(
    training: int, admin: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Adds another tenant to those whose texts a private adapter holds, so that it serves that tenant."""
    tell(bob)
    own = train_stand_in(bob, db, "own", SCRIPTED_GENERATOR)
    with fails("42710", hint="adapter_share"):
        admin.execute("insert into model_tenant values (%s, 'tuned', %s)", (bob.info.user, own))
    with fails("42704"):
        bob.execute("select llm_generate('Hi', 'tuned')")


@pytest.mark.parametrize("deleted_first", [True, False])
def test_a_withdrawn_file_is_not_entered_anew(
    training: int,
    ana: psycopg.Connection,
    admin: psycopg.Connection,
    db: psycopg.Connection,
    deleted_first: bool,
) -> None:
    """Deletes an adapter's row, before or after a text of it is forgotten, and enters its file by another training."""
    other = train_stand_in(ana, db, "other", SCRIPTED_GENERATOR)
    db.execute(
        """delete from training_memory where training_id = %s and memory_id in (
               select memory_id from training_memory where training_id = %s order by 1 limit 1)""",
        (other, training),
    )
    statements = ["delete from model where name = 'tuned'"]
    for statement in statements if deleted_first else []:
        admin.execute(statement.encode())
    ana.execute(
        """select _mindful.memory_delete(array_agg(memory_id)) from training_memory where training_id = %s
           and memory_id not in (select memory_id from training_memory where training_id = %s)""",
        (training, other),
    )
    for statement in [] if deleted_first else statements:
        admin.execute(statement.encode())
    admin.execute(ENTER, ("again", 1, SCRIPTED_GENERATOR))
    with fails("42710", hint="adapter_share"):
        admin.execute("insert into model_tenant values (%s, 'again', %s)", (ana.info.user, other))


def test_the_same_training_is_registered_again(
    training: int, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Enters an adapter again that was deleted, for the same tenant: this alone succeeds."""
    admin.execute("delete from model where name = 'tuned'")
    admin.execute(ENTER, ("again", 1, SCRIPTED_GENERATOR))
    admin.execute("insert into model_tenant values (%s, 'again', %s)", (ana.info.user, training))
    assert one(ana, "select llm_generate('Hi', 'again')") is not None
