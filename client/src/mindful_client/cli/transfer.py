"""mindful export, mindful import."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any
from uuid import UUID

import click

from mindful_client import _methods
from mindful_client.calls.transfer import memory_export, memory_import
from mindful_client.cli.output import given, json_text, show
from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, translated
from mindful_client.files import UnreadableError
from mindful_client.files.lines import read_lines

_ROWS = 500
"""How many rows a cursor fetches at once."""


@click.command("export")
@click.option("--embeddings", is_flag=True, help="With embeddings, which need not be computed again then.")
@click.option("--kind", "kinds", multiple=True, help="Only memories of this kind; may be given again.")
@click.option("--session", "session_id", type=click.UUID, help="Only this conversation.")
@click.option("--source", help="Only this document or table.")
@click.argument("file", type=click.File("w", encoding="utf-8", lazy=True, atomic=True))
@click.pass_obj
def export_(
    client: Client,
    embeddings: bool,
    kinds: Sequence[str],
    session_id: UUID | None,
    source: str | None,
    file: IO[str],
) -> None:
    """Write memories, and what belongs to them, to FILE as JSON lines; - is standard output."""
    call = memory_export(
        embeddings=embeddings, **given(kinds=kinds or None, session_id=session_id, source=source)
    )
    written = 0
    with (
        translated(),
        client._connection() as connection,
        client._transaction(connection, streams=True),
        connection.cursor(_methods.cursor_name()) as cursor,
    ):
        cursor.itersize = _ROWS
        cursor.execute(call.query, call.parameters)
        with click.progressbar(cursor, label="Exporting", file=sys.stderr, show_pos=True) as shown:
            for (line,) in shown:
                file.write(json_text(line) + "\n")
                written += 1
    show(f"{written} lines.", err=True)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.pass_obj
def import_(client: Client, file: IO[bytes]) -> None:
    """Remember what FILE holds: lines of `mindful export`, or conversations of other programs.

    Those are lists of messages with role and content, ChatGPT's conversations.json, and ShareGPT's form. All or
    nothing is imported; what is there already is kept, so a file may be imported again. - is standard input.
    """
    call = memory_import("pg_temp.mindful_import")
    try:
        with (
            translated(),
            _seekable(file) as whole,
            client._connection() as connection,
            client._transaction(connection, streams=True),
        ):
            connection.execute("create temp table mindful_import (line jsonb) on commit drop")
            _copy(connection, whole)
            change = call.read(connection.execute(call.query, call.parameters).fetchall())
    except UnreadableError as error:
        raise InvalidInputError(f"{file.name} {error}", hint="Nothing was imported.") from error
    show(
        f"{change.memories} memories, {change.sessions} sessions, {change.links} links, {change.evidence} quotes and "
        f"{change.accesses} accesses were imported; {change.kept} memories were here already."
    )


@contextmanager
def _seekable(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Give a file that can be read again: what comes through a pipe is kept."""
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(file, kept)
        kept.seek(0)
        yield kept


def _copy(connection: Any, file: IO[bytes]) -> None:
    size = os.fstat(file.fileno()).st_size
    with (
        connection.cursor() as cursor,
        cursor.copy("copy mindful_import (line) from stdin") as copy,
        click.progressbar(length=size, label="Reading", file=sys.stderr) as shown,
    ):
        at = 0
        for line in read_lines(file):
            text = json.dumps(line, ensure_ascii=False)
            copy.write_row((text.encode(errors="replace").decode(),))  # lone surrogates are no UTF-8
            shown.update(file.tell() - at)
            at = file.tell()
