"""mindful consolidate, mindful replay, mindful train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mindful_client.cli.output import given, json_text, show
from mindful_client.client import Client
from mindful_client.errors import NotReadyError


@click.command()
@click.option("--extractor", type=click.Choice(["rule", "model"]), help="What draws facts.")
@click.option("--model", help="Generator that draws them.")
@click.option("--batch", type=int, default=500, show_default=True, help="Texts a transaction.")
@click.pass_obj
def consolidate(client: Client, extractor: str | None, model: str | None, batch: int) -> None:
    """Draw facts from all that was said, a transaction a batch."""
    while True:
        done = client.memory_consolidate(
            limits={"memories": batch}, **given(extractor=extractor, model=model)
        )
        if done.error:
            raise NotReadyError(
                f"run {done.id} failed: {done.error}", sqlstate="55000", hint="What was read stays read."
            )
        show(
            f"run {done.id}: {done.memories_processed} texts, {done.facts} facts, {done.remaining} texts left"
        )
        if done.status == "completed":
            break


@click.group()
def replay() -> None:
    """Make training samples of what is known, and write them to files."""


@replay.command()
@click.option(
    "--level", type=click.Choice(["data", "information", "knowledge", "wisdom"]), help="Least level of facts."
)
@click.option("--confidence", type=float, help="Least confidence of facts.")
@click.option("--accesses", type=int, help="Least uses of facts.")
@click.argument("model")
@click.pass_obj
def run(
    client: Client, level: str | None, confidence: float | None, accesses: int | None, model: str
) -> None:
    """Make instruction pairs for MODEL, and print what was kept and refused."""
    done = client.replay_run(model, filter=given(level=level, confidence=confidence, accesses=accesses))
    if done.error:
        raise NotReadyError(
            f"run {done.id} failed: {done.error}", sqlstate="55000", hint="Lower a threshold."
        )
    refused = ", ".join(f"{reason} {count}" for reason, count in sorted((done.refused or {}).items()))
    show(f"run {done.id}: {done.accepted} pairs of {done.facts} facts; refused: {refused or 'none'}")


@replay.command()
@click.option(
    "--format", type=click.Choice(["alpaca", "chat", "sharegpt"]), default="alpaca", show_default=True
)
@click.argument("run", type=int)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.pass_obj
def export(client: Client, format: str, run: int, directory: Path) -> None:
    """Write the pairs of RUN to DIRECTORY, and print the path of their manifest."""
    from mindful_client.training import dataset

    show(dataset.export(client, run, directory, format))


@click.command()
@click.option("--name", help="Of the adapter; by default the base's with the training's number.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Where to; beside MANIFEST.")
@click.option(
    "--base",
    type=click.Path(path_type=Path, exists=True),
    help="The base's GGUF, where it is not at its path.",
)
@click.option("--rank", type=int)
@click.option("--epochs", type=int)
@click.option("--learning-rate", type=float)
@click.option("--batch", type=int)
@click.option("--rehearsed", type=int, help="General questions trained beside the pairs, 64 at most.")
@click.option("--threads", type=int, default=1, show_default=True, help="Of PyTorch.")
@click.argument("manifest", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.pass_obj
def train(
    client: Client,
    /,
    name: str | None,
    output: Path | None,
    base: Path | None,
    threads: int,
    manifest: Path,
    **parameters: Any,
) -> None:
    """Train a LoRA adapter on the export of MANIFEST, register and measure it, and make it active if it is better.

    A training that was stopped goes on where it was when it is called again. For administrators whose memories
    these are.
    """
    try:
        from mindful_client.training.run import Training
    except ImportError as error:
        raise NotReadyError(
            f"training needs packages: {error}", sqlstate="0A000", hint="pip install 'pg-mindful[train]'"
        ) from None
    training = Training(client, manifest, output or manifest.parent, base, threads, given(**parameters))
    figures = training.run(name, lambda line: show(line, err=True))
    show(json_text(figures, indent=2))
