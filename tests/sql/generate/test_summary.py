"""Summaries of any number of texts."""

import psycopg
import pytest
from support import SCRIPTED_GENERATOR
from support.models import say_little


def test_a_summary_is_about_its_texts(ana: psycopg.Connection) -> None:
    row = ana.execute(
        """select llm_summarize(t order by n) from unnest(array[
               'The ferry to Naxos was late because of a storm.', null, ' ',
               'The passengers waited four hours in the harbour of Piraeus.']) with ordinality u (t, n)"""
    ).fetchone()
    assert row is not None
    assert any(word in row[0] for word in ("ferry", "Naxos", "storm", "passengers", "Piraeus"))
    assert ana.execute("select count(*) from generation").fetchone() == (1,)


def test_texts_past_the_context_are_summarized_in_parts(
    brief: str, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    say_little(db, brief)
    row = ana.execute(
        """select llm_summarize('Report ' || n || ': ' || repeat('the ship carried grain. ', 60) order by n)
           from generate_series(1, 8) n"""
    ).fetchone()
    assert row is not None
    assert row[0]
    calls = ana.execute("select count(*), max(prompt_tokens) from generation").fetchone()
    assert calls is not None
    assert 3 <= calls[0] <= 6
    assert calls[1] <= 2048 - 128


def test_one_text_past_the_context_is_cut_and_none_of_it_left_out(db: psycopg.Connection) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    db.execute(
        "select llm_summarize(t) from (select string_agg('word' || n, ' ') as t from generate_series(1, 5000) n) s"
    )
    calls = db.execute("select count(*), sum(prompt_tokens) from generation").fetchone()
    assert calls is not None
    assert calls[0] >= 4
    assert calls[1] > 5000


@pytest.mark.smoke
def test_nothing_gives_null_and_groups_have_their_own(db: psycopg.Connection) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    assert db.execute("select llm_summarize(t) from (values (null), ('')) v (t)").fetchone() == (None,)
    assert db.execute("select llm_summarize(relname::text) from pg_class where false").fetchone() == (None,)
    rows = db.execute(
        "select g, llm_summarize('text ' || g) from generate_series(1, 3) g group by g order by g"
    ).fetchall()
    assert rows == [(g, "I do not know.") for g in (1, 2, 3)]
