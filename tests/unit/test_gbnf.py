from __future__ import annotations

import pytest
from mindful.errors import ContextLengthError, InvalidParameterError
from mindful.gbnf import checked

JSON = r"""
root   ::= object  # the whole of it
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def branching(depth: int) -> str:
    rules = "".join(f'r{at} ::= r{at + 1} "a" | r{at + 1} "b"\n' for at in range(depth))
    return f'root ::= r0\n{rules}r{depth} ::= "a"\n'


@pytest.mark.parametrize(
    "grammar",
    [
        JSON,
        'root ::= "yes" | "no"',
        'root ::= "a" root | "((((("',
        f"root ::= {'(' * 200}'a'{')' * 200}",
        "root ::= " + " | ".join(f'"{at}"' for at in range(6000)),
        branching(8),
        "no grammar at all",
    ],
)
def test_what_llama_cpp_reads_or_refuses_soon_is_left_to_it(grammar: str) -> None:
    assert checked(grammar) == grammar


@pytest.mark.parametrize(
    "grammar", ["", " \n", f'root ::= {"(" * 201}"a"{")" * 201}', branching(20), branching(1000)]
)
def test_what_would_take_it_for_ever_is_refused(grammar: str) -> None:
    with pytest.raises(InvalidParameterError):
        checked(grammar)


def test_a_grammar_has_a_length() -> None:
    with pytest.raises(ContextLengthError):
        checked('root ::= "' + "a" * (1 << 16) + '"')
