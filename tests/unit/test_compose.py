"""The compose file names what exists. `make test-docker` runs it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from support.sources import ROOT

FILE = ROOT / "extension" / "router" / "compose.yaml"
IN_IMAGE = "/usr/src/mindful/"


@pytest.fixture
def compose() -> Any:
    return yaml.safe_load(FILE.read_text())


def test_the_services_are_a_router_two_servers_and_pgbouncer(compose: Any) -> None:
    assert set(compose["services"]) == {"router", "a", "b", "pgbouncer"}
    assert {one["image"] for one in compose["services"].values()} == {"mindful-router"}
    build = compose["services"]["router"]["build"]
    dockerfile = (FILE.parent / build["context"] / build["dockerfile"]).resolve()
    assert dockerfile == ROOT / "Dockerfile.postgres"
    assert all(f"ARG {name}=" in dockerfile.read_text() for name in build["args"])


def test_volumes_and_services_that_are_named_are_declared(compose: Any) -> None:
    mounted = {one.split(":")[0] for service in compose["services"].values() for one in service["volumes"]}
    assert mounted == set(compose["volumes"])
    named = {name for service in compose["services"].values() for name in service.get("depends_on", ())}
    assert named <= set(compose["services"])


def test_commands_and_their_files_are_in_the_image(compose: Any) -> None:
    program, path = compose["services"]["pgbouncer"]["entrypoint"]
    assert program in (ROOT / "extension" / "setup" / "router.sh").read_text()
    assert (ROOT / path.removeprefix(IN_IMAGE)).exists()


def test_pgbouncer_enters_by_the_socket_that_it_mounts(compose: Any) -> None:
    settings = (FILE.parent / "pgbouncer.ini").read_text()
    targets = [one.split(":")[1] for one in compose["services"]["pgbouncer"]["volumes"]]
    assert f"host={targets[1]} " in settings
    assert f"{targets[0]}/tls/server.crt" in settings
    port = compose["services"]["pgbouncer"]["ports"][0].split(":")[1]
    assert f"listen_port = {port}" in settings
