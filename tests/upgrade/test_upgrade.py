"""An updated database is the same as a new one, whatever version it began with, and keeps its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from support.cluster import Cluster
from support.fill import STATISTICS
from support.snapshot import differences, rows_of, snapshot
from support.sources import install_script

ROOT = Path(__file__).parents[2]
SEED = Path(__file__).with_name("seed.sql")
ROWS = Path(__file__).with_name("rows")


def _current() -> str:
    found = re.search(r"default_version = '(.+)'", (ROOT / "extension" / "mindful.control").read_text())
    assert found
    return found[1]


CURRENT = _current()
RELEASED = {
    path.stem.removeprefix("mindful--")
    for path in ROOT.glob("extension/released/mindful--*.sql")
    if path.stem.count("--") == 1
}
# The current version too: there is no step to take then, but all else is tried even before a first release.
VERSIONS = sorted(RELEASED | {CURRENT}, key=lambda version: [int(part) for part in version.split(".")])


def install(connection: psycopg.Connection, version: str) -> None:
    connection.execute("set client_min_messages = warning")
    connection.execute(sql.SQL("create extension mindful version {} cascade").format(version))


def seed(connection: psycopg.Connection) -> None:
    text = SEED.read_text()
    if connection.execute("select to_regnamespace('_mindful')").fetchone() != (None,):
        text = text.replace("mindful._", "_mindful.")
    connection.execute(text.encode())
    connection.execute("reset row_security")


def test_the_server_installs_the_script_of_this_tree(cluster: Cluster) -> None:
    built = install_script().replace("@VERSION@", CURRENT)
    with cluster.connect() as connection:
        row = connection.execute(
            "select pg_read_file(setting || '/extension/mindful--' || %s || '.sql')"
            " from pg_config where name = 'SHAREDIR'",
            (CURRENT,),
        ).fetchone()
    assert row == (built,), "run `make install`"


def test_the_seed_fills_every_table_of_the_oldest_version(
    cluster: Cluster, new_database: Callable[[], str]
) -> None:
    with cluster.connect(new_database()) as connection:
        install(connection, VERSIONS[0])
        seed(connection)
        assert [table for table, rows in rows_of(connection).items() if not rows] == []


RENAMED = {"licence": "license"}


def still(table: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows to compare with those before the update. A new version may define settings anew, but removes none."""
    if table != "setting_definition":
        return after
    assert {row["key"] for row in before} <= {row["key"] for row in after}
    return before


@pytest.fixture(scope="module")
def seeded(cluster: Cluster) -> list[str]:
    """What a new database has, once seeded."""
    with cluster.database() as name, cluster.connect(name) as connection:
        install(connection, CURRENT)
        seed(connection)
        return snapshot(connection)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_updated_database_is_as_a_new_one_and_keeps_its_rows(
    version: str, cluster: Cluster, new_database: Callable[[], str], seeded: list[str]
) -> None:
    name = new_database()
    with cluster.connect(name) as connection:
        install(connection, version)
        seed(connection)
        before = rows_of(connection)
        connection.execute("analyze")  # which would keep in the old version's statistics what rows hold
        connection.execute("alter extension mindful update")
        assert connection.execute(STATISTICS).fetchall() == []
        assert differences(snapshot(connection), seeded) == []
        after = rows_of(connection)
    for table, rows in before.items():
        for old, new in zip(rows, still(table, rows, after[table]), strict=True):
            assert {RENAMED.get(key, key): value for key, value in old.items()}.items() <= new.items(), table
    with cluster.connect(name) as connection:
        use(connection)


@pytest.mark.parametrize("path", sorted(ROWS.glob("*.sql")), ids=lambda path: path.stem)
def test_rows_that_a_release_wrote_survive_the_update(
    path: Path, cluster: Cluster, new_database: Callable[[], str]
) -> None:
    with cluster.connect(new_database()) as connection:
        install(connection, CURRENT)
        connection.execute(path.read_bytes())
        expected = snapshot(connection)
    with cluster.connect(new_database()) as connection:
        install(connection, path.stem)
        connection.execute(path.read_bytes())
        connection.execute("reset row_security")
        before = rows_of(connection)
        assert [table for table, rows in before.items() if not rows] == []
        connection.execute("alter extension mindful update")
        assert differences(snapshot(connection), expected) == []
        pinned = (
            "select proconfig @> '{array_nulls=on}' from pg_proc where proname like 'remember!_%' escape '!'"
        )
        assert connection.execute(pinned).fetchall() == [(True,)]
        after = rows_of(connection)
    for table, rows in before.items():
        for old, new in zip(rows, still(table, rows, after[table]), strict=True):
            assert old.items() <= new.items(), table


def test_every_release_but_the_first_left_rows() -> None:
    assert {path.stem for path in ROWS.glob("*.sql")} == RELEASED - {"0.1.0"}


def test_times_that_clients_cannot_read_are_clamped(
    cluster: Cluster, new_database: Callable[[], str]
) -> None:
    with cluster.connect(new_database()) as connection:
        install(connection, "0.1.0")
        connection.execute("set row_security = off")
        for moment in ("0044-03-15 BC", "-infinity", "infinity", "294276-01-01"):
            connection.execute("insert into mindful.memory (content, created_at) values ('x', %s)", (moment,))
        connection.execute("reset row_security")
        connection.execute("alter extension mindful update")
        connection.execute("set timezone = 'UTC'")
        years = connection.execute(
            "select extract(year from created_at)::int, current_setting('row_security') from mindful.memory order by id"
        ).fetchall()
    assert years == [(1, "on"), (1, "on"), (9999, "on"), (9999, "on")]


def use(connection: psycopg.Connection) -> None:
    """Remember, recall, talk and review, beside the seeded rows."""
    (highest,) = connection.execute("select max(id) from memory").fetchone() or ()
    (new,) = (
        connection.execute("select memory_insert('The cellar key hangs behind the clock.')").fetchone() or ()
    )
    assert new > highest
    recalled = connection.execute(
        "select content from memory_recall('Where is the spare key?', 10)"
    ).fetchall()
    assert {
        "The spare key lies under the third flowerpot.",
        "The cellar key hangs behind the clock.",
    } <= {content for (content,) in recalled}
    chat = connection.execute(
        "select reply, message_id from llm_chat_detail('And now?', '00000000-0000-0000-0000-000000000001')"
    ).fetchone()
    assert chat is not None
    assert chat[0] == "It is so."
    connection.execute("select self_review(%s)", (chat[1],))
    assert connection.execute("select max(turn) from memory").fetchone() == (4,)
    assert connection.execute("select max(id) from review").fetchone() == (2,)


@pytest.fixture(scope="module")
def installed(cluster: Cluster, bare_template: str) -> Iterator[psycopg.Connection]:
    with cluster.database(bare_template) as name, cluster.connect(name) as connection:
        yield connection


@pytest.fixture(scope="module")
def before(installed: psycopg.Connection) -> list[str]:
    return snapshot(installed)


@pytest.mark.parametrize(
    "change",
    [
        "alter extension mindful drop function _mindful.tenant()",
        "alter function _mindful.tenant() parallel unsafe",
        "alter function _mindful.tenant() security definer",
        "alter function _mindful.tenant() set search_path = public",
        "alter function _mindful.tenant() cost 7",
        "alter sequence mindful.memory_id_seq increment 2",
        "alter table mindful.memory add column note text",
        "alter table mindful.memory alter column content drop not null",
        "alter table mindful.memory alter column id set generated by default",
        "alter table mindful.memory alter column kind set default 'summary'",
        "alter table mindful.memory alter column kind set statistics 10",
        "alter table mindful.memory disable row level security",
        "alter table mindful.memory disable trigger embed_inserted",
        "alter table mindful.memory drop constraint memory_kind_check",
        "alter table mindful.memory no force row level security",
        "alter type mindful.review_detail add attribute note text",
        "alter view mindful.conversation set (security_invoker = false)",
        "comment on column mindful.memory.turn is null",
        "comment on function _mindful.tenant() is null",
        "comment on table mindful.memory is 'Other words.'",
        "create function mindful.extra() returns integer language sql return 1",
        "create index on mindful.memory (tenant, created_at)",
        "create or replace function _mindful.length(content text) returns bigint language sql return 1",
        "create or replace view mindful.memory_overview as select tenant, kind, 7::bigint memories,"
        " created_at as first_at, created_at as last_at from mindful.memory",
        "create table mindful.extra (a integer)",
        "drop policy own on mindful.memory",
        "drop policy own on mindful.memory; create policy own on mindful.memory using (true)",
        "drop trigger embed_inserted on mindful.memory",
        "grant select on mindful.memory to mindful_reader",
        "grant usage on schema mindful to public",
        "revoke execute on function _mindful.tenant() from mindful_user",
        "revoke insert on mindful.memory from mindful_user",
        "revoke select on mindful.memory_overview from mindful_reader",
        "revoke usage on type mindful.review_detail from public",
        "update pg_extension set extconfig = extconfig[2:], extcondition = extcondition[2:]"
        " where extname = 'mindful'",
        "update pg_extension set extcondition[1] = 'where false' where extname = 'mindful'",
    ],
)
def test_the_snapshot_notices(change: str, installed: psycopg.Connection, before: list[str]) -> None:
    with installed.transaction(force_rollback=True):
        installed.execute("set local client_min_messages = warning")
        installed.execute(change.encode())
        assert differences(snapshot(installed), before) != []
    assert snapshot(installed) == before
