"""What the server measures decides whether an adapter becomes its tenant's default, and that can be taken back."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Connect, fails, one
from support.deletion import delete
from support.training import enter_adapter

NAMES = ["Ana", "Bob", "Eve", "Tom", "Zoe", "Kim", "Max", "Ida", "Leo", "Amy"]
THINGS = ["tea", "jam", "rum", "ham", "pie", "fig", "oat", "rye", "soy", "gin"]
LEARNED = [
    [f"that {name} likes", f"{name} likes {thing}."] for name, thing in zip(NAMES, THINGS, strict=True)
]
CAPITAL = ["capital of France", "The capital of France is Paris."]


@pytest.fixture
def trainer(db: psycopg.Connection, ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, who is a user and no administrator."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))
    return ana


@pytest.fixture
def run(trainer: psycopg.Connection) -> int:
    messages = [
        {"role": "user", "content": f"I love {thing}.", "metadata": {"speaker": name}}
        for name, thing in zip(NAMES, THINGS, strict=True)
    ]
    trainer.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages * 2),))
    trainer.execute("select setting_set('training_consent', 'true')")
    trainer.execute("select memory_consolidate()")
    return int(
        one(trainer, 'select id from replay_run(%s, \'{"level": "information"}\')', SCRIPTED_GENERATOR)
    )


@pytest.fixture
def training(trainer: psycopg.Connection, run: int) -> int:
    return start(trainer, run)


@pytest.fixture
def adapter(db: psycopg.Connection, trainer: psycopg.Connection, training: int) -> str:
    """The training's adapter, which answers by the facts."""
    return enter(db, trainer, training, [CAPITAL, *LEARNED])


def start(trainer: psycopg.Connection, run: int) -> int:
    digest = one(trainer, "select _mindful.replay_hash(%s)", run)
    return int(one(trainer, "select _mindful.training_start(%s, %s)", run, digest))


def enter(
    db: psycopg.Connection, trainer: psycopg.Connection, training: int, replies: list[list[str]]
) -> str:
    trained_on = {trainer.info.user: training}
    return enter_adapter(db, "tuned", SCRIPTED_GENERATOR, trained_on, replies=replies)


def default(connection: psycopg.Connection) -> str:
    return str(one(connection, "select name from _mindful.model_find('generator', null)"))


def finish(trainer: psycopg.Connection, training: int) -> str:
    return str(one(trainer, "select verdict from _mindful.training_finish(%s, 'tuned')", training))


@pytest.mark.smoke
def test_a_gain_makes_an_adapter_its_tenants_default_and_one_call_takes_it_back(
    trainer: psycopg.Connection, training: int, adapter: str, bob: psycopg.Connection
) -> None:
    done = one(
        trainer,
        """select verdict, active, base_figures ->> 'general_accuracy', adapter_figures ->> 'general_accuracy',
               (adapter_figures ->> 'held_out_f1')::numeric - (base_figures ->> 'held_out_f1')::numeric >= 0.02
           from _mindful.training_finish(%s, %s)""",
        training,
        adapter,
    )
    assert done[0].startswith("active: +0."), done
    assert done[0].endswith(" F1 on held-out pairs, +0.0000 of general accuracy")
    assert done[1:] == (True, "0.0250", "0.0250", True)
    assert (default(trainer), default(bob)) == (adapter, GENERATOR)
    assert one(trainer, "select llm_generate('What is something that Kim likes?')") == "Kim likes fig."
    assert one(trainer, "select status, adapter, base_figures is not null from training") == (
        "completed",
        adapter,
        True,
    )
    assert one(trainer, "select adapter_rollback(%s)", SCRIPTED_GENERATOR) == adapter
    assert (default(trainer), default(bob)) == (SCRIPTED_GENERATOR, GENERATOR)
    with fails("42704", hint="default_generator"):
        trainer.execute("select adapter_rollback(%s)", (SCRIPTED_GENERATOR,))
    trainer.execute("select adapter_activate(%s)", (adapter,))
    assert (default(trainer), default(bob)) == (adapter, GENERATOR)
    changes = "select array_agg(value order by id) from setting where key = 'default_generator'"
    assert one(trainer, changes) == [adapter, SCRIPTED_GENERATOR, adapter]


@pytest.mark.parametrize("replies", [[CAPITAL], LEARNED])
def test_who_gains_too_little_or_loses_too_much_stays_aside(
    replies: list[list[str]], trainer: psycopg.Connection, training: int, db: psycopg.Connection
) -> None:
    adapter = enter(db, trainer, training, replies)
    trainer.execute("select setting_set('training_margin', '0.01')")
    assert finish(trainer, training).startswith("not active")
    assert default(trainer) == GENERATOR
    assert finish(trainer, training).startswith("not active")
    assert trainer.execute("select status, adapter from training").fetchall() == [("completed", adapter)]
    trainer.execute("select adapter_activate(%s)", (adapter,))
    assert default(trainer) == adapter


def test_pairs_that_changed_since_they_were_exported_measure_nothing(
    trainer: psycopg.Connection, training: int, adapter: str
) -> None:
    trainer.execute("update training_sample set output = 'I am tuned.' where split = 'validation'")
    with fails("55000", hint="anew"):
        trainer.execute("select _mindful.training_finish(%s, %s)", (training, adapter))


def test_an_adapter_of_another_training_is_not_measured(
    trainer: psycopg.Connection, run: int, training: int, adapter: str
) -> None:
    other = start(trainer, run)
    for wrong in (adapter, SCRIPTED_GENERATOR, GENERATOR, "nobody"):
        with fails("42704", hint="trained_on"):
            trainer.execute("select _mindful.training_finish(%s, %s)", (other, wrong))


def test_a_tenant_of_an_application_trains_for_itself_alone(
    connect: Connect, db: psycopg.Connection, trainer: psycopg.Connection
) -> None:
    application = connect("application")
    application.execute("set mindful.tenant = 'customer-1'")
    messages = [
        {"role": "user", "content": f"I love {thing}.", "metadata": {"speaker": name}}
        for name, thing in zip(NAMES, THINGS, strict=True)
    ]
    application.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),))
    application.execute("select setting_set('training_consent', 'true'), memory_consolidate()")
    replay = 'select id from replay_run(%s, \'{"level": "information"}\')'
    training = start(application, int(one(application, replay, SCRIPTED_GENERATOR)))
    enter_adapter(
        db, "tuned", SCRIPTED_GENERATOR, {"customer-1": training}, replies=[CAPITAL, *LEARNED], logprob=-0.2
    )
    assert finish(application, training).startswith("active")
    assert one(application, "select llm_generate('What is something that Kim likes?')") == "Kim likes fig."
    loaded = 'select s.models @> \'[{"name": "tuned"}]\' from mindful_status() s'
    assert one(application, loaded) is True
    application.execute("set mindful.tenant = 'customer-2'")
    assert default(application) == GENERATOR
    assert one(application, loaded) is False
    assert one(application, "select model_unload('tuned')") == 0
    assert one(application, "select count(*) from model where name = 'tuned'") == 0
    with fails("42704"):
        application.execute("select llm_generate('Kim', 'tuned')")


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
    assert one(db, "select _mindful.is_abstention(%s)", answer) is abstains


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
    assert one(db, "select _mindful.text_f1(%s, %s)", answer, expected) == pytest.approx(f1)


def test_a_dataset_that_changed_is_not_trained_on(trainer: psycopg.Connection, run: int) -> None:
    digest = one(trainer, "select _mindful.replay_hash(%s)", run)
    delete(trainer, "memory", "kind = 'message' and content = 'I love tea.'")
    with fails("55000", hint="(?i)export the run again"):
        trainer.execute("select _mindful.training_start(%s, %s)", (run, digest))


def test_failures_are_kept(trainer: psycopg.Connection, training: int, adapter: str) -> None:
    trainer.execute("select _mindful.training_fail(%s, 'no space left on device')", (training,))
    assert trainer.execute("select status, error from training").fetchall() == [
        ("failed", "no space left on device")
    ]
    for statement in (
        "select _mindful.training_fail(%s, 'x')",
        "select _mindful.training_finish(%s, 'tuned')",
    ):
        with fails("42704", hint="training"):
            trainer.execute(statement.encode(), (training,))


def test_how_a_model_is_trained_is_for_administrators(bob: psycopg.Connection) -> None:
    with fails("42501", hint=None):
        bob.execute("select training_configure('scripted', 'chat')")


def test_lora_parameters_have_their_usual_names_and_purposes_any(admin: psycopg.Connection) -> None:
    lora = '{"r": 8, "lora_alpha": 16, "lora_dropout": 0.1, "target_modules": ["q_proj", "up_proj"]}'
    admin.execute(
        "select training_configure(%s, 'chat', specialization => 'strategic_reasoning', lora => %s)",
        (SCRIPTED_GENERATOR, lora),
    )
    row = admin.execute(
        "select specialization, lora from model where name = %s", (SCRIPTED_GENERATOR,)
    ).fetchone()
    own = {"rank": 8, "alpha": 16, "dropout": 0.1, "target_modules": ["q_proj", "up_proj"]}
    assert row == ("strategic_reasoning", own)


@pytest.mark.parametrize(
    "arguments",
    [
        "'xml'",
        "'chat', 3",
        "'chat', specialization => ' '",
        """'chat', lora => '{"r": 8, "rank": 8}'""",
        """'chat', lora => '{"target_modules": ["lm_head"]}'""",
        """'chat', lora => '[]'""",
        """'chat', lora => '{"x": 1}'""",
        """'chat', lora => '{"rank": "16"}'""",
    ],
)
@pytest.mark.shares
def test_bad_training_parameters(arguments: str, admin: psycopg.Connection) -> None:
    with fails("22023"):
        admin.execute(f"select training_configure('{SCRIPTED_GENERATOR}', {arguments})".encode())
    with fails("42704", hint="listed"):
        admin.execute("select training_configure('nobody', 'chat')")
