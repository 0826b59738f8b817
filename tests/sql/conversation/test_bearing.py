"""Questions about the user's own matters that memories answer, or do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import psycopg
import pytest

UNKNOWN = "I do not know"
KNOWN = (
    "Olga lives in Leeds.",
    "The weekly meeting is on Tuesday.",
    "From now on the weekly meeting is on Saturday.",
    "My sister Clara works as a carpenter.",
)


@pytest.fixture
def known(customer: psycopg.Connection) -> psycopg.Connection:
    for content in KNOWN:
        customer.execute("select memory_insert(%s)", (content,))
    return customer


def chat(connection: psycopg.Connection, message: str, session: object = None) -> Sequence[object]:
    row = connection.execute(
        """select reply, action, completion_tokens, session_id, decision_id
           from llm_chat_detail(%s, %s, max_tokens => 24)""",
        (message, session),
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.smoke
@pytest.mark.shares
def test_what_no_memory_tells_is_not_invented(known: psycopg.Connection) -> None:
    reply, action, tokens, session, decision = chat(known, "What is my sister's phone number?")
    assert str(reply).startswith(UNKNOWN)
    assert "carpenter" in str(reply)
    assert (action, tokens) == ("abstain", 0)
    assert known.execute("select reason from decision where id = %s", (decision,)).fetchone() == (
        "no memory answers the question (setting chat_unknown)",
    )
    stored = known.execute(
        "select role from conversation where session_id = %s order by turn", (session,)
    ).fetchall()
    assert stored == [("user",), ("assistant",)]


@pytest.mark.shares
def test_a_stream_says_so_too(known: psycopg.Connection) -> None:
    pieces = known.execute("select llm_chat_stream('How tall is Olga?', max_tokens => 24)").fetchall()
    assert "".join(piece for (piece,) in pieces).startswith(UNKNOWN)


@pytest.mark.shares
def test_what_a_memory_tells_is_answered_by_the_newest_one(known: psycopg.Connection) -> None:
    reply, action, *_ = chat(known, "On which day is the weekly meeting?")
    assert "Saturday" in str(reply)
    assert "Tuesday" not in str(reply)
    assert action == "uncalibrated"


LIVING = "We live in Graz."
LEFT = "We've left Graz for Vienna."


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([LIVING, LEFT], "Vienna"),
        ([LEFT, LIVING], "Graz"),
        ([LIVING, "Paul has left Graz for Vienna."], "Graz"),
    ],
)
@pytest.mark.shares
def test_a_change_is_found_that_has_no_word_of_the_question(
    customer: psycopg.Connection, told: list[str], expected: str
) -> None:
    others = (f"Room {number} of the office is for team {number}." for number in range(12))
    for content in (*told, *others):
        customer.execute("select memory_insert(%s)", (content,))
    reply = str(chat(customer, "Where do we live?")[0])
    assert [city for city in ("Graz", "Vienna") if city in reply.replace(LEFT, "Vienna")] == [expected]


@pytest.mark.shares
def test_a_change_is_not_looked_for_in_other_sessions_where_these_do_not_count(
    customer: psycopg.Connection,
) -> None:
    session = chat(customer, LIVING)[3]
    chat(customer, LEFT)
    customer.execute("select setting_set('recall_scope', '\"session\"')")
    assert "Vienna" not in str(chat(customer, "Where do we live?", session)[0])


@pytest.mark.parametrize(
    "message",
    ["Hello!", "What is the capital of France?", "How do I boil an egg?", "Olga has a new bicycle."],
)
@pytest.mark.shares
def test_small_talk_and_general_questions_are_answered(known: psycopg.Connection, message: str) -> None:
    assert not str(chat(known, message)[0]).startswith(UNKNOWN)


@pytest.mark.shares
def test_what_was_said_in_the_conversation_counts(known: psycopg.Connection) -> None:
    session = chat(known, "My locker has the number 512.")[3]
    assert "512" in str(chat(known, "What is the number of my locker?", session)[0])


@pytest.mark.shares
def test_what_the_message_itself_tells_is_no_unknown(known: psycopg.Connection) -> None:
    reply, action, *_ = chat(known, "Anna is coming on Tuesday with the kids. When is Anna coming?")
    assert "Tuesday" in str(reply)
    assert action != "abstain"
    assert chat(known, "I live in Graz. Where does my brother live?")[1] == "abstain"


@pytest.mark.shares
def test_the_setting_turns_it_off(known: psycopg.Connection) -> None:
    known.execute("select setting_set('chat_unknown', 'false')")
    assert not str(chat(known, "What is my sister's phone number?")[0]).startswith(UNKNOWN)


@pytest.mark.shares
def test_words_that_a_memory_lacks_are_found_by_lexemes(known: psycopg.Connection) -> None:
    assert known.execute(
        """select m.content, w.lacked, w.held from memory m,
               _mindful.words_beyond('When are the meetings of Clara?', array[m.id]) w order by m.id limit 2"""
    ).fetchall() == [
        ("Olga lives in Leeds.", "meetings Clara?", ""),
        ("The weekly meeting is on Tuesday.", "Clara?", "meetings"),
    ]


def test_words_are_looked_up_by_key(scripted: None, ana: psycopg.Connection, db: psycopg.Connection) -> None:
    """An index condition without the lexeme reads all postings of the tenant for each word."""
    ana.execute(
        "select memory_insert_many(jsonb_agg(jsonb_build_object('content', 'Fact ' || n || ' of list ' || n % 7)))"
        " from generate_series(1, 2000) n"
    )
    (memory,) = ana.execute("select max(id) from memory").fetchone() or ()
    ask = "select held from _mindful.words_beyond('Which fact is on list 6 of harbours', %s)"
    before = blocks_read(ana, db)
    assert ana.execute(ask, ([memory],)).fetchone()
    assert blocks_read(ana, db) - before < 50


def blocks_read(connection: psycopg.Connection, db: psycopg.Connection) -> int:
    connection.execute("select pg_stat_force_next_flush()")
    row = db.execute(
        """select idx_blks_read + idx_blks_hit from pg_statio_user_indexes
           where indexrelid = 'mindful.memory_term_pkey'::regclass"""
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("message", ["Where does Marta live?", "How old is Timo?"])
@pytest.mark.shares
def test_nothing_is_invented_about_a_person_nothing_is_known_of(
    customer: psycopg.Connection, message: str
) -> None:
    assert chat(customer, message)[:2] == ("I do not know.", "abstain")


@pytest.mark.shares
def test_an_answer_that_a_memory_has_is_given_and_not_hedged(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('My cat is called Misha and she is three years old.')")
    reply, action, *_ = chat(customer, "What is the name of my cat?")
    assert "Misha" in str(reply)
    assert not str(reply).startswith(UNKNOWN)
    assert action == "uncalibrated"


@pytest.mark.shares
def test_a_question_for_a_name_is_answered_by_it(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('My cat is called Misha and hates the vacuum cleaner.')")
    reply = str(chat(customer, "What is the name of my cat?")[0])
    assert "Misha" in reply
    assert "I remember" not in reply


@pytest.mark.parametrize(
    ("message", "answer"),
    [("Where is the harbor master's office?", "chandlery"), ("What is the caretaker's extension?", "305")],
)
@pytest.mark.shares
def test_two_memories_answer_together(customer: psycopg.Connection, message: str, answer: str) -> None:
    for content in (
        "The harbor master is Birgit Aagaard.",
        "Birgit's office is above the chandlery.",
        "Mr. Lloyd, the caretaker, has the key of the cellar.",
        "Mr. Lloyd's extension is 305.",
    ):
        customer.execute("select memory_insert(%s)", (content,))
    reply = str(chat(customer, message)[0])
    assert answer in reply
    assert not reply.startswith(UNKNOWN)


@pytest.mark.shares
def test_what_was_said_in_the_conversation_names_too(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('Birgit keeps her boat above the chandlery.')")
    session = chat(customer, "The harbor master is Birgit Aagaard.")[3]
    assert "chandlery" in str(chat(customer, "Where does the harbor master keep her boat?", session)[0])


@pytest.mark.parametrize(
    "message",
    [
        "What is the name of Olga's husband?",
        "When does Olga retire?",
        "How much does Clara earn?",
        "How deep is the well behind our house?",
        "What is my resting pulse?",
    ],
)
@pytest.mark.shares
def test_another_fact_about_the_same_is_no_answer(known: psycopg.Connection, message: str) -> None:
    known.execute("select memory_insert('The well behind our house has a red lid.')")
    assert str(chat(known, message)[0]).startswith(UNKNOWN)


@pytest.mark.shares
def test_a_newer_statement_wins_though_it_is_worded_otherwise(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('The pottery course costs 90 euros.')")
    customer.execute("select memory_insert('The pottery course has become more expensive: 115 euros.')")
    reply = str(chat(customer, "What does the pottery course cost?")[0])
    assert "115" in reply
    assert "90" not in reply


@pytest.mark.shares
def test_a_question_asked_before_is_not_shown_as_a_memory(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('The code of the bike lock is 8203.')")
    session = customer.execute("select session_start()").fetchone()
    assert session is not None
    customer.execute("select message_insert(%s, 'user', 'I forgot the code of the bike lock.')", session)
    assert "8203" in str(chat(customer, "What is the code of the bike lock?")[0])


@pytest.mark.shares
def test_a_reply_without_the_model_is_not_offered_for_a_label(known: psycopg.Connection) -> None:
    chat(known, "What is my sister's phone number?")
    assert known.execute("select count(*) from label_queue").fetchone() == (0,)
    chat(known, "Where does Olga live?")
    assert known.execute("select question from label_queue").fetchall() == [("Where does Olga live?",)]


@pytest.mark.shares
def test_more_is_recalled_before_the_answer_is_unknown(customer: psycopg.Connection) -> None:
    """Memories about the same thing, none of which tells a time, stand before the one that answers."""
    for word in ("loud", "long", "fun", "warm", "full", "calm", "good", "odd"):
        customer.execute("select memory_insert(%s)", (f"The choir rehearsal was {word}.",))
    customer.execute("select memory_insert('The choir meets on Thursday.')")
    assert str(chat(customer, "When is the choir rehearsal?")[0]).startswith(UNKNOWN)
    customer.execute("select setting_set('chat_retrieve', 'true')")
    assert "Thursday" in str(chat(customer, "When is the choir rehearsal?")[0])


REQUESTS = (
    ("Write a haiku about rain.", ""),
    ("Give me three ideas for dinner.", ""),
    ("Give me three ideas for dinner, and mind my allergies.", "peanuts"),
    ("Write a birthday card for Marta.", "Marta"),
    ("Suggest what to write into log 4711.", "4711"),
    ("Explain how VACUUM writes to the disk.", "VACUUM"),
)


@pytest.fixture
def clerks(tenant: Callable[[str], psycopg.Connection]) -> psycopg.Connection:
    """A tenant with many memories, which tests only read."""
    user = tenant("clerks")
    if user.execute("select exists (select from memory)").fetchone() == (True,):
        return user
    others = [f"Clerk {n} likes tea in the morning." for n in range(100, 250)]
    page = "VACUUM writes the three maps of a table to the disk and translates its ideas of what is dead."
    facts = ["I am allergic to peanuts.", "My sister Marta lives in Toronto.", "4711: blue chairs."]
    user.execute(
        "select memory_insert_many(%s)", (json.dumps([{"content": one} for one in (*others, page, *facts)]),)
    )
    user.execute("select llm_chat('Hello')")
    return user


@pytest.mark.parametrize(("request_", "shown"), REQUESTS)
@pytest.mark.shares
def test_a_request_is_shown_what_concerns_it_and_not_what_shares_a_word(
    clerks: psycopg.Connection, request_: str, shown: str
) -> None:
    """Recall finds by words too, and any two texts share some."""
    contents = [
        content
        for (content,) in clerks.execute(
            "select content from session_context(session_start(), %s) where part = 'memory'", (request_,)
        )
    ]
    assert (shown != "") == bool(contents), contents
    assert all(shown in content for content in contents)
