"""mindful chat."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from types import FrameType
from typing import Any, NamedTuple
from uuid import UUID

import click
from psycopg import sql

from mindful_client.calls.statement import Call
from mindful_client.cli.history import edited_lines
from mindful_client.cli.output import given, printable, report, show
from mindful_client.client import Client
from mindful_client.errors import (
    InvalidInputError,
    MindfulError,
    NotReadyError,
    QueryCancelledError,
    UnavailableError,
)
from mindful_client.meaning import CONFIDENCE, probability_meaning

_LEAVE = ("exit", "quit")
_VARIED = {"temperature": 0.8, "top_p": 0.95}
"""How another answer in the place of a finished one is drawn: the likeliest one would be the same again."""
_LAST = sql.SQL(
    "select id, role from mindful.memory where session_id = %(session_id)s and turn > 0 order by turn desc limit 2"
).format()
"""The last turns of a session, the newest first."""
_REST = sql.SQL(
    """select a.metadata ->> 'action', (a.metadata ->> 'probability')::real, (a.metadata ->> 'confidence')::real,
           exists (
               select from mindful.decision d
               where d.tenant = a.tenant and d.message_id = a.id and d.calibrator_id is not null
           ),
           array(
               select m.content from jsonb_array_elements_text(a.metadata -> 'memory_ids') with ordinality i (id, place)
               join mindful.memory m on m.id = i.id::bigint
               where m.tenant = a.tenant order by i.place
           ),
           case when g.finish_reason = 'length' then g.completion_tokens end
       from mindful.memory a
       left join lateral (
           select d.generation_id from mindful.decision d
           where d.tenant = a.tenant and d.message_id = a.id order by d.id desc limit 1
       ) d on true
       left join mindful.generation g on g.tenant = a.tenant and g.id = d.generation_id
       where a.session_id = %(session_id)s and a.role in ('assistant', 'clarification')
       order by a.turn desc limit 1"""
).format()
"""What the last answer of a session rests on, and the number of its tokens if it was cut."""
_NO_TABLE = "42P01"
_SHOWN = 100
"""Characters of a memory that are printed."""


class _Answer(NamedTuple):
    action: str
    probability: float
    confidence: float
    calibrated: bool
    memories: list[str]
    cut_at: int | None


@click.command()
@click.option("--session", "session_id", type=click.UUID, help="Continue this conversation.")
@click.option("--system", help="System prompt of a new conversation.")
@click.option("--memories", type=int, help="Largest number of memories that the model sees.")
@click.option(
    "--max-tokens", type=int, help="Largest number of tokens of an answer; -1: what fits the context."
)
@click.option(
    "--explain/--no-explain",
    default=None,
    help="After each answer, print its figures and memories to standard error. Default: at a terminal, with the "
    "figures of calibrated answers only.",
)
@click.argument("message", required=False)
@click.pass_obj
def chat(
    client: Client,
    session_id: UUID | None,
    system: str | None,
    memories: int | None,
    max_tokens: int | None,
    explain: bool | None,
    message: str | None,
) -> None:
    """Answer MESSAGE, or talk until exit, quit or Ctrl-D.

    From a pipe, each line is a message. A message is stored before its answer starts. Ctrl-C stops an answer, and
    /retry asks for it again. /help lists the commands. With --explain, an answer is followed by its action, the
    probability that it is right (once answers are calibrated), the model's confidence, and the memories that the
    model saw.
    """
    if session_id is not None and system is not None:
        raise click.UsageError("--system is for new conversations: leave out --session")
    talk = _Talk(client, session_id, system, explain, given(memories=memories, max_tokens=max_tokens))
    try:
        if message is not None:
            talk.say(message)
        elif sys.stdin.isatty():
            with edited_lines():
                talk.converse()
        else:
            for line in sys.stdin:
                talk.say(line.removesuffix("\n"))
                if talk.stopped or talk.left:
                    break
    finally:
        talk.farewell()
    if talk.stopped:
        raise click.exceptions.Exit(130)


class _Talk:
    """One conversation at a terminal or a pipe."""

    def __init__(
        self,
        client: Client,
        session_id: UUID | None,
        system: str | None,
        explain: bool | None,
        options: dict[str, Any],
    ) -> None:
        self._client = client
        self._session_id = session_id
        self._known = session_id
        self._start = given(system_prompt=system)
        self._options = options
        self._explains = sys.stdout.isatty() if explain is None else explain
        self._shows_guesses = explain is not None
        self._notes: set[str] = set()
        self._unstored: str | None = None
        """The last message until the server has stored it. /retry sends it again."""
        self.stopped = False
        """Whether the user stopped the last answer."""
        self.left = False
        """Whether a command ended the chat."""

    def converse(self) -> None:
        """Answer lines from a terminal until the user leaves. Report errors that another message can correct."""
        prompt = "> " if sys.stdout.isatty() else ""
        while not self.left:
            try:
                line = input(prompt)
            except (EOFError, KeyboardInterrupt):
                show()
                self.stopped = False
                return
            if line.strip() in _LEAVE:
                return
            try:
                self.say(line)
            except (InvalidInputError, NotReadyError, QueryCancelledError) as error:
                report(error)
            except UnavailableError as error:
                report(error)
                show("/retry asks again, and connects again if the connection was lost.", err=True)

    def say(self, message: str) -> None:
        """Print the answer to a message, or do what a command says. Ignore blank lines."""
        line = message.strip()
        if line.startswith("/") and line.count("/") == 1:
            if line not in _COMMANDS:
                raise InvalidInputError(f"unknown command {line[:_SHOWN]!r}: /help lists the commands")
            _COMMANDS[line](self)
        elif line:
            self._unstored = message
            self._reply(self._options)

    def help(self) -> None:
        """List the commands."""
        for name, command in _COMMANDS.items():
            show(f"{name:7} {command.__doc__}")
        show("A message that begins with / and has no other / is a command.")

    def retry(self) -> None:
        """Ask for the answer again. After a finished answer, forget it and draw another one."""
        if self._unstored is None and self._session_id is None:
            raise NotReadyError("no message waits for an answer", hint="Type a message.")
        draws = self._unstored is None and self._forgets_answer()
        self._reply(self._options | _VARIED if draws else self._options)

    def leave(self) -> None:
        """End the chat, as exit, quit and Ctrl-D do at a terminal."""
        self.left = True

    def farewell(self) -> None:
        """Print the command that continues a new conversation."""
        if self._session_id != self._known:
            show(f"Continue with: mindful chat --session {self._session_id}", err=True)

    def _reply(self, options: dict[str, Any]) -> None:
        self._print(self._answer(options))
        if not self.stopped:
            for answer in self._last_answer():
                self._conclude(answer)

    def _forgets_answer(self) -> bool:
        """Forget the last answer, if it follows the user's message. One that called tools stays."""
        turns = list(self._client._run(Call(_LAST, {"session_id": self._session_id}, list)))
        if [role for _, role in turns] not in (["assistant", "user"], ["clarification", "user"]):
            return False
        self._client.memory_forget(ids=[turns[0][0]])
        return True

    def _answer(self, options: dict[str, Any]) -> Generator[str, None, None]:
        if self._session_id is None:
            title = printable((self._unstored or "")[:60])
            self._session_id = self._client.session_start(title=title, **self._start)
        if self._unstored is not None:
            self._client.message_insert(self._session_id, "user", self._unstored)
            self._unstored = None
        if not self.stopped:
            yield from self._client.llm_chat_stream(None, session_id=self._session_id, **options)

    def _last_answer(self) -> list[_Answer]:
        try:
            rows = list(self._client._run(Call(_REST, {"session_id": self._session_id}, list)))
        except MindfulError as error:
            if error.sqlstate != _NO_TABLE:  # a router has functions only
                raise
            return []
        return [_Answer(*row) for row in rows]

    def _conclude(self, answer: _Answer) -> None:
        """Print whether an answer was cut, its memories, and its figures if they are calibrated or asked for."""
        if answer.cut_at is not None:
            show(f"[cut at {answer.cut_at} tokens; --max-tokens sets the limit]", err=True)
        if not self._explains:
            return
        count = f"{len(answer.memories)} {'memory' if len(answer.memories) == 1 else 'memories'}"
        if answer.calibrated:
            show(
                f"[{answer.action}; right {answer.probability:.0%}, confidence {answer.confidence:.2f}; {count}]",
                err=True,
            )
            show(f"  {probability_meaning(answer.probability, answer.action)}", err=True)
            self._note(CONFIDENCE)
        elif self._shows_guesses:
            show(f"[{answer.action}; confidence {answer.confidence:.2f}; {count}]", err=True)
            self._note(probability_meaning(answer.probability, "uncalibrated"))
        elif answer.memories:
            show(f"[{count}]", err=True)
        for content in answer.memories:
            line = " ".join(printable(content).split())
            show(f"  - {line if len(line) <= _SHOWN else line[:_SHOWN] + '...'}", err=True)

    def _note(self, text: str) -> None:
        """Print a sentence once per chat."""
        if text not in self._notes:
            self._notes.add(text)
            show(f"  {text}", err=True)

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
            if not self.stopped:  # for example by statement_timeout
                raise
        finally:
            if begun:
                show()
        if self.stopped:
            show("Stopped. /retry asks again.", err=True)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C cancel the answer. A KeyboardInterrupt within the protocol could break the connection."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self.stopped = True
            self._client.cancel()

        self.stopped = False
        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


_COMMANDS: dict[str, Callable[[_Talk], None]] = {
    "/help": _Talk.help,
    "/retry": _Talk.retry,
    "/quit": _Talk.leave,
    "/exit": _Talk.leave,
}
"""The commands of a chat. Their docstrings are the help."""
