"""What a second look makes of logits."""

import json
import math
from typing import Any

import pytest
from mindful.confidence import review
from mindful.core.errors import NullValueError, UndefinedObjectError
from mindful.core.ports import Row
from unit.chat import chats
from unit.fakes import Answer, FakeDatabase, wrapped

LABELS = len(review._LABELS)


def test_labels_are_summed_over_their_writings() -> None:
    each = math.log(0.1)
    assert review.log_odds([each] * LABELS) == pytest.approx(0)
    # 0.4 + 3 x 0.1 against 4 x 0.05
    odds = review.log_odds([math.log(0.4)] + [each] * 3 + [math.log(0.05)] * 4)
    assert odds == pytest.approx(math.log(0.7 / 0.2))


def test_labels_that_the_model_never_says_are_no_error() -> None:
    assert review.log_odds([-math.inf] * LABELS) == 0
    assert math.isfinite(review.log_odds([0.0] + [-math.inf] * (LABELS - 1)))


def reviewed(reply: str, bias: str = "", kept: bool = True, **subject: Any) -> tuple[Row, FakeDatabase]:
    """A review by a model that says True or False after an answer, and with a bias after none."""
    answers = [["N/A", bias]] if bias else []
    db = chats.database(replies=[*answers, ["is right", reply]], default="I do not know.", logprob=-0.1)
    known: dict[str, Answer] = {
        "_mindful.review_subject": [
            {"session_id": "s1", "question": "Is it so?", "answer": "It is right.", "memories": ["A note."]}
            | subject
        ],
        "_mindful.review_turns": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
        ],
        "_mindful.memory_keep": [{"id": 5}] if kept else [],
        "insert into mindful.review": [],
    }
    db.answers = known | db.answers
    row: Row = wrapped(review.self_review)(db, 5, None)
    return row, db


@pytest.mark.parametrize(
    ("reply", "verdict"), [("True", "supported"), ("False", "doubtful"), ("false", "doubtful")]
)
def test_an_answer_is_doubted_where_false_is_more_probable(reply: str, verdict: str) -> None:
    row, db = reviewed(reply)
    assert row["verdict"] == verdict
    assert (row["score"] > 0.5) == (verdict == "supported")
    signals = json.loads(row["signals"])
    odds = signals["log_odds"] - signals["log_odds_content_free"]
    assert row["score"] == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-3)
    assert signals["prompt_tokens"] > signals["cached_tokens"] == 0
    [(message_id, reviewer, _, score, stored, _, ms)] = db.arguments_of("insert into mindful.review")
    assert (message_id, reviewer, score, stored) == (5, "s", row["score"], verdict)
    assert ms > 0


def test_what_a_model_says_of_anything_counts_nothing() -> None:
    row, _ = reviewed("True", bias="True")
    assert (row["score"], row["verdict"]) == (0.5, "supported")


def test_an_answer_that_is_forgotten_while_it_is_judged_has_no_review() -> None:
    with pytest.raises(UndefinedObjectError, match="there is no answer 5"):
        reviewed("True", kept=False)


@pytest.mark.parametrize(("message_id", "error"), [(None, NullValueError), (6, UndefinedObjectError)])
def test_an_answer_is_needed(message_id: int | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        wrapped(review.self_review)(FakeDatabase({"_mindful.review_subject": []}), message_id, None)
