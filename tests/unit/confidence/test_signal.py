"""What is known of an answer for free."""

import math

import pytest
from mindful.confidence import signal

TOKENS = {
    "logprob_sum": -2.0,
    "logprob_mean": -0.5,
    "logprob_min": -1.0,
    "logprob_first": -0.2,
    "entropy_mean": 0.7,
    "entropy_max": 1.0,
    "margin_min": 0.1,
    "tokens": 4,
}


def test_signals_of_tokens_and_wording() -> None:
    found = signal.free(TOKENS, "What is the capital of France?", "The capital is Paris, since 987.")
    assert found["logprob_sum"] == -2.0
    assert found["log_tokens"] == pytest.approx(math.log(5))
    assert found["echo"] == pytest.approx(1 / 4)  # capital; not Paris, since, 987
    assert (found["capitalized"], found["digits"]) == (1.0, 1.0)
    assert signal.free({"tokens": 0}, "Why?", "")["echo"] == 0.0
    for text in ("paris", "élan", "über", "łódź", "иван", "東京"):
        assert signal.free(TOKENS, "q", text)["capitalized"] == 0.0
    for text in ("Paris", "Émile", "Übersee", "Łódź", "Иван", "Ệ"):
        assert signal.free(TOKENS, "q", text)["capitalized"] == 1.0


def test_questions_for_a_fact_are_told_from_others() -> None:
    for question, fact in (
        ("How many moons has Mars?", 1.0),
        ("In which year did it end?", 1.0),
        ("Why are we here?", 0.0),
        ("Somewhat tired?", 0.0),
    ):
        assert signal.free(TOKENS, question, "1945")["asks_fact"] == fact


def test_grounding_leaves_the_questions_words_aside() -> None:
    notes = ["Marta moved to Toronto in 2019."]
    question = "Where did Marta move?"
    for answer, shared in (("Marta moved to Toronto", 1.0), ("Marta lives in Ottawa", 0.0), ("Marta", 0.0)):
        assert signal.grounding(answer, question, notes)["grounding"] == shared


def test_an_answer_is_supported_where_the_question_is_spoken_of() -> None:
    notes = ["Marta moved to Toronto in 2019.", "It rains in Ottawa.", "Toronto is large."]
    question = "Where did Marta move?"
    toronto = signal.grounding("Toronto", question, notes)
    assert toronto["support"] == pytest.approx(1 / 3)  # Marta; not where, move
    assert toronto["span"] == 1.0
    assert toronto["holders"] == pytest.approx(2 / 3)
    ottawa = signal.grounding("Ottawa", question, notes)
    assert (ottawa["grounding"], ottawa["span"], ottawa["support"]) == (1.0, 1.0, 0.0)
    assert signal.grounding("Toronto in Marta", question, notes)["span"] == 0.0
    assert signal.grounding("", question, notes)["support"] == 0.0


def test_an_answer_is_compared_with_the_sentence_that_answers() -> None:
    notes = ["Anna is well. Marta moved to Toronto in 2019.", "It rains in Ottawa."]
    question = "Can you tell me where Marta moved?"
    toronto = signal.conveyed("Marta moved to Toronto", question, notes)
    assert toronto["stated"] == pytest.approx(2 / 3)  # Toronto; Marta and moved, not where
    assert toronto["conveyed"] == pytest.approx(1 / 4)  # Toronto, not 2019; not Ottawa
    ottawa = signal.conveyed("Marta moved to Ottawa", question, notes)
    assert ottawa["stated"] == 0.0  # the memory is about something else
    assert ottawa["conveyed"] == pytest.approx(1 / 2)
    anna = signal.conveyed("Marta moved to Anna", question, notes)
    assert (anna["stated"], anna["conveyed"]) == (0.0, 0.0)  # another sentence
    assert signal.conveyed("Marta moved", question, notes)["conveyed"] == 0.0


@pytest.mark.parametrize("notes", [[], ["Where did Marta move?"], [""]])
def test_memories_that_state_nothing_support_nothing(notes: list[str]) -> None:
    found = signal.conveyed("Toronto", "Where did Marta move?", notes)
    assert (found["stated"], found["conveyed"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("question", "answer", "is_of_kind"),
    [
        ("When does the gym open?", "The gym opens at 7.", 1.0),
        ("When does the gym open?", "The gym opens.", 0.0),
        ("How much is the gym?", "The gym is cheap.", 0.0),
        ("Who runs the gym?", "It is Olga.", 1.0),
        ("Who runs the gym?", "The owner runs it.", 0.0),
        ("Why is the gym closed?", "For repairs.", 1.0),
    ],
)
def test_answers_of_the_kind_asked_for(question: str, answer: str, is_of_kind: float) -> None:
    assert signal.conveyed(answer, question, [])["of_kind"] == is_of_kind


COVERED = {"coverage": 0.75, "best": 0.5, "mean": 0.25, "length": 2.5, "asking": 0.5}


def test_how_memories_stand_out() -> None:
    assert signal.recalled([0.9, 0.5, 0.4], [0.8, None, 0.3], [3.0, 2.0, None], COVERED) == {
        "coverage": 0.75,
        "coverage_best": 0.5,
        "coverage_mean": 0.25,
        "best_length": 2.5,
        "asking": 0.5,
        "score_gap": pytest.approx(0.5),
        "similarity_top": 0.8,
        "similarity_gap": pytest.approx(0.5),
        "bm25_top": 3.0,
        "bm25_gap": 3.0,
    }
    assert signal.recalled([], [], [], COVERED)["bm25_gap"] == 0.0


def test_dear_signals_come_before_the_lesser_free_ones_and_only_in_their_tier() -> None:
    assert signal.features(0, False) == list(signal.FREE)
    names = signal.features(3, True)
    assert (
        names.index("question_similarity")
        < names.index("second_similarity")
        < names.index("stated")
        < names.index("echo")
    )
    assert "second_similarity" not in signal.features(1, True)
    assert len(names) == len(set(names))
    chained = signal.features(0, False, chained=True)
    assert set(chained) == {*signal.FREE, "second_similarity", "second_agreement"}
    assert signal.features(2, True, chained=True) == signal.features(2, True)


def test_stored_signals_are_numbers() -> None:
    assert signal.rounded({"a": 0.12345678, "b": math.inf, "c": math.nan, "d": True}) == {
        "a": 0.123457,
        "d": 1.0,
    }
