from __future__ import annotations

from typing import Any

import pytest
from mindful.learning.curated import read


def row(content: str, **changed: Any) -> dict[str, Any]:
    return {
        "curated": True,
        "question": None,
        "content": content,
        "subject": None,
        "relation": None,
    } | changed


@pytest.mark.parametrize(
    ("content", "subject", "relation"),
    [
        ("Marta moved to Toronto in 2019.", "Marta", ""),
        ("I am allergic to peanuts.", "The user", "allergic_to"),
        ("Deployments happen on Tuesdays after the release meeting.", "Deployments", ""),
        ("The staging database is rebuilt every night.", '"The staging database"', ""),
        ("Never on Fridays", '"Never on Fridays"', ""),
        ("Never on Fridays or on days before holidays", '"Never on Fridays or on days"', ""),
    ],
)
def test_what_people_write_is_read_as_facts(content: str, subject: str, relation: str) -> None:
    found = [(one["subject"], one["relation"]) for one in read(row(content), None)]
    assert (subject, relation) in found


def test_the_users_name_takes_the_place_of_the_user() -> None:
    extracted = row("The user lives in Graz.", curated=False, subject="The user", relation="lives_in")
    (one,) = read(extracted, "Ana")
    assert (one["subject"], one["content"]) == ("Ana", "Ana lives in Graz.")
    (one,) = read(extracted | {"subject": "The user's dog", "content": "The user's dog is old."}, "Ana")
    assert (one["subject"], one["content"]) == ("Ana's dog", "Ana's dog is old.")
    (one,) = read(extracted | {"relation": "name", "content": "The user is called Ana."}, "Ana")
    assert one["content"] == "The user is called Ana."


def test_a_question_in_the_metadata_is_kept() -> None:
    (one,) = read(row("I live in Graz.", question="Where is home?"), None)
    assert (one["question"], one["relation"], one["content"]) == ("Where is home?", "", "I live in Graz.")
