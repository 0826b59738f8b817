"""Gold questions are graded by what a chat shows, which is not always what the model says."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

CODE = "What is the code of the safe?"
PHONE = "What is my sister's phone number?"
FRANCE = "What is the capital of France?"
BERLIN = "How large is Berlin?"
MEMORIES = ("The code of the safe is 4711.", "My sister Clara works as a carpenter.")
REPLIES = [[BERLIN, "Berlin is " + "a city of love and " * 20], [FRANCE, " The capital of France is Paris. "]]
FOUND = "select d.answer, d.action, d.signals, l.correct from decision d join latest_outcome l on l.decision_id = d.id"


@pytest.fixture
def told(db: psycopg.Connection, ana: psycopg.Connection) -> psycopg.Connection:
    """A user whose memories answer a question, and a model that does not read them."""
    options = Jsonb({"replies": REPLIES, "default": "It is 9999."})
    db.execute("select model_register('script', 'generator', 'scripted', '', %s)", (options,))
    for content in MEMORIES:
        ana.execute("select memory_insert(%s)", (content,))
    return ana


def gold(connection: psycopg.Connection, **item: Any) -> tuple[str, str, dict[str, float], bool]:
    connection.execute("select gold_evaluate(%s, 'script', max_tokens => 64)", (json.dumps([item]),))
    row = connection.execute(f"{FOUND} order by d.id desc limit 1").fetchone()
    assert row is not None
    return row


def chat(connection: psycopg.Connection, question: str) -> tuple[str, str, dict[str, float]]:
    """Ask in a chat of which nothing is kept."""
    with connection.transaction(force_rollback=True):
        reply, action, decision = (
            connection.execute(
                """select reply, action, decision_id
               from llm_chat_detail(%s, model => 'script', max_tokens => 64, temperature => 0)""",
                (question,),
            ).fetchone()
            or ()
        )
        row = connection.execute("select signals from decision where id = %s", (decision,)).fetchone()
    assert row is not None
    return reply, action, row[0]


@pytest.mark.parametrize("question", [CODE, PHONE, FRANCE, BERLIN])
def test_gold_is_answered_as_a_chat_answers(told: psycopg.Connection, question: str) -> None:
    shown = chat(told, question)
    assert gold(told, question=question, answers=["x"])[:3] == shown


@pytest.mark.smoke
def test_a_memory_in_place_of_the_model_is_graded_without_the_models_likelihood(
    told: psycopg.Connection,
) -> None:
    answer, action, signals, correct = gold(told, question=CODE, answers=["4711"])
    assert (answer, action, correct) == ('I remember: "The code of the safe is 4711."', "uncalibrated", True)
    assert signals["quoted"] == 1
    assert signals["bearing"] > 0.4
    assert "logprob_sum" not in signals
    answer, action, signals, correct = gold(told, question=FRANCE, answers=["Paris"], memories=[MEMORIES[0]])
    assert (answer, correct) == ("The capital of France is Paris.", True)
    assert (signals["quoted"], signals["bearing"]) == (0, 0)
    assert signals["logprob_sum"] < 0


def test_memories_of_an_item_are_weighed_like_recalled_ones(told: psycopg.Connection) -> None:
    memories = ["The code of the shed is 8080.", "The code of the safe is 1234."]
    found = gold(told, question=CODE, answers=["1234"], memories=memories)
    assert (found[0], found[3]) == ('I remember: "The code of the safe is 1234."', True)
    found = gold(told, question=PHONE, answers=["0123"], memories=memories)
    assert (found[0].startswith("I do not know"), found[1]) == (True, "abstain")
    assert told.execute("select count(*) from memory").fetchone() == (2,)


def test_a_reply_without_the_model_teaches_nothing_of_its_answers(told: psycopg.Connection) -> None:
    answer, action, signals, correct = gold(told, question=PHONE, answers=["0123"])
    assert answer.startswith("I do not know")
    assert (action, signals, correct) == ("abstain", {}, False)
    assert told.execute("select count(*) from generation").fetchone() == (0,)
    assert told.execute("select count(*) from label_probability").fetchone() == (0,)
    labeled = "select count(*) from _mindful.labeled('script', '{}', null, true, 0)"
    assert told.execute(labeled).fetchone() == (0,)
    counted = "select labels from _mindful.label_count('script', '{}', null, true)"
    assert told.execute(counted).fetchone() == (0,)


def test_a_model_is_calibrated_on_what_a_chat_shows(told: psycopg.Connection, db: psycopg.Connection) -> None:
    memories = [MEMORIES[0]]
    items = [
        *({"question": CODE, "answers": [answer], "memories": memories} for answer in ("4711", "9999")),
        {"question": PHONE, "answers": ["0123"], "memories": memories},
    ]
    db.execute("call model_calibrate('script', %s, 0)", (json.dumps(items * 20),))
    rows = db.execute(
        """select correct, signals = '{}', count(*) from model_answer group by 1, 2 order by 1, 2"""
    ).fetchall()
    assert rows == [(False, False, 20), (False, True, 20), (True, False, 20)]
    assert db.execute("select with_memory, labels, wrong from model_ranking").fetchall() == [(True, 40, 20)]
