"""mindful consolidate, mindful replay, mindful train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mindful_client.cli.output import given, json_text, show
from mindful_client.client import Client
from mindful_client.errors import NotReadyError


@click.command()
@click.option("--extractor", type=click.Choice(["rule", "model"]), help="Draw facts by rules or by a model.")
@click.option("--model", help="Generator for --extractor model.")
@click.option("--batch", type=int, default=500, show_default=True, help="Texts per transaction.")
@click.pass_obj
def consolidate(client: Client, extractor: str | None, model: str | None, batch: int) -> None:
    """Draw facts from conversations and documents, one transaction per batch."""
    while True:
        done = client.memory_consolidate(
            limits={"memories": batch}, **given(extractor=extractor, model=model)
        )
        if done.error:
            raise NotReadyError(
                f"run {done.id} failed: {done.error}",
                sqlstate="55000",
                hint="Earlier batches are stored. Run the command again for the rest.",
            )
        show(
            f"run {done.id}: {done.memories_processed} texts, {done.facts} facts, {done.remaining} texts left"
        )
        if done.status == "completed":
            break


@click.group()
def replay() -> None:
    """Make training samples from facts, and write them to files."""


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
    """Make instruction pairs for MODEL, and print how many were kept and refused."""
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
    from mindful_training import dataset

    show(dataset.export(client, run, directory, format))


@replay.command()
@click.option(
    "--format", type=click.Choice(["alpaca", "chat", "sharegpt"]), default="alpaca", show_default=True
)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.pass_obj
def night(client: Client, format: str, directory: Path) -> None:
    """Make pairs of new facts for each trained model, and write a file per model, with the date, to DIRECTORY."""
    from mindful_training import dataset

    for done in client.replay_night():
        if done.accepted:
            show(dataset.export_dated(client, done.id, directory, format))


@click.command()
@click.option(
    "--name", help="Name of the adapter. The default is the base's name with the training's number."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the adapter. The default is the folder of MANIFEST.",
)
@click.option(
    "--base",
    type=click.Path(path_type=Path, exists=True),
    help="GGUF file of the base, if it is not at the registered path.",
)
@click.option("--rank", type=int)
@click.option("--epochs", type=int)
@click.option("--learning-rate", type=float)
@click.option("--batch", type=int)
@click.option("--rehearsed", type=int, help="General questions to train beside the pairs; 64 at most.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of PyTorch.")
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
    """Train a LoRA adapter on the export of MANIFEST, register and measure it, and activate it if it is better.

    If a training was stopped, the same command continues it. The caller must be an administrator who exported own
    memories. Needs the extra `train`.
    """
    try:
        from mindful_training.run import Training
    except ImportError as error:
        raise NotReadyError(
            f"a package that training needs is not installed: {error}",
            sqlstate="0A000",
            hint="Install the extra train: pip install 'pg-mindful[train]'.",
        ) from None
    training = Training(client, manifest, output or manifest.parent, base, threads, given(**parameters))
    figures = training.run(name, lambda line: show(line, err=True))
    show(json_text(figures, indent=2))
