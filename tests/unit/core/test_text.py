from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from mindful.core.text import TextStream

# Few characters, so that stop strings really occur; of one to four bytes, and NUL.
LETTERS = st.text(alphabet="abä€😀\0", max_size=30)
STOPS = st.lists(st.text(alphabet="abä€😀", min_size=1, max_size=4), max_size=3)


@st.composite
def pieces_of(draw: st.DrawFn, texts: st.SearchStrategy[str] = LETTERS) -> tuple[str, list[bytes]]:
    """A text, and its bytes cut anywhere."""
    text = draw(texts)
    data = text.encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(data)))) | {0, len(data)})
    return text, [data[low:high] for low, high in pairwise(cuts)]


def shown(stream: TextStream, pieces: Sequence[bytes]) -> Iterator[str]:
    for piece in pieces:
        yield stream.push(piece)
        if stream.stopped:
            return
    yield stream.flush()


@given(pieces_of(st.text()))
def test_the_whole_text_is_shown_in_whole_characters(given_text: tuple[str, list[bytes]]) -> None:
    text, pieces = given_text
    parts = list(shown(TextStream(), pieces))
    assert "".join(parts) == text.replace("\0", "")
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


@given(pieces_of(), st.text(alphabet="abä€😀", min_size=1, max_size=4))
@example(("aab", [b"a", b"a", b"b"]), "ab")
@example(("a\0b", [b"a", b"\0", b"b"]), "ab")
def test_a_stop_string_cuts_the_text_however_it_is_cut_into_tokens(
    given_text: tuple[str, list[bytes]], stop: str
) -> None:
    text, pieces = given_text
    stream = TextStream([stop])
    visible = text.replace("\0", "")
    assert "".join(shown(stream, pieces)) == visible.split(stop)[0]
    assert stream.stopped == (stop in visible)


@given(pieces_of(), STOPS)
def test_nothing_of_a_stop_string_is_shown(given_text: tuple[str, list[bytes]], stops: list[str]) -> None:
    text, pieces = given_text
    visible, seen = text.replace("\0", ""), ""
    stream = TextStream(stops)
    for part in shown(stream, pieces):
        seen += part
        assert visible.startswith(seen)
        assert not any(stop in seen for stop in stops)
    assert stream.stopped == any(stop in visible for stop in stops)
    assert stream.stopped or seen == visible


@given(st.lists(st.binary()))
def test_any_bytes_become_text_that_postgresql_can_hold(pieces: list[bytes]) -> None:
    text = "".join(shown(TextStream(), pieces))
    assert "\0" not in text
    assert text == b"".join(pieces).decode(errors="replace").replace("\0", "")


def test_text_is_shown_as_soon_as_it_can_be() -> None:
    stream = TextStream(["END"])
    assert [stream.push(piece) for piece in (b"one ", b"two E", b"at \xe2\x82", b"\xac")] == [
        "one ",
        "two ",
        "Eat ",
        "€",
    ]


def test_half_a_stop_string_at_the_end_is_shown_and_half_a_character_replaced() -> None:
    stream = TextStream(["END"])
    assert stream.push(b"the EN\xe2\x82") == "the "
    assert stream.flush() == "EN\ufffd"


def test_nothing_is_shown_after_a_stop_string() -> None:
    stream = TextStream(["END"])
    assert stream.push(b"the END and more") == "the "
    assert stream.flush() == ""
