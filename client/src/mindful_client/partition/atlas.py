"""The map of a router, and connections to its partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from mindful_client.errors import NotReadyError, translated

OPTIONS = "keepalives_idle=1 keepalives_interval=1 tcp_user_timeout=1500"
"""libpq's parameters of connections to partitions: a host that does not answer fails within 2 seconds."""
WAIT = "30s"
"""How long a change waits for running calls."""


@dataclass(frozen=True)
class Place:
    """Where a partition is."""

    number: int
    host: str
    port: int
    dbname: str
    options: str = OPTIONS
    version: int = 0

    @property
    def database(self) -> tuple[str, int, str]:
        """The database, which several partitions may share."""
        return self.host, self.port, self.dbname

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.dbname}"


@dataclass(frozen=True)
class Atlas:
    """The map of a router."""

    id: str
    version: int
    partitions: int
    places: tuple[Place, ...]
    extension: str

    def place(self, number: int) -> Place:
        """Return the place of a partition."""
        for one in self.places:
            if one.number == number:
                return one
        raise NotReadyError(
            f"there is no partition {number}",
            sqlstate="22023",
            hint=f"The numbers are 0 to {self.partitions - 1}.",
        )

    def numbers(self, database: tuple[str, int, str]) -> list[int]:
        """Return the partitions of a database."""
        return [one.number for one in self.places if one.database == database]

    def databases(self) -> list[Place]:
        """Return a place for each database."""
        return list({one.database: one for one in reversed(self.places)}.values())[::-1]

    def served(self, place: Place, version: int | None = None) -> str:
        """Return the map's id, size and version of a place, as the partition compares it."""
        return f"{self.id}/{self.partitions}/{place.version if version is None else version}"


@contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect, and report errors as the client does."""
    with translated(), psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
        connection.execute("set search_path = pg_catalog")
        connection.execute("set client_min_messages = warning")
        yield connection


def administrator(router: str, partition: str, place: Place) -> str:
    """Return the connection string of a partition's superuser: the router's, with what is given, at a place."""
    given = conninfo_to_dict(router) | conninfo_to_dict(partition)
    return make_conninfo("", **given | {"host": place.host, "port": place.port, "dbname": place.dbname})


def read(router: psycopg.Connection[Any]) -> Atlas:
    """Read the map of a router."""
    row = router.execute(
        """select m.id::text, m.version, m.partitions, e.extversion
           from pg_extension e left join mindful.partition_map m on true where e.extname = 'mindful_router'"""
        if router.execute("select to_regclass('mindful.partition_map')").fetchone() != (None,)
        else "select null where false"
    ).fetchone()
    if row is None or row[0] is None:
        raise NotReadyError(
            "this database has no map of partitions", sqlstate="55000", hint="Run mindful partition init."
        )
    with router.cursor(row_factory=class_row(Place)) as cursor:
        places = cursor.execute(
            "select number, host, port, dbname, options, version from mindful.partition order by number"
        ).fetchall()
    return Atlas(row[0], row[1], row[2], tuple(places), row[3])


def write(router: psycopg.Connection[Any], places: Sequence[Place], partitions: int | None = None) -> None:
    """Write places into the map of a router."""
    objects = [{key: value for key, value in asdict(one).items() if key != "version"} for one in places]
    router.execute("select _mindful.map_write(%s, %s)", (Jsonb(objects), partitions))


def serve(partition: psycopg.Connection[Any], served: dict[int, str]) -> None:
    """Let a partition take the calls of some numbers, by their maps, and refuse those of others."""
    with partition.transaction():
        partition.execute(
            "update mindful_route.served set state = 'gone' where number <> all (%s)", (list(served),)
        )
        for number, text in served.items():
            partition.execute(
                """insert into mindful_route.served values (%s, %s)
                   on conflict (number) do update set map = excluded.map, state = 'here'""",
                (number, text),
            )


@contextmanager
def paused(dsn: str) -> Iterator[None]:
    """Keep routed calls of a partition's database waiting, when those that run have ended."""
    with connected(dsn) as connection, connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("set local lock_timeout = {}").format(WAIT))
        connection.execute("lock table mindful_route.gate")
        yield


@contextmanager
def changing(router: str) -> Iterator[None]:
    """Allow one change of the map at a time."""
    with connected(router) as connection, connection.transaction(force_rollback=True):
        try:
            connection.execute("lock table _mindful.change nowait")
        except psycopg.errors.LockNotAvailable as error:
            raise NotReadyError(
                "another change of the map is running", sqlstate="55P03", hint="Wait until it has ended."
            ) from error
        yield


def mark(atlas_id: str, number: int) -> str:
    """Return the comment of a database that a change makes, until the map names it."""
    return f"mindful: made for partition {number} of map {hashlib.sha256(atlas_id.encode()).hexdigest()[:16]}"
