"""Make, move and split partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mindful_client.errors import InvalidInputError, MindfulError, NotReadyError
from mindful_client.partition import copying
from mindful_client.partition.atlas import (
    OPTIONS,
    Atlas,
    Place,
    administrator,
    changing,
    connected,
    mark,
    paused,
    read,
    serve,
    write,
)

Told = Callable[[str], None]
"""Receives the name of each step before it begins."""


@dataclass(frozen=True)
class Servers:
    """Connection strings: of the router whose map is changed, of other routers, and what partitions' ones add."""

    router: str
    others: tuple[str, ...] = ()
    partition: str = ""

    def of(self, place: Place) -> str:
        """Return the connection string of a partition's superuser."""
        return administrator(self.router, self.partition, place)


def init(
    servers: Servers,
    hosts: Sequence[str],
    partitions: int,
    prefix: str,
    options: str = OPTIONS,
    tell: Told = print,
) -> None:
    """Make the partitions' databases on hosts in turn, and write the first map. An error undoes all of it."""
    if partitions < 1 or partitions & (partitions - 1):
        raise InvalidInputError(
            f"{partitions} is not a power of two", sqlstate="22023", hint="Use 1, 2, 4, 8, 16 and so on."
        )
    with connected(servers.router) as router, ExitStack() as undo:
        _extend(router, "mindful_router")
        with changing(servers.router):
            if router.execute("select 1 from mindful.partition_map").fetchone():
                raise NotReadyError(
                    "this router has a map", sqlstate="55000", hint="Use mindful partition move or split."
                )
            (map_id,) = router.execute("select gen_random_uuid()::text").fetchone() or ("",)
            places = [
                _place(number, f"{prefix}{number}", hosts[number % len(hosts)], options)
                for number in range(partitions)
            ]
            for one, host in zip(places, [hosts[n % len(hosts)] for n in range(partitions)], strict=True):
                tell(f"database {one}")
                _create(make_conninfo(host, dbname="postgres"), one, mark(map_id, one.number), undo)
                with connected(make_conninfo(host, dbname=one.dbname)) as database:
                    _find_unqualified(database)
                    _extend(database, "mindful_partition")
                    serve(database, {one.number: f"{map_id}/{partitions}/1"})
            tell("map")
            with router.transaction():
                _find_unqualified(router)
                router.execute(
                    "insert into mindful.partition_map values (true, %s, 0, %s)", (map_id, partitions)
                )
                write(router, places)
            undo.pop_all()
            for one, host in zip(places, list(hosts) * partitions, strict=False):
                _unmark(make_conninfo(host, dbname="postgres"), one.dbname)


def _find_unqualified(connection: psycopg.Connection) -> None:
    """Let all connections of a database call mindful's functions without their schema."""
    connection.execute(
        sql.SQL('alter database {} set search_path = "$user", public, mindful').format(
            sql.Identifier(connection.info.dbname)
        )
    )


def move(servers: Servers, number: int, target: str, *, tell: Told = print, drop: bool = False) -> None:
    """Move a partition into a new database on another server.

    Calls of this partition wait while it is copied and compared. An error leaves it where it was.
    """
    with connected(servers.router) as router, changing(servers.router):
        atlas = read(router)
        here = atlas.place(number)
        there = _place(
            number, str(conninfo_to_dict(target).get("dbname") or here.dbname), target, here.options
        )
        if there.database == here.database:
            raise InvalidInputError(
                f"partition {number} is there already: {here}",
                sqlstate="22023",
                hint="Name another database.",
            )
        _repair_place(servers, atlas, here)
        shared = len(atlas.numbers(here.database)) > 1
        with connected(servers.of(here)) as source, ExitStack() as undo:
            _check_version(source, atlas, here)
            tell("create")
            _create(make_conninfo(target, dbname="postgres"), there, mark(atlas.id, number), undo)
            target = make_conninfo(target, dbname=there.dbname)
            with connected(target) as destination, ExitStack() as held:
                copying.copy_roles(source, destination)
                copying.copy_settings(source, destination)
                tell("pause")
                held.enter_context(paused(servers.of(here)))
                tell("copy")
                copying.copy_contents(servers.of(here), target)
                own = _tenants_of(router, number, copying.tenants(source)) if shared else None
                if own is not None:
                    copying.delete_tenants(destination, sorted(set(copying.tenants(destination)) - set(own)))
                tell("compare")
                _compare(source, destination, own)
                _switch(servers, router, source, destination, atlas, there, tell, undo)
                undo.pop_all()
            _unmark(target, there.dbname)
            tell("clean")
            if shared:
                copying.delete_tenants(source, own or [])
        if drop and not shared:
            _drop(servers.of(replace(here, dbname="postgres")), here.dbname)


def _switch(
    servers: Servers,
    router: psycopg.Connection[Any],
    source: psycopg.Connection[Any],
    destination: psycopg.Connection[Any],
    atlas: Atlas,
    there: Place,
    tell: Told,
    undo: ExitStack,
) -> None:
    """Have the source refuse calls, then write the map. Never the other way round: both would take them."""
    here = atlas.place(there.number)
    tell("serve")
    serve(destination, {there.number: atlas.served(there, atlas.version + 1)})
    tell("refuse")
    kept = [atlas.place(number) for number in atlas.numbers(here.database)]
    undo.callback(serve, source, {one.number: atlas.served(one) for one in kept})
    serve(source, {one.number: atlas.served(one) for one in kept if one.number != there.number})
    tell("map")
    write(router, [there])
    _write_others(servers, [there], None)


def split(servers: Servers, *, tell: Told = print) -> None:
    """Double the number of partitions. The new ones share the databases of the old ones until they are moved."""
    with connected(servers.router) as router, changing(servers.router), ExitStack() as opened:
        atlas = read(router)
        doubled = replace(atlas, partitions=atlas.partitions * 2)
        places = [
            replace(one, number=number)
            for one in atlas.places
            for number in (one.number, one.number + atlas.partitions)
        ]
        databases = {
            one.database: opened.enter_context(connected(servers.of(one))) for one in atlas.databases()
        }
        for one in atlas.databases():
            _check_version(databases[one.database], atlas, one)
        with ExitStack() as undo:
            tell("pause")
            for one in atlas.databases():
                opened.enter_context(paused(servers.of(one)))
            for database, connection in databases.items():
                tell("refuse")
                undo.callback(
                    serve,
                    connection,
                    {number: atlas.served(atlas.place(number)) for number in atlas.numbers(database)},
                )
                numbers = [one.number for one in places if one.database == database]
                serve(
                    connection,
                    dict.fromkeys(numbers, f"{doubled.id}/{doubled.partitions}/{atlas.version + 1}"),
                )
            tell("map")
            write(router, places, doubled.partitions)
            undo.pop_all()
        _write_others(servers, places, doubled.partitions)


def pin(servers: Servers, tenant: str, number: int) -> None:
    """Put a tenant that has no rows yet on a chosen partition."""
    with connected(servers.router) as router, changing(servers.router):
        atlas = read(router)
        atlas.place(number)
        (old,) = router.execute("select _mindful.partition_of(%s)", (tenant,)).fetchone() or (0,)
        here = atlas.place(old)
        with connected(servers.of(here)) as partition, paused(servers.of(here)):
            if old != number and tenant in copying.tenants(partition):
                raise NotReadyError(
                    f"the tenant {tenant} has rows on partition {old}",
                    sqlstate="55000",
                    hint="Export them (mindful export), forget them, pin the tenant, and import them.",
                )
            # Calls that wait here are refused, and routed again.
            serve(partition, _wanted(atlas, here) | {old: atlas.served(here, atlas.version + 1)})
            for dsn in (servers.router, *servers.others):
                with connected(dsn) as one, one.transaction():
                    one.execute(
                        """insert into mindful.partition_pin values (%s, %s)
                           on conflict (tenant) do update set number = excluded.number""",
                        (tenant, number),
                    )
                    write(one, [here])


def repair(servers: Servers, atlas: Atlas) -> list[str]:
    """Make partitions serve what the map says, and drop databases that an interrupted change left."""
    done = []
    for place in atlas.databases():
        with connected(servers.of(place)) as partition:
            wanted = _wanted(atlas, place)
            if _served(partition) != wanted:
                serve(partition, wanted)
                done.append(f"{place} serves {', '.join(map(str, wanted))}")
            done += _drop_left(partition, servers, atlas, place)
    return done


def _wanted(atlas: Atlas, place: Place) -> dict[int, str]:
    return {number: atlas.served(atlas.place(number)) for number in atlas.numbers(place.database)}


def _served(partition: psycopg.Connection[Any]) -> dict[int, str]:
    return dict(
        partition.execute("select number, map from mindful_route.served where state = 'here'").fetchall()
    )


def _drop_left(partition: psycopg.Connection[Any], servers: Servers, atlas: Atlas, place: Place) -> list[str]:
    marks = [mark(atlas.id, number) for number in range(atlas.partitions)]
    used = {one.dbname for one in atlas.places if (one.host, one.port) == (place.host, place.port)}
    rows = partition.execute(
        "select datname from pg_database where shobj_description(oid, 'pg_database') = any (%s)", (marks,)
    ).fetchall()
    left = [name for (name,) in rows if name not in used]
    for name in left:
        _drop(servers.of(replace(place, dbname="postgres")), name)
    return [f"dropped the unfinished copy {name}" for name in left]


def _repair_place(servers: Servers, atlas: Atlas, here: Place) -> None:
    """End what an interrupted move left: the map names the place, and the partition refuses."""
    with connected(servers.of(here)) as partition:
        wanted = _wanted(atlas, here)
        if _served(partition) != wanted:
            serve(partition, wanted)


def _write_others(servers: Servers, places: Sequence[Place], partitions: int | None) -> None:
    """Write other routers' maps. Until then their calls of these partitions are refused."""
    for dsn in servers.others:
        with connected(dsn) as other:
            write(other, places, partitions)


def _place(number: int, dbname: str, dsn: str, options: str) -> Place:
    parts = conninfo_to_dict(dsn)
    host = parts.get("host") or parts.get("hostaddr")
    if not host:
        raise InvalidInputError(
            f"no host in {dsn!r}", sqlstate="22023", hint="Pass host=NAME port=NUMBER user=NAME."
        )
    return Place(number, str(host), int(parts.get("port") or 5432), dbname, options)


def _create(server: str, place: Place, marked: str, undo: ExitStack) -> None:
    """Make a database, in place of an unfinished copy of the same change."""
    name = sql.Identifier(place.dbname)
    with connected(server) as connection:
        row = connection.execute(
            "select coalesce(shobj_description(oid, 'pg_database'), '') from pg_database where datname = %s",
            (place.dbname,),
        ).fetchone()
        if row is not None and row[0] != marked:
            raise NotReadyError(
                f"the database {place} exists", sqlstate="42P04", hint="Drop it, or name another database."
            )
        if row is not None:
            connection.execute(sql.SQL("drop database {} with (force)").format(name))
        connection.execute(sql.SQL("create database {} template template0").format(name))
        undo.callback(_drop, server, place.dbname)
        connection.execute(sql.SQL("comment on database {} is {}").format(name, marked))


def _unmark(server: str, name: str) -> None:
    """Keep a database that the map names from counting as an unfinished copy."""
    with connected(server) as connection:
        connection.execute(sql.SQL("comment on database {} is null").format(sql.Identifier(name)))


def _extend(database: psycopg.Connection[Any], name: str) -> None:
    """Create an extension and what it requires."""
    with database.transaction():
        # CREATE EXTENSION puts objects of relocatable extensions into the first schema.
        database.execute("set local search_path = public")
        database.execute(sql.SQL("create extension if not exists {} cascade").format(sql.Identifier(name)))


def _drop(server: str, name: str) -> None:
    with connected(server) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def _check_version(partition: psycopg.Connection[Any], atlas: Atlas, place: Place) -> None:
    (version,) = partition.execute(
        "select extversion from pg_extension where extname = 'mindful'"
    ).fetchone() or (None,)
    if version != atlas.extension:
        raise NotReadyError(
            f"{place} has mindful {version}, the router has {atlas.extension}",
            sqlstate="0A000",
            hint="Update mindful, mindful_partition and mindful_router to one version.",
        )


def _tenants_of(router: psycopg.Connection[Any], number: int, among: Sequence[str]) -> list[str]:
    """Return the tenants of a partition, among some."""
    rows = router.execute(
        "select t from unnest(%s::text[]) t where _mindful.partition_of(t) = %s", (list(among), number)
    ).fetchall()
    return [row[0] for row in rows]


def _compare(
    source: psycopg.Connection[Any], destination: psycopg.Connection[Any], own: Sequence[str] | None
) -> None:
    differences = copying.differing(copying.figures(source, own), copying.figures(destination, own))
    if copying.sequences(source) != copying.sequences(destination):
        differences.append("sequences")
    if differences:
        raise MindfulError(
            f"the copy differs: {'; '.join(differences[:3])}",
            hint="The partition is where it was. Try again.",
        )
