"""Messages that only ask, and recall of what was stated."""

from __future__ import annotations

import psycopg
import pytest
from support import one
from support.memories import remember_all

ASKS = (
    "Where does Marta live?",
    "Where does Marta live",
    "In which city does Marta live now?",
    "what's the wifi password",
    "whats my sister's name",
    "Tell me where the spare key is.",
    "Can you remind me where I keep the spare key?",
    "I forgot where the spare key is.",
    "I forgot the code of the bike lock.",
    "I need to know the code of the cellar.",
    "I can't remember the name of my dentist.",
    "I don't remember when my sister's birthday is",
    "Do you know my sister's name?",
    "I'd like to know which city Marta lives in.",
    "I need to know what time the train leaves.",
    "Remind me: where is the spare key?",
    "Remind me what my budget was.",
    "My sister's name?",
    "Spare key?",
    "Hi! Where did I put the spare key?",
    "Hey, which wine does Tom like?",
    "Please tell me the name of my dentist",
    "By the way, what's the code of the garage?",
    "I'm not sure where I parked the car.",
    "I wonder where the spare key is.",
    "Any idea where the spare key could be?",
    "So what did we decide about the roof?",
    "If someone asked, what would my favorite color be?",
    "What is Dr. Huber's phone number?",
    "Which one of my friends is allergic to nuts?",
    "Could you look up my landlord's number for me",
    "Give me the name of my boss.",
    "What was the name of that restaurant that I liked?",
    "Do you remember that restaurant I told you about?",
    "Hello!",
    "Thanks a lot!",
    "Good morning",
    "Is the spare key under the blue pot?",
    "For Marta, what city is home?",
    "Help me remember who gave me the watch",
    "How do I fix it?",
    "Let me know when my flight leaves.",
    "I want to check how much I paid for the bike.",
    "Wo wohnt Marta?",
    "¿Dónde vive Marta?",
    "玛尔塔住在哪里？",  # noqa: RUF001
    "I was wondering if you could tell me my shoe size",
    "Could you tell me whom my sister married, please?",
    "List my allergies.",
    "When's Tom's birthday",
    "who is my dentist",
    "did I say where the key is",
)
STATES = (
    "Marta moved to Toronto in 2019.",
    "The spare key is under the blue pot.",
    "My sister's name is Ada.",
    "I live in Graz, do you know a good bakery there?",
    "I moved to Graz last year. Where should I go shopping?",
    "When I was young, I lived in Bonn.",
    "Remember that my sister's name is Ada.",
    "Remind me that the meeting is on Friday.",
    "Note: the code of the garage is 4711.",
    "I remember when we moved to Bonn in 1999.",
    "I forgot my umbrella at Ada's.",
    "We decided to paint the roof red.",
    "My budget is 85,000 euros.",
    "Tom likes Riesling",
    "I'm allergic to nuts.",
    "Since I'm a vegetarian, what should I cook tonight?",
    "My dentist is Dr. Huber, she is great!",
    "Will works at the bank.",
    "May 4th is my sister's birthday.",
    "Name's Ana.",
    "The wifi password is hunter2",
    "My train leaves at 7:45, can you believe it?",
    "What I like most is chess.",
    "Where I live, it rains a lot.",
    "Yes, my flight leaves on Monday at nine from Vienna.",
    "I have two cats named Tim and Struppi, aren't they cute?",
    "My son started school today and he loves it, isn't that nice?",
    "Marta wohnt in Toronto.",
    "Please note that the gym is closed on Sundays.",
    "Thanks! My new number is 555 0199.",
    "I don't like coriander.",
    "I can't stand loud music",
    "I never eat fish.",
    "I know where the best pizza is: at Luigi's in the Via Roma.",
    "Have lunch with Tom every Friday",
)


@pytest.mark.parametrize("text", ASKS)
@pytest.mark.shares
def test_a_question_only_asks(db: psycopg.Connection, text: str) -> None:
    assert one(db, "select _mindful.asks(%s)", text) is True


@pytest.mark.parametrize("text", STATES)
@pytest.mark.shares
def test_a_statement_does_not_only_ask(db: psycopg.Connection, text: str) -> None:
    assert one(db, "select _mindful.asks(%s)", text) is False


def test_a_question_with_a_statement_beside_it_states(db: psycopg.Connection) -> None:
    for statement in STATES[:6]:
        for question in ASKS[4:9]:
            assert one(db, "select _mindful.asks(%s)", f"{statement} {question}") is False
            assert one(db, "select _mindful.asks(%s)", f"{question}\n{statement}") is False


def test_a_long_text_is_taken_to_state(db: psycopg.Connection) -> None:
    assert one(db, "select _mindful.asks(%s)", "Where? " * 200) is False


def say(connection: psycopg.Connection, *lines: tuple[str, str]) -> None:
    session = one(connection, "select session_start()")
    for role, content in lines:
        connection.execute("select message_insert(%s, %s, %s)", (session, role, content))


def test_only_messages_of_users_ask(scripted: None, ana: psycopg.Connection) -> None:
    remember_all(ana, "Where is the key?")
    say(
        ana, ("user", "Where is the key?"), ("assistant", "Which key do you mean?"), ("user", "The blue one.")
    )
    rows = ana.execute("select kind, role, asks from memory order by id").fetchall()
    assert rows == [
        ("fact", None, False),
        ("message", "user", True),
        ("message", "assistant", False),
        ("message", "user", False),
    ]
    ana.execute("update memory set content = 'Where is the blue one?' where content = 'The blue one.'")
    assert one(ana, "select count(*) from memory where asks") == 2


def test_recall_of_statements_leaves_out_questions_and_replies(
    scripted: None, ana: psycopg.Connection
) -> None:
    (fact,) = remember_all(ana, "The spare key is under the blue pot.")
    for _ in range(3):
        say(ana, ("user", "Where is the spare key?"), ("assistant", "The spare key is under the blue pot."))
    asked = "select id from memory_recall('Where is the spare key?', 50, statements => %s)"
    assert ana.execute(asked, (True,)).fetchall() == [(fact,)]
    everything = ana.execute(asked, (False,)).fetchall()
    assert len(everything) == 2  # each text comes once
    assert (fact,) in everything, "a reply that repeats a fact does not hide the fact"


def test_statements_are_found_behind_many_questions(scripted: None, ana: psycopg.Connection) -> None:
    (fact,) = remember_all(ana, "The spare key is under the blue pot.")
    session = one(ana, "select session_start()")
    ana.execute(
        """select message_insert(%s, 'user', format('Where is the spare key, which is number %%s?', g))
           from generate_series(1, 300) g""",
        (session,),
    )
    found = ana.execute(
        "select id from memory_recall('Where is the spare key?', statements => true)"
    ).fetchall()
    assert found == [(fact,)]


def test_neighbors_of_questions_gain_nothing(scripted: None, ana: psycopg.Connection) -> None:
    say(ana, ("user", "Where is the spare key?"), ("assistant", "I do not know."), ("user", "I had soup."))
    found = ana.execute(
        "select content from memory_recall('Where is the spare key?', statements => true)"
    ).fetchall()
    row = ana.execute(
        "select bm25_context, similarity_context from memory_recall('Where is the spare key?', statements => true)"
    ).fetchone()
    assert found == [("I had soup.",)]
    assert row == (None, 0)
