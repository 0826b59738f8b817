"""mindful engine."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import click
import psycopg

from mindful_client.cli.output import show
from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, NotReadyError, translated

_MODELS = """
    select name, kind, source, coalesce((options ->> 'context_length')::integer, context_length)
    from mindful.model
    where provider = 'llama_cpp' and base is null
        and case when cardinality(%s::text[]) > 0 then name = any (%s) else is_default end"""
_DEFAULT_CONTEXT = {"generator": 2048, "embedder": 512}


@click.command()
@click.argument("models", nargs=-1)
@click.option(
    "--directory",
    envvar="MINDFUL_ENGINE",
    default="/run/mindful",
    show_default=True,
    help="Where the sockets are made; mode 0700. Or MINDFUL_ENGINE.",
)
@click.option(
    "--slots", type=click.IntRange(1, 256), help="Answers at once; by default as many as memory allows."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="Threads of each model; default: processors less one, at least 2.",
)
@click.option("--gpu-layers", type=int, default=-1, show_default=True, help="Layers on the GPU; -1 is all.")
@click.option(
    "--llama-server",
    type=click.Path(exists=True, dir_okay=False, executable=True, resolve_path=True),
    help="llama.cpp's program that serves embedders, as one compiled for this processor; default: xllamacpp's.",
)
@click.option(
    "--when-down",
    type=click.Choice(["embedded", "error"]),
    default="embedded",
    show_default=True,
    help="What calls do while the engine is down.",
)
@click.option("--off", is_flag=True, help="Have each connection run the models itself again, and end.")
@click.pass_obj
def engine(
    client: Client,
    models: tuple[str, ...],
    directory: str,
    slots: int | None,
    threads: int | None,
    gpu_layers: int,
    llama_server: str | None,
    when_down: str,
    off: bool,
) -> None:
    """Run model files of llama_cpp for all connections, the defaults or those named, until stopped.

    It runs on the database server's machine, as its operating system user, and connects as an administrator.
    """
    with translated(), psycopg.connect(click.get_current_context().find_root().params["dsn"]) as connection:
        rows = connection.execute(_MODELS, (list(models), list(models))).fetchall()
    found = {row[0] for row in rows}
    if missing := sorted(set(models) - found):
        raise InvalidInputError(
            f'"{missing[0]}" is not a registered model file of llama_cpp', hint="See mindful.model."
        )
    if not rows:
        raise NotReadyError("no default model is a file of llama_cpp", hint="Name models, or register one.")
    if off:
        for name in sorted(found):
            client.model_serve(name, server=None)
            show(f"{name}: each connection runs it")
        return
    _serve(client, rows, Path(directory), slots, threads, gpu_layers, llama_server, when_down)


def _serve(
    client: Client,
    rows: list[tuple[str, str, str, int | None]],
    directory: Path,
    slots: int | None,
    threads: int | None,
    gpu_layers: int,
    llama_server: str | None,
    when_down: str,
) -> None:
    if find_spec("xllamacpp") is None:
        raise NotReadyError(
            "the Python package xllamacpp is not installed", hint="pip install 'pg-mindful[engine]'"
        )
    from mindful_client.engine.size import size_of
    from mindful_client.engine.supervisor import Served, run

    _own(directory)
    served = [
        Served(
            name,
            kind,
            file,
            str(directory / f"{name}.sock"),
            size_of(kind, file, context or _DEFAULT_CONTEXT[kind], slots, threads, gpu_layers),
            llama_server if kind == "embedder" else None,
        )
        for name, kind, file, context in rows
    ]

    def ready(one: Served) -> None:
        client.model_serve(one.name, server=one.address, when_down=when_down)
        show(f"{one.name}: served to all connections")

    run(served, ready, show)


def _own(directory: Path) -> None:
    """Make the directory, or raise unless it is this user's alone."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise NotReadyError(
            f"the directory {directory} cannot be made: {error.strerror}", hint="Use --directory."
        ) from None
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise NotReadyError(
            f"other users may enter the directory {directory}", hint="It must be yours, with mode 0700."
        )
