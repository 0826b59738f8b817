"""Recall: its arms, their sum, the boosts and the filters."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import log
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import fails, one
from support.memories import remember_all

TALK = [
    ("user", "I bought a telescope last week."),
    ("assistant", "Which one did you choose?"),
    ("user", "A refractor with a long tube."),
    ("assistant", "Good for planets."),
    ("user", "My cousin Ana plays the violin in an orchestra."),
    ("assistant", "How long has she been doing that?"),
    ("user", "Since she was seven."),
]
LEXICAL = {
    "recall_weight_similarity": 0,
    "recall_weight_similarity_context": 0,
    "recall_boost_recency": 0,
    "recall_boost_importance": 0,
    "recall_boost_access": 0,
    "recall_prior_question": 0,
    "recall_prior_length": 0,
}


def talk(connection: psycopg.Connection) -> UUID:
    (session,) = connection.execute("select session_start()").fetchone() or ()
    messages = Jsonb([{"role": role, "content": content} for role, content in TALK])
    connection.execute("select count(*) from message_insert_many(%s, %s)", (session, messages))
    assert isinstance(session, UUID)
    return session


def found(connection: psycopg.Connection, arguments: str, *values: object) -> list[str]:
    return [row[0] for row in connection.execute(f"select content from memory_recall({arguments})", values)]


def set_all(connection: psycopg.Connection, settings: Mapping[str, float]) -> None:
    for key, value in settings.items():
        connection.execute("select setting_set(%s, %s)", (key, Jsonb(value)))


def part(
    frequency: float, holders: int, length: int, memories: int = 3, mean: float = 3
) -> tuple[float, float]:
    """Inverse document frequency and frequency by length, k1 = 1.2 and b = 0.4."""
    return log(1 + (memories - holders + 0.5) / (holders + 0.5)), frequency / (0.6 + 0.4 * length / mean)


def bm25(idf: float, frequency: float) -> float:
    return idf * 2.2 * frequency / (frequency + 1.2)


def test_bm25_is_the_formula(ana: psycopg.Connection) -> None:
    remember_all(ana, "red red fox", "red hen", "blue bird sings loudly")
    rows = ana.execute("select content, bm25, bm25_context from memory_recall('red fox')").fetchall()
    # Lengths 3, 2, 4, mean 3; "red" in 2 of 3 memories, "fox" in 1.
    expected = {
        "red red fox": bm25(*part(2, 2, 3)) + bm25(*part(1, 1, 3)),
        "red hen": bm25(*part(1, 2, 2)),
        "blue bird sings loudly": None,
    }
    assert {row[0]: row[1] for row in rows} == pytest.approx(expected)
    assert {row[0]: row[2] for row in rows} == pytest.approx(expected)  # there are no neighbors


def test_turns_beside_count_as_fields_of_one_text(ana: psycopg.Connection) -> None:
    (session,) = ana.execute("select session_start()").fetchone() or ()
    contents = ["red fox", "blue bird sings", "red hen lays brown eggs"]
    messages = Jsonb([{"role": "user", "content": content} for content in contents])
    ana.execute("select count(*) from message_insert_many(%s, %s)", (session, messages))
    set_all(ana, LEXICAL | {"recall_neighbor_share": 0.25})
    rows = ana.execute("select content, bm25_context, bm25, score from memory_recall('red fox')").fetchall()
    mean = 10 / 3
    red_1, red_3, fox = part(1, 2, 2, mean=mean), part(1, 2, 5, mean=mean), part(1, 1, 2, mean=mean)
    expected = {
        "red fox": bm25(red_1[0], red_1[1] + red_3[1] / 16) + bm25(*fox),
        "blue bird sings": bm25(red_1[0], (red_1[1] + red_3[1]) / 4) + bm25(fox[0], fox[1] / 4),
        "red hen lays brown eggs": bm25(red_3[0], red_3[1] + red_1[1] / 16) + bm25(fox[0], fox[1] / 16),
    }
    assert {row[0]: row[1] for row in rows} == pytest.approx(expected)
    assert [row[2] is None for row in rows if row[0] == "blue bird sings"] == [True]
    best = max(expected.values())
    assert {row[0]: row[3] for row in rows} == pytest.approx(
        {content: 0.65 * value / best for content, value in expected.items()}
    )


def test_a_turn_is_found_by_what_was_said_before_it(ana: psycopg.Connection) -> None:
    talk(ana)
    set_all(ana, {"recall_prior_question": 0})
    assert found(ana, "'Does Ana play the violin in an orchestra?', 2") == [TALK[4][1], TALK[5][1]]
    set_all(ana, {"recall_neighbor_share": 0, "recall_weight_similarity_context": 0})
    rows = ana.execute("select bm25_context, bm25 from memory_recall('violin telescope tube')").fetchall()
    assert all(row[0] == row[1] for row in rows)


def test_the_third_turn_from_here_is_no_neighbor(ana: psycopg.Connection) -> None:
    (session,) = ana.execute("select session_start()").fetchone() or ()
    messages = Jsonb([{"role": "user", "content": word} for word in ("fox", "hen", "cow", "owl")])
    ana.execute("select count(*) from message_insert_many(%s, %s)", (session, messages))
    set_all(ana, LEXICAL)
    rows = ana.execute(
        "select content from memory_recall('fox') where bm25_context > 0 order by turn"
    ).fetchall()
    assert [content for (content,) in rows] == ["fox", "hen", "cow"]


def test_turns_of_other_sessions_are_no_neighbors(ana: psycopg.Connection) -> None:
    for content in ("The violin is old.", "Something else was said."):
        (session,) = ana.execute("select session_start()").fetchone() or ()
        ana.execute("select message_insert(%s, 'user', %s)", (session, content))
    row = ana.execute(
        "select bm25_context from memory_recall('violin') where content like 'Something%'"
    ).fetchone()
    assert row == (None,)


@pytest.mark.smoke
def test_a_score_is_the_sum_of_its_parts(ana: psycopg.Connection) -> None:
    remember_all(ana, "red red fox", "red hen", "blue bird sings loudly")
    rows = ana.execute(
        "select score, similarity, bm25_context, recency, importance, access from memory_recall('red fox')"
    ).fetchall()
    low, high = min(row[1] for row in rows), max(row[1] for row in rows)
    highest = max(row[2] or 0 for row in rows)
    for score, similarity, words, recency, importance, access in rows:
        base = 0.25 * (1 - (high - similarity) / max(high - low, 0.1)) + 0.65 * (words or 0) / highest
        boost = 0.04 * recency + 0.04 * (2 * importance - 1) + 0.02 * access
        assert score == pytest.approx(base * (1 + boost))
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)


def test_a_message_scores_by_what_it_is(ana: psycopg.Connection) -> None:
    (session,) = ana.execute("select session_start()").fetchone() or ()
    filler = "Here are many things that one could say about this topic in general. " * 30
    messages = [
        {"role": "assistant", "content": f"The boat, the boat. {filler}"},
        {"role": "user", "content": "Zoe: the boat is named Albatross and lies in the harbor of Split."},
        {"role": "user", "content": "Where did you say that the boat is?"},
        {"role": "user", "content": "Kim: the boat is named Cormorant and lies in the harbor of Zadar."},
    ]
    ana.execute("select count(*) from message_insert_many(%s, %s)", (session, Jsonb(messages)))
    none = {"recall_prior_speaker": 0, "recall_prior_reply": 0}
    set_all(ana, LEXICAL | none | {"recall_weight_bm25": 1, "recall_weight_bm25_context": 0})
    query = "select role || turn, score from memory_recall('the boat of Zoe', 9) order by turn"
    plain: dict[str, float] = dict(ana.execute(query).fetchall())
    priors = {
        "recall_prior_length": 0.1,
        "recall_prior_question": 0.2,
        "recall_prior_speaker": 0.3,
        "recall_prior_reply": 0.4,
    }
    set_all(ana, priors)
    raised = {name: score - plain[name] for name, score in ana.execute(query).fetchall()}
    length = {name: 0.1 * log(len(str(messages[at]["content"])) / 90) for at, name in enumerate(plain)}
    assert raised["assistant1"] == pytest.approx(0.15 - 0.4)
    assert raised["user2"] == pytest.approx(length["user2"] + 0.3)
    assert raised["user3"] == pytest.approx(length["user3"] - 0.2)
    assert raised["user4"] == pytest.approx(length["user4"])
    fact = one(ana, "select memory_insert('Does Zoe own a boat?')")
    set_all(ana, dict.fromkeys(priors, 1))
    row = ana.execute(
        "select score, bm25 from memory_recall('the boat of Zoe', 9, kinds => '{fact}')"
    ).fetchone()
    assert fact
    assert row is not None
    assert row[0] == pytest.approx(1)


def test_a_question_lends_its_words_to_the_answer_and_a_long_turn_few(ana: psycopg.Connection) -> None:
    def context(first: str) -> float:
        (session,) = ana.execute("select session_start()").fetchone() or ()
        messages = [{"role": "user", "content": first}, {"role": "user", "content": "It is blue."}]
        ana.execute("select count(*) from message_insert_many(%s, %s)", (session, Jsonb(messages)))
        query = "select bm25_context from memory_recall('violin case', 9, session_id => %s) where turn = 2"
        found = float(one(ana, query, session))
        ana.execute("select session_delete(%s)", (session,))
        return found

    statement, question = context("The violin has a case."), context("Does the violin have a case?")
    assert question > 1.2 * statement
    set_all(ana, {"recall_neighbor_question": 0})
    assert context("Does the violin have a case?") == pytest.approx(statement, rel=0.2)
    set_all(ana, {"recall_neighbor_length": 11})
    assert context("The violin has a case.") == pytest.approx(statement / 2, rel=0.2)


def test_weights_are_settings(ana: psycopg.Connection) -> None:
    remember_all(ana, "Rex is a beagle who sleeps in the kitchen.", "A puppy named after a kitchen knife.")
    set_all(ana, {"recall_weight_bm25_context": 0, "recall_weight_similarity": 1})
    by_meaning = ana.execute("select score, similarity from memory_recall('dog')").fetchall()
    assert by_meaning == sorted(by_meaning, key=lambda row: -row[1])
    with fails("22023"):
        ana.execute("select setting_set('recall_weight_bm25', '2')")


@pytest.fixture
def twins(ana: psycopg.Connection) -> list[int]:
    """Two memories that match alike."""
    return remember_all(ana, "The red fox sleeps!", "The red fox sleeps.")


def scores(connection: psycopg.Connection) -> dict[int, float]:
    return dict(connection.execute("select id, score from memory_recall('red fox')").fetchall())


def test_boosts_raise_and_never_by_more_than_a_tenth(ana: psycopg.Connection, twins: list[int]) -> None:
    first, second = twins
    set_all(ana, {"recall_weight_similarity": 0, "recall_weight_bm25_context": 1})
    plain = scores(ana)
    ana.execute("update memory set created_at = now() - interval '30 days' where id = %s", (first,))
    row = ana.execute("select recency from memory_recall('fox') where id = %s", (first,)).fetchone()
    assert row == pytest.approx((0.5,), abs=1e-6)
    ana.execute("update memory set created_at = now()")
    ana.execute("update memory set importance = 1 where id = %s", (second,))
    assert scores(ana)[second] > scores(ana)[first]
    for _ in range(3):
        ana.execute("select memory_access_record(array[%s, %s])", (first, first))
    row = ana.execute("select access from memory_recall('fox') where id = %s", (first,)).fetchone()
    assert row == pytest.approx((3 / 8,))
    set_all(
        ana, dict.fromkeys(("recall_boost_recency", "recall_boost_importance", "recall_boost_access"), 0.1)
    )
    base = {key: value / 1.04 for key, value in plain.items()}
    assert scores(ana)[second] == pytest.approx(base[second] * 1.1, rel=1e-3)


def test_what_is_not_valid_is_not_recalled(ana: psycopg.Connection) -> None:
    old, new = remember_all(ana, "Marta lives in Lima.", "Marta lives in Oslo.")
    moved = datetime(2024, 5, 1, tzinfo=UTC)
    ana.execute("update memory set valid_to = %s, superseded_by = %s where id = %s", (moved, new, old))
    ana.execute("update memory set valid_from = %s where id = %s", (moved, new))
    asked = "'Where does Marta live?', as_of => %s"
    assert found(ana, "'Where does Marta live?'") == ["Marta lives in Oslo."]
    assert found(ana, asked, moved) == ["Marta lives in Oslo."]
    assert found(ana, asked, moved - timedelta(seconds=1)) == ["Marta lives in Lima."]
    assert found(ana, asked, None) == ["Marta lives in Oslo."]
    assert found(ana, asked, "infinity") == ["Marta lives in Oslo."]
    assert found(ana, asked, "-infinity") == ["Marta lives in Lima."]


@pytest.mark.parametrize("hidden", [60, 150])
def test_many_that_are_no_longer_valid_hide_none_that_are(ana: psycopg.Connection, hidden: int) -> None:
    ana.execute("select model_unload()")
    remember_all(ana, *(f"Ticket {number}: the red fox sleeps." for number in range(hidden)))
    ana.execute("update memory set valid_to = now()")
    remember_all(ana, "A fox of some sort may have been seen by somebody in the evening.")
    assert found(
        ana,
        "'red fox sleeps'",
    ) == ["A fox of some sort may have been seen by somebody in the evening."]


def test_filters_narrow_a_recall(ana: psycopg.Connection) -> None:
    ana.execute(
        "select memory_insert('The manual explains vacuum.', 'document', '{\"topic\": \"db\", \"n\": 1}')"
    )
    ana.execute("select memory_insert('I bought a vacuum cleaner.')")
    session = talk(ana)
    for kind, content in (
        ("document", "The manual explains vacuum."),
        ("fact", "I bought a vacuum cleaner."),
    ):
        assert found(ana, "'vacuum', kinds => array[%s]", kind) == [content]
    assert found(ana, "'vacuum', metadata => '{\"topic\": \"db\"}'") == ["The manual explains vacuum."]
    assert found(ana, "'vacuum', metadata => '{\"topic\": \"house\"}'") == []
    assert sorted(found(ana, "'vacuum', 100, session_id => %s", session)) == sorted(text for _, text in TALK)


def test_the_same_text_comes_once(ana: psycopg.Connection) -> None:
    first, second = remember_all(ana, "The red fox sleeps.", "The red fox sleeps.")
    assert [*scores(ana)] == [second]
    ana.execute("update memory set importance = 0.9 where id = %s", (first,))
    assert [*scores(ana)] == [first]


@pytest.mark.smoke
def test_a_budget_ends_the_list(ana: psycopg.Connection) -> None:
    remember_all(ana, "red fox " * 20, "red fox " * 10, "red fox")
    contents = found(ana, "'red fox', 3")
    sizes = [-(-len(content) // 4) for content in contents]
    for budget in (sizes[0], sizes[0] + sizes[1], sum(sizes)):
        kept = found(ana, "'red fox', 3, max_tokens => %s", budget)
        assert kept == contents[: len(kept)]
        assert sum(sizes[: len(kept)]) <= budget < sum(sizes[: len(kept) + 1]) or len(kept) == len(contents)
    assert found(ana, "'red fox', 3, max_tokens => 1") == []
    with fails("22023"):
        found(ana, "'red fox', 3, max_tokens => 0")


def test_a_read_only_transaction_recalls(ana: psycopg.Connection) -> None:
    remember_all(ana, "The red fox sleeps.")
    with ana.transaction():
        ana.execute("set transaction read only")
        assert found(ana, "'fox'") == ["The red fox sleeps."]


def test_a_long_query_is_answered(ana: psycopg.Connection) -> None:
    remember_all(ana, "The red fox sleeps.")
    words = " ".join(f"word{number}" for number in range(20_000))
    assert found(ana, "%s || ' fox'", words) == ["The red fox sleeps."]


def test_common_words_are_looked_up_for_what_rare_ones_found(db: psycopg.Connection) -> None:
    db.execute("update model set is_default = false where kind = 'embedder'")
    db.execute(
        """insert into memory (content)
           select 'entry on some subject' || case n % 500 when 0 then ' zebra' else '' end
               || case when n % 12 < 5 then ' note' else '' end
           from generate_series(1, 6000) n"""
    )
    terms = db.execute("select lexeme, holders from _mindful.recall_terms('zebra note')").fetchall()
    assert terms == [("zebra", 12), ("note", pytest.approx(2500, rel=0.3))]
    contents = found(db, "'zebra note', 12")
    assert contents == ["entry on some subject zebra note", "entry on some subject zebra"]
    assert found(db, "'note', 1") == ["entry on some subject note"]  # however common
    assert db.execute(
        "select count(distinct term) from _mindful.recall_lexical('note zebra', 50, null)"
    ).fetchone() == (2,)


def test_options_are_what_setting_get_gives(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    db.execute("select setting_set('recall_weight_bm25', '0.7', 'global')")
    db.execute("select setting_set('recall_boost_access', '0.01', 'global')")
    ana.execute("select setting_set('recall_weight_bm25', '0.3')")
    ana.execute("select setting_set('recall_boost_access', '0.05')")
    ana.execute("select setting_set('recall_boost_access', 'null')")
    for connection in (ana, db):
        assert (
            connection.execute("select _mindful.recall_options()").fetchone()
            == connection.execute(
                "select jsonb_object_agg(key, setting_get(key)) from setting_definition where key like 'recall\\_%'"
            ).fetchone()
        )


def test_another_tenant_recalls_nothing(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    session = talk(ana)
    remember_all(ana, "The safe opens with 4711.")
    assert found(bob, "'safe 4711', 100") == []
    assert found(bob, "'violin', 100, session_id => %s", session) == []
    for call in (
        "_mindful.recall_lexical('safe 4711', 10, null)",
        "_mindful.recall_terms('safe 4711')",
        "_mindful.recall_dense(llm_embed('safe 4711'), 'all-minilm-l6-v2', 10, null)",
    ):
        assert bob.execute(f"select count(*) from {call}").fetchone() == (0,)


def test_diversity_passes_over_what_is_alike(ana: psycopg.Connection) -> None:
    remember_all(
        ana,
        "Rex the beagle loves the park.",
        "Rex the beagle loves the park!!",
        "Rex the beagle loves the park a lot.",
        "Rex was vaccinated in May.",
    )
    assert "Rex was vaccinated in May." not in found(ana, "'Rex the beagle park', 2")
    chosen = found(ana, "'Rex the beagle park', 2, diversity => 0.7")
    assert chosen[0].startswith("Rex the beagle loves the park")
    assert chosen[1] == "Rex was vaccinated in May."
    assert len(found(ana, "'Rex', 10, diversity => 1")) == 4
    assert found(ana, "'Rex the beagle park', 4, diversity => 0.0001") == found(
        ana, "'Rex the beagle park', 4"
    )
    for value in ("-0.1", "1.1", "'nan'"):
        with fails("22023"):
            found(ana, f"'Rex', diversity => {value}")
    with fails("22004"):
        found(ana, "'Rex', diversity => null")


def test_diversity_needs_no_embedder(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    db.execute("update model set is_default = false where kind = 'embedder'")
    remember_all(ana, "The red fox.", "The red hen.", "The red cock.")
    assert found(ana, "'red fox', 3, diversity => 0.5")[0] == "The red fox."
    assert found(ana, "'nothing', 3, diversity => 0.5") == []
