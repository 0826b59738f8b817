"""mindful recall, mindful remember, mindful forget, mindful sessions."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from uuid import UUID

import click

from mindful_client.cli.output import given, json_text, printable, show
from mindful_client.client import Client
from mindful_client.types import RecalledMemory


@click.command()
@click.option("-k", type=int, help="Number of memories; 5 by default.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with all columns.")
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
    """Store TEXT as a memory and print its id. TEXT - reads standard input."""
    if text == "-":
        text = sys.stdin.read().removesuffix("\n")
    show(client.memory_insert(text))


@click.command()
@click.option("--session", "session_id", type=click.UUID, help="Delete this conversation instead.")
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@click.argument("ids", type=int, nargs=-1)
@click.pass_obj
def forget(client: Client, session_id: UUID | None, dry_run: bool, ids: Sequence[int]) -> None:
    """Delete the memories with these IDS, and all that depends on them; print the number of rows by table."""
    if bool(ids) == (session_id is not None):
        raise click.UsageError("give IDS or --session")
    counts = client.memory_forget(**given(ids=ids or None, session_id=session_id), dry_run=dry_run)
    for count in counts:
        if count.rows:
            show(f"{count.rows:6}  {count.relation} {count.action}")
    receipts = {count.receipt_id for count in counts} - {None}
    show("Nothing was deleted." if dry_run else f"Receipt {', '.join(map(str, receipts))}.", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with all columns.")
@click.option("--max-count", type=int, help="Largest number of conversations.")
@click.pass_obj
def sessions(client: Client, as_json: bool, max_count: int | None) -> None:
    """Print conversations, newest first."""
    listed = client.session_list(**given(max_count=max_count))
    if as_json:
        show(json_text([dataclasses.asdict(session) for session in listed], indent=2))
    for session in [] if as_json else listed:
        title = printable(session.title or "").replace("\n", " ")
        show(
            f"{session.session_id}  {session.created_at:%Y-%m-%d %H:%M}  {session.messages:4}  {title}".rstrip()
        )


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
