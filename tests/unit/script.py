"""What an installation script declares, read with PostgreSQL's own parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pglast
from pglast import ast, enums
from pglast.stream import RawStream

_INPUT_MODES = {
    enums.FunctionParameterMode.FUNC_PARAM_DEFAULT,
    enums.FunctionParameterMode.FUNC_PARAM_IN,
    enums.FunctionParameterMode.FUNC_PARAM_INOUT,
    enums.FunctionParameterMode.FUNC_PARAM_VARIADIC,
}
_FORMAT = re.compile(r"format\(\s*(?:'((?:[^']|'')*)'|\$(\w*)\$(.*?)\$\2\$)", re.DOTALL)
_ARRAY = re.compile(r"foreach \w+ in array array\[(.*?)\]", re.DOTALL)
_DYNAMIC_DDL = ("create table", "alter table", "create policy", "comment on")
DYNAMIC = "dynamic"
"""Stands for the name of a table that a function makes at run time."""


@dataclass(frozen=True)
class Function:
    """One CREATE FUNCTION."""

    name: str
    arguments: Sequence[str]
    types: Sequence[str]
    options: dict[str, Any]
    atomic: bool
    procedure: bool = False

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.types)})"

    @property
    def language(self) -> str:
        return str(self.options["language"].sval)

    @property
    def body(self) -> str:
        return "" if self.atomic else str(self.options["as"][0].sval)

    @cached_property
    def settings(self) -> set[str]:
        return set(self.options.get("set", ()))


@dataclass
class Script:
    """Everything a script declares."""

    functions: list[Function] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    comments: set[str] = field(default_factory=set)
    row_security: set[str] = field(default_factory=set)
    forced: set[str] = field(default_factory=set)
    policies: set[str] = field(default_factory=set)
    open_to_public: set[str] = field(default_factory=set)
    """Functions that everybody may call when the script has run."""


_ROUTINES = (
    enums.ObjectType.OBJECT_FUNCTION,
    enums.ObjectType.OBJECT_PROCEDURE,
    enums.ObjectType.OBJECT_ROUTINE,
)


def read(text: str) -> Script:
    """Read a script of SQL statements, psql's own commands left out."""
    script = Script()
    for statement in _statements(re.sub(r"^\\.*$", "", text, flags=re.MULTILINE)):
        _add(script, statement)
    return script


def _statements(text: str) -> Iterator[Any]:
    """Yield statements, and after a block or a function those that it makes from format strings."""
    for raw in pglast.parse_sql(text):
        statement = raw.stmt
        yield statement
        if isinstance(statement, ast.DoStmt):
            yield from _dynamic(next(arg.arg.sval for arg in statement.args or () if arg.defname == "as"))
        elif isinstance(statement, ast.CreateFunctionStmt) and statement.sql_body is None:
            yield from _dynamic(_function(statement).body)


def _dynamic(body: str) -> Iterator[Any]:
    found = _ARRAY.search(body)
    names = re.findall(r"'(\w+)'", found[1]) if found else [DYNAMIC]
    for quoted, _, dollar in _FORMAT.findall(body):
        template = quoted.replace("''", "'") or dollar
        if not template.lstrip().startswith(_DYNAMIC_DDL):
            continue
        for name in names:
            text = re.sub(r"%(\d\$)?I", name, template)
            text = re.sub(r"%(\d\$)?L", "'text'", re.sub(r"%(\d\$)?s", "something", text))
            yield from (raw.stmt for raw in pglast.parse_sql(text))


def _add(script: Script, statement: Any) -> None:
    match statement:
        case ast.CreateFunctionStmt():
            function = _function(statement)
            script.functions.append(function)
            script.open_to_public.add(function.signature)
        case ast.CommentStmt():
            if statement.comment:
                script.comments.add(_commented(statement))
        case ast.AlterTableStmt():
            _alter(script, statement)
        case ast.GrantStmt():
            _grant(script, statement)
        case _:
            _name(script, statement)


def _name(script: Script, statement: Any) -> None:
    match statement:
        case ast.CreateStmt():
            script.tables.append(statement.relation.relname)
        case ast.ViewStmt():
            script.views.append(statement.view.relname)
        case ast.CreateTableAsStmt():
            script.views.append(statement.into.rel.relname)
        case ast.CompositeTypeStmt():
            script.types.append(statement.typevar.relname)
        case ast.CreateEnumStmt():
            script.types.append(statement.typeName[-1].sval)
        case ast.CreatePolicyStmt():
            script.policies.add(statement.table.relname)
        case _:
            pass


def _alter(script: Script, statement: Any) -> None:
    for command in statement.cmds:
        if command.subtype == enums.AlterTableType.AT_EnableRowSecurity:
            script.row_security.add(statement.relation.relname)
        elif command.subtype == enums.AlterTableType.AT_ForceRowSecurity:
            script.forced.add(statement.relation.relname)


def _grant(script: Script, statement: Any) -> None:
    public = any(role.roletype == enums.RoleSpecType.ROLESPEC_PUBLIC for role in statement.grantees)
    if statement.objtype not in _ROUTINES or not public:
        return
    if statement.targtype == enums.GrantTargetType.ACL_TARGET_ALL_IN_SCHEMA:
        named = {function.signature for function in script.functions}
    else:
        named = {_signature(item) for item in statement.objects}
    if statement.is_grant:
        script.open_to_public |= named
    else:
        script.open_to_public -= named


def _function(statement: Any) -> Function:
    inputs = [item for item in statement.parameters or () if item.mode in _INPUT_MODES]
    options: dict[str, Any] = {}
    for option in statement.options:
        if option.defname == "set":
            options.setdefault("set", []).append(option.arg.name)
        else:
            options[option.defname] = option.arg
    return Function(
        name=statement.funcname[-1].sval,
        arguments=[item.name for item in inputs],
        types=[_type(item.argType) for item in inputs],
        options=options,
        atomic=statement.sql_body is not None,
        procedure=bool(statement.is_procedure),
    )


def _commented(statement: Any) -> str:
    target = statement.object
    if isinstance(target, ast.ObjectWithArgs):
        return _signature(target)
    if isinstance(target, ast.TypeName):
        return str(target.names[-1].sval)
    names = target if isinstance(target, tuple) else (target,)
    column = statement.objtype == enums.ObjectType.OBJECT_COLUMN
    return ".".join(name.sval for name in names[-2:]) if column else str(names[-1].sval)


def _signature(target: Any) -> str:
    return f"{target.objname[-1].sval}({', '.join(map(_type, target.objargs or ()))})"


def _type(name: Any) -> str:
    return str(RawStream()(name))  # type: ignore[no-untyped-call]
