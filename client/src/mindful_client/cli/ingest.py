"""mindful ingest."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from mindful_client.calls.statement import DEFAULT
from mindful_client.cli.output import show
from mindful_client.client import Client
from mindful_client.errors import AlreadyExistsError, InvalidInputError
from mindful_client.files import UnreadableError
from mindful_client.files.openapi import read_specification
from mindful_client.files.text import decode, read_text
from mindful_client.types import DocumentChange

_LARGEST = 1 << 26
"""Largest file, in bytes."""
_READING = 1
"""Version of the readers. Increase it when a file is read as another text than before."""


@click.command()
@click.option(
    "--glob", default="*", help='Files of a directory, such as "*.md". The default is all text files.'
)
@click.option("--max-tokens", type=int, help="Largest number of tokens in a chunk.")
@click.option("--overlap", type=int, help="Largest number of tokens that a chunk shares with the one before.")
@click.option(
    "--forget-missing", is_flag=True, help="Delete documents of the directories whose files no longer exist."
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.pass_obj
def ingest(
    client: Client,
    glob: str,
    max_tokens: int | None,
    overlap: int | None,
    forget_missing: bool,
    paths: tuple[Path, ...],
) -> None:
    """Store files, and files in directories: text, Markdown, HTML, PDF, code, API specifications.

    Unchanged files are skipped. Of a changed file, only changed chunks are embedded. Hidden files are left out. If
    a file cannot be read, the command names it, stores the others, and exits with code 1. Needs the extra `ingest`.
    """
    files = list(dict.fromkeys(_files(paths, glob)))
    reader = _Reader(client, max_tokens, overlap)
    with click.progressbar(files, label="Reading", file=sys.stderr, show_pos=True) as shown:
        for path, named in shown:
            reader.take(path, named)
    if forget_missing:
        reader.forget_missing([path.resolve() for path in paths if path.is_dir()])
    show(reader.summary())
    if reader.failures:
        show("\n".join([*reader.failures, *dict.fromkeys(reader.hints)]), err=True)
        raise click.exceptions.Exit(1)


def _files(paths: Iterable[Path], glob: str) -> Iterator[tuple[Path, bool]]:
    """Yield each file, and whether the user named it."""
    for path in paths:
        root = path.resolve()
        if not root.is_dir():
            yield root, True
            continue
        for found in sorted(root.rglob(glob)):
            hidden = any(part.startswith(".") for part in found.relative_to(root).parts)
            if found.is_file() and not hidden and not found.is_symlink():
                yield found, False


class _Reader:
    """Store files one by one, and count the outcomes."""

    def __init__(self, client: Client, max_tokens: int | None, overlap: int | None) -> None:
        self._client = client
        self._max_tokens, self._overlap = max_tokens, overlap
        self._files = Counter[str]()
        self._chunks = Counter[str]()
        self.failures: list[str] = []
        self.hints: list[str] = []

    def take(self, path: Path, named: bool) -> None:
        """Store a file if it changed."""
        try:
            self._files[self._remember(str(path), path, named)] += 1
        except (UnreadableError, OSError) as error:
            self._fail(path, error.strerror or str(error) if isinstance(error, OSError) else str(error))
        except ModuleNotFoundError as error:
            self._fail(path, f"needs the Python package {error.name}: pip install 'pg-mindful[ingest]'")
        except (InvalidInputError, AlreadyExistsError) as error:
            self._fail(path, error.message)
            if error.hint:
                self.hints.append(f"Hint: {error.hint}")

    def forget_missing(self, directories: Iterable[Path]) -> None:
        """Delete documents whose files in these directories no longer exist."""
        for document in self._client.document_list():
            path = Path(document.source)
            if any(path.is_relative_to(directory) for directory in directories) and not path.exists():
                self._chunks["deleted"] += self._client.document_delete(document.source)
                self._files["forgotten"] += 1

    def summary(self) -> str:
        """Return the number of files and chunks by outcome."""
        kinds = ("new", "changed", "unchanged", "skipped", "forgotten", "failed")
        files = [f"{self._files[kind]} {kind}" for kind in kinds if self._files[kind]]
        chunks = [f"{count} {kind}" for kind, count in self._chunks.items() if count]
        return f"Files: {', '.join(files) or 'none'}. Chunks: {', '.join(chunks) or 'none changed'}."

    def _fail(self, path: Path, problem: str) -> None:
        self._files["failed"] += 1
        self.failures.append(f"mindful: {path}: {problem}")

    def _remember(self, source: str, path: Path, named: bool) -> str:
        if path.stat().st_size > _LARGEST:
            raise UnreadableError(f"has {path.stat().st_size} bytes, more than {_LARGEST}")
        data = path.read_bytes()
        if not named and (not data.strip() or _is_binary(path, data)):
            return "skipped"
        known = self._client.document_list(source=source)
        options = f"{_READING} {self._max_tokens} {self._overlap}".encode()
        fingerprint = hashlib.sha256(options + b"\0" + data).hexdigest()
        if known and known[0].fingerprint == fingerprint:
            return "unchanged"
        change = self._insert(source, data, {"fingerprint": fingerprint})
        self._chunks.update(
            inserted=change.inserted, replaced=change.replaced, kept=change.kept, deleted=change.deleted
        )
        return "changed" if known else "new"

    def _insert(self, source: str, data: bytes, metadata: dict[str, str]) -> DocumentChange:
        if source.lower().endswith((".json", ".yaml", ".yml")):
            api = read_specification(source, decode(data))
            if api is not None:
                return self._client.document_insert_parts(
                    source, api.operations, title=api.title, metadata=metadata
                )
        text = read_text(source, data)
        return self._client.document_insert(
            text.content,
            source,
            title=text.title or Path(source).name,
            format=text.format,
            metadata=metadata,
            max_tokens=self._max_tokens if self._max_tokens is not None else DEFAULT,
            overlap=self._overlap if self._overlap is not None else DEFAULT,
        )


def _is_binary(path: Path, data: bytes) -> bool:
    return (
        path.suffix.lower() != ".pdf"
        and b"\0" in data[: 1 << 13]
        and not data.startswith((b"\xff\xfe", b"\xfe\xff"))
    )
