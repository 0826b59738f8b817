from __future__ import annotations

import pytest
from mindful.conversation.statement import declares, states


@pytest.mark.parametrize(
    "message",
    [
        "My cat is called Misha and hates the vacuum cleaner.",
        "Hi! I am Tom and I run a small bakery in Leeds.",
        "We have three ovens, and the oldest one breaks down every winter.",
        "Our flour comes from Hargreaves Mill.",
        "My landlord, Mr Okafor, wants 1,850 pounds a month from January on.",
        "The alarm code of the shop is 7731.",
        "Anna and Ben got married in Lyon.",
        "Tomorrow I have a meeting with Sandra.",
        "By the way, the plumber is coming on Friday.",
        "Remember that the spare key is under the pot.",
        "Jonas lives in Graz now.",
        "Lena works at Bosch.",
        "Nina is my sister.",
        "I\u2019ve moved to Oslo this spring.",
        "The rent is 1,320 euros, half of which Femke pays.",
        "I have a brother who lives in Lyon.",
        "I'm allergic to shellfish, which is awkward at sea.",
        "My train leaves at 8:30 from platform 4.",
        "In the attic I am building a model railway.",
        "No, my cat is called Misha, not Mischa.",
        "Anna's flight lands at ten.",
        "Tom's bike stands in the cellar.",
        "The van takes diesel.",
        "I hate celery",
        "I drive a Volvo.",
        "We have two cats.",
        "Lena said that we need to bring salad on Friday.",
        "My GP is Dr. Anwar of Horton Park. He retires in May, and he is kind.",
        "im rhys, 26, i drive a forklift in a warehouse",
        "ive got a ferret called biscuit, shes 3",
        "locker code at work is 4471",
        "dentist is on the 19th of may, need a crown",
        "been learning bass off youtube, 20 mins every night",
        "flogged the old motor, got a grey fiesta off my uncle",
        "boss bumped me up to 15.60 an hour",
        "lol right, cant eat shellfish so no paella for me",
        "Good news, bike fund is up to 2600 now",
    ],
)
def test_a_message_that_only_tells_is_a_statement(message: str) -> None:
    assert states(message)


@pytest.mark.parametrize(
    "message",
    [
        "Where does Jonas live?",
        "the capital of france is",
        "How is the stimulus interpreted by the mind",
        "the chinese dragons are protectors of how many seas",
        "sorted list in python by key",
        "two trains left chicago at the same time",
        "united states presidents in order",
        "got any tips for my first marathon",
        "list countries that were part of yugoslavia in my atlas",
        "write an email to my landlord that the heating is broken",
        "That was really good.",
        "Great work so far.",
        "She works at Bosch.",
        "Paul plays chess.",
        "Tell me a joke about a baker.",
        "Summarize the following text in one sentence.",
        "Calculate the sum of 3 and 4.",
        "Write a short slogan for my bakery.",
        "The meaning of the word ubiquitous",
        "My cat's name",
        "I want you to write a poem.",
        "I need a recipe for lentil soup.",
        "I would like to know where the key is.",
        "I wonder where the key is now.",
        "I forgot the code of the bike lock.",
        "I do not know where the key is.",
        "I don't remember when the school concert is.",
        "We can\u2019t recall where the key is.",
        "I am looking for a good book.",
        "Hello there, nice to meet you!",
        "I am tired today.",
        "I have three texts:\nfirst, second and third",
        "Explain what a database index is.",
        "I need the address of my dentist.",
        "I want a recipe for lentil soup.",
        "The weather is nice. Tell me a joke.",
        "He went to the market and bought apples. Translate to French.",
        "My essay is too long, shorten it.",
        "I am hungry, give me a recipe.",
        "I was born in 1990, calculate my age.",
        "I have two cats and a dog, which one is older",
        "We have to decide who comes first.",
        "This is my text: I am hungry.",
        "My mother died and I feel awful.",
        "Translate the sentence I am hungry into French.",
        "My sister is ill. What should I cook for her?",
        "I am Tom. " * 40,
    ],
)
def test_a_message_that_asks_or_is_unclear_is_none(message: str) -> None:
    assert not states(message)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("We have two daughters: Leila, who is a barrister, and Hana.", True),
        ("My dog barked when the bell rang.", True),
        ("By the way, who is my dentist", False),
        ("In Leeds, which bank do I use", False),
        ("the name of the man who fixed my roof and when", False),
        ("My sister is ill, when is her birthday?", False),
    ],
)
def test_a_word_that_asks_makes_no_question_of_a_statement(message: str, expected: bool) -> None:
    assert declares(message) is expected
