"""What a second look makes of logits."""

import math

import pytest
from mindful import review
from mindful.prompt import LAYOUT, Context, Part
from mindful.providers.scripted import ScriptedGenerator
from unit.fakes import FakeDatabase

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


def test_many_are_reviewed_with_the_slots_that_are_free_and_one_is_not() -> None:
    db = FakeDatabase({"_slot_take": [{"slot": 1}], "_slot_more": [{"slots": [2]}], "pg_advisory_unlock": []})
    context = Context([Part("message", "user", "Is it so?", 4)], LAYOUT)
    for count, widened in ((1, 0), (2, 1)):
        found = review.review_many(db, ScriptedGenerator({}), [context] * count, ["It is."] * count)
        assert len(found) == count
        assert len(db.arguments_of("_slot_more")) == widened
