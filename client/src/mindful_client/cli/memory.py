"""mindful recall, mindful remember."""

from __future__ import annotations

import dataclasses
import sys

import click

from mindful_client.cli.output import given, json_text, printable, show
from mindful_client.client import Client
from mindful_client.types import RecalledMemory


@click.command()
@click.option("-k", type=int, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with all that is known.")
@click.argument("query")
@click.pass_obj
def recall(client: Client, k: int | None, as_json: bool, query: str) -> None:
    """Print the memories that best match QUERY."""
    memories = client.memory_recall(query, **given(k=k))
    if as_json:
        rows = [dataclasses.asdict(memory) for memory in memories]
        show(json_text(rows, indent=2))
    elif memories:
        show("\n\n".join(map(_described, memories)))
    else:
        show("No memory matches.", err=True)


@click.command()
@click.argument("text")
@click.pass_obj
def remember(client: Client, text: str) -> None:
    """Remember TEXT and print its id; - reads it from a pipe."""
    if text == "-":
        text = sys.stdin.read().removesuffix("\n")
    show(client.memory_insert(text))


def _described(memory: RecalledMemory) -> str:
    origin = [
        memory.kind,
        memory.role,
        memory.source,
        f"{memory.created_at:%Y-%m-%d %H:%M}",
        f"id {memory.id}",
    ]
    lines = printable(memory.content).splitlines()
    return "\n  ".join([f"{memory.score:.2f}  {', '.join(filter(None, origin))}", *lines])
