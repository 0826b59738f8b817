from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.models.providers.lookup import Lookup

TEXT = list(range(100, 140))


def rounds(lookup: Lookup, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    """Make an answer token by token, as the generator does, and count the tokens that each evaluation gave."""
    context, made, given_by = list(prompt), 0, []
    while made < len(answer):
        context.append(answer[made])
        made += 1
        if lookup.confirm(context[-1]) is None:
            lookup.guess(context, 1000)
            given_by.append(1)
        else:
            given_by[-1] += 1
    return given_by


def test_a_copy_takes_few_evaluations() -> None:
    assert rounds(Lookup(15), TEXT, TEXT) == [1] * 5 + [16, 16, 3]


def test_what_repeats_itself_at_once_is_guessed_to_go_round() -> None:
    # The first six are new, the second six show that they come again.
    assert rounds(Lookup(15), [1], [5, 6, 7] * 20) == [1] * 8 + [16, 16, 16, 4]


def test_what_never_stood_before_is_not_guessed() -> None:
    assert rounds(Lookup(15), TEXT, [token + 1000 for token in TEXT]) == [1] * len(TEXT)


def test_nothing_is_guessed_by_default() -> None:
    assert rounds(Lookup(0), TEXT, TEXT) == [1] * len(TEXT)


def test_after_a_failure_more_must_stand_before() -> None:
    lookup = Lookup(15)
    context = [*TEXT, *TEXT[:6]]
    assert lookup.guess(context, 1000) == TEXT[6:21]
    assert lookup.confirm(7) is None
    assert lookup.guess([*context[:-6], 7, *TEXT[:6]], 1000) == []
    assert lookup.guess([*TEXT, *TEXT[:12]], 1000) == TEXT[12:27]


@pytest.mark.parametrize(
    ("right", "guessed", "failed"), [(0, 1, True), (1, 2, False), (3, 7, True), (4, 7, False)]
)
def test_a_guess_that_is_less_than_half_right_has_failed(right: int, guessed: int, failed: bool) -> None:
    lookup = Lookup(guessed)
    context = [*TEXT, *TEXT[:6]]
    assert lookup.guess(context, 1000) == TEXT[6 : 6 + guessed]
    for token in TEXT[6 : 6 + right]:
        assert lookup.confirm(token) is not None
    # Six tokens that stood before are enough, unless the last guess has failed.
    again = [*TEXT, 7, *TEXT[20:26]]
    assert lookup.guess(again, 1000) == ([] if failed else TEXT[26 : 26 + guessed])


def test_no_more_is_guessed_than_there_is_room_for() -> None:
    assert Lookup(15).guess([*TEXT, *TEXT[:6]], 2) == TEXT[6:8]
    assert Lookup(15).guess([*TEXT, *TEXT[:6]], 0) == []


@given(st.lists(st.integers(1, 3), min_size=1, max_size=80), st.integers(0, 20))
def test_every_token_comes_of_one_evaluation(answer: list[int], most: int) -> None:
    given_by = rounds(Lookup(most), [1, 2, 3], answer)
    assert sum(given_by) == len(answer)
    assert max(given_by) <= most + 1
