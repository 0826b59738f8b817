"""The package's questions have the answers that they are graded by."""

from __future__ import annotations

from collections import Counter
from operator import add, mul, sub

from mindful.confidence.question import questions
from mindful.core.text import words

NOTED = [one for one in questions() if one.memories]
GENERAL = [one for one in questions() if not one.memories]


def test_questions_are_numbered_and_none_is_asked_twice() -> None:
    assert [one.item for one in questions()] == list(range(1, len(questions()) + 1))
    assert len({(one.question, *(one.memories or ())) for one in questions()}) == len(questions())
    assert [one.item for one in GENERAL] == list(range(1, len(GENERAL) + 1))
    assert not any("{" in text or "|" in text for one in questions() for text in (one.question, *one.answers))


def test_facts_of_common_knowledge_have_an_answer() -> None:
    assert all(one.answers and all(one.answers) for one in GENERAL)


def test_sums_are_right() -> None:
    signs = {"plus": add, "times": mul, "minus": sub}
    sums = [one for one in GENERAL if set(signs) & set(words(one.question))]
    assert Counter(sign for one in sums for sign in signs if f" {sign} " in one.question) == dict.fromkeys(
        signs, len(sums) // 3
    )
    for one in sums:
        _, _, first, sign, second = one.question.rstrip("?").split()
        assert one.answers == [str(signs[sign](int(first), int(second)))]


def test_one_of_the_memories_tells_the_answer_wherever_it_stands() -> None:
    places: Counter[int] = Counter()
    for one in NOTED:
        assert len(one.memories or ()) == 3
        for answer in one.answers:
            asked = [word for word in words(one.question) if word[0].isalnum()]
            telling = [at for at, text in enumerate(one.memories or ()) if answer in text]
            assert len(telling) == 1, one  # what is said of another is another thing
            best = max(telling, key=lambda at: len(set(asked) & set(words((one.memories or ())[at]))))
            places[best] += 1
    assert set(places) == {0, 1, 2}
    assert max(places.values()) < 1.5 * min(places.values())


def test_a_quarter_of_the_questions_about_memories_has_no_answer_in_them() -> None:
    untold = [one for one in NOTED if not one.answers]
    assert 0.2 < len(untold) / len(NOTED) < 0.3
    answers = {one.question: one.answers for one in NOTED if one.answers}
    for one in untold:
        assert not any(
            answer in text for answer in answers.get(one.question, ()) for text in one.memories or ()
        )


def test_questions_of_one_form_share_a_source() -> None:
    sources = Counter(one.source for one in NOTED)
    assert set(sources.values()) == {14}
    assert {one.source for one in GENERAL} == {""}
