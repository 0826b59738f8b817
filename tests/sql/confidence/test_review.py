"""A model's second look at an answer."""

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Connect, fails


@pytest.mark.smoke
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
    assert stored == (row[0], pytest.approx(score), verdict, "smollm2-135m-instruct", 2, True)


def test_a_review_goes_on_where_the_answer_ended(ana: psycopg.Connection) -> None:
    ana.execute("select memory_insert('Ana keeps her spare key under the blue flower pot.')")
    session = ana.execute("select session_start()").fetchone()
    assert session is not None
    shown: list[tuple[int, int, int]] = []
    for question in ("Hello, how are you?", "Where does Ana keep her spare key?"):
        row = ana.execute(
            """select message_id, prompt_tokens + completion_tokens, cardinality(memory_ids)
               from llm_chat_detail(%s, %s, max_tokens => 24)""",
            (question, session[0]),
        ).fetchone()
        assert row is not None
        shown.append(row)
    message_id, tokens, memories = shown[1]
    assert memories == 1
    signals = ana.execute("select signals from self_review(%s)", (message_id,)).fetchone()
    assert signals is not None
    # Beside the answer's end, and the token that is evaluated last, all of the conversation is in the cache.
    assert tokens - 3 <= signals[0]["cached_tokens"] < signals[0]["prompt_tokens"] < tokens + 40


def test_the_same_answer_gets_the_same_review_on_any_connection(
    ana: psycopg.Connection, connect: Connect
) -> None:
    row = ana.execute(
        "select message_id from llm_chat_detail('Name a river in Germany.', max_tokens => 20)"
    ).fetchone()
    assert row is not None
    here, again = (ana.execute("select score from self_review(%s)", row).fetchone() for _ in range(2))
    assert here == pytest.approx(again, abs=1e-3)
    with connect("ana") as other:
        there = other.execute("select score from self_review(%s)", row).fetchone()
    # What is computed in one batch or token by token differs in its last bits.
    assert here == pytest.approx(there, abs=0.1)


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
