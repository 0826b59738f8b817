"""A router, and partitions in databases of a cluster of tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import psycopg
import pytest
from mindful_client.partition import change
from mindful_client.partition.atlas import Atlas, Place, connected, read, serve, write
from mindful_client.partition.change import Servers

from support.cluster import Cluster
from support.models import SCRIPTED_EMBEDDER, model_files, register_models
from support.query import one


@dataclass
class Routed:
    """A router and its partitions."""

    cluster: Cluster
    router: str
    prefix: str
    roles: Mapping[str, str]
    opened: ExitStack = field(default_factory=ExitStack)
    connections: dict[tuple[str, str | None], psycopg.Connection] = field(default_factory=dict)

    @property
    def servers(self) -> Servers:
        return Servers(self.cluster.dsn(self.router))

    @property
    def atlas(self) -> Atlas:
        with connected(self.cluster.dsn(self.router)) as router:
            return read(router)

    def connect(self, role: str | None = None) -> psycopg.Connection:
        """Connect to the router."""
        return self._opened(self.router, role)

    def partition(self, place: Place | int, role: str | None = None) -> psycopg.Connection:
        """Connect to the database of a place, or of a number, directly."""
        place = self.atlas.place(place) if isinstance(place, int) else place
        return self._opened(place.dbname, role)

    def _opened(self, database: str, role: str | None) -> psycopg.Connection:
        key = (database, role)
        if key not in self.connections or self.connections[key].closed:
            connection = self.cluster.connect(database, role and self.roles[role])
            self.connections[key] = self.opened.enter_context(connection)
        return self.connections[key]

    def tenants(self, number: int, count: int = 1) -> list[str]:
        """Names of tenants that a partition has."""
        router = self.connect()
        found = router.execute(
            """select 'customer-' || n from generate_series(1, 1000) n
               where _mindful.partition_of('customer-' || n) = %s limit %s""",
            (number, count),
        ).fetchall()
        return [name for (name,) in found]


def made(cluster: Cluster, roles: Mapping[str, str], partitions: int) -> Routed:
    router = cluster.create_database()
    routed = Routed(cluster, router, f"{router}_p", roles)
    change.init(routed.servers, [cluster.dsn()], partitions, routed.prefix, tell=lambda _: None)
    with cluster.connect() as connection:
        files = model_files(connection)
    for place in routed.atlas.places:
        with cluster.connect(place.dbname) as connection:
            connection.execute("set client_min_messages = warning")
            register_models(connection, files)
            connection.execute("select model_default_set(%s, force => true)", (SCRIPTED_EMBEDDER,))
    with cluster.connect(router) as connection:
        for role in roles.values():
            if "stranger" not in role:
                connection.execute("select _mindful.role_map(%s, null)", (role,))
    return routed


def copied(original: Routed) -> Routed:
    """Copy a router and its partitions, to which nothing may be connected."""
    cluster = original.cluster
    routed = Routed(cluster, cluster.create_database(original.router), "", original.roles)
    routed.prefix = f"{routed.router}_p"
    places = [replace(place, dbname=f"{routed.prefix}{place.number}") for place in original.atlas.places]
    with cluster.connect() as server:
        for old, new in zip(original.atlas.places, places, strict=True):
            server.execute(f"create database {new.dbname} template {old.dbname} strategy file_copy".encode())
            server.execute(f'alter database {new.dbname} set search_path = "$user", public, mindful'.encode())
    with connected(cluster.dsn(routed.router)) as router:
        write(router, places)
    atlas = routed.atlas
    for place in atlas.places:
        with connected(cluster.dsn(place.dbname)) as partition:
            serve(partition, {place.number: atlas.served(place)})
    return routed


def removed(routed: Routed) -> None:
    routed.opened.close()
    with routed.cluster.connect() as server:
        names = server.execute(
            "select datname from pg_database where datname like %s", (routed.router + "%",)
        )
        for (name,) in names.fetchall():
            routed.cluster.drop_database(name)


def remember(connection: psycopg.Connection, tenant: str, content: str) -> int:
    """Insert a memory as an application."""
    with connection.transaction():
        connection.execute("select tenant_set(%s)", (tenant,))
        found: int = one(connection, "select memory_insert(%s)", content)
    return found


@contextmanager
def refused(sqlstate: str, message: str) -> Iterator[pytest.ExceptionInfo[psycopg.Error]]:
    """Expect an error with an SQLSTATE and a message."""
    with pytest.raises(psycopg.Error) as caught:
        yield caught
    diag = caught.value.diag
    assert diag.sqlstate == sqlstate, caught.value
    assert re.search(message, diag.message_primary or ""), caught.value
