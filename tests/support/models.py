"""The models that every test database has registered."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase

import psycopg
import pytest
from psycopg.types.json import Jsonb

GENERATOR = "smollm2-135m-instruct"
EMBEDDER = "all-minilm-l6-v2"
SCRIPTED_GENERATOR = "scripted"
SCRIPTED_EMBEDDER = "scripted-embedder"

SCRIPT = {
    "replies": [["capital of France", "The capital of France is Paris."], ["Yes or No", "Yes"]],
    "default": "I do not know.",
    "logprob": -0.1,
}


def model_files(connection: psycopg.Connection) -> dict[str, str]:
    """Find the GGUF files: in MINDFUL_TEST_MODELS, or where the DSN's database has its defaults from."""
    directory = os.environ.get("MINDFUL_TEST_MODELS")
    if directory:
        patterns = {"generator": f"{GENERATOR}-q8_0.gguf", "embedder": f"{EMBEDDER}-f16.gguf"}
        found = {kind: sorted(Path(directory).glob(pattern)) for kind, pattern in patterns.items()}
        files = {kind: str(paths[0].absolute()) for kind, paths in found.items() if paths}
    else:
        files = dict(_registered(connection))
    if missing := {"generator", "embedder"} - files.keys():
        pytest.fail(
            f"no file of a default {' or '.join(sorted(missing))}: MINDFUL_TEST_DSN must name a database "
            "where it is registered (`make up` does so), or MINDFUL_TEST_MODELS a directory that holds it",
            pytrace=False,
        )
    return files


def register_models(connection: psycopg.Connection, files: dict[str, str]) -> None:
    """Register the real models, which become the defaults, and then the scripted ones.

    Servers that MINDFUL_TEST_GENERATOR and MINDFUL_TEST_EMBEDDER name run them in the place of the embedded engine.
    """
    generator, embedder = (os.environ.get(f"MINDFUL_TEST_{kind}") for kind in ("GENERATOR", "EMBEDDER"))
    for name, kind, provider, source, options in (
        (GENERATOR, "generator", "openai", generator, {"context_length": 2048, "acknowledge": True})
        if generator
        else (
            GENERATOR,
            "generator",
            "llama_cpp",
            files["generator"],
            {"acknowledge": True, "dry_multiplier": 0.8},
        ),
        (EMBEDDER, "embedder", "openai", embedder, {"context_length": 256, "strip_accents": True})
        if embedder
        else (EMBEDDER, "embedder", "llama_cpp", files["embedder"], {"context_length": 256}),
        (SCRIPTED_GENERATOR, "generator", "scripted", "", SCRIPT),
        (SCRIPTED_EMBEDDER, "embedder", "scripted", "", {"dims": 64}),
    ):
        connection.execute(
            "select mindful.model_register(%s, %s, %s, %s, %s)",
            (name, kind, provider, source, Jsonb(options)),
        )


def register_once(
    connection: psycopg.Connection, name: str, kind: str, provider: str, source: str = "", **options: object
) -> str:
    """Register a model unless a test that shares the database has, and return its name."""
    if connection.execute("select from mindful.model where name = %s", (name,)).fetchone() is None:
        connection.execute(
            "select mindful.model_register(%s, %s, %s, %s, %s)",
            (name, kind, provider, source, Jsonb(options)),
        )
    return name


_WORDS_ENDS = [f"{letter} " for letter in ascii_lowercase]


def say_little(connection: psycopg.Connection, model: str, ends: Sequence[str] = _WORDS_ENDS) -> None:
    """Let a model's answers end at these texts, by default after a word: long answers take most of the time."""
    connection.execute(
        "update mindful.model set options = options || %s where name = %s",
        (Jsonb({"stop": [*ends]}), model),
    )


def _registered(connection: psycopg.Connection) -> list[tuple[str, str]]:
    if connection.execute("select to_regclass('mindful.model')").fetchone() == (None,):
        return []
    return connection.execute(
        "select kind, source from mindful.model where is_default and provider = 'llama_cpp'"
    ).fetchall()
