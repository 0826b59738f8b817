"""The commands that the pages give for Docker, as they stand. Docker runs, and has the images of Debian they name.

docker run --rm debian:trixie-slim true && docker run --rm debian:trixie true
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from support import one
from support.pages import blocks
from support.sources import ROOT

pytestmark = pytest.mark.timeout(3600)
COMPOSE = ("docker", "compose", "-f", "extension/router/compose.yaml")
TENANTS = [f"customer-{number}" for number in range(8)]
MODELS = (
    "SELECT model_register('smollm2-135m-instruct', 'generator', 'llama_cpp',"
    " '/var/lib/mindful/models/smollm2-135m-instruct-q8_0.gguf')",
    "SELECT model_register('all-minilm-l6-v2', 'embedder', 'llama_cpp',"
    """ '/var/lib/mindful/models/all-minilm-l6-v2-f16.gguf', '{"context_length": 256}')""",
)


def page_commands(page: str, word: str) -> list[str]:
    """Return the lines of the console block that has the word, without prompts and terminals."""
    [block] = [block for block in blocks(ROOT / page, "console") if word in block]
    return [line[2:].replace(" -it ", " -i ") for line in block.splitlines()]


def run(*command: str, text: str = "", folder: Path = ROOT) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    """The container of README's commands. What it answered to the last of them, psql, is the value."""
    assert not run("docker", "ps", "-aq", "--filter", "name=^mindful$"), "a container has this name already"
    assert not run("docker", "volume", "ls", "-q", "--filter", "name=^mindful$"), (
        "a volume has this name already"
    )
    build, start, ask = page_commands("README.md", "docker run")
    run("bash", "-c", build)
    try:
        run("bash", "-c", start)
        yield run("bash", "-c", ask, text="select llm_generate('What is the capital of France?');")
    finally:
        run("docker", "rm", "-fv", "mindful")
        run("docker", "volume", "rm", "mindful")


def client(password: str, user: str = "client") -> psycopg.Connection:
    """Connect from outside the container."""
    return psycopg.connect(
        host="127.0.0.1",
        port=5432,
        dbname="mindful",
        user=user,
        password=password,
        sslmode="require",
        autocommit=True,
    )


def healthy() -> None:
    """Wait until the container reports to be healthy."""
    while (
        state := run("docker", "inspect", "-f", "{{.State.Health.Status}}", "mindful").strip()
    ) != "healthy":
        assert state == "starting", run("docker", "logs", "mindful")
        time.sleep(0.5)


def test_the_image_answers_by_the_commands_of_the_readme(container: str) -> None:
    assert "Paris" in container


def test_a_client_remembers_through_a_stop_and_a_kill(container: str) -> None:
    healthy()
    password = run("docker", "exec", "mindful", "cat", "/var/lib/mindful/state/client-password").strip()
    with client(password) as db:
        one(db, "select memory_insert('The spare key is under the third flower pot.')")
    run("docker", "stop", "mindful")
    assert run("docker", "inspect", "-f", "{{.State.ExitCode}}", "mindful").strip() == "0"
    run("docker", "start", "mindful")
    healthy()
    with client(password) as db:
        assert "third flower pot" in one(db, "select llm_chat('Where is the spare key?')")
    run("docker", "kill", "mindful")
    run("docker", "start", "mindful")
    healthy()
    with client(password) as db:
        assert one(db, "select count(*) from memory where kind = 'message'") == 2
        assert "third flower pot" in one(db, "select llm_chat('Where did I put the spare key?')")
    with pytest.raises(psycopg.OperationalError):
        client(password, user="postgres")


@pytest.fixture
def routed() -> Iterator[str]:
    """A router of compose's servers, made by the steps of the page. Value: the environment of its commands."""
    assert not run("docker", "volume", "ls", "-q", "--filter", "name=^mindful_"), (
        "there is such a router already"
    )
    up, enter, environment, *steps = page_commands("docs/scale-out.md", "docker compose")
    try:
        run("bash", "-c", up)
        steps = [step.replace(r"'\password shop'", "\"alter role shop password 'sesame'\"") for step in steps]
        models = [shlex.join(["mindful", "partition", "run", model]) for model in MODELS]
        run(
            "bash",
            "-c",
            enter.replace("exec", "exec -T"),
            text="\n".join(["set -e", environment, *steps, *models]),
        )
        yield environment
    finally:
        run(*COMPOSE, "down", "--volumes")


@contextmanager
def shop(tenant: str) -> Iterator[psycopg.Connection]:
    """Connect through PgBouncer and the router, in a transaction of the tenant."""
    with psycopg.connect(
        "host=127.0.0.1 port=6432 dbname=mindful user=shop password=sesame sslmode=require"
    ) as db:
        db.execute("select tenant_set(%s)", (tenant,))
        yield db


def tenants_that_recall() -> dict[str, str]:
    """Recall as each tenant through PgBouncer and the router: the found text, or the error's SQLSTATE."""
    found = {}
    for tenant in TENANTS:
        with shop(tenant) as db:
            try:
                found[tenant] = one(
                    db, "select content from memory_recall('What is the code of the gate?', 1)"
                )
            except psycopg.Error as error:
                found[tenant] = error.sqlstate or ""
    return found


def test_the_composed_router(routed: str) -> None:
    texts = {tenant: f"The code of the gate of {tenant} is {2000 + n}." for n, tenant in enumerate(TENANTS)}
    for tenant, text in texts.items():
        with shop(tenant) as db:
            one(db, "select memory_insert(%s)", text)
    assert tenants_that_recall() == texts
    run(*COMPOSE, "kill", "b")
    without = tenants_that_recall()
    assert set(without.values()) - set(texts.values()) == {"08006"}
    assert set(without.values()) & set(texts.values())
    run(*COMPOSE, "up", "-d", "--wait")
    assert tenants_that_recall() == texts
    run(*COMPOSE, "down")
    run(*COMPOSE, "up", "-d", "--wait")
    assert tenants_that_recall() == texts
    checked = run(*COMPOSE, "exec", "-T", "router", "bash", text=f"{routed}\nmindful partition check\n")
    assert "no problems" in checked


def test_a_developer_sets_up_in_a_container(tmp_path: Path) -> None:
    """By CONTRIBUTING's commands, which editors run by .devcontainer."""
    start, *commands = page_commands("CONTRIBUTING.md", "docker run")
    editor = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert editor["image"] in start
    assert editor["postCreateCommand"].replace('"$PWD"', "/src") == " && ".join(commands)
    run("git", "clone", "-q", str(ROOT), "src", folder=tmp_path)
    asked = "make psql <<< \"select llm_generate('What is the capital of France?')\""
    printed = run("bash", "-c", start, text="\n".join(["set -e", *commands, asked]), folder=tmp_path / "src")
    assert "Paris" in printed
