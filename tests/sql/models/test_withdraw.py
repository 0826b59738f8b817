"""An adapter that was trained on a text serves no tenant once the text is deleted, whatever deletes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
import pytest
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Cluster, fails, one
from support.deletion import delete
from support.training import enter_adapter, tell, train_stand_in

WITHDRAWN = "select withdrawn_at is not null from model where name = 'tuned'"


@pytest.fixture(scope="module")
def trained_template(cluster: Cluster, template: str, roles: Mapping[str, str]) -> Iterator[str]:
    """Name of a template database with a training on messages, whose adapter `tuned` is ana's default generator."""
    with cluster.database(template) as name:
        with cluster.connect(name) as db, cluster.connect(name, roles["ana"]) as ana:
            configure(db)
            tell(ana)
            train_stand_in(ana, db, "tuned", SCRIPTED_GENERATOR)
            ana.execute("select model_default_set('tuned', scope => 'user')")
        yield name


@pytest.fixture
def chosen_template(template: str, request: pytest.FixtureRequest) -> str:
    """Name of the template of this test's database."""
    # A connection's first training imports for a second.
    trained = "training" in request.fixturenames
    return str(request.getfixturevalue("trained_template")) if trained else template


@pytest.fixture
def user(ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, whose texts can be trained on."""
    return ana


@pytest.fixture
def training(user: psycopg.Connection) -> int:
    """The training on messages of `trained_template`."""
    return int(one(user, "select max(training_id) from model_tenant where model = 'tuned'"))


def configure(db: psycopg.Connection) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))


def trained_message(user: psycopg.Connection) -> int:
    return int(one(user, "select min(memory_id) from training_memory"))


def test_the_receipt_names_the_adapters_and_their_files(
    training: int, user: psycopg.Connection, bob: psycopg.Connection
) -> None:
    message = trained_message(user)
    listed = "select adapter, active, forgotten, withdrawn from adapters_trained_on(%s)"
    assert user.execute(listed, (message,)).fetchall() == [("tuned", True, False, False)]
    dry = (
        "select action, rows from memory_forget(array[%s::bigint], dry_run => true) where relation = 'model'"
    )
    assert user.execute(dry.encode(), (message,)).fetchall() == [("withdrawn", 1)]
    assert one(user, "select llm_generate('Hi')") == "I am tuned."
    forget = "select action, rows from memory_forget(array[%s::bigint]) where relation = 'model'"
    assert user.execute(forget.encode(), (message,)).fetchall() == [("withdrawn", 1)]
    assert one(user, "select adapters from forget_receipt") == [
        {"adapter": "tuned", "action": "withdrawn", "file": "/adapters/tuned.gguf"}
    ]
    assert user.execute(listed, (message,)).fetchall() == [("tuned", False, True, True)]
    assert bob.execute(listed, (message,)).fetchall() == []


def test_a_withdrawn_adapter_serves_no_more(
    training: int, user: psycopg.Connection, admin: psycopg.Connection
) -> None:
    user.execute("select memory_insert('Nothing was trained on this.')")
    user.execute('select memory_forget(filter => \'{"content": "Nothing was trained"}\')')
    assert one(user, WITHDRAWN) is False
    assert one(user, "select llm_generate('Hi')") == "I am tuned."
    user.execute("select memory_forget(array[%s::bigint])", (trained_message(user),))
    assert one(user, "select llm_generate('Hi')") == "I do not know."
    user.execute("update training set status = 'completed', adapter = 'tuned'")
    for call in (
        "llm_generate('Hi', 'tuned')",
        "adapter_activate('tuned')",
        "model_default_set('tuned', scope => 'user')",
    ):
        with fails("55000", hint="Train a new adapter"):
            user.execute(f"select {call}".encode())
    for call in ("adapter_share('tuned', '{mindful_user}')", "model_default_set('tuned')"):
        with fails("55000", hint="Train a new adapter"):
            admin.execute(f"select {call}".encode())


@pytest.mark.parametrize(
    "deletion",
    [
        "select _mindful.memory_delete(array[%s])",
        "select _mindful.delete('session', jsonb_build_array(jsonb_build_object('session_id', session_id))) from memory"
        " where id = %s",
        "select memory_forget(session_id => (select session_id from memory where id = %s))",
        "select memory_prune(older_than => '0', kinds => '{message,fact}') where %s > 0",
        "select memory_forget(everything => true) where %s > 0",
    ],
)
@pytest.mark.shares
def test_every_deletion_withdraws(deletion: str, training: int, user: psycopg.Connection) -> None:
    assert one(user, WITHDRAWN) is False
    with user.transaction(force_rollback=True):
        user.execute(deletion.encode(), (trained_message(user),))
        assert one(user, WITHDRAWN) is True


def test_retention_withdraws(training: int, user: psycopg.Connection, admin: psycopg.Connection) -> None:
    user.execute("update memory set created_at = now() - interval '3 days'")
    user.execute("select setting_set('retention_message_days', '1')")
    admin.execute("select retention_run()")
    assert one(user, WITHDRAWN) is True
    assert one(user, "select adapters -> 0 ->> 'adapter' from forget_receipt") == "tuned"


def test_a_document_that_is_replaced_withdraws(user: psycopg.Connection, db: psycopg.Connection) -> None:
    configure(db)
    texts = " ".join(f"{name} Miller lives in Boston." for name in ("Anna", "Bert", "Carl", "Dora", "Emil"))
    user.execute("select document_insert(%s, 'people')", (texts,))
    user.execute("select setting_set('training_consent', 'true')")
    train_stand_in(user, db, "tuned", SCRIPTED_GENERATOR)
    assert one(user, WITHDRAWN) is False
    user.execute("select document_insert('Fritz Miller lives in Paris.', 'people')")
    assert one(user, WITHDRAWN) is True


def test_an_adapter_is_kept_where_the_tenant_says_so(training: int, user: psycopg.Connection) -> None:
    user.execute("select setting_set('adapter_on_forget', '\"keep\"')")
    user.execute("select memory_forget(array[%s::bigint])", (trained_message(user),))
    assert one(user, WITHDRAWN) is False
    assert one(user, "select llm_generate('Hi')") == "I am tuned."
    assert one(user, "select adapters from forget_receipt") == [
        {"adapter": "tuned", "action": "kept", "file": "/adapters/tuned.gguf"}
    ]
    with fails("22023", hint="withdraw"):
        user.execute("select setting_set('adapter_on_forget', '\"later\"')")


def test_one_tenant_withdraws_what_serves_all(
    training: int, user: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    user.execute("select setting_set('training_share', 'true')")
    admin.execute("select adapter_share('tuned', '{mindful_user}'), model_default_set('tuned')")
    assert one(bob, "select llm_generate('Hi')") == "I am tuned."
    delete(user, "memory", "id = %s", trained_message(user))
    assert one(bob, "select llm_generate('Hi')") == "I do not know."
    assert one(bob, "select count(*) from model where name = 'tuned'") == 0


def test_an_adapter_whose_texts_are_forgotten_before_it_is_registered_is_refused(
    user: psycopg.Connection, db: psycopg.Connection, training: int
) -> None:
    db.execute("delete from model where name = 'tuned'")
    user.execute("select memory_forget(array[%s::bigint])", (trained_message(user),))
    with fails("55000", hint="anew"), db.transaction():
        enter_adapter(db, "late", SCRIPTED_GENERATOR, {user.info.user: training})
    user.execute("select setting_set('adapter_on_forget', '\"keep\"')")
    with fails("22023", hint="training"), db.transaction():
        db.execute("update training set base = 'other'")
        enter_adapter(db, "late", SCRIPTED_GENERATOR, {user.info.user: training})
    with fails("23503", hint=None), db.transaction():
        enter_adapter(db, "late", SCRIPTED_GENERATOR, {"nobody": training})
    enter_adapter(db, "late", SCRIPTED_GENERATOR, {user.info.user: training})


def test_forgetting_while_the_adapter_is_registered_withdraws_it(
    user: psycopg.Connection, db: psycopg.Connection, training: int, bob: psycopg.Connection
) -> None:
    db.execute("delete from model where name = 'tuned'")
    message = trained_message(user)
    user.execute("set lock_timeout = '200ms'")
    with db.transaction():
        enter_adapter(db, "tuned", SCRIPTED_GENERATOR, {user.info.user: training})
        with pytest.raises(psycopg.errors.LockNotAvailable):
            delete(user, "memory", "id = %s", message)
    delete(user, "memory", "id = %s", message)
    assert one(user, WITHDRAWN) is True


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("", "22023"),
        ("granted_to => '{mindful_user}', trained_on => '{\"ana\": 1}'", "22023"),
        ("trained_on => '[1]'", "22023"),
        ('trained_on => \'{"ana": "1"}\'', "22023"),
        ("trained_on => '{\"\": 1}'", "22023"),
        ("trained_on => '{\"ana\": null}'", "22023"),
        ("trained_on => '{\"ana\": true}'", "22023"),
    ],
)
@pytest.mark.shares
def test_who_is_served_is_said_explicitly(admin: psycopg.Connection, arguments: str, sqlstate: str) -> None:
    with fails(sqlstate):
        admin.execute(
            f"select adapter_register('m', %s, '/x'{arguments and ', ' + arguments})".encode(),
            (SCRIPTED_GENERATOR,),
        )


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("model_default_set('scripted', scope => 'session')", "22023"),
        ("model_default_set('scripted', scope => null)", "22023"),
        ("model_default_set('scripted-embedder', scope => 'user')", "22023"),
        ("adapter_share('scripted', '{mindful_user}')", "42704"),
        ("adapter_share('nobody', '{}')", "42704"),
        ("adapter_share('tuned', '{no_such_role}')", "42704"),
        ("adapter_share('tuned', null)", "22004"),
    ],
)
@pytest.mark.shares
def test_bad_arguments_of_defaults_and_sharing(
    training: int, call: str, sqlstate: str, db: psycopg.Connection
) -> None:
    with fails(sqlstate):
        db.execute(f"select {call}".encode())


def test_an_offer_is_taken_back(training: int, user: psycopg.Connection, admin: psycopg.Connection) -> None:
    user.execute("select setting_set('training_share', 'true')")
    assert one(admin, "select adapter_share('tuned', '{mindful_user}')") == [user.info.user]
    assert one(admin, "select adapter_share('tuned', '{}')") == [user.info.user]
    assert one(admin, "select granted_to from model where name = 'tuned'") == []
