"""A question that is asked back, and the reply that settles it."""

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sql.confidence.test_action import ASK, FIRST
from sql.confidence.test_action import pair as pair
from support import SCRIPTED_EMBEDDER, fails
from support.query import one

ROLES = "select role, content from memory where session_id = %s order by turn"


@pytest.fixture
def annas(db: psycopg.Connection, ana: psycopg.Connection) -> psycopg.Connection:
    """Two people of one name, and a model that knows them apart where it is told which."""
    replies = [["does Anna Stein live", "In Graz."]]
    db.execute(
        "select model_register('first', 'generator', 'scripted', '', %s)",
        (Jsonb({"default": "In Linz.", "replies": replies}),),
    )
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    ana.execute("select memory_insert('Anna Berg lives in Linz.')")
    ana.execute("select memory_insert('Yesterday Anna Stein moved to Graz, where she lives.')")
    ana.execute("select setting_set('chat_clarify', 'true')")
    ana.execute("select setting_set('chat_unknown', 'false')")
    return ana


def chat(connection: psycopg.Connection, message: str, session: object = None) -> tuple[object, ...]:
    row = connection.execute(
        """select session_id, reply, action, decision_id, message_id
           from llm_chat_detail(%s, model => 'first', session_id => %s)""",
        (message, session),
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.smoke
def test_names_that_memories_know_twice_are_asked_back_and_the_reply_closes_the_loop(
    annas: psycopg.Connection,
) -> None:
    session, question, action, decision, message = chat(annas, "Where does Anna live?")
    assert (question, action) == ("Which one do you mean: Anna Berg or Anna Stein?", "clarify")
    assert annas.execute(
        "select action, answer, message_id, total_ms > 0 from decision where id = %s", (decision,)
    ).fetchone() == ("clarify", "In Linz.", message, True)
    _, reply, action, after, _ = chat(annas, "Stein, of course.", session)
    assert (reply, action) == ("In Graz.", "uncalibrated")
    assert annas.execute("select parent_id from decision where id = %s", (after,)).fetchone() == (decision,)
    assert annas.execute(ROLES, (session,)).fetchall() == [
        ("user", "Where does Anna live?"),
        ("clarification", question),
        ("user", "Stein, of course."),
        ("assistant", "In Graz."),
    ]
    # Which one was meant says nothing of the answer that was held back.
    assert annas.execute("select count(*) from outcome").fetchone() == (0,)


@pytest.mark.parametrize(
    ("message", "asked", "reply", "answer"),
    [
        ("Where does Anna live?", "Which one do you mean: Anna Berg or Anna Stein?", "Stein.", "In Graz."),
        ("Where does she live?", 'What do you mean by "she"?', "Anna Stein", "In Graz."),
        ("Where does Anna Berg live?", "In Linz.", "I see.", "In Linz."),
    ],
)
def test_a_stream_asks_back_before_an_answer(
    annas: psycopg.Connection, message: str, asked: str, reply: str, answer: str
) -> None:
    session = one(annas, "select session_start()")
    stream = "select llm_chat_stream(%s, %s, model => 'first')"
    assert "".join(piece for (piece,) in annas.execute(stream, (message, session))) == asked
    assert "".join(piece for (piece,) in annas.execute(stream, (reply, session))) == answer
    first, _ = annas.execute("select action, answer from decision order by id").fetchall()
    assert first == (("clarify", None) if asked != "In Linz." else ("uncalibrated", None))


@pytest.mark.smoke
def test_a_reply_that_settles_nothing_is_a_message_like_any_other_and_linked(
    annas: psycopg.Connection,
) -> None:
    session, _, _, decision, _ = chat(annas, "Where does Anna live?")
    _, reply, action, after, _ = chat(annas, "And where does Anna work?", session)
    assert (reply, action) == ("In Linz.", "uncalibrated")  # not asked twice in a row
    assert annas.execute("select parent_id from decision where id = %s", (after,)).fetchone() == (decision,)
    _, _, action, again, _ = chat(annas, "Where does Anna live?", session)
    assert action == "clarify"
    assert annas.execute("select parent_id from decision where id = %s", (again,)).fetchone() == (None,)


def test_a_full_name_is_clear(annas: psycopg.Connection) -> None:
    assert chat(annas, "Where does Anna Berg live?")[2] == "uncalibrated"


def test_it_is_a_setting_of_the_tenant_and_the_session(
    annas: psycopg.Connection, bob: psycopg.Connection
) -> None:
    session = annas.execute("select session_start()").fetchone()
    assert session is not None
    annas.execute("select setting_set('chat_clarify', 'false', 'session', %s)", session)
    assert chat(annas, "Where does Anna live?", *session)[2] == "uncalibrated"
    bob.execute("select memory_insert('Anna Berg lives in Linz.')")
    bob.execute("select memory_insert('Anna Stein lives in Graz.')")
    assert chat(bob, "Where does Anna live?")[2] != "clarify"
    assert annas.execute("select llm_chat('Where does Anna live?', model => 'first')").fetchone() == (
        "Which one do you mean: Anna Berg or Anna Stein?",
    )


@pytest.mark.smoke
def test_answers_that_compete_are_asked_back_and_the_choice_is_a_label(
    pair: psycopg.Connection, ana: psycopg.Connection
) -> None:
    pair.execute(
        "update model set options = options || %s where name = 'first'",
        (Jsonb({"samples": ["Paris.", "Paris.", "Lyon.", "Perhaps Lyon."]}),),
    )
    ana.execute("select setting_set('chat_clarify', 'true')")
    session, question, action, decision, _ = chat(ana, "What is the capital of France?")
    assert question == 'My answers differ: "Perhaps Lyon" or "Paris". Which one fits what you mean?'
    assert action == "clarify"
    row = ana.execute("select alternatives from decision where id = %s", (decision,)).fetchone()
    assert row is not None
    assert row[0] == [
        {"model": FIRST, "answer": "Paris.", "times": 2},
        {"model": FIRST, "answer": "Lyon.", "times": 1},
        {"model": FIRST, "answer": "Perhaps Lyon.", "times": 1},
    ]
    chat(ana, "Paris, please", session)
    assert ana.execute("select decision_id, correct, grader from outcome").fetchall() == [
        (decision, False, "user")
    ]


def test_answers_that_agree_are_not_asked_back(pair: psycopg.Connection, ana: psycopg.Connection) -> None:
    ana.execute("select setting_set('chat_clarify', 'true')")
    row = ana.execute(ASK, ("What is the capital of France?", None)).fetchone()
    assert row is not None
    assert row[:2] == ("Perhaps Lyon.", "uncalibrated")


def test_a_clarification_is_no_answer_to_be_labeled_and_none_of_others(
    annas: psycopg.Connection, bob: psycopg.Connection
) -> None:
    session, _, _, _, message = chat(annas, "Where does Anna live?")
    assert annas.execute("select * from label_queue").fetchall() == []
    for connection in (annas, bob):
        with fails("42704"):
            connection.execute("select answer_label(%s, true)", (message,))
    assert bob.execute("select * from _mindful.clarification(%s)", (message,)).fetchall() == []
    assert bob.execute("select * from action_latency").fetchall() == []
    with fails("42704"):
        chat(bob, "Stein", session)


def test_what_is_forgotten_takes_the_answer_held_back_along(annas: psycopg.Connection) -> None:
    session, *_ = chat(annas, "Where does Anna live?")
    chat(annas, "Stein", session)
    annas.execute("select memory_forget(session_id => %s)", (session,))
    assert annas.execute("select count(*) from decision").fetchone() == (0,)


def test_an_imported_clarification_is_a_turn(annas: psycopg.Connection) -> None:
    row = annas.execute("select session_start()").fetchone()
    assert row is not None
    for role, content in (("user", "Where?"), ("clarification", "Where is what?")):
        annas.execute("select message_insert(%s, %s, %s)", (*row, role, content))
    assert chat(annas, "Anna Stein", *row)[1] == "In Linz."
    with fails("22023"):
        annas.execute("select message_insert(%s, 'question', 'Where?')", row)


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "x",
        {},
        {"of": "reference", "choices": [""]},
        {"of": "name", "choices": "ab"},
        {"of": "name", "choices": []},
        {"of": "answer", "choices": [1]},
        {"of": ["name"], "choices": ["a"]},
    ],
)
def test_a_clarification_that_was_changed_settles_nothing(annas: psycopg.Connection, stored: object) -> None:
    session, _, action, _, message = chat(annas, "Where does Anna live?")
    assert action == "clarify"
    annas.execute(
        "update memory set metadata = metadata || %s where id = %s",
        (Jsonb({"clarification": stored}), message),
    )
    assert chat(annas, "Stein.", session)[1] == "In Linz."
