"""What a training was measured to gain decides whether its adapter becomes active, and that can be taken back."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Connect, fails, one

BASE = {"held_out_f1": 0.30, "general_accuracy": 0.50}


@pytest.fixture
def trainer(db: psycopg.Connection, connect: Connect, roles: dict[str, str]) -> Iterator[psycopg.Connection]:
    """Ana, who may administer models too, until the test ends: roles outlive it."""
    db.execute(f'grant mindful_admin to "{roles["ana"]}"')
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select model_training_set(%s, 'chatml')", (SCRIPTED_GENERATOR,))
    yield connect("ana")
    db.execute(f'revoke mindful_admin from "{roles["ana"]}"')


@pytest.fixture
def run(trainer: psycopg.Connection) -> int:
    messages = [
        {"role": "user", "content": f"I love {thing}.", "metadata": {"speaker": name}}
        for name, thing in zip(
            ["Ana", "Bob", "Eve", "Tom", "Zoe", "Kim", "Max", "Ida", "Leo", "Amy"],
            ["tea", "jam", "rum", "ham", "pie", "fig", "oat", "rye", "soy", "gin"],
            strict=True,
        )
        for _ in (1,)
    ]
    trainer.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages * 2),))
    trainer.execute("select setting_set('training_consent', 'true')")
    trainer.execute("select memory_consolidate()")
    return int(
        one(trainer, 'select id from replay_run(%s, \'{"level": "information"}\')', SCRIPTED_GENERATOR)
    )


def start(trainer: psycopg.Connection, run: int) -> int:
    digest = one(trainer, "select replay_hash(%s)", run)
    return int(one(trainer, "select training_start(%s, %s)", run, digest))


def default(connection: psycopg.Connection) -> str:
    return str(one(connection, "select name from model where kind = 'generator' and is_default"))


@pytest.fixture
def adapter(db: psycopg.Connection) -> str:
    """Stand for an adapter's generator: to have the default changed, any will do."""
    db.execute("select model_register('tuned', 'generator', 'scripted', '', '{}')")
    return "tuned"


def finish(trainer: psycopg.Connection, training: int, adapter: str, f1: float, general: float) -> str:
    figures = {"held_out_f1": f1, "general_accuracy": general}
    return str(
        one(trainer, "select training_finish(%s, %s, %s, %s)", training, adapter, Jsonb(BASE), Jsonb(figures))
    )


def test_a_gain_makes_an_adapter_active_and_one_call_takes_it_back(
    trainer: psycopg.Connection, run: int, adapter: str
) -> None:
    verdict = finish(trainer, start(trainer, run), adapter, 0.45, 0.48)
    assert verdict == "active: +0.1500 F1 on held-out pairs, -0.0200 of general accuracy"
    assert default(trainer) == adapter
    assert one(
        trainer,
        "select samples_total > 0 and trained_at is not null from model where name = %s",
        SCRIPTED_GENERATOR,
    )
    assert one(trainer, "select adapter_rollback(%s)", SCRIPTED_GENERATOR) == adapter
    assert default(trainer) == SCRIPTED_GENERATOR
    with fails("42704", hint="training"):
        trainer.execute("select adapter_rollback(%s)", (SCRIPTED_GENERATOR,))
    trainer.execute("select adapter_activate(%s)", (adapter,))
    assert default(trainer) == adapter


@pytest.mark.parametrize(("f1", "general"), [(0.31, 0.50), (0.60, 0.44), (0.10, 0.90)])
def test_who_gains_too_little_or_loses_too_much_stays_aside(
    f1: float, general: float, trainer: psycopg.Connection, run: int, adapter: str
) -> None:
    assert finish(trainer, start(trainer, run), adapter, f1, general).startswith("kept aside")
    assert default(trainer) == GENERATOR
    assert trainer.execute("select status, active, adapter from training").fetchall() == [
        ("completed", False, adapter)
    ]


def test_figures_are_measured_in_the_database(trainer: psycopg.Connection, run: int) -> None:
    figures = one(trainer, "select training_evaluate(%s, %s)", run, SCRIPTED_GENERATOR)
    held_out = one(trainer, "select count(*) from replay_export(%s, split => 'validation')", run)
    assert (figures["held_out"], figures["general"]) == (held_out, 40)
    assert held_out > 0
    # The script knows one capital, and says that it does not know of all else.
    assert figures["general_accuracy"] == pytest.approx(1 / 40)
    assert figures["by_form"]["abstain"] > figures["by_form"]["explain"]
    assert (figures["abstained_unanswerable"], figures["abstained_answerable"]) == (1, 1)
    assert figures["abstained_general"] == pytest.approx(39 / 40)
    assert (figures["taught"] > 0, 0 <= figures["taught_f1"] < 0.5) == (True, True)


@pytest.mark.parametrize(
    ("answer", "abstains"),
    [
        ("I do not know. Nobody has told me.", True),
        ("Sorry, I don't know that.", True),
        ("Paris.", False),
        ("I know that you do.", False),
        ("", False),
    ],
)
def test_abstentions(answer: str, abstains: bool, db: psycopg.Connection) -> None:
    assert one(db, "select _is_abstention(%s)", answer) is abstains


@pytest.mark.parametrize(
    ("answer", "expected", "f1"),
    [
        ("Ana lives in Rome.", "ana lives in rome", 1),
        ("Rome", "Ana lives in Rome", 0.4),
        ("", "Rome", 0),
        ("Oslo", "Rome", 0),
    ],
)
def test_f1(answer: str, expected: str, f1: float, db: psycopg.Connection) -> None:
    assert one(db, "select _text_f1(%s, %s)", answer, expected) == pytest.approx(f1)


def test_a_dataset_that_changed_is_not_trained_on(trainer: psycopg.Connection, run: int) -> None:
    digest = one(trainer, "select replay_hash(%s)", run)
    trainer.execute("delete from memory where kind = 'message' and content = 'I love tea.'")
    with fails("55000", hint="export the run again"):
        trainer.execute("select training_start(%s, %s)", (run, digest))


def test_forgetting_names_the_adapters(
    trainer: psycopg.Connection, run: int, adapter: str, bob: psycopg.Connection
) -> None:
    training = start(trainer, run)
    finish(trainer, training, adapter, 0.45, 0.48)
    message = one(trainer, "select min(memory_id) from training_memory")
    listed = "select adapter, active, forgotten from adapters_trained_on(%s)"
    assert trainer.execute(listed, (message,)).fetchall() == [(adapter, True, False)]
    trainer.execute("delete from memory where id = %s", (message,))
    assert trainer.execute(listed, (message,)).fetchall() == [(adapter, True, True)]
    assert bob.execute(listed, (message,)).fetchall() == []


def test_failures_are_kept(trainer: psycopg.Connection, run: int, adapter: str) -> None:
    training = start(trainer, run)
    trainer.execute("select training_fail(%s, 'no space left on device')", (training,))
    assert trainer.execute("select status, error from training").fetchall() == [
        ("failed", "no space left on device")
    ]
    for statement in ("select training_fail(%s, 'x')", "select training_finish(%s, 'tuned', %s, %s)"):
        arguments = (training, Jsonb(BASE), Jsonb(BASE))[: statement.count("%s")]
        with fails("42704", hint="training"):
            trainer.execute(statement.encode(), arguments)


def test_training_is_for_administrators(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    for statement in (
        "select model_training_set('scripted', 'chatml')",
        "select adapter_activate('tuned')",
        "select adapter_rollback('scripted')",
        "select training_finish(1, 'tuned', '{}', '{}')",
    ):
        with fails("42501", hint=None):
            bob.execute(statement.encode())


def test_bad_figures(trainer: psycopg.Connection, run: int, adapter: str) -> None:
    with fails("22023", hint="training_evaluate"):
        trainer.execute("select training_finish(%s, %s, '{}', '{}')", (start(trainer, run), adapter))


@pytest.mark.parametrize(
    "arguments",
    [
        "'xml'",
        "'chatml', 3",
        "'chatml', specialisation => 'poetry'",
        """'chatml', lora => '{"x": 1}'""",
        """'chatml', lora => '{"rank": "16"}'""",
    ],
)
def test_bad_training_parameters(arguments: str, admin: psycopg.Connection) -> None:
    with fails("22023"):
        admin.execute(f"select model_training_set('{SCRIPTED_GENERATOR}', {arguments})".encode())
    with fails("42704", hint="listed"):
        admin.execute("select model_training_set('nobody', 'chatml')")
