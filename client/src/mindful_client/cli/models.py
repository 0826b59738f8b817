"""mindful models."""

from __future__ import annotations

import json
import threading
import time
from typing import IO, Any

import click
import psycopg

from mindful_client.cli.output import show
from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, MindfulError, NotFoundError, translated

_LIST = """
    select name, kind, provider, is_default, context_length, dims, license,
        coalesce(options #>> '{served,address}', source), options
    from mindful.model order by kind, name"""


@click.group()
def models() -> None:
    """List, add and test models, and choose defaults."""


@models.command("list")
def list_() -> None:
    """Print the models that you may use; * marks defaults."""
    for name, kind, provider, is_default, context_length, dims, license_, where, options in _rows():
        facts = [
            f"{context_length} tokens" if context_length else "",
            f"{dims} dims" if dims else "",
            license_ or "",
        ]
        engine = "served" if "served" in options else provider
        show(f"{'*' if is_default else ' '} {name:24} {kind:10} {engine:22} {', '.join(filter(None, facts))}")
        show(f"    {where}")


@models.command()
@click.argument("name")
@click.argument("source")
@click.option(
    "--kind", type=click.Choice(["generator", "embedder", "reranker"]), default="generator", show_default=True
)
@click.option("--provider", help="By default openai for an address, llama_cpp for a .gguf file.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the provider; may be repeated.",
)
@click.pass_context
def add(
    context: click.Context, name: str, source: str, kind: str, provider: str | None, options: tuple[str, ...]
) -> None:
    """Register a model file on the server, or the address of a server, and test it. For administrators."""
    client: Client = context.obj
    client.model_register(name, kind, provider or _provider(source), source, options=_options(options))
    context.invoke(test, name=name)


@models.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="An embedder that has not embedded all memories yet.")
def default(name: str, force: bool) -> None:
    """Make a model the default of its kind. For administrators."""
    with translated(), _connection() as connection:
        connection.execute("select mindful.model_default_set(%s, force => %s)", (name, force))
    show(f"{name} is the default")


@models.command()
@click.argument("name")
def test(name: str) -> None:
    """Run a model once in each way, and print what works and how fast."""
    found = next((row for row in _rows() if row[0] == name), None)
    if found is None:
        raise NotFoundError(f'there is no model "{name}"', hint="mindful models list")
    for key, value in (
        ("context", found[4]),
        ("license", found[6] or "not stated: read the terms of its maker"),
    ):
        show(f"{key:20} {value}")
    with _connection() as connection:
        for what, statement in _TESTS[found[1]].items():
            _try(connection, what, statement, name)


@models.command("calibrate")
@click.argument("name")
@click.option(
    "--gold",
    type=click.File(),
    help="JSON array of questions, as for gold_evaluate, instead of the package's.",
)
@click.option("--signal-tier", type=click.IntRange(0, 3), default=1, show_default=True)
def calibrate_(name: str, gold: IO[str] | None, signal_tier: int) -> None:
    """Have a generator answer known questions, so that its answers are ordered before there are labels.

    For administrators. Ctrl-C stops; the same command continues after the answers so far.
    """
    failed: list[Exception] = []
    with _connection() as connection, _connection() as watching:
        call = "call mindful.model_calibrate(%s, %s, %s)", (name, gold and gold.read(), signal_tier)

        def work() -> None:
            try:
                with translated():
                    connection.execute(*call)
            except MindfulError as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_LOOK_S)
                _progress(watching, name)
        except KeyboardInterrupt:
            connection.cancel_safe()
            thread.join()
    if failed:
        raise failed[0]


def _progress(connection: psycopg.Connection, name: str) -> None:
    row = connection.execute(_PROGRESS, (name,)).fetchone()
    if row is not None:
        show(f"{row[0]} of {row[1]} questions answered, {row[2]} rightly", err=True)


_LOOK_S = 5.0
"""Seconds between two lines of progress."""
_PROGRESS = """
    select answered, questions, correct from mindful.model_calibration
    where model = %s order by answered_at desc limit 1"""
_TESTS = {
    "generator": {
        "answer": "select coalesce(round(first_token_ms) || ' ms to the first token', round(total_ms) || ' ms')"
        " || ', confidence '"
        " || round(confidence::numeric, 2) from mindful.llm_generate_detail('What is the capital of France?', %s,"
        " max_tokens => 16)",
        "chat template": "select prompt_tokens - mindful.llm_token_count('Hi', %s) || ' tokens around a message'"
        " from mindful.llm_generate_detail('Hi', %s, max_tokens => 1, system_prompt => '')",
        "log-probabilities": "select case when (signals ->> 'entropy_max')::real > 0 then 'of the likeliest tokens'"
        " else 'of the chosen token only: confidence is coarse' end"
        " from mindful.llm_generate_detail('Name a color.', %s, max_tokens => 8)",
        "token count": "select mindful.llm_token_count('What is the capital of France?', %s)",
        "labels": "select mindful.llm_classify('I love it.', '{positive,negative}', model => %s)",
        "json_schema": "select mindful.llm_generate('A color?', %s, json_schema => '{\"enum\": [\"red\"]}')",
        "grammar": "select mindful.llm_generate('Yes or no?', %s, grammar => 'root ::= \"yes\" | \"no\"')",
    },
    "embedder": {
        "embedding": "select vector_dims(mindful.llm_embed('a text', %s)) || ' numbers'",
        "many": "select cardinality(mindful.llm_embed_many(array(select 'text ' || i from generate_series(1, 32) i),"
        " %s))"
        " || ' texts'",
    },
    "reranker": {"scores": "select mindful.llm_rerank('Where is Oslo?', '{Norway,apples}', %s)::text"},
}


def _try(connection: psycopg.Connection, what: str, statement: str, name: str) -> None:
    started = time.perf_counter()
    try:
        with translated():
            row = connection.execute(statement.encode(), [name] * statement.count("%s")).fetchone()
    except MindfulError as error:
        show(f"{what:20} does not work: {error}")
    else:
        show(f"{what:20} {row and row[0]} ({(time.perf_counter() - started) * 1000:.0f} ms)")


def _provider(source: str) -> str:
    if source.startswith(("http://", "https://", "unix:")):
        return "openai"
    return "llama_cpp" if source.endswith(".gguf") else "sentence_transformers"


def _options(pairs: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInputError(f'option "{pair}" has no value', hint="Write KEY=VALUE.")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def _rows() -> list[tuple[Any, ...]]:
    with translated(), _connection() as connection:
        return connection.execute(_LIST).fetchall()


def _connection() -> psycopg.Connection:
    with translated():
        dsn = click.get_current_context().find_root().params["dsn"]
        return psycopg.connect(dsn, autocommit=True)
