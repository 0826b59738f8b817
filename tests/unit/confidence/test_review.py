"""What a second look makes of logits."""

import math

import pytest
from mindful.confidence import review

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
