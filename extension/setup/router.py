"""Write the extensions mindful_router and mindful_partition from the catalog of an installed mindful.

router.py DSN SOURCE TARGET makes a database in that cluster for the time, reads the public functions, views and types
of a fresh mindful, and writes the extensions' files: SOURCE holds their hand-written parts.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from router_catalog import ROUTE, Composite, Enum, Function, Relation, read

DIRECT = {"memory_attach", "memory_detach", "tool_register"}
"""Functions whose arguments name objects of the partition's database, and which are called there."""
OWNERS = {"key_create": "$2", "memory_index_create": "$1"}
"""Functions that may act for a tenant other than the caller's, by the argument that names it."""
WRITTEN = {"tenant_set", "key_use"}
"""Functions that the router has of its own."""
ROUTED = {"key_use"}
"""Those of them that call partitions."""
POLYMORPHIC = {"anycompatible"}
"""Types of arguments that take a value of any type, which the partition reads from its text form."""
KEYED = {"key_create"}
"""Functions that return a key, whose place the router keeps."""


def main() -> None:
    """Write the four files."""
    dsn, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    found = read(dsn)
    written = {
        "router": [
            *map(enumerated, found.enums),
            *map(composite, found.composites),
            *map(router_view, found.relations),
            *(
                figures_view(one)
                for one in found.relations
                if one.kind == "v" and "mindful_reader" in one.roles
            ),
            *map(router_function, found.functions),
        ],
        "partition": [*map(partition_view, found.relations), *map(partition_function, found.functions)],
    }
    for name, statements in written.items():
        before, after = (included(source / f"{name}{part}.sql") for part in ("", "_last"))
        script = "\n".join([before, *filter(None, statements), after])
        (target / f"mindful_{name}--{found.version}.sql").write_text(
            script.replace("@VERSION@", found.version)
        )
        control = (source / f"mindful_{name}.control").read_text()
        (target / f"mindful_{name}.control").write_text(control.replace("@VERSION@", found.version))


def included(path: Path) -> str:
    """Return a file in which "-- include PATH" stands for that file, as install.sh has it."""
    root = path.parents[2]
    return re.sub(
        r"^-- include (\S+)$", lambda found: (root / found[1]).read_text(), path.read_text(), flags=re.M
    )


def literal(text: str | None) -> str:
    """Quote a text."""
    return "null" if text is None else "'" + text.replace("'", "''") + "'"


def composite(one: Composite) -> str:
    """Return the statements that create a type."""
    columns = ",\n    ".join(f"{name} {kind}" for name, kind, _ in one.columns)
    return (
        f"create type mindful.{one.name} as (\n    {columns}\n);\n"
        + commented(f"type mindful.{one.name}", one.comment)
        + "".join(commented(f"column mindful.{one.name}.{name}", note) for name, _, note in one.columns)
    )


def enumerated(one: Enum) -> str:
    """Return the statements that create an enumerated type."""
    labels = ", ".join(map(literal, one.labels))
    return f"create type mindful.{one.name} as enum ({labels});\n" + commented(
        f"type mindful.{one.name}", one.comment
    )


def commented(target: str, comment: str | None) -> str:
    """Return the statement that describes an object."""
    return f"comment on {target} is {literal(comment)};\n" if comment else ""


def granted(target: str, right: str, names: list[str]) -> str:
    """Return the statement that grants a right to roles."""
    return f"grant {right} on {target} to {', '.join(names)};\n" if names else ""


def result_of(one: Function) -> str:
    """Return the result type, as CREATE FUNCTION takes it."""
    return one.result or "void"


def places(one: Function, first: int = 1) -> list[str]:
    """Return the arguments as parameters."""
    return [f"${number}" for number in range(first, first + len(one.names))]


def sent(one: Function) -> list[str]:
    """Return the arguments as the router sends them: PL/Proxy refuses polymorphic types."""
    return [
        f"{place}::text" if kind in POLYMORPHIC else place
        for place, kind in zip(places(one), one.types, strict=True)
    ]


def sent_types(one: Function) -> list[str]:
    """Return the types of the arguments as the router sends them."""
    return ["text" if kind in POLYMORPHIC else kind for kind in one.types]


def router_function(one: Function) -> str:
    """Return the statements that create a function of the router."""
    kind = {"a": "aggregate", "p": "procedure"}.get(one.kind, "function")
    signature = f"mindful.{one.name}({one.identity})"
    described = commented(f"{kind} {signature}", one.comment)
    rights = (
        f"revoke all on {'routine' if kind == 'aggregate' else kind} {signature} from public;\n"
        + granted(f"{'routine' if kind == 'aggregate' else kind} {signature}", "execute", one.roles)
    )
    if one.name in WRITTEN:
        return (proxy(one, one.name) if one.name in ROUTED else "") + described + rights
    if kind == "procedure" or one.name in DIRECT:
        return stub(one, kind) + described + rights
    if kind == "aggregate":
        return aggregate(one) + described + rights
    return proxy(one, one.name) + caller(one) + described + rights


def stub(one: Function, kind: str) -> str:
    """Return a function that names the partition to call."""
    returns = "" if kind == "procedure" else f"returns {result_of(one)}\n"
    stated = "" if kind == "procedure" else f" {one.volatility} parallel unsafe"
    return f"""create {kind} mindful.{one.name}({one.arguments})
{returns}language plpgsql{stated} security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.raise('0A000', '{one.name} cannot be routed', _mindful.direct_hint());
end
$$;
"""


def aggregate(one: Function) -> str:
    """Return an aggregate over texts that runs on the partition at its end."""
    final = replace(
        one, kind="f", arguments="state text[]", identity="state text[]", names=["state"], types=["text[]"]
    )
    final = replace(final, volatility="volatile", is_strict=False)
    added = ", ".join(f"${number}" for number in range(2, 2 + len(one.types)))
    return (
        proxy(final, one.name)
        + caller(final, f"_mindful.{one.name}_final")
        + f"""create function _mindful.{one.name}_add(text[], {", ".join(one.types)}) returns text[]
language sql immutable parallel unsafe security invoker
begin atomic
    select pg_catalog.array_cat($1, array[{added}]);
end;
create aggregate mindful.{one.name}({one.arguments}) (
    sfunc = _mindful.{one.name}_add,
    stype = text[],
    initcond = '{{}}',
    finalfunc = _mindful.{one.name}_final,
    parallel = unsafe
);
"""
    )


def proxy(one: Function, name: str) -> str:
    """Return the function that PL/Proxy runs on a partition."""
    arguments = ", ".join([f"{ROUTE[0]} integer, {ROUTE[1]} text, {ROUTE[2]} text", *sent_types(one)])
    result = "text" if one.is_void else result_of(one)
    return f"""create function _mindful.{name}({arguments}) returns {result}
language plproxy volatile parallel unsafe security invoker
as $$ cluster 'mindful'; run on {ROUTE[0]}; target mindful_route.{name}; $$;
"""


def caller(one: Function, name: str = "") -> str:
    """Return the function that users call."""
    call = f"_mindful.{one.name}({', '.join(['route.number', 'route.map', 'route.tenant', *sent(one)])})"
    if one.is_void:
        body = f"perform {call};\n            return;"
    elif one.is_set:
        body = f"return query select * from {call};\n            return;"
    elif one.name in KEYED:
        body = f"return _mindful.key_keep(coalesce({OWNERS[one.name]}, route.tenant), {call});"
    else:
        body = f"return {call};"
    columns = {part.split()[0] for part in result_of(one).removeprefix("TABLE(").split(", ")}
    if columns & set(one.names):  # which PL/pgSQL refuses, and SQL allows
        unnamed = replace(one, arguments=", ".join(one.types), names=[""] * len(one.names))
        made = f"create function mindful.{one.name}({one.arguments}) returns {result_of(one)}"
        return (
            caller(unnamed, f"_mindful.{one.name}_call")
            + f"""{made}
language sql {one.volatility} parallel unsafe security invoker rows {one.rows:g}
set search_path = pg_catalog, mindful, pg_temp
as $$ select * from _mindful.{one.name}_call({", ".join(places(one))}) $$;
"""
        )
    limits = f" rows {one.rows:g}" if one.is_set and one.rows else ""
    strict = " strict" if one.is_strict else ""
    return f"""create function {name or f"mindful.{one.name}"}({one.arguments}) returns {result_of(one)}
language plpgsql {one.volatility}{strict} parallel unsafe security invoker{limits}
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $${guarded(f"_mindful.route({OWNERS.get(one.name, '')})", body)}$$;
"""


def guarded(route: str, body: str) -> str:
    """Return the body of a function that routes a call, and routes it again after a move."""
    return f"""
declare
    route _mindful.route;
    route_detail text;
    route_hint text;
begin
    loop
        route := {route};
        begin
            {body}
        exception when others then
            get stacked diagnostics route_detail = pg_exception_detail, route_hint = pg_exception_hint;
            perform _mindful.route_error(sqlstate, sqlerrm, route_detail, route_hint, route);
        end;
    end loop;
end
"""


def partition_function(one: Function) -> str:
    """Return the function of a partition that the router calls."""
    if one.kind == "p" or one.name in DIRECT | {"tenant_set"}:
        return ""
    types = ["text[]"] if one.kind == "a" else sent_types(one)
    given = places(one, 4)
    if one.kind == "a":
        texts = ", ".join(f"$4[s.row * {len(one.types)} + {n}]" for n in range(1, 1 + len(one.types)))
        rows_of = f"generate_series(0, cardinality($4) / {len(one.types)} - 1) s (row)"
        call = f"(select mindful.{one.name}({texts} order by s.row) from {rows_of})"
    else:
        named = (f"{name} => {place}" for name, place in zip(one.names, given, strict=True))
        call = f"mindful.{one.name}({', '.join(named)})"
    if one.is_void:
        body = f"perform {call};\n    return null;"
    elif one.is_set:
        body = f"return query select * from {call};"
    else:
        body = f"return {call};"
    arguments = ", ".join([f"{ROUTE[0]} integer, {ROUTE[1]} text, {ROUTE[2]} text", *types])
    result = "text" if one.is_void else result_of(one)
    return entered(one.name, arguments, result, body, replan=one.is_sql or one.kind == "a")


def entered(name: str, arguments: str, result: str, body: str, *, replan: bool = True) -> str:
    """Return a function of a partition that the router calls.

    What is inlined is planned each time, as in a direct call. Other functions go without: the setting reaches all
    that they call, and a recall would plan dozens of statements.
    """
    planned = "set plan_cache_mode = force_custom_plan\n" if replan else ""
    return f"""create function mindful_route.{name}({arguments}) returns {result}
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
{planned}as $$
begin
    perform mindful_route.enter($1, $2, $3);
    {body}
end
$$;
"""


def view_result(one: Relation) -> str:
    """Return the columns of a view as the result of a function."""
    return f"table ({', '.join(f'{name} {kind}' for name, kind, _ in one.columns)})"


def partition_view(one: Relation) -> str:
    """Return the function of a partition that reads a view."""
    arguments = f"{ROUTE[0]} integer, {ROUTE[1]} text, {ROUTE[2]} text"
    return entered(
        f"view_{one.name}", arguments, view_result(one), f"return query select * from mindful.{one.name};"
    )


def router_view(one: Relation) -> str:
    """Return the statements that create a view of the router."""
    name, result = f"view_{one.name}", view_result(one)
    arguments = f"{ROUTE[0]} integer, {ROUTE[1]} text, {ROUTE[2]} text"
    columns = ", ".join(str(column) for column, _, _ in one.columns)
    body = f"return query select * from _mindful.{name}(route.number, route.map, route.tenant);\n            return;"
    return (
        f"""create function _mindful.{name}({arguments}) returns {result}
language plproxy volatile parallel unsafe security invoker
as $$ cluster 'mindful'; run on {ROUTE[0]}; target mindful_route.{name}; $$;
create function _mindful.{name}() returns {result}
language plpgsql stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $${guarded("_mindful.route()", body)}$$;
create view mindful.{one.name} as select {columns} from _mindful.{name}();
"""
        + commented(f"view mindful.{one.name}", one.comment)
        + "".join(commented(f"column mindful.{one.name}.{column}", note) for column, _, note in one.columns)
        + granted(f"mindful.{one.name}", "select", one.roles)
    )


def figures_view(one: Relation) -> str:
    """Return the statements that create a view of the figures of all partitions."""
    name = f"partition_{one.name}"
    columns = [f"{column} {kind}" for column, kind, _ in one.columns]
    nulls = ", ".join(f"null::{kind}" for _, kind, _ in one.columns)
    given = "route.number, route.map, route.tenant"
    shown = ", ".join(["partition", "error", *(str(column) for column, _, _ in one.columns)])
    return (
        f"""create function _mindful.{name}() returns table (partition integer, error text, {", ".join(columns)})
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
declare
    route _mindful.route;
    route_place integer;
    route_message text;
begin
    for route_place in select min(p.number) from mindful.partition p group by p.host, p.port, p.dbname order by 1 loop
        begin
            route := _mindful.route_to(route_place);
            return query select route_place, null::text, v.* from _mindful.view_{one.name}({given}) v;
        exception when others then
            route_message := sqlerrm;
            begin
                perform _mindful.route_error(sqlstate, route_message, null, null, route);
            exception when others then
                route_message := sqlerrm;
            end;
            return query select route_place, route_message, {nulls};
        end;
    end loop;
end
$$;
create view mindful.{name} as select {shown} from _mindful.{name}();
"""
        + commented(
            f"view mindful.{name}",
            f"{one.name} of each partition, for mindful_reader. A partition that fails has one row with the error.",
        )
        + commented(
            f"column mindful.{name}.partition",
            "The number, the lowest one of partitions that share a database.",
        )
        + commented(f"column mindful.{name}.error", "NULL, or why the partition did not answer.")
        + granted(f"mindful.{name}", "select", ["mindful_reader"])
    )


if __name__ == "__main__":
    main()
