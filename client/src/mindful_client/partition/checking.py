"""What is wrong with the partitions of a router."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from mindful_client.errors import MindfulError
from mindful_client.partition import copying
from mindful_client.partition.atlas import Atlas, Place, connected, read
from mindful_client.partition.change import Servers, _served

_MAPPED = "select usename from pg_user_mappings where srvname = 'mindful' and usename <> 'public' order by 1"


def problems(servers: Servers) -> Iterator[str]:
    """Yield what is wrong: hosts, versions, maps, roles, and rows of tenants of other partitions."""
    with connected(servers.router) as router:
        atlas = read(router)
        roles = [row[0] for row in router.execute(_MAPPED)]
        for place in atlas.databases():
            try:
                with connected(servers.of(place)) as partition:
                    yield from _of_partition(router, partition, atlas, place, roles)
            except MindfulError as error:
                yield f"{place}: {error.message}"
    for dsn in servers.others:
        yield from _of_router(dsn, atlas)


def _of_partition(
    router: psycopg.Connection[Any],
    partition: psycopg.Connection[Any],
    atlas: Atlas,
    place: Place,
    roles: Sequence[str],
) -> Iterator[str]:
    for name in ("mindful", "mindful_partition"):
        row = partition.execute("select extversion from pg_extension where extname = %s", (name,)).fetchone()
        version = row[0] if row else "none"
        if version != atlas.extension:
            yield f"{place}: {name} has version {version}, the router {atlas.extension}"
            if row is None:
                return
    wanted = {n: atlas.served(atlas.place(n)) for n in atlas.numbers(place.database)}
    found = _served(partition)
    for number in sorted(wanted.keys() | found.keys()):
        if wanted.get(number) != found.get(number):
            yield (
                f"{place}: partition {number} has map {found.get(number, 'none')}, "
                f"the router {wanted.get(number, 'none')}"
            )
    present = {row[0] for row in partition.execute("select rolname from pg_roles")}
    for role in roles:
        if role not in present:
            yield f"{place}: the role {role} is missing"
    for tenant, number in strangers(router, partition, wanted):
        yield f"{place}: rows of tenant {tenant}, whose partition is {number}"


def _of_router(dsn: str, atlas: Atlas) -> Iterator[str]:
    with connected(dsn) as other:
        theirs = read(other)
        if theirs.id != atlas.id:
            yield f"the other router has the map {theirs.id}, not {atlas.id}"
        for one in atlas.places:
            same = [place for place in theirs.places if place.number == one.number]
            if same != [one]:
                yield f"the other router has partition {one.number} at {same[0] if same else 'no place'}, not {one}"


def strangers(
    router: psycopg.Connection[Any], partition: psycopg.Connection[Any], numbers: dict[int, str]
) -> list[tuple[str, int]]:
    """Return tenants that have rows in a database of other partitions, with the numbers of theirs."""
    return router.execute(
        """select t, _mindful.partition_of(t) from unnest(%s::text[]) t
           where _mindful.partition_of(t) <> all (%s)""",
        (copying.tenants(partition), list(numbers)),
    ).fetchall()


def give_role(servers: Servers, role: str, groups: Sequence[str], password: str | None) -> None:
    """Make a role on the router and all partitions, with a password that the router knows."""
    password = password or secrets.token_urlsafe(24)
    with connected(servers.router) as router:
        atlas = read(router)
        _make(router, role, groups, None)
        groups = groups or [
            row[0]
            for row in router.execute(
                """select g.rolname::text from pg_auth_members m join pg_roles g on g.oid = m.roleid
                   where m.member = to_regrole(quote_ident(%s)) and g.rolname like 'mindful\\_%%'""",
                (role,),
            )
        ]
        for place in atlas.databases():
            with connected(servers.of(place)) as partition:
                _make(partition, role, groups, password)
        for dsn in (servers.router, *servers.others):
            with connected(dsn) as one:
                one.execute("select _mindful.role_map(%s, %s)", (role, password))


def _make(database: psycopg.Connection[Any], role: str, groups: Sequence[str], password: str | None) -> None:
    name = sql.Identifier(role)
    if database.execute("select from pg_roles where rolname = %s", (role,)).fetchone() is None:
        database.execute(sql.SQL("create role {} login").format(name))
    if password is not None:
        with database.transaction():
            database.execute("set local log_min_error_statement = panic")
            database.execute("set local log_statement = none")
            database.execute(sql.SQL("alter role {} login password {}").format(name, password))
    for group in groups:
        database.execute(sql.SQL("grant {} to {}").format(sql.Identifier(group), name))
