from __future__ import annotations

import pytest
from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.models.gbnf import checked_grammar, lark

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
        f"root ::= {'(' * 200}'a'{')' * 200}".replace("'", '"'),
        "root ::= " + " | ".join(f'"{at}"' for at in range(6000)),
        branching(1000),
        "root ::=",
        'root ::= "a"{1000000}',
        'root ::= "\\ud7ff" | "\\ue000" | "\\U0010FFFF"',
    ],
)
def test_grammars_are_read(grammar: str) -> None:
    assert lark(checked_grammar(grammar)).count("start: ") == 1


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        " \n",
        f'root ::= {"(" * 202}"a"{")" * 202}',
        "no grammar at all",
        'rule ::= "a"',
        "root ::= nothing",
        'root ::= "a',
        "root ::= [a-",
        "root ::= [z-a]",
        'root ::= "\\q"',
        'root ::= "\\ud800"',
        'root ::= "\\udfff"',
        'root ::= "\\U00110000"',
        'root ::= "\\UFFFFFFFF"',
        'root ::= ("a"',
        'root ::= "a")',
        'root ::= * "a"',
        'root ::= "a" }',
    ],
)
def test_what_cannot_be_read_is_refused(grammar: str) -> None:
    with pytest.raises(InvalidParameterError):
        lark(checked_grammar(grammar))


def test_a_grammar_has_a_length() -> None:
    with pytest.raises(ContextLengthError):
        checked_grammar('root ::= "' + "a" * (1 << 16) + '"')


def test_literals_share_their_beginnings() -> None:
    assert lark('root ::= "ab1" | "ab2" | "c"') == 'p0_1: "1" | "2"\nstart: "a" "b" p0_1 | "c"\n'


def test_a_rule_that_ends_with_itself_is_a_repetition() -> None:
    assert lark('root ::= "a" root | "b" root |') == 'start: ("a" | "b")* ("")\n'
    assert lark('root ::= "a" root "b" | "c" root |') == 'start: "a" start "b" | "c" start | ""\n'
