"""mindful chat."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Generator, Iterator
from types import FrameType
from uuid import UUID

import click

from mindful_client.cli.output import given, printable, report, show
from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, NotReadyError, QueryCancelledError

_RETRY = "/retry"


@click.command()
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


class _Talk:
    """One conversation at a terminal or a pipe."""

    def __init__(
        self, client: Client, session_id: UUID | None, system: str | None, memories: int | None
    ) -> None:
        self._client = client
        self._session_id = session_id
        self._known = session_id
        self._start = given(system_prompt=system)
        self._options = given(memories=memories)
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
                show()
                self.stopped = False
                return
            try:
                self.say(line)
            except (InvalidInputError, NotReadyError, QueryCancelledError) as error:
                report(error)

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
            show(f"Continue with: mindful chat --session {self._session_id}", err=True)

    def _answer(self) -> Generator[str, None, None]:
        if self._session_id is None:
            title = printable((self._unstored or "")[:60])
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
                    show(piece, nl=False)
                    begun = True
        except QueryCancelledError:
            if not self.stopped:  # by a statement_timeout, say
                raise
        finally:
            if begun:
                show()
        if self.stopped:
            show(f"Stopped. {_RETRY} asks again.", err=True)

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
