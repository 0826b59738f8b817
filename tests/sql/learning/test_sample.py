"""Facts become instruction pairs, and only those that pass every gate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Connect, fails
from support.deletion import delete
from support.race import raced

ALL = """filter => '{"level": "information"}'"""


@pytest.fixture(autouse=True)
def quick(db: psycopg.Connection) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))


@pytest.fixture
def consenting(ana: psycopg.Connection) -> psycopg.Connection:
    ana.execute("select setting_set('training_consent', 'true')")
    return ana


def say(user: psycopg.Connection, *texts: str) -> list[int]:
    messages = [
        {
            "role": "user",
            "content": text,
            "metadata": {"speaker": "Ana"},
            "created_at": f"2024-05-{day:02}T12:00:00Z",
        }
        for day, text in enumerate(texts, 1)
    ]
    rows = user.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),)).fetchall()
    user.execute("select memory_consolidate()")
    return [identity for (identity,) in rows]


def replay(user: psycopg.Connection, arguments: str = ALL, model: str = SCRIPTED_GENERATOR) -> dict[str, Any]:
    with user.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(f"select * from replay_run('{model}', {arguments})".encode()).fetchone()
    assert row is not None
    return row


def pairs(user: psycopg.Connection) -> set[tuple[str, str, str, str]]:
    return set(
        user.execute(
            "select form, instruction, input, output from training_sample where refused = '{}'"
        ).fetchall()
    )


def reasons(user: psycopg.Connection) -> dict[str, int]:
    return dict(
        user.execute(
            "select reason, count(*) from training_sample, unnest(refused) reason group by 1"
        ).fetchall()
    )


@pytest.mark.smoke
def test_facts_become_pairs(consenting: psycopg.Connection) -> None:
    say(consenting, "I live in Boston, and I love pizza.")
    row = replay(consenting)
    assert (row["status"], row["facts"], row["error"]) == ("completed", 2, None)
    found = pairs(consenting)
    assert row["accepted"] == len(found)
    assert {
        ("recall", "Where does Ana live?", "", "Ana lives in Boston."),
        ("answer", "Where does Ana live?", '"I live in Boston"', "Ana lives in Boston."),
        ("explain", "What does this say about Ana?", '"I love pizza"', "Ana likes pizza."),
        ("factors", "What else is linked to this?", "Ana lives in Boston.", "Ana likes pizza."),
    } <= found


def test_what_nobody_has_told_or_a_quote_does_not_say_is_not_known(consenting: psycopg.Connection) -> None:
    say(consenting, "I live in Boston.", "I love pizza.", "Somebody I work with is allergic to cats.")
    replay(consenting)
    abstained = [pair[1:] for pair in pairs(consenting) if pair[0] == "abstain"]
    untold = [asked for asked, quote, output in abstained if output == "I do not know. Nobody has told me."]
    unsaid = [
        (asked, quote) for asked, quote, output in abstained if output == "I do not know. This does not say."
    ]
    assert len(untold) == 2
    assert {quote for _, quote in unsaid} == {'"I live in Boston"', '"I love pizza"'}
    assert len(abstained) == 4
    # Rules drew no fact of cats and colleagues, but a word of them has been said.
    assert not any(
        word in asked for asked in untold for word in ("live", "like", "allergic", "work", "living")
    )


@pytest.mark.smoke
def test_contradictions_are_decided_by_validity(consenting: psycopg.Connection) -> None:
    # Both are in the same split by their ids.
    say(consenting, "Hello.", "Hello.", "I live in Boston.", "I moved to Rome.")
    replay(consenting)
    (decided,) = [pair for pair in pairs(consenting) if pair[0] == "decide"]
    assert "Ana lives in Boston." in decided[2]
    assert decided[3] == "Ana lives in Rome. It has been so since 2024-05-04; before, it was otherwise."
    assert not any(output == "Ana lives in Boston." for *_, output in pairs(consenting))


@pytest.fixture
def code(db: psycopg.Connection) -> None:
    """Let the model be one of code."""
    db.execute(
        "select training_configure(%s, 'alpaca', specialization => 'code_generation')", (SCRIPTED_GENERATOR,)
    )


@pytest.mark.parametrize(
    ("text", "topic", "fact", "checked"),
    [
        (
            "I prefer tabs for indentation.",
            "indentation",
            "Ana prefers tabs for indentation.",
            "keeps to what is",
        ),
        ("I prefer pytest to unittest.", "pytest", "Ana prefers pytest to unittest.", "keeps to what is"),
        (
            "I hate global variables.",
            "global variables",
            "Ana dislikes global variables.",
            "avoids what is not",
        ),
    ],
)
@pytest.mark.smoke
def test_wishes_about_code_are_applied(
    text: str, topic: str, fact: str, checked: str, code: None, consenting: psycopg.Connection
) -> None:
    say(consenting, text)
    replay(consenting)
    asked = f"for Ana that concerns {topic}."
    assert {pair for pair in pairs(consenting) if pair[0] == "apply"} == {
        ("apply", f"You write code {asked} What does Ana want of it?", "", fact),
        (
            "apply",
            f"You review code {asked} What do you check?",
            "",
            f'Whether it {checked} wanted. {fact} It was said: "{text.rstrip(".")}"',
        ),
    }


@pytest.mark.parametrize(
    "text", ["I love pizza.", "I love the ocean.", "I live in Java.", "I wrote a parser in Rust."]
)
def test_code_models_learn_nothing_else(text: str, code: None, consenting: psycopg.Connection) -> None:
    say(consenting, text)
    row = replay(consenting)
    assert (row["accepted"], row["refused"]["not_code"]) == (0, 1)


@pytest.mark.smoke
def test_without_consent_nothing_is_kept(ana: psycopg.Connection) -> None:
    say(ana, "I live in Boston.")
    row = replay(ana)
    assert (row["status"], row["accepted"]) == ("completed", 0)
    assert row["refused"]["no_consent"] > 0


def test_an_administrator_cannot_consent_for_others(admin: psycopg.Connection) -> None:
    with fails("22023", hint="user"):
        admin.execute("select setting_set('training_consent', 'true', 'global')")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I'm planning to visit Lisbon with friends.", "volatile"),
        ("I went to a concert last week.", "volatile"),
        ("I love the number 415-555-2671.", "personal"),
        ("I love mails to ana@example.org.", "personal"),
        ("I love the card 4111 1111 1111 1111.", "personal"),
        ("I love the key AKIAIOSFODNN7EXAMPLE.", "secret"),
    ],
)
@pytest.mark.smoke
def test_what_must_not_be_learned_is_refused(text: str, reason: str, consenting: psycopg.Connection) -> None:
    say(consenting, text)
    row = replay(consenting)
    assert row["refused"][reason] > 0
    assert {form for form, *_ in pairs(consenting)} <= {"abstain"}
    kept = consenting.execute(
        "select count(*) from training_sample where refused && '{secret,personal}' and output is not null"
    ).fetchone()
    assert kept == (0,)


def test_what_rests_on_nothing_or_is_over_is_refused(consenting: psycopg.Connection) -> None:
    say(consenting, "I live in Boston.", "I love pizza.")
    consenting.execute("update memory set valid_to = now() where content like '%Boston%' and kind = 'fact'")
    replay(consenting)
    assert reasons(consenting)["not_valid"] > 0


def test_a_fact_that_is_forgotten_meanwhile_gives_no_pairs(
    consenting: psycopg.Connection, connect: Connect
) -> None:
    forgotten, _ = say(consenting, "I live in Boston.", "I love pizza.")
    other = connect("ana")
    forget = f"select memory_forget(ids => '{{{forgotten}}}')"
    assert raced(consenting, other, forget, f"select replay_run('{SCRIPTED_GENERATOR}', {ALL})") is None
    assert consenting.execute("select status from consolidation where type = 'replay'").fetchone() == (
        "completed",
    )
    texts = " ".join(map(str, pairs(consenting)))
    assert "pizza" in texts
    assert "Boston" not in texts


def test_no_source_is_told_of_in_both_parts(consenting: psycopg.Connection) -> None:
    towns = ["Rome", "Oslo", "Bern", "Paris", "Lisbon", "Boston", "Athens", "Madrid", "Vienna", "Dublin"]
    for first, second in pairwise(towns):
        say(consenting, f"I love {first}.", f"I love {first} and I love {second}.", "I love tea.")
    say(consenting, *(f"I love the sea at {town}." for town in towns * 2))
    replay(consenting)
    parts = consenting.execute(
        """select e.source_id, count(distinct s.split), array_agg(distinct s.split)
           from training_sample s
           join training_sample_memory x on x.sample_id = s.id
           join memory_evidence e on e.id = x.memory_id
           where s.refused = '{}' group by 1"""
    ).fetchall()
    assert {number for _, number, _ in parts} == {1}
    assert {split for *_, splits in parts for split in splits} == {"train", "validation"}


@pytest.mark.smoke
def test_samples_that_do_not_fit_are_refused(consenting: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("select training_configure(%s, 'chat', 16)", (SCRIPTED_GENERATOR,))
    say(consenting, "I love a very long walk over many hills and down to the sea with friends.")
    replay(consenting)
    assert reasons(consenting)["too_long"] > 0


@pytest.mark.smoke
def test_thresholds_say_how_many_they_refused(consenting: psycopg.Connection) -> None:
    say(consenting, "I live in Boston.", "I love pizza.")
    row = replay(consenting, """'{"level": "knowledge"}'""")
    assert (row["status"], row["accepted"]) == ("failed", 0)
    assert "no fact passes the thresholds: 2 below level" in row["error"]
    row = replay(consenting, """'{"level": "information", "confidence": 0.85}'""")
    assert (row["facts"], row["below"]) == (1, {"confidence": 1})


def test_an_empty_memory_is_an_error_of_the_run(consenting: psycopg.Connection) -> None:
    row = replay(consenting)
    assert row["status"] == "failed"
    assert "there are no new facts" in row["error"]


@pytest.mark.parametrize(
    ("model", "arguments", "sqlstate", "hint"),
    [
        ("nobody", "'{}'", "42704", "listed"),
        (SCRIPTED_EMBEDDER, "'{}'", "42704", "listed"),
        (SCRIPTED_GENERATOR, "'[]'", "22023", "level"),
        (SCRIPTED_GENERATOR, """'{"x": 1}'""", "22023", "level"),
        (SCRIPTED_GENERATOR, """'{"level": "genius"}'""", "22023", "wisdom"),
        (SCRIPTED_GENERATOR, """'{"confidence": "high"}'""", "22023", "from 0 to 1"),
        (SCRIPTED_GENERATOR, """'{"confidence": 1e400}'""", "22023", "from 0 to 1"),
        (SCRIPTED_GENERATOR, """'{"accesses": -1}'""", "22023", "from 0"),
        (SCRIPTED_GENERATOR, """'{"accesses": null}'""", "22023", "from 0"),
        (SCRIPTED_GENERATOR, """'{"facts": 1.5}'""", "22023", "whole"),
        (SCRIPTED_GENERATOR, """'{"facts": 0}'""", "22023", "from 1"),
    ],
)
def test_bad_input(model: str, arguments: str, sqlstate: str, hint: str, ana: psycopg.Connection) -> None:
    with fails(sqlstate, hint=hint):
        replay(ana, arguments, model)


def test_a_model_without_a_prompt_format_is_refused(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("update model set prompt_format = null")
    with fails("55000", hint="training_configure"):
        replay(ana)


def test_forgetting_withdraws_pairs(consenting: psycopg.Connection) -> None:
    message, _ = say(consenting, "I live in Boston.", "I love pizza.")
    run = replay(consenting)["id"]
    before = consenting.execute("select _mindful.replay_hash(%s)", (run,)).fetchone()
    delete(consenting, "memory", "id = %s", message)
    assert not any("Boston" in " ".join(pair) for pair in pairs(consenting))
    assert consenting.execute("select withdrawn > 0 from consolidation where id = %s", (run,)).fetchone() == (
        True,
    )
    assert consenting.execute("select _mindful.replay_hash(%s)", (run,)).fetchone() != before


def test_export_formats(consenting: psycopg.Connection) -> None:
    say(consenting, "I live in Boston.")
    run = replay(consenting)["id"]
    rows = {
        name: [row for (row,) in consenting.execute("select replay_export(%s, %s)", (run, name))]
        for name in ("alpaca", "chat", "sharegpt")
    }
    assert rows["alpaca"][2] == {
        "instruction": "What does this say about Ana?",
        "input": '"I live in Boston"',
        "output": "Ana lives in Boston.",
    }
    assert rows["chat"][2]["messages"][0] == {
        "role": "user",
        "content": 'What does this say about Ana?\n\n"I live in Boston"',
    }
    assert rows["sharegpt"][2]["conversations"][1] == {"from": "gpt", "value": "Ana lives in Boston."}
    splits = [
        consenting.execute("select count(*) from replay_export(%s, split => %s)", (run, split)).fetchone()
        for split in ("train", "validation")
    ]
    assert sum(count for (count,) in splits if count is not None) == len(rows["alpaca"])  # type: ignore[misc]


def test_export_of_what_is_not_there(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    ana.execute("select setting_set('training_consent', 'true')")
    say(ana, "I live in Boston.")
    run = replay(ana)["id"]
    with fails("22023", hint="alpaca"):
        ana.execute("select replay_export(%s, 'csv')", (run,))
    with fails("22023", hint="validation"):
        ana.execute("select replay_export(%s, split => 'test')", (run,))
    for user, number in ((ana, run + 1), (bob, run)):
        with fails("42704", hint="replay_run"):
            user.execute("select replay_export(%s)", (number,))
    for table in ("training_sample", "training_sample_memory"):
        assert bob.execute(f"select from {table}".encode()).fetchall() == []


def test_readers_see_the_summary_and_no_content(
    consenting: psycopg.Connection, reader: psycopg.Connection
) -> None:
    say(consenting, "I live in Boston.")
    replay(consenting)
    found = reader.execute(
        "select type, status, runs, memories_processed > 0 from consolidation_summary order by 1"
    ).fetchall()
    assert found == [("extract", "completed", 1, True), ("replay", "completed", 1, True)]
    with fails("42501", hint=None):
        reader.execute("select * from training_sample")
    with fails("42501", hint=None):
        consenting.execute("select * from consolidation_summary")


README = [
    "My dog is called Rex, he is a beagle.",
    "Marta moved to Toronto in 2019.",
    "I am allergic to peanuts.",
]


def test_what_people_wrote_as_facts_gives_pairs_by_default(consenting: psycopg.Connection) -> None:
    consenting.execute("select setting_set('user_name', '\"Ana\"')")
    for content in README:
        consenting.execute("select memory_insert(%s)", (content,))
    consenting.execute(
        """select memory_insert('Releases ship on Tuesdays.', level => 'wisdom', confidence => 0.99,
               metadata => '{"question": "When do releases ship?"}')"""
    )
    found = replay(consenting, "'{}'")
    assert found["accepted"] > 4
    made = consenting.execute(
        "select instruction, output from training_sample where refused = '{}' and form = 'recall' order by id"
    ).fetchall()
    assert made[0] == ("When do releases ship?", "Releases ship on Tuesdays.")
    assert ("What is Ana allergic to?", "Ana is allergic to peanuts.") in made
    assert not any("The user" in text for pair in made for text in pair)
    assert len({instruction for instruction, _ in made}) == len(made)


def test_evidence_and_confidence_of_written_facts_count(consenting: psycopg.Connection) -> None:
    (source,) = say(consenting, "The build takes nine minutes on Tuesdays.")
    consenting.execute(
        "select memory_insert('The build takes nine minutes.', evidence => %s)",
        (Jsonb([{"source_id": source, "quote": "build takes nine minutes"}]),),
    )
    consenting.execute("select memory_insert('The cache is off.', confidence => 0.3)")
    found = replay(consenting, "'{}'")
    assert found["below"] == {"confidence": 1}
    assert ("explain", '"build takes nine minutes"') in {
        (form, text) for form, _, text, _ in pairs(consenting)
    }


def test_a_second_run_uses_new_facts_only(consenting: psycopg.Connection) -> None:
    consenting.execute("select memory_insert('Marta lives in Toronto.')")
    assert replay(consenting, "'{}'")["facts"] == 1
    again = replay(consenting, "'{}'")
    assert again["status"] == "failed"
    assert "no new facts" in again["error"]
    consenting.execute("select memory_insert('Ben lives in Oslo.')")
    assert replay(consenting, "'{}'")["facts"] == 1
    assert replay(consenting, """'{"again": true}'""")["facts"] == 2


def test_links_that_grew_or_faded_are_asked_about(consenting: psycopg.Connection) -> None:
    first, second, third = (
        consenting.execute("select memory_insert(%s)", (text,)).fetchone()
        for text in ("Marta lives in Toronto.", "Marta works at Acme.", "Marta likes tea.")
    )
    assert first is not None and second is not None and third is not None  # noqa: PT018
    for target, before, after in ((second, 0.5, 0.8), (third, 0.9, 0.2)):
        for weight in (before, after):
            consenting.execute(
                "select memory_link_insert(%s, %s, 'same_person', %s::real)", (*first, *target, weight)
            )
    replay(consenting, "'{}'")
    answers = {output for form, _, _, output in pairs(consenting) if form == "link"}
    assert answers <= {
        "Stronger: its weight went from 0.50 to 0.80.",
        "Weaker: its weight went from 0.90 to 0.20.",
    }
    assert answers


def test_the_night_makes_pairs_for_tenants_who_want_it(
    consenting: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    for user in (consenting, bob):
        user.execute("select memory_insert('Marta lives in Toronto.')")
    bob.execute("select setting_set('training_consent', 'true')")
    consenting.execute("select setting_set('replay_nightly', 'true')")
    admin.execute("select consolidation_run(all_unread => true)")
    assert pairs(consenting)
    assert not pairs(bob)
    admin.execute("select consolidation_run(all_unread => true)")
    runs = consenting.execute("select count(*) from consolidation where type = 'replay'").fetchone()
    assert runs == (1,)


def test_an_export_names_origin_and_models_and_is_recorded(consenting: psycopg.Connection) -> None:
    consenting.execute("select memory_insert('Marta lives in Toronto.', level => 'knowledge')")
    run = replay(consenting, "'{}'")["id"]
    rows = [row for (row,) in consenting.execute("select replay_export(%s, meta => true)", (run,))]
    assert {tuple(row["target_models"]) for row in rows} == {(SCRIPTED_GENERATOR,)}
    assert rows[0]["meta"] | {"created_at": None} == rows[0]["meta"] | {
        "created_at": None,
        "level": "knowledge",
    }
    files = [{"file": "scripted.jsonl", "pairs": len(rows)}]
    consenting.execute("select _mindful.replay_export_record(%s, %s)", (run, Jsonb(files)))
    stored = consenting.execute(
        "select outputs -> 'files' from consolidation where id = %s", (run,)
    ).fetchone()
    assert stored == (files,)
    with fails("22023"):
        consenting.execute("select _mindful.replay_export_record(%s, '{}')", (run,))
    with fails("42704"):
        consenting.execute("select _mindful.replay_export_record(%s, '[]')", (run + 1,))
