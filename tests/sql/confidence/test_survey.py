"""A model that the package ships no ranking for answers questions, and gets one for all tenants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from support import GENERATOR, SCRIPTED_GENERATOR, fails
from support.clock import Deadline
from support.models import say_little

Connect = Callable[..., psycopg.Connection]
FRANCE, MARS = "What is the capital of France?", "What is the capital of Mars?"
RIGHT = {"question": FRANCE, "answers": ["Paris"]}
WRONG = {"question": MARS, "answers": ["Ares"]}
GOLD = json.dumps([RIGHT, WRONG] * 20)
CALL = "call mindful.model_calibrate(%s, %s, 0)"
PROGRESS = "select answered, questions, correct, fitted_at is not null from model_calibration"


@pytest.fixture
def manager(db: psycopg.Connection, admin: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """An administrator that may ask models too."""
    role = sql.Identifier(admin.info.user)
    db.execute(sql.SQL("grant mindful_user to {}").format(role))
    yield admin
    db.execute(sql.SQL("revoke mindful_user from {}").format(role))


def test_questions_give_a_ranking_to_every_tenant(
    manager: psycopg.Connection, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    asked = "select action, probability from llm_chat_detail(%s, model => %s, memories => 0)"

    def probability(question: str) -> float:
        action, found = ana.execute(asked, (question, SCRIPTED_GENERATOR)).fetchone() or ()
        assert action == "uncalibrated"
        return float(found)

    assert probability(FRANCE) == probability(MARS) == 0.5
    manager.execute(CALL, (SCRIPTED_GENERATOR, GOLD))
    assert ana.execute(PROGRESS).fetchall() == [(40, 40, 20, True)]
    assert probability(FRANCE) > 0.6 > 0.4 > probability(MARS)
    # No tenant got labels, and no threshold was set.
    for table in ("gold", "outcome", "calibrator", "threshold"):
        assert db.execute(f"select count(*) from {table}").fetchone() == (0,)
    text = db.execute("select string_agg(a::text, '') from model_answer a").fetchone()
    assert text is not None
    assert "France" not in text[0]


def test_a_call_that_was_cancelled_continues(
    scripted: None, db: psycopg.Connection, connect: Connect
) -> None:
    worker = connect()
    process, errors = worker.info.backend_pid, []

    def work() -> None:
        try:
            worker.execute("call mindful.model_calibrate(%s, signal_tier => 0)", (SCRIPTED_GENERATOR,))
        except psycopg.Error as error:
            errors.append(error.sqlstate)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = Deadline()
    while not (row := db.execute(PROGRESS).fetchone()):
        assert not deadline.passed()
        time.sleep(0.01)
    db.execute("select pg_cancel_backend(%s)", (process,))
    thread.join()
    assert errors == ["57014"]
    assert row[1:] == (476, row[2], False)
    before = db.execute("select place, xmin::text from model_answer order by place").fetchall()
    assert 0 < len(before) < 476
    worker.execute("call mindful.model_calibrate(%s, signal_tier => 0)", (SCRIPTED_GENERATOR,))
    assert (
        db.execute("select place, xmin::text from model_answer order by place").fetchall()[: len(before)]
        == before
    )
    ((answered, questions, _, fitted),) = db.execute(PROGRESS).fetchall()
    assert (answered, questions, fitted) == (476, 476, True)
    assert db.execute("select count(distinct xmin::text) from model_answer").fetchone() == (30,)


def test_a_finished_call_makes_no_answer_again(db: psycopg.Connection) -> None:
    for _ in range(2):
        db.execute(CALL, (SCRIPTED_GENERATOR, GOLD))
    assert db.execute("select count(*) from generation").fetchone() == (40,)
    assert db.execute("select count(*) from model_ranking").fetchone() == (1,)


def test_what_cannot_be_ranked_is_told(db: psycopg.Connection) -> None:
    with fails("55000", hint="right and wrong"):
        db.execute(CALL, (SCRIPTED_GENERATOR, json.dumps([WRONG] * 40)))
    with fails("55000", hint="outside"), db.transaction():
        db.execute(CALL, (SCRIPTED_GENERATOR, GOLD))
    with fails("42704"):
        db.execute(CALL, ("nosuch", GOLD))
    with fails("22023", hint="array"):
        db.execute(CALL, (SCRIPTED_GENERATOR, "{}"))
    with fails("22004"):
        db.execute(CALL, (None, GOLD))
    with fails("22023", hint="between 0 and 3"):
        db.execute("call mindful.model_calibrate(%s, signal_tier => 4)", (SCRIPTED_GENERATOR,))


def test_only_administrators_make_rankings(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    for statement in (CALL, "select _mindful.model_calibrate_some(%s, %s, 0, 16)"):
        with fails("42501", hint=None):
            ana.execute(statement, (SCRIPTED_GENERATOR, GOLD))
    for table in ("model_answer", "model_ranking"):
        with fails("42501", hint=None):
            ana.execute(f"insert into {table} (model) values (%s)", (SCRIPTED_GENERATOR,))
    db.execute(CALL, (SCRIPTED_GENERATOR, GOLD))
    db.execute("update model set granted_to = '{}' where name = %s", (SCRIPTED_GENERATOR,))
    assert ana.execute("select count(*) from model_ranking").fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.long
def test_a_real_model_is_ranked_by_its_answers(scripted: None, db: psycopg.Connection) -> None:
    say_little(db, GENERATOR, [".", ",", "\n"])  # it has named a city by then
    questions = [
        {"question": f"What is the capital of {name}?", "answers": [city]}
        for name, city in (row.split() for row in _CAPITALS.splitlines())
    ]
    db.execute(CALL, (GENERATOR, json.dumps(questions)))
    ((metrics, wrong),) = db.execute("select metrics, wrong from model_ranking").fetchall()
    assert 0 < wrong < len(questions)
    assert metrics["auroc"][2] > 0.5


_CAPITALS = """\
France Paris
Germany Berlin
Italy Rome
Spain Madrid
Portugal Lisbon
Greece Athens
Poland Warsaw
Austria Vienna
Hungary Budapest
Norway Oslo
Sweden Stockholm
Finland Helsinki
Denmark Copenhagen
Ireland Dublin
Egypt Cairo
Kenya Nairobi
Ghana Accra
Senegal Dakar
Japan Tokyo
Nepal Kathmandu
Thailand Bangkok
Vietnam Hanoi
Iran Tehran
Iraq Baghdad
Australia Canberra
Canada Ottawa
Cuba Havana
Chile Santiago
Peru Lima
Colombia Bogota
Atlantis Poseidonis
Gondor Pelargir
Narnia Archenland
Mordor Nurn"""
