"""What labels say of answers is kept in mind when a like question is asked."""

from __future__ import annotations

import json

import psycopg
import pytest
from psycopg.rows import dict_row
from support import SCRIPTED_GENERATOR, fails
from support.deletion import delete
from support.query import one

ASK = "select message_id, reply, action, reason, memory_ids from llm_chat_detail(%s, model => %s)"
QUESTION = "What is the name of my cat?"
LIKE = "What's the name of my cat?"


@pytest.fixture(autouse=True)
def script(db: psycopg.Connection) -> None:
    """A model that repeats what a note says, and else says Rex, whatever the memories tell."""
    db.execute("select setting_set('chat_unknown', 'false', 'global')")
    options = {
        "replies": [["It is Tom", "Tom"], ["blue", "Blue"]],
        "default": "Rex",
        "logprob": -0.1,
        "context_length": 4096,
    }
    db.execute("update model set options = %s where name = %s", (json.dumps(options), SCRIPTED_GENERATOR))


def ask(user: psycopg.Connection, question: str = QUESTION) -> dict[str, object]:
    row = user.cursor(row_factory=dict_row).execute(ASK, (question, SCRIPTED_GENERATOR)).fetchone()
    assert row is not None
    return row


def signals(user: psycopg.Connection) -> tuple[float, float]:
    row = user.execute(
        "select signals -> 'lesson', signals -> 'lesson_same' from decision order by id desc limit 1"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def notes(user: psycopg.Connection, question: str = LIKE) -> list[tuple[str, str]]:
    session = user.execute("select session_start()").fetchone()
    assert session is not None
    return user.execute(
        "select content, reason from session_context(%s, %s, %s) where part = 'memory'",
        (*session, question, SCRIPTED_GENERATOR),
    ).fetchall()


def test_what_a_label_notes_is_shown_with_a_like_question(
    ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    first = ask(ana)
    assert (first["reply"], signals(ana)) == ("Rex", (0, 0))
    ana.execute("select answer_label(%s, false, 'It is Tom.')", (first["message_id"],))
    [(content, reason)] = notes(ana)
    assert content == f"{QUESTION} It is Tom."
    assert "labeled wrong" in reason
    second = ask(ana, LIKE)
    assert second["reply"] == "Tom"
    verdict, same = signals(ana)
    assert verdict < -0.8
    assert same == 0
    # The same words again: they come once, and the label is found though a newer answer has none.
    ana.execute("select setting_set('chat_lessons', 'false')")
    assert ask(ana)["reply"] == "Rex"
    assert signals(ana) == (0, 0)
    ana.execute("select setting_set('chat_lessons', 'true')")
    third = ask(ana)
    assert third["reply"] == "Tom"
    assert signals(ana)[0] == pytest.approx(-1, abs=1e-3)
    assert notes(bob) == []
    assert ask(bob)["reply"] == "Rex"


@pytest.mark.smoke
def test_a_right_answer_is_a_signal_and_the_latest_label_counts(ana: psycopg.Connection) -> None:
    first = ask(ana)
    ana.execute("select answer_label(%s, true)", (first["message_id"],))
    assert notes(ana) == []  # a model gives it more often without
    ask(ana, LIKE)
    verdict, same = signals(ana)
    assert verdict == same > 0.8
    ana.execute("select answer_label(%s, false)", (first["message_id"],))
    assert notes(ana) == []  # that an answer was wrong is no help, and the question alone none either
    delete(ana, "memory", "id = %s", first["message_id"])
    ask(ana, LIKE)
    assert signals(ana) == (0, 0)


CERTIFIED = """
    with c as (
        insert into calibrator (model, with_memory, signal_tier,
            features, means, scales, weights, intercept, labels, wrong,
            metrics, last_outcome, adopted)
        select %s, m, 0, '{}', '{}', '{}', '{}', 2, 30, 10, '{}', 1, true from unnest('{false,true}'::boolean[]) m
        returning id
    )
    insert into threshold
        (calibrator_id, budget_kind, budget, delta, run, delta_spent, value, bound, status, labels, reason)
    select id, 'answers', 0.2, 0.1, 1, 0.06, 0.5, 0.2, 'certified', 30, 'x' from c
"""


def test_an_answer_that_was_labeled_wrong_is_not_given_again(ana: psycopg.Connection) -> None:
    ana.execute(CERTIFIED, (SCRIPTED_GENERATOR,))
    first = ask(ana)
    assert first["action"] == "answer"
    assert ask(ana, LIKE)["action"] == "answer"
    ana.execute("select answer_label(%s, false)", (first["message_id"],))
    again = ask(ana, LIKE)
    assert (again["reply"], again["action"]) == ("Rex", "flag")
    assert again["reason"] == "a label says that this answer to a similar question is wrong"
    assert ask(ana, "How tall is the tower in the old town?")["action"] == "answer"


def test_another_question_is_not_concerned(ana: psycopg.Connection) -> None:
    first = ask(ana)
    ana.execute("select answer_label(%s, false, 'It is Tom.')", (first["message_id"],))
    assert ask(ana, "How tall is the tower in the old town?")["reply"] == "Rex"
    assert signals(ana) == (0, 0)


def test_a_lesson_is_bounded_as_any_memory(ana: psycopg.Connection) -> None:
    first = ask(ana)
    ana.execute("select answer_label(%s, false, %s)", (first["message_id"], "It is Tom. " * 700))
    row = ana.execute(
        "select memory_ids from llm_chat_detail(%s, model => %s, memories => 0)", (LIKE, SCRIPTED_GENERATOR)
    ).fetchone()
    assert row == ([],)
    with fails("22023"):
        ana.execute("""select setting_set('chat_lessons', '1')""")
    assert all(len(content) < 9000 for content, _ in notes(ana))
    ask(ana, LIKE)


def test_a_label_of_another_session_is_kept_to_the_scope(ana: psycopg.Connection) -> None:
    asked = one(ana, "select session_start()")
    detail = "select message_id from llm_chat_detail(%s, %s, model => %s)"
    message = one(ana, detail, QUESTION, asked, SCRIPTED_GENERATOR)
    ana.execute("select answer_label(%s, false, 'It is Tom.')", (message,))
    assert [content for content, _ in notes(ana)] == [f"{QUESTION} It is Tom."]
    for scope in ("session", "work"):
        ana.execute("select setting_set('recall_scope', to_jsonb(%s::text))", (scope,))
        assert notes(ana) == []
    ana.execute("""update session set metadata = '{"scope": "work"}' where session_id = %s""", (asked,))
    assert [content for content, _ in notes(ana)] == [f"{QUESTION} It is Tom."]
    # The question may be recalled from this session, and the label be of another one.
    own = one(ana, "select session_start()")
    again = one(ana, "select message_insert(%s, 'user', %s)", own, QUESTION)
    ana.execute("""select setting_set('recall_scope', '"session"')""")
    found = "select count(*) from _mindful.lesson(array[%s], %s)"
    assert one(ana, found, again, own) == 0
    assert one(ana, found, again, asked) == 1


def test_a_scope_of_one_session_bounds_the_lessons_of_its_chats(ana: psycopg.Connection) -> None:
    first = ask(ana)
    ana.execute("select answer_label(%s, false, 'It is Tom.')", (first["message_id"],))
    bound = one(ana, "select session_start()")
    shown = "select count(*) from session_context(%s, %s, %s) where part = 'memory'"
    assert one(ana, shown, bound, LIKE, SCRIPTED_GENERATOR) == 1
    ana.execute("select setting_set('recall_scope', '\"session\"', 'session', %s)", (bound,))
    assert one(ana, shown, bound, LIKE, SCRIPTED_GENERATOR) == 0
    assert len(notes(ana)) == 1
