"""Write docs/reference.md: public functions, views, tables, types and settings, with the catalog's own comments.

reference.py [--write FILE] makes a database in the cluster of MINDFUL_TEST_DSN, and prints or writes the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from support.cluster import Cluster
from support.pages import NOTES, sections

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference.md"
ROOMS = {
    "chat": "A conversation with memory.",
    "generate": "One text in, one answer out: generate, classify, extract, summarize, rerank, embed.",
    "memory": "Store, recall, correct and forget memories and documents.",
    "conversation": "What the model sees: sessions, context, tools, lessons.",
    "confidence": "How likely an answer is right, and what to do about it.",
    "learning": "Facts drawn from conversations, training samples, adapters.",
    "models": "Registered models and adapters.",
    "core": "Settings, tenants and slots.",
}
"""The rooms in the order in which a reader needs them."""
USERS = ["mindful_application", "mindful_user"]
_CREATED = re.compile(
    r"^create (?:unlogged |materialized )*(?:function|procedure|aggregate|view|table|type) (\w+)(?![\w.])",
    re.MULTILINE,
)
_ROLES = "('mindful_user', 'mindful_reader', 'mindful_admin', 'mindful_application')"
_FUNCTIONS = f"""
    select p.proname as name, pg_get_function_result(p.oid) as result, obj_description(p.oid, 'pg_proc') as comment,
        array(
            select concat_ws(' ', case a.mode when 'o' then 'out' when 'b' then 'inout' when 'v' then 'variadic' end,
                nullif(a.name, ''), format_type(a.type, null),
                'default ' || pg_get_function_arg_default(p.oid, a.place::int))
            from unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargmodes, p.proargnames)
                with ordinality as a (type, mode, name, place)
            where a.mode is distinct from 't'
            order by a.place
        ) as arguments,
        array(
            select r.rolname::text from pg_roles r
            where r.rolname in {_ROLES} and has_function_privilege(r.oid, p.oid, 'execute')
            order by 1
        ) as roles
    from pg_proc p
    join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
    where p.pronamespace = 'mindful'::regnamespace
    order by p.proname, p.pronargs"""
_RELATIONS = f"""
    select c.relname as name, c.relkind::text as kind,
        coalesce(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type')) as comment,
        array(
            select array[a.attname::text, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)]
            from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum
        ) as columns,
        array(
            select r.rolname::text from pg_roles r
            where r.rolname in {_ROLES} and c.relkind <> 'c' and has_any_column_privilege(r.oid, c.oid, 'select')
            order by 1
        ) as roles
    from pg_class c
    join pg_depend d on d.deptype = 'e' and d.objid in (c.oid, c.reltype)
    where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('r', 'v', 'm', 'c')
    order by c.relname"""
_ENUMS = """
    select t.typname as name, obj_description(t.oid, 'pg_type') as comment,
        array(select e.enumlabel::text from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder) as labels
    from pg_type t
    where t.typnamespace = 'mindful'::regnamespace and t.typtype = 'e'
    order by t.typname"""
_SETTINGS = """
    select key, type, low, high, choices, scopes, initial::text as initial, description
    from mindful.setting_definition order by key"""
_KINDS = {"v": "Views", "m": "Views", "c": "Result types", "r": "Tables"}
_CAST = re.compile(r"::[a-z_. ]+(\[\])?$")

Row = Mapping[str, Any]


def page(connection: psycopg.Connection) -> str:
    """Return the whole page in Markdown, of a database that has the extension."""
    with connection.cursor(row_factory=dict_row) as cursor, connection.transaction():
        cursor.execute("set local search_path = mindful, public")
        functions, relations, enums, settings = (
            cursor.execute(query).fetchall() for query in (_FUNCTIONS, _RELATIONS, _ENUMS, _SETTINGS)
        )
    return "\n".join(_page(functions, relations, enums, settings)) + "\n"


def rooms() -> dict[str, str]:
    """Map the name of each object to the room whose file creates it."""
    files = sorted((ROOT / "sql").glob("*/*.sql"))
    if missing := {path.parent.name for path in files} - ROOMS.keys():
        raise ValueError(f"ROOMS in {Path(__file__).name} lacks {', '.join(missing)}")
    return {name: path.parent.name for path in files for name in created(path)}


def created(path: Path) -> list[str]:
    """List the public objects that a file in sql/ creates."""
    return _CREATED.findall(path.read_text())


def notes() -> dict[str, str]:
    """Map the name of an object to what the pages beside the SQL files add to its COMMENT."""
    found: dict[str, str] = {}
    for page in NOTES:
        for name, text in sections(page).items():
            found[name] = "\n\n".join(filter(None, (found.get(name), text)))
    return found


def _page(
    functions: Sequence[Row], relations: Sequence[Row], enums: Sequence[Row], settings: Sequence[Row]
) -> Iterator[str]:
    yield from ("# Reference", "")
    yield "`make reference` writes this page from the catalog. To change a text, change the `comment on` in `sql/`,"
    yield "or the page beside the SQL file: `sql/memory/recall.md` adds to the comments of `sql/memory/recall.sql`."
    yield "Members of `mindful_user` and `mindful_application` may use an object unless its entry names other roles."
    yield "Tables have row-level security: a tenant sees its own rows."
    yield ""
    yield from (f"- [{room}](#{room}): {purpose}" for room, purpose in ROOMS.items())
    yield "- [Settings](#settings)"
    room_of, note_of = rooms(), notes()
    for room in ROOMS:
        here = [row for row in functions if room_of[row["name"]] == room]
        names = dict.fromkeys(row["name"] for row in here)
        yield from ("", f"## {room}", "", " · ".join(f"[{name}](#{name})" for name in names))
        for name, overloads in groupby(here, itemgetter("name")):
            for row in overloads:
                yield from _function(row)
            yield from _note(note_of, name)
        yield from _relations(room, [row for row in relations if room_of[row["name"]] == room], note_of)
        yield from _enums(room, [row for row in enums if room_of[row["name"]] == room])
    yield from ("", "## Settings", "")
    yield "`setting_set(key, value, scope)` changes a setting; the view `active_setting` shows what is in force."
    yield ""
    yield from ("| key | type | values | scopes | default | description |", "|---|---|---|---|---|---|")
    yield from map(_setting, settings)


def _function(row: Row) -> Iterator[str]:
    arguments = [_CAST.sub("", argument) for argument in row["arguments"]]
    result = f" -> {row['result']}" if row["result"] and row["result"] != "void" else ""
    line = f"{row['name']}({', '.join(arguments)}){result}"
    if len(line) > 100:
        line = f"{row['name']}(\n    " + ",\n    ".join(arguments) + f"\n){result}"
    yield from ("", f"### {row['name']}", "", "```", line, "```", "", _text(row["comment"]))
    yield from _roles(row)


def _note(note_of: Mapping[str, str], name: str) -> Iterator[str]:
    if name in note_of:
        yield from ("", note_of[name])


def _relations(room: str, relations: Sequence[Row], note_of: Mapping[str, str]) -> Iterator[str]:
    for heading in dict.fromkeys(_KINDS.values()):
        here = [row for row in relations if _KINDS[row["kind"]] == heading]
        if here:
            yield from ("", f"### {heading} of {room}")
        for row in here:
            yield from ("", f"#### {row['name']}", "", _text(row["comment"]), "")
            for name, kind, comment in row["columns"]:
                yield f"- `{name}` {kind}{': ' + _text(comment) if comment else ''}"
            if row["kind"] != "c":
                yield from _roles(row)
            yield from _note(note_of, row["name"])


def _enums(room: str, enums: Sequence[Row]) -> Iterator[str]:
    if enums:
        yield from ("", f"### Enumerations of {room}")
    for row in enums:
        yield from ("", f"#### {row['name']}", "", _text(row["comment"]), "")
        yield from (f"- `{label}`" for label in row["labels"])


def _roles(row: Row) -> Iterator[str]:
    if row["roles"] != USERS:
        yield from ("", f"Roles: {', '.join(f'`{role}`' for role in row['roles']) or 'superusers'}.")


def _setting(row: Row) -> str:
    bounds = ["" if bound is None else f"{bound:.12g}" for bound in (row["low"], row["high"])]
    values = ", ".join(row["choices"] or ()) or " to ".join(filter(None, bounds))
    cells = (
        f"`{row['key']}`", row["type"], values, ", ".join(row["scopes"]), f"`{row['initial']}`",
        _text(row["description"]),
    )  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _text(comment: str | None) -> str:
    return (comment or "").replace("<", "\\<")


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    target = parser.parse_args().write
    cluster = Cluster.of_environment()
    with cluster.database() as name, cluster.connect(name) as connection:
        connection.execute("set client_min_messages = warning")
        connection.execute("create extension mindful cascade")
        text = page(connection)
    if target:
        target.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
