"""What a grammar allows, token by token, where tokens are bytes."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.models.providers.guide import Guide, Guides
from support.clock import within


class Bytes:
    """A vocabulary of all bytes, and of an end."""

    vocabulary_size = 257

    def piece(self, token: int) -> bytes:
        """Return the byte."""
        return bytes([token]) if token < 256 else b""

    def ends(self, token: int) -> bool:
        """The last token does."""
        return token == 256

    def tokenize_apart(self, text: str) -> list[int]:
        """List the text's bytes."""
        return list(text.encode())


class Patient:
    """Nobody cancels; how long a step took is kept."""

    def __init__(self) -> None:
        self.longest, self._last = 0.0, time.process_time()

    def check(self) -> None:
        """Measure the processor's time since the last look: other processes share the machine."""
        self._last, before = time.process_time(), self._last
        self.longest = max(self.longest, self._last - before)

    def pending(self) -> bool:
        """Nobody cancels."""
        return False


class Many(Bytes):
    """The same among many others."""

    vocabulary_size = 100_000

    def piece(self, token: int) -> bytes:
        """Return the byte, or the token's number."""
        return super().piece(token) if token <= 256 else b"%d" % token


class Impatient(Patient):
    """Cancels after some looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def check(self) -> None:
        """Cancel after the last look."""
        self.left -= 1
        if self.left < 0:
            raise InterruptedError


GUIDES = Guides(Bytes())


def guide(grammar: str) -> Guide:
    return GUIDES.guide(grammar, Patient())


def fits(grammar: str, text: str) -> bool:
    """Whether a text is of the grammar, asked in both ways."""
    asked, told = guide(grammar), guide(grammar)
    for byte in text.encode():
        allowed = told.allowed()[byte]
        assert asked.accept(byte) == allowed
        if not allowed:
            return False
        told.accept(byte)
    return bool(told.allowed()[256])


LETTERS = st.sampled_from(['"a"', '"b"', '"ab"', '"aba"', "[ab]", "[^a]", ".", '""'])
EXPRESSIONS = st.recursive(
    LETTERS,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(lambda all_: f"({' '.join(all_)})"),
        st.lists(parts, min_size=1, max_size=4).map(lambda all_: f"({' | '.join(all_)})"),
        st.tuples(parts, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(
            lambda part: f"({part[0]}){part[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(EXPRESSIONS, st.text("abc", max_size=6))
def test_a_grammar_allows_what_the_like_regular_expression_does(expression: str, text: str) -> None:
    pattern = expression.replace('""', "(?:)").replace('"', "").replace(" ", "")
    expected = re.fullmatch(pattern, text, re.DOTALL) is not None
    assert fits(f"root ::= {expression}", text) == expected


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ('root ::= [a-z] "1" | "b" "2"', ["a1", "b1", "b2"], ["a2", "b", ""]),
        ('root ::= "a" "b" | "ab" "c" | "abc" "d"', ["ab", "abc", "abcd"], ["abd"]),
        ('root ::= s\ns ::= "(" s ")" s | ""', ["", "()(())"], ["(()", "())"]),
        ('root ::= item list\nlist ::= "," item list |\nitem ::= [0-9]+', ["1", "1,22,3"], ["", "1,"]),
        ('root ::= [a-z ] root | "."', [".", "ab c."], ["ab c", ".."]),
        ('root ::= root "+" [0-9] | [0-9]', ["1", "1+2+3"], ["1+", "+1"]),
        ('root ::= "\\"" [^"\\\\] "\\n" "\\x41\\u4f60" # a comment', ['"\u4f60\nA\u4f60'], ['""\nA\u4f60']),
        ("root ::= |", [""], ["a"]),
        ('root ::= "ab"{2}', ["abab"], ["abb", "ab"]),
        ("root-rule ::= nothing\nroot ::= Upper_1\nnothing ::= \nUpper_1 ::= .", ["\n", "\u4f60"], [""]),
    ],
)
def test_grammars_mean_what_they_say(grammar: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not fits(grammar, text)] == []
    assert [text for text in no if fits(grammar, text)] == []


NUMBERED = "".join(f'r{at} ::= (("a"? r{at + 1}*)?)+\n' for at in range(2400))


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ('root ::= x\nx ::= [a-z ] x "b" | [a-z ] x "c" | "."', "bc" * 50),
        ('root ::= x\nx ::= x x | "a" |', "a" * 100),
        ("root ::= (((( [a-z]* )* )* )* )*", "a" * 200),
        ("root ::= ((([a-z]{0,500}){0,500}){0,500}){0,500}", "a" * 200),
        ("root ::= x\nx ::= [a-z] x? x? x? x? x?", "a" * 50),
        ("root ::= (" + " ".join(["[a-z]?"] * 500) + ")*", "a" * 50),
        ('root ::= s\ns ::= "(" s ")" s | ""', "(" * 500),
        ("root ::= " + "(" * 190 + '"a"' + ")*" * 190, "aaa"),
        ("root ::= [" + "".join(chr(code) for code in range(0x4E00, 0x4E00 + 20000)) + "]*", "\u4f60" * 50),
        ('root ::= (""* | ("")*)* "a"', "a"),
        ("root ::= r0\n" + "".join(f"r{at} ::= r{at + 1}\n" for at in range(3800)) + 'r3800 ::= "a"', "a"),
        (f'root ::= r0\n{NUMBERED}r2400 ::= "a"', "a"),
        ("root ::= " + " | ".join(f'"{at * 7919 % 100003}"' for at in range(6000)), "7919"),
    ],
)
@pytest.mark.slow
def test_no_grammar_takes_long_between_two_looks(grammar: str, text: str) -> None:
    """Whatever is too much for the limits is an error."""
    patient = Patient()
    with contextlib.suppress(ContextLengthError):
        made = GUIDES.guide(grammar, patient)
        for byte in text.encode():
            patient.check()
            made.allowed()
            patient.check()
            made.accept(byte)
            patient.check()
    assert patient.longest < 0.5  # 0.1 on a processor with no other work


def test_a_grammar_that_no_text_fits_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="no text fits"):
        guide('root ::= root "a"')


@pytest.mark.slow
def test_a_cancelled_preparation_ends_at_once_and_the_model_may_be_closed() -> None:
    class Cancelled(Patient):
        def check(self) -> None:
            if GUIDES._tokenizer is not None:
                raise KeyboardInterrupt

    for clock in within(30):
        guide('root ::= "a"')
        with pytest.raises(KeyboardInterrupt):
            GUIDES.guide(f'root ::= r0\n{NUMBERED}r2400 ::= "b"', Cancelled())
        clock.start()
        GUIDES.close()
    assert fits('root ::= "a"', "a")


@pytest.mark.parametrize("looks", [0, 1, 10, 20])
def test_a_cancel_is_heard_while_a_large_vocabulary_is_read(looks: int) -> None:
    with pytest.raises(InterruptedError):
        Guides(Many()).guide('root ::= "a"', Impatient(looks))
