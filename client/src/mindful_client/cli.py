"""The command `mindful`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import signal
import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any
from uuid import UUID

import click

from mindful_client.calls.statement import json_default
from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, MindfulError, NotReadyError, QueryCancelledError
from mindful_client.types import RecalledMemory

_RETRY = "/retry"
_CONTROLS = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


class _Commands(click.Group):
    """Commands that report errors as one line and a hint, with exit code 1."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MindfulError as error:
            _report(error)
            context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dsn",
    envvar="MINDFUL_DSN",
    default="",
    help="Connection string; MINDFUL_DSN or libpq's PGHOST, PGDATABASE ... where it is not given.",
)
@click.version_option(package_name="pg-mindful", message="mindful %(version)s")
@click.pass_context
def main(context: click.Context, dsn: str) -> None:
    """Chat with a PostgreSQL database that has the extension mindful."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper):  # bytes that are no text are an error to report, not a crash
            stream.reconfigure(errors=errors)
    context.obj = context.with_resource(Client(dsn))


@main.command()
@click.option("--session", "session_id", type=click.UUID, help="Conversation to continue.")
@click.option("--system", help="What the model is told before a new conversation.")
@click.option("--memories", type=int, help="Most memories that an answer is shown.")
@click.argument("message", required=False)
@click.pass_obj
def chat(
    client: Client, session_id: UUID | None, system: str | None, memories: int | None, message: str | None
) -> None:
    """Answer MESSAGE, or talk until Ctrl-D.

    From a pipe, every line is a message. Ctrl-C stops an answer, and /retry asks for it again: your words are
    stored before the answer starts.
    """
    if session_id is not None and system is not None:
        raise click.UsageError("--system opens a new conversation; --session has one already.")
    talk = _Talk(client, session_id, system, memories)
    try:
        if message is not None:
            talk.say(message)
        elif sys.stdin.isatty():
            talk.converse()
        else:
            for line in sys.stdin:
                talk.say(line.removesuffix("\n"))
                if talk.stopped:
                    break
    finally:
        talk.farewell()
    if talk.stopped:
        raise click.exceptions.Exit(130)


@main.command()
@click.option("-k", type=int, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with all that is known.")
@click.argument("query")
@click.pass_obj
def recall(client: Client, k: int | None, as_json: bool, query: str) -> None:
    """Print the memories that best match QUERY."""
    memories = client.memory_recall(query, **_given(k=k))
    if as_json:
        rows = [dataclasses.asdict(memory) for memory in memories]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2, default=json_default))
    elif memories:
        click.echo("\n\n".join(map(_described, memories)))
    else:
        click.echo("No memory matches.", err=True)


@main.command()
@click.argument("text")
@click.pass_obj
def remember(client: Client, text: str) -> None:
    """Remember TEXT and print its id; - reads it from a pipe."""
    if text == "-":
        text = sys.stdin.read().removesuffix("\n")
    click.echo(client.memory_insert(text))


@main.command()
@click.pass_obj
def status(client: Client) -> None:
    """Print versions, tenant and use of memory."""
    for name, value in dataclasses.asdict(client.mindful_status()).items():
        if name.endswith("_bytes"):
            value = f"{value / 1e6:.0f} MB"
        elif name == "models":
            value = ", ".join(model["name"] for model in value) or "none loaded by this connection"
        click.echo(f"{name.removesuffix('_bytes').replace('_', ' '):18} {value}")


class _Talk:
    """One conversation at a terminal or a pipe."""

    def __init__(
        self, client: Client, session_id: UUID | None, system: str | None, memories: int | None
    ) -> None:
        self._client = client
        self._session_id = session_id
        self._known = session_id
        self._start = _given(system_prompt=system)
        self._options = _given(memories=memories)
        self._unstored: str | None = None
        """The last message, until the server has it: where that fails, /retry sends it again."""
        self.stopped = False
        """Whether the user stopped the last answer."""

    def converse(self) -> None:
        """Answer lines from a terminal until the user leaves, whatever can be put right by typing on."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives input() its line editing)
        prompt = "> " if sys.stdout.isatty() else ""
        while True:
            try:
                line = input(prompt)
            except (EOFError, KeyboardInterrupt):
                click.echo()
                self.stopped = False
                return
            try:
                self.say(line)
            except (InvalidInputError, NotReadyError, QueryCancelledError) as error:
                _report(error)

    def say(self, message: str) -> None:
        """Print the answer to a message as it is made; nothing is said to a blank line."""
        if not message.strip():
            return
        if message.strip() != _RETRY:
            self._unstored = message
        elif self._session_id is None:
            raise NotReadyError("no message waits for an answer", hint="Type one.")
        self._print(self._answer())

    def farewell(self) -> None:
        """Tell how a new conversation can be continued."""
        if self._session_id != self._known:
            click.echo(f"Continue with: mindful chat --session {self._session_id}", err=True)

    def _answer(self) -> Generator[str, None, None]:
        if self._session_id is None:
            title = _printable((self._unstored or "")[:60])
            self._session_id = self._client.session_start(title=title, **self._start)
        if self._unstored is not None:
            self._client.message_insert(self._session_id, "user", self._unstored)
            self._unstored = None
        if not self.stopped:
            yield from self._client.llm_chat_stream(None, session_id=self._session_id, **self._options)

    def _print(self, pieces: Generator[str, None, None]) -> None:
        begun = False
        try:
            with self._interruptible(), contextlib.closing(pieces):
                for piece in pieces:
                    if self.stopped:
                        break
                    click.echo(_printable(piece), nl=False)
                    begun = True
        except QueryCancelledError:
            if not self.stopped:  # by a statement_timeout, say
                raise
        finally:
            if begun:
                click.echo()
        if self.stopped:
            click.echo(f"Stopped. {_RETRY} asks again.", err=True)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C cancel the answer: a KeyboardInterrupt amid the protocol could break the connection."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self.stopped = True
            self._client.cancel()

        self.stopped = False
        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _report(error: MindfulError) -> None:
    click.echo(f"mindful: {_printable(error.message)}", err=True)
    if error.hint:
        click.echo(f"Hint: {_printable(error.hint)}", err=True)


def _given(**options: Any) -> dict[str, Any]:
    """Leave out the options that were not given: their defaults are the server's."""
    return {name: value for name, value in options.items() if value is not None}


def _described(memory: RecalledMemory) -> str:
    origin = [
        memory.kind,
        memory.role,
        memory.source,
        f"{memory.created_at:%Y-%m-%d %H:%M}",
        f"id {memory.id}",
    ]
    lines = _printable(memory.content).splitlines()
    return "\n  ".join([f"{memory.score:.2f}  {_printable(', '.join(filter(None, origin)))}", *lines])


def _printable(text: str) -> str:
    """Replace control characters: what is remembered or generated must not steer the user's terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
