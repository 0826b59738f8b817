"""Partitions are made, moved, split and checked; an interruption loses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from mindful_client.cli import main
from mindful_client.errors import MindfulError
from mindful_client.partition import change, checking, copying
from mindful_client.partition.atlas import connected
from support import one
from support.routed import Routed, refused, remember

STEPS = ["create", "pause", "copy", "compare", "serve", "refuse", "map", "clean"]
"""What a move tells before each step."""


class InterruptedMoveError(Exception):
    """Raised by a test in the middle of a change."""


def stop_at(step: str) -> Callable[[str], None]:
    def tell(told: str) -> None:
        if told == step:
            raise InterruptedMoveError

    return tell


def move(routed: Routed, number: int, name: str, tell: Callable[[str], None] = lambda _: None) -> None:
    change.move(routed.servers, number, routed.cluster.dsn(routed.prefix + name), tell=tell)


def filled(routed: Routed, number: int = 0) -> tuple[str, list[str]]:
    """Give a partition a tenant with memories."""
    (tenant,) = routed.tenants(number)
    application = routed.connect("application")
    texts = [f"I like tea {n}." for n in range(3)]
    for text in texts:
        remember(application, tenant, text)
    return tenant, texts


def recalled(routed: Routed, tenant: str) -> list[str]:
    application = routed.connect("application")
    with application.transaction():
        application.execute("select tenant_set(%s)", (tenant,))
        return [text for (text,) in application.execute("select content from memory order by id")]


def databases(routed: Routed) -> set[str]:
    rows = routed.connect().execute(
        "select datname from pg_database where datname like %s", (routed.prefix + "%",)
    )
    return {name.removeprefix(routed.prefix) for (name,) in rows}


def problems(routed: Routed) -> list[str]:
    return list(checking.problems(routed.servers))


def test_a_moved_partition_has_the_same_rows(own: Routed) -> None:
    tenant, texts = filled(own)
    before = copying.figures(own.partition(0), None)
    move(own, 0, "moved")
    assert own.atlas.place(0).dbname == own.prefix + "moved"
    assert own.atlas.place(1).dbname == own.prefix + "1"
    assert copying.figures(own.partition(0), None) == before
    assert recalled(own, tenant) == texts
    remember(own.connect("application"), tenant, "I like rye.")
    assert recalled(own, tenant) == [*texts, "I like rye."]
    assert problems(own) == []


def test_the_old_place_refuses_calls_after_a_move(own: Routed) -> None:
    tenant, _ = filled(own)
    old = own.atlas.place(0)
    move(own, 0, "moved")
    served = f"{own.atlas.served(old)}/{own.atlas.extension}"
    with (
        own.cluster.connect(old.dbname, own.roles["application"]) as application,
        refused("40001", "partition 0 is not in the database"),
    ):
        application.execute(
            "select mindful_route.session_start(0, %s, %s, null, null, '{}')", (served, tenant)
        )


@pytest.mark.parametrize("step", STEPS[:-1])
def test_an_error_at_any_step_of_a_move_leaves_the_partition_where_it_was(own: Routed, step: str) -> None:
    tenant, texts = filled(own)
    before, places = databases(own), own.atlas
    with pytest.raises(InterruptedMoveError):
        move(own, 0, "moved", stop_at(step))
    assert own.atlas == places
    assert databases(own) == before
    assert problems(own) == []
    remember(own.connect("application"), tenant, "I like rye.")
    assert recalled(own, tenant) == [*texts, "I like rye."]


@pytest.mark.parametrize("step", STEPS)
def test_a_move_that_is_killed_at_any_step_can_be_run_again(own: Routed, step: str) -> None:
    tenant, texts = filled(own)
    target = own.cluster.dsn(own.prefix + "moved")
    script = f"""
import os, sys
from mindful_client.partition import change
def tell(step):
    if step == {step!r}:
        os.kill(os.getpid(), 9)
change.move(change.Servers(sys.argv[1]), 0, sys.argv[2], tell=tell)
"""
    killed = subprocess.run([sys.executable, "-c", script, own.servers.router, target], check=False)
    assert killed.returncode == -9
    if step == "clean":
        assert own.atlas.place(0).dbname.endswith("moved")
    else:
        move(own, 0, "moved")
    assert recalled(own, tenant) == texts
    assert problems(own) == []


def test_a_check_ends_a_move_that_was_killed_when_the_partition_refused_calls(own: Routed) -> None:
    tenant, texts = filled(own)
    with connected(own.servers.of(own.atlas.place(0))) as partition:
        partition.execute("update mindful_route.served set state = 'gone'")
    with refused("40001", "is not in the database"):
        recalled(own, tenant)
    run = CliRunner().invoke(main, ["--dsn", own.servers.router, "partition", "check"])
    assert run.exit_code == 1
    assert "partition 0 has map none" in run.output
    run = CliRunner().invoke(main, ["--dsn", own.servers.router, "partition", "check", "--repair"])
    assert run.exit_code == 0, run.output
    assert recalled(own, tenant) == texts


def test_a_copy_that_differs_is_not_used(own: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant, texts = filled(own)
    copy = copying.copy_contents

    def lossy(source: str, target: str) -> None:
        copy(source, target)
        with connected(target) as database:
            database.execute("set session_replication_role = replica")
            database.execute(
                "update mindful.memory set content = 'I like rye.' where content = 'I like tea 1.'"
            )

    monkeypatch.setattr(copying, "copy_contents", lossy)
    with pytest.raises(MindfulError, match=r"mindful\.memory: 3 rows became 3 with other contents"):
        move(own, 0, "moved")
    assert recalled(own, tenant) == texts
    assert "moved" not in databases(own)


def test_nothing_is_lost_or_doubled_when_a_partition_moves_while_8_clients_write(own: Routed) -> None:
    tenants = [name for number in (0, 1) for name in own.tenants(number, 4)]
    written: dict[str, list[str]] = {tenant: [] for tenant in tenants}
    failed: list[str] = []
    ended = threading.Event()

    def client(tenant: str) -> None:
        with own.cluster.connect(own.router, own.roles["application"]) as connection:
            n = 0
            while not ended.is_set():
                text = f"{tenant} wrote {n}."
                try:
                    remember(connection, tenant, text)
                    written[tenant].append(text)
                except psycopg.Error as error:
                    failed.append(str(error))
                n += 1

    threads = [threading.Thread(target=client, args=(tenant,)) for tenant in tenants]
    for thread in threads:
        thread.start()
    try:
        while min(map(len, written.values())) < 5:
            ended.wait(0.05)
        move(own, 0, "moved")
        counts = {tenant: len(texts) for tenant, texts in written.items()}
        while any(len(written[tenant]) < counts[tenant] + 5 for tenant in tenants):
            ended.wait(0.05)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert {tenant: recalled(own, tenant) for tenant in tenants} == written
    assert problems(own) == []


def test_a_split_doubles_partitions_and_a_move_takes_one_half(own: Routed) -> None:
    application = own.connect("application")
    tenants = [f"customer-{n}" for n in range(16)]
    for tenant in tenants:
        remember(application, tenant, f"I am {tenant}.")
    change.split(own.servers, tell=lambda _: None)
    assert own.atlas.partitions == 4
    assert problems(own) == []
    for tenant in tenants:
        assert recalled(own, tenant) == [f"I am {tenant}."]
    old = own.atlas.place(0)
    move(own, 2, "2")
    assert (own.atlas.place(0).dbname, own.atlas.place(2).dbname) == (old.dbname, own.prefix + "2")
    for tenant in tenants:
        assert recalled(own, tenant) == [f"I am {tenant}."]
    for number in (0, 2):
        found = one(own.partition(number), "select count(*) from mindful.memory")
        assert found == sum(
            one(own.connect(), "select number from partition_find(%s)", t) == number for t in tenants
        )
        assert found > 0
    assert problems(own) == []


@pytest.mark.parametrize("step", ["pause", "refuse", "map"])
def test_an_error_at_any_step_of_a_split_leaves_the_partitions_as_they_were(own: Routed, step: str) -> None:
    tenant, texts = filled(own)
    places = own.atlas
    with pytest.raises(InterruptedMoveError):
        change.split(own.servers, tell=stop_at(step))
    assert own.atlas == places
    assert recalled(own, tenant) == texts
    assert problems(own) == []


def test_rows_that_an_interrupted_split_left_are_found_and_deleted(own: Routed) -> None:
    application = own.connect("application")
    for n in range(8):
        remember(application, f"customer-{n}", "I like tea.")
    change.split(own.servers, tell=lambda _: None)
    with pytest.raises(InterruptedMoveError):
        move(own, 2, "2", stop_at("clean"))
    assert any("whose partition is 2" in line for line in problems(own))
    run = CliRunner().invoke(main, ["--dsn", own.servers.router, "partition", "clean"])
    assert run.exit_code == 0, run.output
    assert problems(own) == []


def test_one_change_of_the_map_runs_at_a_time(own: Routed) -> None:
    with connected(own.servers.router) as router:
        router.execute("begin; lock table _mindful.change")
        with pytest.raises(MindfulError, match="another change of the map is running"):
            move(own, 0, "moved")


def test_a_database_that_exists_is_not_overwritten(own: Routed) -> None:
    name = own.cluster.create_database()
    try:
        with pytest.raises(MindfulError, match="exists"):
            change.move(own.servers, 0, own.cluster.dsn(name), tell=lambda _: None)
    finally:
        own.cluster.drop_database(name)


def test_an_init_that_fails_leaves_no_database(own: Routed) -> None:
    with own.cluster.database() as router:
        prefix = own.prefix + "init_"
        (own_name,) = (prefix + "1",)
        with connected(own.cluster.dsn()) as server:
            server.execute(f"create database {own_name}".encode())
        with pytest.raises(MindfulError, match="exists"):
            change.init(
                change.Servers(own.cluster.dsn(router)), [own.cluster.dsn()], 2, prefix, tell=lambda _: None
            )
        assert {name for name in databases(own) if name.startswith("init_")} == {"init_1"}


def test_a_router_with_a_map_is_not_made_again(own: Routed) -> None:
    before = databases(own)
    with pytest.raises(MindfulError, match="this router has a map"):
        change.init(own.servers, [own.cluster.dsn()], 2, f"{own.prefix}again_", tell=lambda _: None)
    assert databases(own) == before


def test_functions_of_a_new_router_are_called_without_their_schema(own: Routed) -> None:
    with own.cluster.database() as router:
        own.connect().execute(f"alter database {router} reset search_path".encode())
        change.init(
            change.Servers(own.cluster.dsn(router)),
            [own.cluster.dsn()],
            1,
            f"{own.prefix}short",
            tell=lambda _: None,
        )
        with own.cluster.connect(router) as connection:
            assert one(connection, "select number from partition_find('customer-7')") == 0


def test_the_commands_print_what_they_did(own: Routed) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["--dsn", own.servers.router, "partition", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert "2 partitions" in run("list")
    assert run("check") == "no problems\n"
    assert "is on partition 1" in run("pin", "customer-x", "1")
    assert "pinned: customer-x" in run("list")
    assert run("run", "select count(*) from mindful.memory").count("  0\n") == 2
    assert "partition 0 was moved" in run(
        "move", "0", "--to", own.cluster.dsn(own.prefix + "moved"), "--drop"
    )
    assert databases(own) == {"1", "moved"}
    role = own.roles["stranger"]
    assert f"role {role} may call" in run("role", role, "--group", "user")
    with own.cluster.connect(own.router, role) as stranger:
        stranger.execute("select memory_insert('I am new.')")
    own.connect().execute(
        f"revoke mindful_user from {role}; drop user mapping for {role} server mindful".encode()
    )
    own.connect().execute(f"alter role {role} password '{own.cluster._token}'".encode())


def test_passwords_stay_out_of_the_list_of_processes() -> None:
    assert "secret" not in copying._plain("host=a password=secret dbname=b")
    assert copying._environment("host=a password=secret")["PGPASSWORD"] == "secret"
    assert Path(copying.program("pg_dump")).exists()
    assert "PGPASSWORD" not in copying._environment("host=a") or "PGPASSWORD" in os.environ
