"""A model's second look at an answer."""

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, fails


def test_a_review_is_stored(ana: psycopg.Connection) -> None:
    row = ana.execute("select message_id from llm_chat_detail('What is the capital of France?')").fetchone()
    assert row is not None
    review = ana.execute("select score, verdict, signals from self_review(%s)", row).fetchone()
    assert review is not None
    score, verdict, signals = review
    assert 0 < score < 1
    assert verdict == ("supported" if score >= 0.5 else "doubtful")
    assert signals["log_odds"] != signals["log_odds_content_free"]
    stored = ana.execute(
        "select message_id, score, verdict, reviewer, prompt_version, total_ms > 0 from review"
    ).fetchone()
    assert stored == (row[0], pytest.approx(score), verdict, "smollm2-135m-instruct", 1, True)


def test_the_same_answer_gets_the_same_review(ana: psycopg.Connection) -> None:
    row = ana.execute(
        "select message_id from llm_chat_detail('Who wrote Hamlet?', max_tokens => 20)"
    ).fetchone()
    assert row is not None
    scores = [ana.execute("select score from self_review(%s)", row).fetchone() for _ in range(2)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_only_answers_are_reviewed(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    row = ana.execute(
        "select message_id from llm_chat_detail('Hi', model => %s)", (SCRIPTED_GENERATOR,)
    ).fetchone()
    assert row is not None
    with fails("22004"):
        ana.execute("select self_review(null)")
    for connection, message_id in ((ana, row[0] - 1), (ana, -1), (bob, row[0])):
        with fails("42704"):
            connection.execute("select self_review(%s)", (message_id,))
    assert ana.execute("select count(*) from review").fetchone() == (0,)
