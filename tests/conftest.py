"""Fixtures over a running cluster.

A session makes one template database with the extension and its models; every test gets a copy of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from support.cluster import Cluster, Connect
from support.cross_encoder import write_cross_encoder
from support.differences import mark
from support.files import readable_folder
from support.models import SCRIPTED_EMBEDDER, model_files, register_models
from support.router import become_partition, become_router, map_roles, write_map
from support.weights import write_truncated

GROUPS = {
    "ana": ("mindful_user",),
    "bob": ("mindful_user",),
    "admin": ("mindful_admin",),
    "reader": ("mindful_reader",),
    "application": ("mindful_application",),
    "stranger": (),
}

ROUTED = bool(os.environ.get("MINDFUL_TEST_ROUTED"))
"""Whether roles call through a router, before one partition: `make test-routed`."""
_ECHO = {"labels": "echo", "echo_prefix": "<|im_start|>"}
"""What registration finds out by a refrain, which two layers do not repeat."""
NOT_ROUTED = Path(__file__).parent / "router" / "not_routed.txt"


def _skip_not_routed(items: list[pytest.Item]) -> None:
    lines = [line for line in NOT_ROUTED.read_text().splitlines() if line and not line.startswith("#")]
    reasons = {name: reason for name, _, reason in (line.partition("  ") for line in lines)}
    for item in items:
        case = item.nodeid.removeprefix("tests/")
        name = case.split("[")[0]
        reason = reasons.get(case) or reasons.get(name) or reasons.get(name.split("::")[0])
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason.strip()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the tests that differ with a server's models or do not run through a router. Long ones come first."""
    if ROUTED:
        _skip_not_routed(items)
    if "PYTEST_XDIST_WORKER" in os.environ:
        # One that begins late would keep its worker busy after the others have ended.
        items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if server := os.environ.get("MINDFUL_TEST_SERVER"):
        mark(items, server)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster of MINDFUL_TEST_DSN."""
    with closing(Cluster.of_environment()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bare_template(cluster: Cluster) -> Iterator[str]:
    """Name of a template database with the extension, and no model."""
    with cluster.database() as name:
        with cluster.connect(name) as connection:
            connection.execute("set client_min_messages = warning")
            connection.execute("create extension mindful cascade")
            if ROUTED:
                become_partition(connection, 0, 1)
        yield name


@pytest.fixture(scope="session")
def router_template(cluster: Cluster) -> Iterator[str]:
    """Name of a template database that is a router without a map."""
    with cluster.database() as name:
        with cluster.connect(name) as connection:
            become_router(connection, 1)
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


@pytest.fixture(scope="session")
def brief_template(cluster: Cluster, template: str, brief_file: str) -> Iterator[str]:
    """Name of a template database whose default generator is the brief one."""
    with cluster.database(template) as name:
        with cluster.connect(name) as connection:
            address = os.environ.get("MINDFUL_TEST_BRIEF")
            where = ("openai", address) if address else ("llama_cpp", brief_file)
            options = json.dumps(_ECHO if os.environ.get("MINDFUL_TEST_SERVER") == "llama-cpp-python" else {})
            connection.execute("select model_register('brief', 'generator', %s, %s, %s)", (*where, options))
            connection.execute("select model_default_set('brief')")
        yield name


class Shared:
    """One database, and its connections, for the tests of a module that do not need their own."""

    def __init__(self, cluster: Cluster, name: str, opened: ExitStack) -> None:
        self._cluster, self.name, self._opened = cluster, name, opened
        self._connections: dict[str | None, psycopg.Connection] = {}

    def connect(self, role: str | None) -> psycopg.Connection:
        """Return the connection of a role, without what earlier tests set."""
        connection = self._connections.get(role)
        if connection is None or connection.closed:
            connection = self._opened.enter_context(self._cluster.connect(self.name, role))
            self._connections[role] = connection
        connection.execute("reset role")
        connection.execute("reset all")
        return connection


@pytest.fixture(scope="module")
def shared(cluster: Cluster, roles: Mapping[str, str]) -> Iterator[Callable[[str], Shared]]:
    """Gives a module's tests with the marker `shares` their database of a template: one for each test takes seconds."""
    made: dict[str, Shared] = {}
    with ExitStack() as opened:

        def of(template: str) -> Shared:
            if template not in made:
                made[template] = Shared(cluster, opened.enter_context(cluster.database(template)), opened)
            return made[template]

        yield of


@pytest.fixture
def chosen_template(template: str, request: pytest.FixtureRequest) -> str:
    """Name of the template of this test's database."""
    # Registering a model loads it, which takes longer than copying a database that has it.
    chosen: str = request.getfixturevalue("brief_template") if "brief" in request.fixturenames else template
    return chosen


@pytest.fixture
def sharing(chosen_template: str, request: pytest.FixtureRequest) -> Shared | None:
    """The database that this test shares, if it has the marker."""
    if ROUTED or request.node.get_closest_marker("shares") is None:
        return None
    shared: Callable[[str], Shared] = request.getfixturevalue("shared")
    return shared(chosen_template)


@pytest.fixture
def database(
    cluster: Cluster, chosen_template: str, roles: Mapping[str, str], sharing: Shared | None
) -> Iterator[str]:
    """Name of a database of this test's own, or of the one that it shares."""
    if sharing is not None:
        yield sharing.name
        return
    with cluster.database(chosen_template) as name:
        yield name


@pytest.fixture
def entrance(
    cluster: Cluster, database: str, roles: Mapping[str, str], request: pytest.FixtureRequest
) -> Iterator[str]:
    """Name of the database that roles connect to: this test's own, or the router before it."""
    if not ROUTED:
        yield database
        return
    with cluster.database(request.getfixturevalue("router_template")) as name:
        with cluster.connect(name) as connection:
            write_map(connection, cluster, [database])
            map_roles(connection, roles.values())
        yield name


@pytest.fixture
def dsn(cluster: Cluster, database: str) -> str:
    """Connection string of this test's database, as superuser."""
    return cluster.dsn(database)


@pytest.fixture
def dsn_of(cluster: Cluster, entrance: str, roles: Mapping[str, str]) -> Mapping[str, str]:
    """Connection strings of this test's database by role: dsn_of["ana"]."""
    return {name: cluster.dsn(entrance, role) for name, role in roles.items()}


@pytest.fixture
def connect(
    cluster: Cluster,
    database: str,
    entrance: str,
    roles: Mapping[str, str],
    sharing: Shared | None,
) -> Iterator[Connect]:
    """Opens connections to this test's database: connect("ana"), or connect() as superuser."""
    if sharing is not None:
        yield lambda role=None: sharing.connect(role and roles[role])
        return
    with ExitStack() as opened:

        def open_connection(role: str | None = None) -> psycopg.Connection:
            name = entrance if role else database
            return opened.enter_context(cluster.connect(name, role and roles[role]))

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


@pytest.fixture(scope="session")
def brief_file(cluster: Cluster) -> Iterator[str]:
    """The default generator cut down to two of its 30 layers: the same tokens and templates, a tenth of the time."""
    with cluster.connect() as connection:
        base = model_files(connection)["generator"]
    with readable_folder() as folder:
        yield write_truncated(folder / "brief.gguf", base)


@pytest.fixture
def brief(database: str) -> str:
    """Name of the default generator of tests for which it does not matter what is said."""
    return "brief"


@pytest.fixture(scope="session")
def server_python(cluster: Cluster, bare_template: str) -> str:
    """The Python whose packages the server imports."""
    with cluster.connect(bare_template) as connection:
        (prefix,) = connection.execute("select python_prefix from mindful_status()").fetchone() or ("",)
    return f"{prefix}/bin/python"


@pytest.fixture(scope="session")
def crossed() -> Iterator[str]:
    """A folder with a cross-encoder of random weights, as no trained one comes with a package."""
    with readable_folder() as parent:
        folder = parent / "model"
        write_cross_encoder(folder)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
        yield str(folder)
