"""Fixtures over a running cluster.

A session makes one template database with the extension and its models; every test gets a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import psycopg
import pytest
from support.cluster import Cluster, Connect
from support.models import SCRIPTED_EMBEDDER, model_files, register_models

GROUPS = {
    "ana": ("mindful_user",),
    "bob": ("mindful_user",),
    "admin": ("mindful_admin",),
    "reader": ("mindful_reader",),
    "application": ("mindful_application",),
    "stranger": (),
}


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster of MINDFUL_TEST_DSN."""
    return Cluster.of_environment()


@pytest.fixture(scope="session")
def bare_template(cluster: Cluster) -> Iterator[str]:
    """Name of a template database with the extension, and no model."""
    with cluster.database() as name:
        with cluster.connect(name) as connection:
            connection.execute("set client_min_messages = warning")
            connection.execute("create extension mindful cascade")
        yield name


@pytest.fixture(scope="session")
def template(cluster: Cluster, bare_template: str) -> Iterator[str]:
    """Name of a template database with the extension and its models."""
    with cluster.connect() as connection:
        files = model_files(connection)
    with cluster.database(bare_template) as name:
        with cluster.connect(name) as connection:
            register_models(connection, files)
        yield name


@pytest.fixture(scope="session")
def roles(cluster: Cluster, bare_template: str) -> Iterator[Mapping[str, str]]:
    """Full names of the login roles, by short name; their groups are made by the extension."""
    made = {name: cluster.create_role(name, *groups) for name, groups in GROUPS.items()}
    yield made
    for role in made.values():
        cluster.drop_role(role)


@pytest.fixture
def database(cluster: Cluster, template: str, roles: Mapping[str, str]) -> Iterator[str]:
    """Name of a database of this test's own."""
    with cluster.database(template) as name:
        yield name


@pytest.fixture
def dsn(cluster: Cluster, database: str) -> str:
    """Connection string of this test's database, as superuser."""
    return cluster.dsn(database)


@pytest.fixture
def dsn_of(cluster: Cluster, database: str, roles: Mapping[str, str]) -> Mapping[str, str]:
    """Connection strings of this test's database by role: dsn_of["ana"]."""
    return {name: cluster.dsn(database, role) for name, role in roles.items()}


@pytest.fixture
def connect(cluster: Cluster, database: str, roles: Mapping[str, str]) -> Iterator[Connect]:
    """Opens connections to this test's database: connect("ana"), or connect() as superuser."""
    with ExitStack() as opened:

        def open_connection(role: str | None = None) -> psycopg.Connection:
            return opened.enter_context(cluster.connect(database, role and roles[role]))

        yield open_connection


@pytest.fixture
def db(connect: Connect) -> psycopg.Connection:
    """The superuser, who is above row-level security."""
    return connect()


@pytest.fixture
def ana(connect: Connect) -> psycopg.Connection:
    """A user."""
    return connect("ana")


@pytest.fixture
def bob(connect: Connect) -> psycopg.Connection:
    """Another user."""
    return connect("bob")


@pytest.fixture
def admin(connect: Connect) -> psycopg.Connection:
    """An administrator, who registers models."""
    return connect("admin")


@pytest.fixture
def stranger(connect: Connect) -> psycopg.Connection:
    """A role that may log in, and has no role of mindful."""
    return connect("stranger")


@pytest.fixture
def reader(connect: Connect) -> psycopg.Connection:
    """A reader of figures."""
    return connect("reader")


@pytest.fixture
def scripted(admin: psycopg.Connection) -> None:
    """The default embedder takes no time; texts with the same words are the same to it."""
    admin.execute("select model_default_set(%s, force => true)", (SCRIPTED_EMBEDDER,))


@pytest.fixture
def queueing(scripted: None, admin: psycopg.Connection) -> None:
    """Everybody's memories are embedded later."""
    admin.execute("""select setting_set('embedding_mode', '"async"', 'global')""")
