"""What a statement says after the messages that correct it."""

from __future__ import annotations

import pytest
from mindful.conversation.correction import (
    FOLLOWING,
    corrected,
    corrected_turns,
    corrects,
    is_bare,
    statement_corrected,
)

MEETING = "The meeting with the bank is on Monday."
FLIGHT = "Anna's flight lands at ten."


@pytest.mark.parametrize(
    ("statement", "message", "expected"),
    [
        (MEETING, "No, it is on Thursday.", "The meeting with the bank is on Thursday."),
        (MEETING, "Thursday, not Monday.", "The meeting with the bank is on Thursday."),
        (FLIGHT, "Actually, it lands at noon.", "Anna's flight lands at noon."),
        ("My tailor is Mr. Borg.", "Sorry, I meant Mr. Berg.", "My tailor is Mr. Berg."),
        (
            "The key is under the pot.",
            "Sorry, it's in the kitchen drawer.",
            "The key is in the kitchen drawer.",
        ),
        ("My favourite colour is green.", "No wait, blue.", "My favourite colour is blue."),
        (
            "There are seven hives.",
            "Not seven but six, I must have counted one twice.",
            "There are six hives.",
        ),
        ("It hangs behind the door.", "Not behind the door but on a hook, sorry.", "It hangs on a hook."),
        (
            "It is on the 3rd of May.",
            "Oh dear, I misread that letter, it's the 9th.",
            "It is on the 9th of May.",
        ),
        ("The rent is 950 pounds.", "I made a mistake there, it's 915.", "The rent is 915 pounds."),
        ("I met Tom in Graz.", "No, in Linz.", "I met Tom in Linz."),
        ("The budget is 500 euros.", "Sorry, 550.", "The budget is 550 euros."),
        ("The party is on 12 May at 7 pm.", "No, at 8 pm.", "The party is on 12 May at 8 pm."),
        (
            "The party is on May 12 in Cork.",
            "It is on May 13, not May 12.",
            "The party is on May 13 in Cork.",
        ),
        ("Tom has the key.", "No, Anna.", "Anna has the key."),
        (
            "My sister Ida moved to Lyon in March.",
            "Actually, Ida moved to Nice, not Lyon.",
            "My sister Ida moved to Nice in March.",
        ),
        (
            "My brother Tom lives in Oslo.",
            "Correction: Tom lives in Bergen.",
            "My brother Tom lives in Bergen.",
        ),
        (
            "Tom lives in Oslo and Anna lives in Rome.",
            "Actually, Anna lives in Bari.",
            "Tom lives in Oslo and Anna lives in Bari.",
        ),
        (
            "The venue is the Old Mill in Cork.",
            "No, it's the New Mill.",
            "The venue is the New Mill in Cork.",
        ),
        (
            "The printer is on the second floor.",
            "I meant the third floor.",
            "The printer is on the third floor.",
        ),
        ("My car is blue.", "Sorry, my car is red.", "My car is red."),
        ("I run in the morning.", "Actually, in the evening.", "I run in the evening."),
        (
            "My dentist appointment is on Friday at 10.",
            "Sorry, the dentist is on Thursday at 11.",
            "My dentist appointment is on Thursday at 11.",
        ),
        (
            "The train leaves on Monday at 9 from Graz.",
            "No, on Tuesday at 8 from Linz.",
            "The train leaves on Tuesday at 8 from Linz.",
        ),
        ("I work at Siemens.", "No, Bosch.", "I work at Bosch."),
        ("The keys are on the table.", "No, under the bed.", "The keys are under the bed."),
        (
            "locker code at work is 4471",
            "oh wait no its 4417, always mix them up",
            "locker code at work is 4417",
        ),
        (
            "dentist is on the 19th of may",
            "ah hang on its the 20th not the 19th",
            "dentist is on the 20th of may",
        ),
        (MEETING, "The meeting is on Tuesday, not Monday.", "The meeting with the bank is on Tuesday."),
        (FLIGHT, "No, at half past eight.", "Anna's flight lands at half past eight."),
        (
            "\u0130\u0130\u0130 hives are six here.",
            "Not six but seven.",
            "\u0130\u0130\u0130 hives are seven here.",
        ),
    ],
)
def test_a_correction_replaces_the_value_of_its_kind(statement: str, message: str, expected: str) -> None:
    assert corrected(statement, [message]) == expected


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("I work at Siemens.", "Actually, in Munich."),
        ("My sister lives with Paul.", "Actually, in Paris."),
        ("I fly to Rome.", "No, from Rome."),
        ("The office is in Graz.", "Sorry, in a meeting."),
        ("I run in the park.", "Actually, in the evening."),
        ("The box is on the shelf.", "Sorry, in a hurry."),
        ("I have 2 dogs.", "No, none."),
        ("The train leaves on Monday.", "No, on Tuesday at 8."),
    ],
)
def test_a_value_replaces_only_one_that_stands_alike(statement: str, message: str) -> None:
    assert corrected(statement, [message]) == statement


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([("user", MEETING)], MEETING),
        ([("assistant", ""), ("user", MEETING)], MEETING),
        ([("user", "No, it is on Tuesday."), ("user", MEETING)], MEETING),
        ([("assistant", "?"), ("user", MEETING)], None),
        ([("user", "The cat is old."), ("user", MEETING)], None),
        ([("assistant", "")], None),
        ([], None),
    ],
)
def test_a_correction_belongs_to_the_statement_before_it(
    before: list[tuple[str, str]], expected: str | None
) -> None:
    turns = [{"role": role, "content": content} for role, content in before]
    found = statement_corrected(turns, "No, on Thursday.")
    assert (found and found["content"]) == expected


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (MEETING, "No, on Thursday we are away."),
        (MEETING, "No, my sister is ill."),
        (MEETING, "Sorry, the train is late."),
        (MEETING, "No thanks"),
        (MEETING, "Sorry about Tuesday."),
        (MEETING, "Sorry for the delay on Tuesday."),
        (MEETING, "No, thanks, maybe on Tuesday."),
        (MEETING, "There is no bread on Tuesday."),
        (MEETING, "I have no idea, maybe on Friday."),
        (MEETING, "It is on the third floor."),
        (MEETING, "No, I do not know."),
        (FLIGHT, "Actually, it leaves at noon."),
        ("The budget is 500 euros.", "Actually, it is 5 pm now."),
        ("The budget is 500 euros.", "No, is it 600?"),
        ("What is the capital of France?", "No, of Spain."),
        ("I met Tom and Ben in Graz.", "No, Kim."),
        ("x " * 200 + "on Monday.", "No, on Thursday."),
        ("Anna lives in Linz.", "My mother lives in Graz, not Linz."),
        ("My car is red.", "My bike is green, not red."),
        (MEETING, "Actually, the dentist is on Friday."),
        ("The budget is 500 euros.", "Wait, the code is 4711."),
        ("Lena works at Bosch.", "No, my car is from Audi."),
        ("I live in Graz.", "No, answer in English."),
        ("I live in Graz.", "No, in English."),
        (MEETING, "No, cancel Tuesday."),
        ("I have three sons.", "Hold on a second."),
        ("My sister has two cats.", "No, one moment."),
        ("Tom has the key.", "Sorry Anna!"),
        ("My father was born in 1950.", "Sorry, 2 typos there."),
        ("Our son plays the violin in Graz.", "Oops, wrong chat, hi Anna."),
        ("The tenant pays 10 euros.", "Not ten but nine."),
        ("There are sixty hives.", "Not six but seven."),
        ("Karin has the cat.", "Not Kari but Eva."),
        ("The rent is 950 pounds.", "No, 550 dollars."),
        ("Tom lives in Oslo, with Anna.", "Actually, Anna lives in Bergen."),
        ("Tom lives in Oslo.", "Wait, Tom likes Bergen."),
        ("My brother Tom lives in Oslo.", "Tom lives in Bergen."),
    ],
)
def test_other_messages_correct_nothing(statement: str, message: str) -> None:
    assert corrected(statement, [message]) == statement


def test_corrections_follow_one_another_until_something_else_is_said() -> None:
    later = ["No, on Thursday.", "Sorry, I mean Friday.", "The cat is black.", "No, on Sunday."]
    assert corrected(MEETING, later) == "The meeting with the bank is on Friday."


@pytest.mark.parametrize(
    ("message", "expected"),
    [("No, my car is blue.", "My car is a blue Volvo."), ("No, grey.", "My car is a red Volvo.")],
)
def test_after_a_question_of_the_user_a_correction_has_a_subject(message: str, expected: str) -> None:
    statement = "My car is a red Volvo."
    assert corrected(statement, ["What color is it?", message]) == expected
    before = [{"role": "user", "content": "What color is it?"}, {"role": "user", "content": statement}]
    assert (statement_corrected(before, message) is not None) is (expected != statement)
    turns = [{"role": "user", "content": message}, *before]
    assert corrected_turns(turns)[-1]["content"] == expected


def test_turns_are_read_as_corrected() -> None:
    said = [
        ("user", MEETING),
        ("assistant", "I will remember that."),
        ("user", "No, on Thursday."),
        ("assistant", "No, on Friday."),
        ("user", "When is it?"),
    ]
    turns = [{"role": role, "content": content} for role, content in reversed(said)]
    found = [turn["content"] for turn in reversed(corrected_turns(turns))]
    assert found == ["The meeting with the bank is on Thursday.", *(content for _, content in said[1:])]


@pytest.mark.parametrize(
    ("reply", "message", "day"),
    [
        ("Where?", "No, on Thursday.", "Monday"),
        ("Fine.", "No, on Thursday.", "Thursday"),
        ("Where?", "Sorry, on Thursday.", "Thursday"),
        ("Where?", "No wait, on Thursday.", "Thursday"),
    ],
)
def test_what_answers_a_question_corrects_nothing(reply: str, message: str, day: str) -> None:
    said = [("user", MEETING), ("assistant", reply), ("user", message)]
    turns = [{"role": role, "content": content} for role, content in reversed(said)]
    assert corrected_turns(turns)[-1]["content"] == f"The meeting with the bank is on {day}."


@pytest.mark.parametrize(("between", "day"), [(FOLLOWING - 1, "Thursday"), (FOLLOWING, "Monday")])
def test_a_correction_follows_its_statement_soon(between: int, day: str) -> None:
    said = [("user", MEETING), *[("assistant", "Fine.")] * between, ("user", "No, on Thursday.")]
    turns = [{"role": role, "content": content} for role, content in reversed(said)]
    assert corrected_turns(turns)[-1]["content"] == f"The meeting with the bank is on {day}."


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("No, on Thursday.", True),
        ("It is on the 13th, not the 12th.", True),
        ("My car is red, not blue.", False),
        ("Sorry, the dentist is on Friday.", False),
        ("Actually, Ida moved to Nice.", False),
        ("My sister is not married.", False),
        ("She is not allergic to nuts.", False),
        ("The clock is wrong, it is slow.", False),
    ],
)
def test_a_message_without_a_subject_says_nothing_by_itself(message: str, expected: bool) -> None:
    assert is_bare(message) is expected


@pytest.mark.parametrize(("message", "expected"), [("No, Berg.", "Berg."), ("Berg.", None), ("No.", None)])
def test_a_fragment_has_no_subject_of_its_own(message: str, expected: str | None) -> None:
    assert corrects(message) == expected
