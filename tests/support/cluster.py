"""A running cluster, and the databases and roles that tests make in it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString, Protocol

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_END = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
SEARCH_PATH = '"$user", public, mindful'


class Connect(Protocol):
    """Opens autocommit connections that are closed when the test ends."""

    def __call__(self, role: str | None = None) -> psycopg.Connection:
        """Log in as one of the test roles, or as the superuser."""


class Cluster:
    """A cluster that a superuser's connection string leads to.

    The names of its databases and roles carry a token, so that several runs can share a cluster.
    """

    def __init__(self, dsn: str) -> None:
        self._parameters = conninfo_to_dict(dsn)
        self._token = secrets.token_hex(4)
        self._made = 0
        self._kept: psycopg.Connection | None = None

    @classmethod
    def of_environment(cls) -> Cluster:
        """Take the cluster that MINDFUL_TEST_DSN names; of several, each worker of pytest-xdist takes its own."""
        names = os.environ.get("MINDFUL_TEST_DSN", "").split()
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        if worker >= len(names):
            pytest.fail(
                f"MINDFUL_TEST_DSN names {len(names)} clusters, too few for worker {worker}: run `make test`, "
                "or set it to what `make dsn` prints",
                pytrace=False,
            )
        return cls(names[worker])

    def dsn(self, database: str | None = None, role: str | None = None) -> str:
        """Connection string of a database (the given one's own by default) for a role (the superuser)."""
        other = {"dbname": database, "user": role, "password": role and self._token}
        return make_conninfo("", **self._parameters | {key: value for key, value in other.items() if value})

    def connect(self, database: str | None = None, role: str | None = None) -> psycopg.Connection:
        """Open an autocommit connection, to be closed by the caller."""
        return psycopg.connect(self.dsn(database, role), autocommit=True)

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """Make a database, give its name, and drop it at the end."""
        name = self.create_database(template)
        try:
            yield name
        finally:
            self.drop_database(name)

    def create_database(self, template: str = "template0") -> str:
        """Make a database and return its name."""
        self._made += 1
        name = f"mindful_test_{self._token}_{self._made}"
        # Copying files takes a fifth of the time of copying through the log, where nothing waits for a disk.
        self._run("create database {} template {} strategy file_copy", name, template)
        # Settings of a database are not copied with it.
        self._run("alter database {} set search_path = " + SEARCH_PATH, name)
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is still in it."""
        # DROP DATABASE looks every 100 ms whether the connections have ended.
        for _ in range(1000):
            if not self._connection().execute(_END, (name,)).rowcount:
                break
            time.sleep(0.003)
        self._run("drop database {} with (force)", name)

    def create_role(self, name: str, *groups: str) -> str:
        """Make a login role that is a member of groups, and return its full name."""
        role = f"{name}_{self._token}"
        self._run("create role {} login password " + f"'{self._token}'", role)
        for group in groups:
            self._run("grant {} to {}", group, role)
        return role

    def drop_role(self, role: str) -> None:
        """Drop a role that owns nothing any more."""
        self._run("drop role if exists {}", role)

    def close(self) -> None:
        """End the connection that makes and drops databases."""
        if self._kept is not None:
            self._kept.close()

    def _run(self, statement: LiteralString | str, *names: str) -> None:
        composed = sql.SQL(statement).format(*map(sql.Identifier, names))
        try:
            self._connection().execute(composed)
        except psycopg.OperationalError:
            if self._kept is None or not self._kept.closed:
                raise
            # A test restarted the server.
            self._connection().execute(composed)

    def _connection(self) -> psycopg.Connection:
        if self._kept is None or self._kept.closed:
            self._kept = self.connect()
        return self._kept
