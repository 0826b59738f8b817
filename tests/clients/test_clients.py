"""Programs of others, each as its users run it, against a service of this test's own database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import psycopg
import pytest
import yaml
from serve.conftest import Service, served
from support import EMBEDDER, GENERATOR, SCRIPTED_GENERATOR
from support.query import one

HOME = Path(os.environ["MINDFUL_HOME"])
PROGRAMS = Path(__file__).parent / "programs"
NODE = HOME / "clients-node"
PARIS = "The capital of France is Paris."
CONFORMANCE = [
    "server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "completion-complete",
    "server-sse-multiple-streams", "dns-rebinding-protection",
]  # fmt: skip
Run = Callable[..., str]


@pytest.fixture
def run(service: Service, admin: psycopg.Connection, dsn_of: Any, tmp_path: Path) -> Run:
    """Runs a program in an environment that names the service, a key of customer-7 and the models."""
    slow = one(admin, "select key_create('slow', 'customer-9', requests_per_minute => 1)")
    environment = os.environ | {
        "MINDFUL_URL": service.url,
        "MINDFUL_KEY": service.key,
        "MINDFUL_SLOW_KEY": str(slow),
        "MINDFUL_DSN": dsn_of["application"],
        "MINDFUL_TENANT": "customer-7",
        "MINDFUL_PYTHON": sys.executable,
        "SCRIPTED": SCRIPTED_GENERATOR,
        "GENERATOR": GENERATOR,
        "EMBEDDER": EMBEDDER,
        "LLM_USER_PATH": str(tmp_path),
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONPATH": "",
    }

    def begin(*command: str | Path, timeout: float = 280) -> str:
        done = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    return begin


def python(name: str) -> Path:
    """A program of the clients' venv."""
    return HOME / "clients" / "bin" / name


def node() -> Path:
    """The Node that the packages ask for; the distribution's may be older."""
    (found,) = (NODE / "node_modules").glob("node-linux-*/bin/node")
    return found


def script(name: str) -> Path:
    """A script beside the packages that it imports."""
    return Path(shutil.copy(Path(__file__).parent / "node" / name, NODE / name))


@pytest.mark.parametrize("name", ["openai.mjs", "ai.mjs"])
def test_packages_of_npm(run: Run, name: str) -> None:
    run(node(), script(name))


@pytest.mark.parametrize("scenario", CONFORMANCE)
def test_conformance_of_mcp(dsn_of: Any, scenario: str) -> None:
    with served(dsn_of["ana"], "none") as service:
        command: list[str | Path] = [
            node(),
            NODE / "node_modules/.bin/conformance",
            "server",
            "--url",
            f"{service.url}/mcp",
        ]
        done = subprocess.run(
            [*command, "--scenario", scenario], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " 0 failed, 0 warnings" in done.stdout


def test_litellm(run: Run) -> None:
    run(python("python"), PROGRAMS / "use_litellm.py")


def test_langchain_mcp_adapters(run: Run) -> None:
    run(python("python"), PROGRAMS / "use_langchain_mcp.py")


@pytest.mark.timeout(900)
def test_langchain_openai_under_langchains_own_suites(run: Run, tmp_path: Path) -> None:
    # Away from the conftest.py of these tests.
    suite = shutil.copy(PROGRAMS / "langchain_suite.py", tmp_path)
    options = ["asyncio_mode=auto", "asyncio_default_test_loop_scope=session"]
    given = [part for option in options for part in ("-o", option)]
    print(run(python("pytest"), "-q", "-p", "no:cacheprovider", "-rxXs", *given, suite, timeout=840))


def test_llm(run: Run, service: Service, tmp_path: Path, db: psycopg.Connection) -> None:
    models = [
        {
            "model_id": name.replace("/", "-"),
            "model_name": name,
            "api_base": f"{service.url}/v1",
            "api_key_name": "mindful",
            "supports_schema": True,
            "supports_tools": True,
        }
        for name in (SCRIPTED_GENERATOR, f"mindful/{SCRIPTED_GENERATOR}", GENERATOR)
    ]
    (tmp_path / "extra-openai-models.yaml").write_text(yaml.safe_dump(models))
    (tmp_path / "keys.json").write_text(json.dumps({"mindful": service.key}))
    ask = "What is the capital of France?"
    for options in ((), ("--no-stream",), ("--async",)):
        assert run(python("llm"), "-m", SCRIPTED_GENERATOR, *options, ask).strip() == PARIS
    remembers = f"mindful-{SCRIPTED_GENERATOR}"
    assert run(python("llm"), "-m", remembers, ask).strip() == PARIS
    run(python("llm"), "-c", "And then?")
    assert one(db, "select count(*) from session") == 1
    assert one(db, "select count(*) from memory where kind = 'message'") == 4
    answer = run(
        python("llm"),
        "-m",
        GENERATOR,
        "--no-stream",
        "-o",
        "max_tokens",
        "60",
        "--schema",
        "name, age int",
        "Invent a dog",
    )
    assert set(json.loads(answer)) == {"name", "age"}


async def test_the_openai_package_waits_and_tries_again_as_it_is_told(
    service: Service, admin: psycopg.Connection
) -> None:
    slow = str(one(admin, "select key_create('slow', 'customer-9', requests_per_minute => 1)"))
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key=slow, max_retries=3) as client:
        for _ in range(2):
            assert [model async for model in client.models.list()]
