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
from psycopg.rows import class_row

from mindful_client import _methods
from mindful_client.calls.memory.transfer import memory_export
from mindful_client.cli.output import given, json_text, show
from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, translated
from mindful_client.files import UnreadableError
from mindful_client.files.lines import read_lines
from mindful_client.types import ImportChange

_ROWS = 500
"""Rows that a cursor fetches at once."""


@click.command("export")
@click.option(
    "--embeddings", is_flag=True, help="Include embeddings, so that an import need not compute them."
)
@click.option("--kind", "kinds", multiple=True, help="Only memories of this kind. Repeat it for several.")
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
    """Write memories, with sessions, links and evidence, to FILE as JSON lines. FILE - is standard output."""
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
    """Import FILE: lines of `mindful export`, or conversations of other programs.

    Other formats are lists of messages with role and content, ChatGPT's conversations.json, and ShareGPT. An error
    imports nothing. Existing memories stay, so you can import a file again. FILE - is standard input.
    """
    try:
        with (
            translated(),
            _seekable(file) as whole,
            client._connection() as connection,
            client._transaction(connection, streams=True),
        ):
            connection.execute("create temp table mindful_import (line jsonb) on commit drop")
            _copy(connection, whole)
            change = _import(connection)
    except UnreadableError as error:
        raise InvalidInputError(
            f"{file.name} {error}", hint="Nothing was imported. Correct the file and import it again."
        ) from error
    show(
        f"{change.memories} memories, {change.sessions} sessions, {change.links} links, {change.evidence} quotes and "
        f"{change.accesses} accesses were imported; {change.kept} memories were here already."
    )


@contextmanager
def _seekable(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a file that can be read twice. Input of a pipe goes to a temporary file."""
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(file, kept)
        kept.seek(0)
        yield kept


def _import(connection: Any) -> ImportChange:
    with connection.cursor(row_factory=class_row(ImportChange)) as cursor:
        cursor.execute("select * from _mindful.memory_import('pg_temp.mindful_import')")
        change: ImportChange = cursor.fetchone()
    return change


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
            copy.write_row((text.encode(errors="replace").decode(),))  # UTF-8 has no lone surrogates
            shown.update(file.tell() - at)
            at = file.tell()
