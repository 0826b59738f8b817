"""What a second look makes of logits."""

import math
from collections.abc import Sequence

import pytest
from mindful import review
from mindful.ports import Interrupts
from mindful.prompt import LAYOUT, Context, Part
from mindful.providers.scripted import ScriptedGenerator
from mindful.slot import Turn
from unit.fakes import FakeDatabase

LABELS = len(review._LABELS)


class Watched(ScriptedGenerator):
    """Keeps how many threads could compute."""

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], interrupts: Interrupts
    ) -> list[float]:
        """Score as a scripted generator does."""
        assert isinstance(interrupts, Turn)
        self.threads = interrupts.threads
        return super().next_logprobs(tokens, candidates, interrupts)


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
    context = Context([Part("message", "user", "Is it so?", 4)], LAYOUT)
    for count, threads in ((1, 1), (2, 2)):
        generator = Watched({})
        found = review.review_many(FakeDatabase({}), generator, [context] * count, ["It is."] * count)
        assert len(found) == count
        assert generator.threads == threads
