"""Grammars that the backend itself holds a server's answer to."""

from __future__ import annotations

from typing import Any

import pytest
from mindful.core.errors import ContextLengthError, MindfulError
from mindful.core.ports import Sampling
from mindful.generate.schema_grammar import grammar_of
from mindful.models.providers.openai.constraint import Constraints
from unit.models.host import Host


def bounded(grammar: str, host: Host) -> Any:
    options = {"server": "llama.cpp", "llguidance": True}
    return Constraints(options).of(Sampling(4, grammar=grammar, is_users_grammar=True), host)


def test_an_answer_that_leaves_its_grammar_is_refused(host: Host) -> None:
    constraint = bounded('root ::= ("Bergen" | "\u4f60")+', host)
    assert constraint.body["grammar"].startswith("%llguidance {}\nstart:")
    for piece in (b"Ber", b"gen", "\u4f60".encode()[:2], "\u4f60".encode()[2:]):
        constraint.take(piece)
    with pytest.raises(MindfulError, match="generated so far") as caught:
        constraint.take(b"Oslo")
    assert caught.value.sqlstate == "54000"


def chain(rules: int, form: str = "RULE") -> str:
    """A grammar of so many rules, each of which has the next one in such a form."""
    links = "".join(f'r{at} ::= {form.replace("RULE", f"r{at + 1}")} "b"\n' for at in range(rules - 2))
    return f'root ::= r0 "b"\n{links}r{rules - 2} ::= "a"\n'


@pytest.mark.parametrize(
    ("grammar", "fits"),
    [
        (chain(1000), True),
        (chain(1001), False),
        (chain(500, "(RULE)"), True),
        (chain(502, "(RULE)"), False),
        (chain(334, "((RULE) | RULE)"), True),
        (chain(336, "((RULE) | RULE)"), False),
    ],
)
def test_rules_and_levels_of_parentheses_add_up_to_a_thousand(host: Host, grammar: str, fits: bool) -> None:
    if fits:
        assert bounded(grammar, host).body["grammar"].startswith("%llguidance {}")
    else:
        with pytest.raises(ContextLengthError, match="1000 rules and levels"):
            bounded(grammar, host)


@pytest.mark.parametrize("levels", [7, 8, 60, 200])
def test_deeply_nested_parentheses_are_held_to(host: Host, levels: int) -> None:
    constraint = bounded(f'root ::= {"(" * levels}"a" | "b"{")" * levels}', host)
    constraint.take(b"b")
    with pytest.raises(MindfulError, match="generated so far"):
        constraint.take(b"b")


@pytest.mark.parametrize(
    ("grammar", "sqlstate"),
    [
        ('root ::= root "a"', "22023"),
        ("root ::= r0\n" + "".join(f"r{n} ::= r{n + 1}\n" for n in range(1500)) + 'r1500 ::= "a"', "54000"),
        (
            "root ::= r0\n" + "".join(f"r{n} ::= ((r{n + 1}*)?)+\n" for n in range(400)) + 'r400 ::= "a"',
            "54000",
        ),
    ],
)
def test_a_grammar_that_would_end_the_server_is_refused_here(host: Host, grammar: str, sqlstate: str) -> None:
    with pytest.raises(MindfulError) as caught:
        bounded(grammar, host)
    assert caught.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ],
)
@pytest.mark.parametrize("server", ["llama.cpp", "llama-cpp-python"])
def test_a_schema_that_is_only_itself_is_sent_to_no_server(
    schema: dict[str, Any], server: str, host: Host
) -> None:
    sampling = Sampling(4, grammar=grammar_of(schema, lambda _value, _part: True), schema=schema)
    with pytest.raises(MindfulError) as caught:
        Constraints({"server": server}).of(sampling, host)
    assert caught.value.sqlstate == "22023"


def test_a_schema_that_has_itself_within_is_sent_as_llama_cpps_own_grammar(host: Host) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    text = grammar_of(schema, lambda _value, _part: True)
    constraint = Constraints({"server": "llama-cpp-python"}).of(
        Sampling(4, grammar=text, schema=schema), host
    )
    assert (constraint.body, constraint.watches) == ({"grammar": text}, False)
