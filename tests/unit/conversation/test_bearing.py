from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mindful.conversation import bearing as module
from mindful.conversation.bearing import ANSWERED, Bearing, _common, _lower_names, _scores, invents, weigh
from mindful.conversation.near import Stored
from mindful.core.ports import Row
from unit.fakes import FakeDatabase

HALF_AS_NEAR: Any = {"_mindful.similarity": lambda ids, *_: [{"similarity": 0.5}] * len(ids)}


def row(number: int, content: str, **changed: Any) -> Row:
    return {"id": number, "content": content, "kind": "fact", "said_at": float(number)} | changed


OFFICE = [row(1, "The office is in Berlin."), row(2, "The office is in Graz.")]


def bearing(question: str, held: dict[int, str], lacked: dict[int, str] | None = None) -> Bearing:
    similarities = dict.fromkeys(held, 0.5)
    contents = {one["id"]: one["content"] for one in OFFICE}
    return Bearing(question, "e", similarities, lacked or dict.fromkeys(held, ""), held, contents)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Samuel lives in Leeds.", False),
        ("samuel is in LEEDS, at 14:15", False),
        ("Samuel is 18.", True),
        ("Samuel lives in Paris.", True),
        ("The answer is not known to me.", False),
        ("The answer is: Mr. Samuel.", False),
        ("The answer is: Mr. Okoro.", True),
        ("It was Prof. Okoro.", True),
    ],
)
def test_names_and_numbers_of_a_reply_are_those_of_its_sources(reply: str, expected: bool) -> None:
    assert invents(reply, ["How tall is Samuel?", "Samuel moved to Leeds at 14:15."]) is expected


@pytest.mark.parametrize(
    ("reply", "shown", "expected"),
    [
        ("You order it from Cedar.", [2], False),
        ("You order it from Beeline.", [2], True),
        ("Not Cedar any more, Beeline.", [2], True),
        ("You order it from Cedar.", [1], True),
    ],
)
def test_a_reply_does_not_rest_on_what_the_memory_shown_replaced(
    reply: str, shown: list[int], expected: bool
) -> None:
    contents = {1: "I order wax from Cedar.", 2: "I do not use Cedar now, Beeline has my orders."}
    found = bearing("Who do I order wax from?", {1: "order wax", 2: "order"})._replace(
        contents=contents,
        own=True,
        scores=dict.fromkeys(shown, 0.6),
        outdated={1: 2},
    )
    assert found.is_grounded(reply, shown) is expected


def test_what_was_replaced_answers_no_more_and_is_remembered() -> None:
    found = bearing("Where is the office?", {1: "office", 2: "office"})._replace(scores={1: 0.7, 2: 0.5})
    then = found.replaced({1: 2})
    assert (then.scores, then.outdated) == ({2: 0.7}, {1: 2})


def test_the_newest_of_alike_memories_comes_first_at_the_place_of_the_first() -> None:
    found = bearing("Where is the office?", {1: "office", 2: "", 3: "office"}, {1: "", 2: "office", 3: ""})
    rows = [row(1, "a"), row(2, "b"), row(3, "c")]
    assert [one["id"] for one in found.newest_first(rows)] == [3, 1, 2]


def test_the_nearest_memories_are_quoted_if_they_are_near_and_short() -> None:
    found = bearing("q", dict.fromkeys((1, 2, 3, 4), ""))
    found.similarities.update({1: 0.2, 2: 0.4, 3: 0.6, 4: 0.9})
    rows = [row(1, "far"), row(2, "near"), row(3, "nearer"), row(4, "long " * 100)]
    assert found.nearest(rows, {1, 2, 3, 4}) == ["nearer", "near"]


def test_a_turn_is_quoted_only_if_it_is_about_the_question_and_not_outdated() -> None:
    found = bearing("q", dict.fromkeys((1, 2, 3, 4), ""))._replace(outdated={4: 3})
    found.similarities.update({1: 0.4, 2: 0.44, 3: 0.5, 4: 0.9})
    rows = [row(1, "shown"), row(2, "turn"), row(3, "near turn"), row(4, "old turn"), row(5, "neither")]
    assert found.nearest(rows, {1}, {2, 3, 4}) == ["near turn", "shown"]


def test_memories_of_the_kind_that_is_asked_for_are_quoted_first() -> None:
    found = bearing("When do I have to be at work?", dict.fromkeys((1, 2, 3), ""))
    found.similarities.update({1: 0.5, 2: 0.4, 3: 0.45})
    rows = [
        row(1, "The password at work is tulip."),
        row(2, "They want me in at 8:15."),
        row(3, "I start at 7:45."),
    ]
    assert found.nearest(rows, {1, 2, 3}) == ["I start at 7:45.", "They want me in at 8:15."]


KEY = {
    1: "The spare key is in the attic.",
    2: "My cousin Ella plays chess.",
    3: "My cousin Hugo plays chess too.",
}


@pytest.mark.parametrize(
    ("question", "scores", "reply", "expected"),
    [
        ("Where is the spare key?", {1: 0.6}, "In the attic.", True),
        ("Where is the spare key?", {1: 0.6}, "The spare key is in the kitchen.", False),
        ("Where is the spare key?", {1: 0.3}, "The spare key is in the kitchen.", True),  # nothing answers
        ("Which of my cousins play chess?", {2: 0.6, 3: 0.5}, "Ella plays chess.", False),
        ("Which of my cousins play chess?", {2: 0.6, 3: 0.5}, "Ella and Hugo do.", True),
    ],
)
def test_a_reply_rests_on_the_memories_that_answer(
    question: str, scores: dict[int, float], reply: str, expected: bool
) -> None:
    found = bearing(question, dict.fromkeys(KEY, ""))._replace(contents=KEY, own=True, scores=scores)
    assert found.is_grounded(reply, list(KEY)) is expected


def test_memories_that_answer_are_quoted_and_one_unless_several_are_asked_for() -> None:
    found = bearing("Which of my cousins play chess?", dict.fromkeys(KEY, ""))
    found = found._replace(contents=KEY, own=True, scores={2: 0.6, 3: 0.5})
    assert found.quoted([2, 3]) == f'"{KEY[2]}" "{KEY[3]}"'
    assert found._replace(question="Who plays chess?").quoted([2, 3]) == f'"{KEY[2]}"'


def test_a_memory_that_lacks_what_is_asked_about_scores_less_and_may_still_answer() -> None:
    contents = {1: "The recipe needs three eggs.", 2: "The recipe needs three lemons."}
    found = bearing("How many eggs does the recipe need?", dict.fromkeys(contents, ""))
    found = found._replace(contents=contents, beyond=dict.fromkeys(contents, ""))
    embedder: Any = SimpleNamespace(name="e", relation="e")  # the memories lack no word of the question
    scores = _scores(Stored(FakeDatabase({}), embedder), embedder, found)
    assert 0 < scores[2] < scores[1]
    assert scores[1] == pytest.approx(0.7 * 0.5 + 0.3)  # it lacks no word, so nothing is far from it


class FakeEmbedder:
    """Embeds every text alike, and notes what it embedded."""

    name = relation = "even"

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts: list[str]) -> list[list[float]]:
        self.embedded += texts
        return [[1.0] for _ in texts]


@pytest.mark.parametrize(
    ("question", "held", "right", "wrong"),
    [
        (
            "What did Olga find in hive 3?",
            "hive",
            "Olga found mites in hive 3.",
            "Olga found mites in hive 1.",
        ),
        (
            "What did we sing last season?",
            "season",
            "We sang Verdi last season.",
            "We sing Verdi this season.",
        ),
        ("What does Dr. Berg like?", "Dr. Berg", "Dr. Berg likes tea.", "Dr. Lind likes tea."),
    ],
)
def test_a_memory_scores_less_without_a_number_a_time_or_a_name_of_the_question(
    question: str, held: str, right: str, wrong: str
) -> None:
    contents = {1: right, 2: wrong}
    found = bearing(question, dict.fromkeys(contents, held), dict.fromkeys(contents, "x"))._replace(
        contents=contents
    )
    embedder: Any = FakeEmbedder()
    scores = _scores(Stored(FakeDatabase(HALF_AS_NEAR), embedder), embedder, found)
    assert scores[2] < scores[1]


def test_words_are_embedded_only_for_memories_that_may_answer() -> None:
    contents = {1: "Olga found mites in hive 3.", 2: "Olga found mites in hive 1."}
    lacked = {1: "did", 2: "did 3"}
    found = bearing("What did Olga find in hive 3?", dict.fromkeys(contents, "hive"), lacked)
    found = found._replace(contents=contents, similarities={1: 0.5, 2: 0.45})
    embedder: Any = FakeEmbedder()
    scores = _scores(Stored(FakeDatabase(HALF_AS_NEAR), embedder), embedder, found)
    assert embedder.embedded == ["did"]
    assert scores[2] < ANSWERED - 0.1  # the most that it could score


def test_a_memory_that_has_the_name_alone_scores_less() -> None:
    contents = {1: "Since May Olga Berg paints.", 2: "Since May Olga Berg swims."}
    found = bearing(
        "Where did Dr. Berg paint?", {1: "Dr. Berg paint", 2: "Dr. Berg"}, dict.fromkeys(contents, "x")
    )
    assert found.has_subject(1)
    assert not found.has_subject(2)
    embedder: Any = FakeEmbedder()
    near = Stored(FakeDatabase(HALF_AS_NEAR), embedder)
    alone, standing = (
        _scores(near, embedder, found),
        _scores(near, embedder, found._replace(is_described=True)),
    )
    assert alone[2] < standing[2]  # "Dr. Berg" in place of "our painter"
    assert alone[1] == standing[1]


@pytest.mark.parametrize(
    ("question", "memory", "reply", "expected"),
    [
        ("When was Olga here?", "Olga came on June 12.", "Olga was not here on June 12.", False),
        ("When was Olga here?", "Olga did not come on June 12.", "She was not here on June 12.", True),
        ("What is the password?", "The password is quarrel-mango-88.", "It is wifi-mango-88.", False),
        ("What is the password?", "The password is quarrel-mango-88.", "It is quarrel-mango-88.", True),
        ("What is the name of my cat?", "My cat is called Misha.", "Misha is a cat.", False),
        ("What is the name of my cat?", "My cat is called Misha.", "Your cat is Misha.", True),
        ("What is the name of my cat?", "My cat is called Misha.", "Misha.", True),
        ("Where is my bike?", "My bike is a Gazelle behind the station.", "It is a Gazelle.", False),
        ("Where is my bike?", "My bike is a Gazelle behind the station.", "Behind the station.", True),
        ("Do I play the cello?", "I play the cello of Vuillaume.", "No, not the cello of Vuillaume.", False),
        ("Do I play the cello?", "I play the cello of Vuillaume.", "Yes, of Vuillaume.", True),
    ],
)
def test_a_reply_rests_on_what_the_memory_says(
    question: str, memory: str, reply: str, expected: bool
) -> None:
    found = bearing(question, {1: ""})._replace(contents={1: memory}, scores={1: 0.8}, own=True)
    assert found.is_grounded(reply, [1]) is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Your name is Tom.", True),
        ("I think you are Tom!", True),
        ("No, I don't know your name.", False),
        ("The name of your friend is Tom.", False),
    ],
)
def test_a_reply_about_the_users_name_says_it(reply: str, expected: bool) -> None:
    found = bearing("What is my name?", {})._replace(own_name="Tom", own=True)
    assert found.is_grounded(reply, []) is expected


@pytest.mark.parametrize(
    ("question", "similarity", "held", "compared", "expected"),
    [
        ("Write about rain.", 0.6, "", True, True),  # no fact, and not the user's: the same matter
        ("Write about rain.", 0.59, "rain", True, False),
        ("I want a poem about my garden.", 0.45, "", False, True),  # the user's matter: about it
        ("I want a poem about my garden.", 0.44, "", True, False),
        ("I want a poem about my garden.", 0.35, "garden", False, True),
        ("I want a poem about my garden.", 0.34, "garden", True, False),
        ("When did it rain?", 0.25, "", False, True),  # a fact: whatever bears on it
        ("When did it rain?", 0.24, "", False, False),
        ("When did it rain?", 0.0, "", True, True),
        ("The rain of today?", 0.25, "", False, True),
        ("The rain of today?", 0.24, "", False, False),
    ],
)
def test_what_a_message_asks_for_decides_how_near_a_memory_must_be(
    question: str, similarity: float, held: str, compared: bool, expected: bool
) -> None:
    found = bearing(question, {1: held}, {1: ""})
    found.similarities[1] = similarity
    assert found._replace(own=True).concerns(1, compared) is expected


@pytest.mark.parametrize(
    ("question", "memory", "held", "expected"),
    [
        ("Write about Ana.", "Ana likes rain.", "Ana", True),
        ("Write about Ana.", "Rain is wet.", "", False),
        ("Write about version 2.5.", "In 2.5 it was mended.", "", True),
        ("Write about version 2.5.", "In 2.6 it was mended.", "", False),
    ],
)
def test_a_memory_with_the_name_or_number_of_a_message_concerns_it(
    question: str, memory: str, held: str, expected: bool
) -> None:
    found = bearing(question, {1: held}, {1: ""})
    found.contents[1] = memory
    assert found.concerns(1, compared=False) is expected


def test_a_question_that_was_asked_before_is_not_what_it_is_about() -> None:
    asked = bearing("Where is the office?", {1: "office", 2: "office"})._replace(
        similarities={1: 1.0, 2: 0.5},
        contents={1: "Where is the office?", 2: "The office is in Graz."},
    )
    common = _common(asked)
    assert (common.similarity, common.closest) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("question", "contents", "expected"),
    [
        ("when do i fly to osaka?", ["The flight to Osaka is on 28 March."], {"osaka"}),
        ("When do I fly to osaka?", ["The flight to Osaka is on 28 March."], set()),
        ("how old is my cat?", ["We watched How I Met Your Mother."], set()),
        ("when is the exam?", ["I am reading The Hobbit with Mia."], set()),
        ("when do i see dr weber?", ["My doctor is Dr Weber."], {"weber"}),
        ("what does the rose cost?", ["I met Rose.", "The rose is red."], set()),
    ],
)
def test_names_in_lower_case_are_those_that_memories_write_with_a_capital(
    question: str, contents: list[str], expected: set[str]
) -> None:
    assert _lower_names(question, contents) == expected


@pytest.mark.parametrize(
    ("question", "scores", "expected"),
    [
        ("Where is the key?", {1: 0.9, 2: 0.76, 3: 0.74}, [1, 2]),  # not far behind the best one
        ("Where is the key?", {1: 0.5, 2: 0.43}, [1]),
        ("Where are the keys?", {1: 0.9, 2: 0.45, 3: 0.43}, [1, 2]),
        ("What are the names of my cousins?", {1: 0.5, 2: 0.41, 3: 0.39}, [1, 2]),  # beside the best one
        ("What are the names of my cousins?", {1: 0.43, 2: 0.42}, []),
    ],
)
def test_memories_that_score_enough_answer(
    question: str, scores: dict[int, float], expected: list[int]
) -> None:
    assert bearing(question, {})._replace(scores=scores).answering == expected


def test_a_memory_about_the_same_thing_answers_a_question_of_yes_or_no() -> None:
    contents = {1: "The bike is a Gazelle.", 2: "The shed has a roof.", 3: "A bike needs oil."}
    found = bearing("Is the bike a Gazelle?", {1: "bike", 2: "", 3: "bike"})._replace(contents=contents)
    found.similarities[3] = 0.3
    embedder: Any = FakeEmbedder()
    assert not found.asks
    assert set(_scores(Stored(FakeDatabase({}), embedder), embedder, found)) == {1}


@pytest.mark.parametrize(("scores", "own"), [({}, False), ({1: 0.49}, False), ({1: 0.5}, True)])
def test_a_memory_that_surely_answers_makes_a_question_the_users_own(
    monkeypatch: pytest.MonkeyPatch, scores: dict[int, float], own: bool
) -> None:
    monkeypatch.setattr(module, "is_own", lambda *_: False)
    monkeypatch.setattr(module, "_scores", lambda *_: scores)
    compared = [{"id": 1, "similarity": 0.5, "lacked": "", "held": "office"}]
    near: Any = SimpleNamespace(compared=lambda *_: compared)
    embedder: Any = FakeEmbedder()
    found = weigh(FakeDatabase({}), "Where is the office?", embedder, "[1]", {1: OFFICE[0]["content"]}, near)
    assert (found.own, found.scores) == (own, scores if own else {})
