"""Routers and partitions in the databases of a cluster of tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from support.cluster import Cluster

MAP = "8c6a1c8e-6a0f-4a86-9a3a-2f6f6f0f1d11"
OPTIONS = "keepalives_idle=1 keepalives_interval=1 tcp_user_timeout=1500"


def become_partition(connection: psycopg.Connection, number: int, of: int, version: int = 1) -> None:
    """Make a database with mindful a partition of the tests' map."""
    connection.execute("set client_min_messages = warning")
    connection.execute("create extension if not exists mindful_partition")
    serve(connection, number, of, version)


def serve(connection: psycopg.Connection, number: int, of: int, version: int = 1) -> None:
    """Let a partition take the calls of a number."""
    connection.execute(
        """insert into mindful_route.served values (%s, %s)
           on conflict (number) do update set map = excluded.map, state = 'here'""",
        (number, f"{MAP}/{of}/{version}"),
    )


def become_router(connection: psycopg.Connection, of: int) -> None:
    """Make a database a router, whose map is empty yet."""
    connection.execute("set client_min_messages = warning")
    connection.execute("create extension mindful_router cascade")
    connection.execute("insert into mindful.partition_map values (true, %s, 0, %s)", (MAP, of))


def write_map(connection: psycopg.Connection, cluster: Cluster, databases: Sequence[str]) -> None:
    """Write the partitions' databases into the map of a router."""
    places = [place(cluster, number, name) for number, name in enumerate(databases)]
    connection.execute("select _mindful.map_write(%s)", (Jsonb(places),))


def place(cluster: Cluster, number: int, database: str) -> dict[str, object]:
    """Where a partition is, as the map has it."""
    parts = conninfo_to_dict(cluster.dsn(database))
    return {
        "number": number,
        "host": parts["host"],
        "port": int(str(parts["port"])),
        "dbname": database,
        "options": OPTIONS,
    }


def map_roles(connection: psycopg.Connection, roles: Iterable[str]) -> None:
    """Let roles call through a router."""
    for role in roles:
        connection.execute("select _mindful.role_map(%s, null)", (role,))
