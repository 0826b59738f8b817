"""A chat of 200 turns still shows what was decided in it."""

import random

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import one

# What it is about, the decision as it was said, the word that only the decision has.
DECISIONS = [
    ("roof", "Fine, we do the roof first, with slate from Wales.", "slate"),
    ("budget", "Let us say 85,000 at most for everything.", "85,000"),
    ("kitchen counter", "I prefer oak for the counter in the kitchen, oiled.", "oak"),
    ("bathroom tiles", "For the bathroom we take the small green tiles.", "green tiles"),
    ("architect", "We will work with Ms. Lindqvist as architect.", "Lindqvist"),
    ("heating", "A heat pump it is, the heating with gas goes out.", "heat pump"),
    ("windows", "Triple glazing for all windows to the north.", "Triple glazing"),
    ("start date", "We start on 12 March, when the frost is over.", "12 March"),
    ("garden", "Nothing happens in the garden before next year.", "next year"),
    ("stairs", "The stairs stay as they are, they only get new paint.", "new paint"),
    ("electrician", "Hobbs and Son get the job of the electrician.", "Hobbs"),
    ("guest room", "The guest room becomes my office.", "office"),
    ("floor", "Cork on the floor upstairs, because it is quiet.", "Cork"),
    ("chimney", "The chimney is closed for good.", "closed for good"),
    ("front door", "Our front door will be painted red.", "painted red"),
    ("loan", "We take the loan of the credit union at 3.1 percent.", "3.1 percent"),
    ("cellar", "The cellar gets a drain before anything else.", "drain"),
    ("living room wall", "The wall between living room and hall comes down.", "comes down"),
    ("moving out", "During the work we live at my sister's in Bath.", "Bath"),
    ("old furniture", "The old furniture goes to the shelter, except the piano.", "shelter"),
]
REMARKS = [
    "How much dust does that make?",
    "My neighbor had a lot of trouble with his contractor.",
    "I read an article about it yesterday.",
    "What do other people do in this case?",
    "It rained the whole day here.",
    "Do you think that the weather matters?",
    "I had a long day at work and am tired.",
    "Tell me more about insulation.",
    "The cat slept on the plans all morning.",
    "That sounds expensive to me.",
]


def talk(seed: int) -> list[dict[str, str]]:
    """200 turns: 20 decisions of the user in random places, small talk, and answers that say nothing of them."""
    rng = random.Random(seed)
    places = sorted(rng.sample(range(100), len(DECISIONS)))
    decisions = dict(zip(places, rng.sample(DECISIONS, len(DECISIONS)), strict=True))
    turns = []
    for at in range(100):
        said = decisions[at][1] if at in decisions else f"{rng.choice(REMARKS)} ({at})"
        turns.append({"role": "user", "content": said})
        turns.append(
            {"role": "assistant", "content": f"Noted, point {at}. Renovation takes patience and a good plan."}
        )
    return turns


@pytest.mark.shares
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_decision_is_shown_when_it_is_asked_for(customer: psycopg.Connection, seed: int) -> None:
    session = one(customer, "select session_start()")
    customer.execute("select count(*) from message_insert_many(%s, %s)", (session, Jsonb(talk(seed))))
    missed = [
        topic
        for topic, _, word in DECISIONS
        if not one(
            customer,
            "select exists (select from session_context(%s, %s) c where strpos(c.content, %s) > 0)",
            session,
            f"What did we decide about the {topic}?",
            word,
        )
    ]
    assert len(missed) <= 1, missed
