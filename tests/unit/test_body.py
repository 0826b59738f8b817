"""What every SQL object of the extension promises, proved from the source without a server."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator

import pytest
from support.sources import ROOT, install_script, listed
from unit.script import DYNAMIC, Function, Script, read

EMBED = "from mindful.generate.llm import llm_embed\n"


def python_problems(script: Script) -> Iterator[str]:
    """Every PL/Python body imports the function of its name, and returns its call with the SQL arguments."""
    for function in script.functions:
        if function.language == "plpython3u":
            yield from (f"{function.name}: {problem}" for problem in _body_problems(function))


def _body_problems(function: Function) -> Iterator[str]:
    match ast.parse(function.body).body:
        case [
            ast.ImportFrom(module=str(module), names=[ast.alias(name=imported, asname=None)]),
            ast.Return(value=ast.Call(func=ast.Name(id=called), args=arguments, keywords=[])),
        ]:
            pass
        case _:
            yield "the body is not one import and one call that is returned"
            return
    passed = [argument.id if isinstance(argument, ast.Name) else "?" for argument in arguments]
    if {imported, called} != {function.name.lstrip("_")}:
        yield f"imports {imported} and calls {called}"
    if passed != list(function.arguments):
        yield f"passes {passed}, not {function.arguments}"
    target = getattr(importlib.import_module(module), imported, None)
    if target is None or not hasattr(target, "__wrapped__"):
        yield f"{module}.{imported} is no sql_function"
        return
    declared = list(_declared(target))
    if declared != ["db", *function.arguments]:
        yield f"the Python function takes {declared}"


def _declared(function: Callable[..., object]) -> Iterator[str]:
    """The parameters' names; *arguments stand for the fields of Arguments in the function's module."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            yield from inspect.getmodule(function).Arguments._fields  # type: ignore[union-attr]
        else:
            yield parameter.name


def attribute_problems(script: Script) -> Iterator[str]:
    """Every function says how volatile, how parallel and whose right it is, and where names are looked up."""
    for function in script.functions:
        if function.procedure and function.language == "plpython3u":
            continue  # of these a procedure has none, and one that commits can pin nothing
        for attribute in ("volatility", "parallel", "security"):
            if attribute not in function.options:
                yield f"{function.name} does not state {attribute}"
        if not function.atomic and "search_path" not in function.settings:
            yield f"{function.name} does not pin search_path"


def comment_problems(script: Script) -> Iterator[str]:
    """Everything has a comment."""
    named = [function.signature for function in script.functions]
    for name in (*named, *script.tables, *script.views, *script.types):
        if name not in script.comments:
            yield f"{name} has no comment"


def row_security_problems(script: Script) -> Iterator[str]:
    """Every table isolates tenants, from its owner too."""
    for table in script.tables:
        for what, tables in (
            ("row level security", script.row_security),
            ("forced row level security", script.forced),
            ("policy", script.policies),
        ):
            if table not in tables:
                yield f"{table} has no {what}"


def privilege_problems(script: Script) -> Iterator[str]:
    """No function is everybody's."""
    for function in sorted(script.open_to_public):
        yield f"public may call {function}"


def source() -> str:
    return install_script()


Check = Callable[[Script], Iterator[str]]
CHECKS: tuple[Check, ...] = (
    python_problems,
    attribute_problems,
    comment_problems,
    row_security_problems,
    privilege_problems,
)

GOOD = """
create function llm_embed(content text, model text default null) returns text
language plpython3u stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_embed
return llm_embed(content, model)
$python$;
comment on function llm_embed(text, text) is 'Embeds.';
create function _one() returns integer language sql stable parallel safe security invoker
begin atomic select 1; end;
comment on function _one() is 'One.';
create table note (content text);
comment on table note is 'Notes.';
alter table note enable row level security;
alter table note force row level security;
create policy own on note using (true);
create view all_notes as select * from note;
comment on view all_notes is 'All notes.';
create type pair as (a text, b text);
comment on type pair is 'Two texts.';
revoke execute on all functions in schema mindful from public;
"""


@pytest.fixture(scope="module")
def extension() -> Script:
    return read(source())


@pytest.mark.parametrize("check", CHECKS)
def test_the_extension_keeps_the_rule(check: Check, extension: Script) -> None:
    assert list(check(extension)) == []


def test_nothing_of_the_extension_is_overlooked(extension: Script) -> None:
    for kind, found in (
        ("function|procedure", [function.name for function in extension.functions]),
        ("table", [table for table in extension.tables if table != DYNAMIC]),
        ("view", extension.views),
        ("type", extension.types),
    ):
        assert found == re.findall(
            rf"^create (?:unlogged |materialized )?(?:{kind}) (?:_mindful\.)?(\w+)",
            source(),
            flags=re.MULTILINE,
        ), kind
    assert DYNAMIC in extension.tables


@pytest.mark.parametrize("check", CHECKS)
def test_a_good_script_has_no_problem(check: Check) -> None:
    assert list(check(read(GOOD))) == []


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (python_problems, EMBED, EMBED.replace("\n", " as f\n")),
        (python_problems, EMBED, EMBED.replace("llm_embed", "llm_generate")),
        (python_problems, EMBED, EMBED.replace("generate.llm", "core.vector")),
        (
            python_problems,
            EMBED,
            "import time\n" + EMBED,
        ),
        (python_problems, "return llm_embed(", "llm_embed("),
        (python_problems, "(content, model)\n", "(model, content)\n"),
        (python_problems, "(content, model)\n", "(content, model=model)\n"),
        (python_problems, "(content, model)\n", "(content, None)\n"),
        (python_problems, "llm_embed(content text, model text", "llm_embed(content text, name text"),
        (python_problems, "function llm_embed", "function llm_embedding"),
        (python_problems, "as $python$\n", "as $python$\ncontent = content.strip()\n"),
        (attribute_problems, " stable parallel", " parallel"),
        (attribute_problems, "parallel restricted", ""),
        (attribute_problems, "security invoker\nset", "set"),
        (attribute_problems, "set search_path = pg_catalog, mindful, pg_temp", ""),
        (attribute_problems, "safe security invoker", "safe"),
        (
            comment_problems,
            "comment on function llm_embed(text, text)",
            "comment on function llm_embed(text)",
        ),
        (comment_problems, "comment on function _one() is 'One.'", "comment on function _one() is null"),
        (comment_problems, "comment on table note is 'Notes.';", ""),
        (comment_problems, "comment on table note is", "comment on column note.content is"),
        (comment_problems, "comment on view all_notes is 'All notes.';", ""),
        (comment_problems, "comment on type pair is 'Two texts.';", ""),
        (row_security_problems, "alter table note enable row level security;", ""),
        (row_security_problems, "alter table note force row level security;", ""),
        (row_security_problems, "create policy own on note using (true);", ""),
        (privilege_problems, "revoke execute on all functions in schema mindful from public;", ""),
        (privilege_problems, "from public;", "from public; grant execute on function _one() to public;"),
        (
            privilege_problems,
            "from public;",
            "from public; create function f() returns int language sql return 1;",
        ),
    ],
)
def test_a_broken_script_is_noticed(check: Check, old: str, new: str) -> None:
    assert old in GOOD
    assert list(check(read(GOOD.replace(old, new)))) != []


def test_tables_made_in_a_loop_or_by_a_function_are_seen() -> None:
    loop = """
    create table note (a text);
    do $do$
    declare relation text;
    begin
        foreach relation in array array['note'] loop
            execute pg_catalog.format('alter table mindful.%I enable row level security', relation);
            execute format($$create policy own on mindful.%I using (true)$$, relation);
        end loop;
    end $do$;
    create function make(name text, size integer) returns void language plpgsql as $$
    begin
        execute format('create table mindful.%I (embedding %s.vector(%s))', name, 'public', size);
    end $$;
    """
    assert list(row_security_problems(read(loop))) == [
        "note has no forced row level security",
        "dynamic has no row level security",
        "dynamic has no forced row level security",
        "dynamic has no policy",
    ]


def test_every_file_is_loaded_once() -> None:
    files = {str(path.relative_to(ROOT / "sql")) for path in (ROOT / "sql").rglob("*.sql")}
    assert sorted(listed()) == sorted(files)
