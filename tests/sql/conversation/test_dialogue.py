"""Dialogues with questions that are asked back: what is asked, and what the model is shown after the reply."""

from __future__ import annotations

from typing import NamedTuple

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER

pytestmark = pytest.mark.shares

MEMORIES = (
    "Anna Berg lives in Linz.",
    "Yesterday Anna Stein moved to Graz, where she lives.",
    "Peter Vogel works at the bank.",
    "My neighbor Peter Hahn works at the zoo.",
    "Our teacher Maria Lopez has a dog.",
    "My aunt Maria Sanna has a cat.",
    "Olga Petrova lives in Leeds.",
)


class Dialogue(NamedTuple):
    """A question, what is asked back if anything, the reply, and the question that the model answers then."""

    question: str
    asked: str | None
    reply: str = ""
    meant: str = ""
    rivals: tuple[str, ...] = ()


ANNA = "Which one do you mean: Anna Berg or Anna Stein?"
PETER = "Which one do you mean: Peter Hahn or Peter Vogel?"
MARIA = "Which one do you mean: Maria Lopez or Maria Sanna?"
DIALOGUES = [
    Dialogue("Where does Anna live?", ANNA, "Stein", "Where does Anna Stein live?", ("Anna Berg",)),
    Dialogue(
        "Where does Anna live?", ANNA, "I mean Anna Berg.", "Where does Anna Berg live?", ("Anna Stein",)
    ),
    Dialogue("Where does Anna live?", ANNA, "Berg, of course", "Where does Anna Berg live?", ("Anna Stein",)),
    Dialogue("Where does Peter work?", PETER, "Hahn", "Where does Peter Hahn work?", ("Peter Vogel",)),
    Dialogue(
        "Where does Peter work?", PETER, "the Vogel one", "Where does Peter Vogel work?", ("Peter Hahn",)
    ),
    Dialogue("Which pet has Maria?", MARIA, "Maria Lopez", "Which pet has Maria Lopez?", ("Maria Sanna",)),
    Dialogue("Which pet has Maria?", MARIA, "My aunt Sanna", "Which pet has Maria Sanna?", ("Maria Lopez",)),
    Dialogue("Where does Anna live?", ANNA, "Neither of them.", "Neither of them."),
    Dialogue("Where does Anna live?", ANNA, "Who is the mayor of Linz?", "Who is the mayor of Linz?"),
    Dialogue("Where does Anna Berg live?", None),
    Dialogue("Where does Olga live?", None),
    Dialogue("Where does Petra live?", None),
    Dialogue("How do I fix it?", 'What do you mean by "it"?', "the bicycle", "How do I fix the bicycle?"),
    Dialogue(
        "Can you help me with that?",
        'What do you mean by "that"?',
        "My taxes.",
        "Can you help me with My taxes?",
    ),
    Dialogue("Who is she?", 'What do you mean by "she"?', "Olga Petrova", "Who is Olga Petrova?"),
    Dialogue(
        "How do I clean them?", 'What do you mean by "them"?', "the windows", "How do I clean the windows?"
    ),
    Dialogue("How do I fix it?", 'What do you mean by "it"?', "Why do you ask?", "Why do you ask?"),
    Dialogue("What time is it?", None),
    Dialogue("How is it going?", None),
    Dialogue("How do I fix a flat tire?", None),
]


@pytest.fixture
def known(db: psycopg.Connection, customer: psycopg.Connection) -> psycopg.Connection:
    db.execute(
        "select model_register('first', 'generator', 'scripted', '', %s)"
        " where not exists (select from model where name = 'first')",
        (Jsonb({"default": "Yes."}),),
    )
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    for content in MEMORIES:
        customer.execute("select memory_insert(%s)", (content,))
    customer.execute("select setting_set('chat_clarify', 'true')")
    customer.execute("select setting_set('chat_unknown', 'false')")
    return customer


def chat(
    connection: psycopg.Connection, message: str, session: object = None
) -> tuple[object, str, str, list[str]]:
    row = connection.execute(
        """select session_id, reply, action, array(select content from memory where id = any (memory_ids))
           from llm_chat_detail(%s, model => 'first', session_id => %s)""",
        (message, session),
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize("dialogue", DIALOGUES, ids=lambda one: f"{one.question} {one.reply}")
def test_a_question_is_asked_back_and_its_reply_is_what_was_meant(
    known: psycopg.Connection, dialogue: Dialogue
) -> None:
    session, reply, action, _ = chat(known, dialogue.question)
    if dialogue.asked is None:
        assert action != "clarify"
        return
    assert (reply, action) == (dialogue.asked, "clarify")
    shown = known.execute(
        "select content from session_context(%s, %s, 'first') where part = 'message'",
        (session, dialogue.reply),
    ).fetchall()
    assert shown == [(dialogue.meant,)]
    _, _, action, memories = chat(known, dialogue.reply, session)
    assert action != "clarify"  # never twice in a row
    assert not [one for one in memories if any(rival in one for rival in dialogue.rivals)]
    # What was meant there says nothing of another conversation.
    assert chat(known, dialogue.question)[1:3] == (dialogue.asked, "clarify")


def test_a_pronoun_refers_to_what_was_said_before(known: psycopg.Connection) -> None:
    session, *_ = chat(known, "My bicycle has a flat tire.")
    assert chat(known, "How do I fix it?", session)[2] != "clarify"


def test_an_answer_above_the_threshold_of_the_user_is_not_asked_back(known: psycopg.Connection) -> None:
    known.execute("select setting_set('answer_above', '0')")
    assert chat(known, "Where does Anna live?")[2] == "answer"
    known.execute("select setting_set('answer_above', '0.99')")
    assert chat(known, "Where does Anna live?")[2] == "clarify"
