"""The command line as a person meets it: keys in, a screen out, through a pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Connect
from support.clock import Deadline

STORY = "Tell me a long story about a fox that wants to cross a river."
STOPPED = r"Stopped\. /retry asks again\.\r\n"
PROMPT = r"> "
WORDS = r"(\w+[,.]? ){4}"
# Ctrl-C is a signal only from the terminal that controls the process.
LAUNCH = (
    "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from mindful_client.cli import main; main()"
)


class Terminal:
    """A command in a pseudo-terminal of its own."""

    def __init__(self, dsn: str, *arguments: str) -> None:
        self._screen, inner = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *arguments],
            env={"MINDFUL_HISTORY": "", **os.environ, "MINDFUL_DSN": dsn, "TERM": "dumb"},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            # A background job of a shell without a terminal ignores SIGINT, and its children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(inner)
        self._unread = ""

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def shows(self, pattern: str, seconds: float = 60) -> str:
        """Wait until the screen shows a pattern, and return what led up to it."""
        deadline = Deadline(seconds)
        while not (found := re.search(pattern, self._unread, re.DOTALL)):
            ready, _, _ = select.select([self._screen], [], [], deadline.left_s)
            assert ready, f"{pattern!r} is not in {self._unread!r}"
            self._unread += self._read()
        shown, self._unread = self._unread[: found.start()], self._unread[found.end() :]
        return shown

    def running(self) -> bool:
        return self._process.poll() is None

    def ends(self) -> int:
        return self._process.wait(60)

    def interrupted(self) -> int:
        """Press Ctrl-C until the command ends, as a person would.

        CPython's readline misses a signal that arrives between reading a key and waiting for the next.
        """
        for _ in range(60):
            self.press("\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(1)
        return self.ends()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._screen)

    def _read(self) -> str:
        try:
            return os.read(self._screen, 65536).decode()
        except OSError as error:  # Linux's way to say that the command has ended
            raise AssertionError(f"it ended, having shown {self._unread!r}") from error


Open = Callable[..., Terminal]


@pytest.fixture
def mindful(dsn_of: Mapping[str, str], quick: None) -> Iterator[Open]:
    with ExitStack() as opened:

        def open_terminal(*arguments: str) -> Terminal:
            terminal = Terminal(dsn_of["ana"], *arguments)
            opened.callback(terminal.close)
            return terminal

        yield open_terminal


@pytest.fixture
def scripted_answers(db: psycopg.Connection) -> None:
    """A script answers where it does not matter what is said."""
    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))


def said(connection: psycopg.Connection) -> list[str]:
    return [role for (role,) in connection.execute("select role from conversation order by session_id, turn")]


def wait_for(connection: psycopg.Connection, condition: LiteralString) -> None:
    """Wait until the command's connection is in a state."""
    deadline = Deadline()
    query = "select from pg_stat_activity where application_name = 'mindful_client' and "
    while not connection.execute(query + condition).rowcount:
        assert not deadline.passed()


def test_an_answer_is_shown_while_it_is_made(
    mindful: Open, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    def generated() -> bool:
        # A sequence moves outside of transactions, and this one does after a generation's last token.
        return db.execute("select is_called from generation_id_seq").fetchone() == (True,)

    terminal = mindful("chat", STORY)
    terminal.shows(f"(?={WORDS})")
    assert not generated()
    answer = terminal.shows("Continue with: mindful chat --session ")
    assert generated()
    assert said(ana) == ["user", "assistant"]
    (stored,) = ana.execute("select content from conversation where role = 'assistant'").fetchone() or ("",)
    assert stored
    assert answer.replace("\r\n", "\n").lstrip().startswith(f"{stored}\n")  # what is known of it follows
    assert terminal.ends() == 0


def test_ctrl_c_stops_an_answer_and_retry_asks_again(
    mindful: Open, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    terminal = mindful("chat", "--no-explain")
    terminal.shows(PROMPT)
    terminal.press(f"{STORY}\r")
    terminal.shows(re.escape(f"{STORY}\r\n") + WORDS)
    terminal.press("\x03")
    terminal.shows(STOPPED + PROMPT)
    assert said(ana) == ["user"]

    terminal.press("/retry\r")
    terminal.shows(WORDS)
    terminal.press("\x03\x03\x03")
    terminal.shows(STOPPED + PROMPT)
    assert said(ana) == ["user"]

    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))  # its answer is soon at its end
    terminal.press("/retry\r")
    terminal.shows(r"/retry\r\n")
    answer = terminal.shows(r"\r\n" + PROMPT)
    stored = ana.execute("select content from conversation where role = 'assistant'").fetchone()
    assert stored == (answer.replace("\r\n", "\n").strip(),)
    terminal.press("\x04")
    terminal.shows("Continue with: mindful chat --session ")
    assert terminal.ends() == 0


def test_ctrl_c_before_the_first_word_stops_too(mindful: Open, ana: psycopg.Connection) -> None:
    row = ana.execute("select session_start()").fetchone()
    assert row is not None
    ana.execute("select message_insert(%s, 'user', %s)", (row[0], "word " * 1500))
    terminal = mindful("chat", "--session", str(row[0]), "/retry")
    wait_for(ana, "state = 'active' and query like 'FETCH %'")
    terminal.press("\x03")
    assert re.search(r"\w{2}", terminal.shows(STOPPED)) is None
    assert terminal.ends() == 130
    assert said(ana) == ["user"]


@pytest.mark.usefixtures("scripted_answers")
def test_ctrl_c_cancels_what_runs_on_the_server(
    mindful: Open, ana: psycopg.Connection, connect: Connect
) -> None:
    row = ana.execute("select session_start()").fetchone()
    assert row is not None
    terminal = mindful("chat", "--session", str(row[0]))
    terminal.shows(PROMPT)
    with connect("ana").transaction() as held:
        held.connection.execute("select from session for update")
        terminal.press("Hello.\r")
        wait_for(ana, "wait_event_type = 'Lock'")
        terminal.press("\x03")
        terminal.shows(STOPPED + PROMPT)
    assert said(ana) == []
    terminal.press("/retry\r")
    terminal.shows(r"/retry\r\n.+\r\n" + PROMPT)
    assert said(ana) == ["user", "assistant"]


def test_the_conversation_goes_on_after_an_error(mindful: Open, ana: psycopg.Connection) -> None:
    terminal = mindful("chat", "--memories", "99")
    terminal.shows(PROMPT)
    terminal.press("/retry\r")
    terminal.shows(r"mindful: no message waits for an answer\r\nHint: [^\n]+\n" + PROMPT)
    terminal.press("Hello.\r")
    terminal.shows(r"mindful: memories is 99\r\nHint: [^\n]+\n" + PROMPT)
    assert said(ana) == ["user"]
    assert terminal.running()


@pytest.mark.usefixtures("scripted_answers")
def test_figures_are_shown_of_calibrated_answers(mindful: Open, ana: psycopg.Connection) -> None:
    terminal = mindful("chat", "--memories", "0")
    terminal.shows(PROMPT)
    terminal.press("Hello.\r")
    assert terminal.shows(r"\r\n" + PROMPT) == "Hello.\r\nI do not know."
    ana.execute(
        """insert into calibrator (model, with_memory, signal_tier, features, means, scales, weights, intercept, labels,
               wrong, metrics, last_outcome, adopted)
           values (%s, false, 0, '{}', '{}', '{}', '{}', ln(3), 100, 25, '{}', 1, true)""",
        (SCRIPTED_GENERATOR,),
    )
    terminal.press("Hello.\r")
    terminal.shows(r"\[flag; right 75%, confidence 0\.\d\d; 0 memories\]\r\n  Of 100 answers with 75%, ")


@pytest.mark.usefixtures("scripted_answers")
def test_the_conversation_goes_on_after_the_connection_was_lost(
    mindful: Open, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    terminal = mindful("chat")
    terminal.shows(PROMPT)
    terminal.press("Hello.\r")
    terminal.shows(r"Hello\.\r\n.+\r\n" + PROMPT)
    ended = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'mindful_client'"
    assert db.execute(ended + " and datname = current_database()").fetchall() == [(True,)]
    terminal.press("And of Spain?\r")
    terminal.shows(
        r"\nmindful: [^\n]+\n(Hint: [^\n]+\n)?/retry asks again, and connects again[^\n]+\n" + PROMPT
    )
    assert said(ana) == ["user", "assistant"]
    terminal.press("/retry\r")
    terminal.shows(r"/retry\r\n.+\r\n" + PROMPT)
    assert said(ana) == ["user", "assistant"] * 2
    assert ana.execute("select from session").rowcount == 1


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.usefixtures("scripted_answers")
def test_lines_of_earlier_chats_come_back_unless_none_are_kept(
    mindful: Open, ana: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    file = tmp_path / "state/history"
    monkeypatch.setenv("MINDFUL_HISTORY", str(file) if kept else "")
    for keys in ("Hello.\r", "\x1b[A\x1b[A\r" if kept else "Hello.\r"):
        terminal = mindful("chat")
        terminal.shows(PROMPT)
        terminal.press(keys)
        terminal.shows(r"Hello\.\r\n.+\r\n" + PROMPT)
        terminal.press("exit\r")
        assert terminal.ends() == 0
    assert said(ana) == ["user", "assistant"] * 2
    assert file.exists() == kept
    if kept:
        assert file.read_text().splitlines() == ["Hello.", "exit", "Hello.", "exit"]
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("word", ["exit", "quit", " quit ", "/exit", "/quit"])
def test_a_word_leaves(mindful: Open, ana: psycopg.Connection, word: str) -> None:
    terminal = mindful("chat")
    terminal.shows(PROMPT)
    terminal.press(f"{word}\r")
    assert terminal.ends() == 0
    assert said(ana) == []


def test_help_lists_the_commands_and_an_unknown_one_is_no_message(
    mindful: Open, ana: psycopg.Connection
) -> None:
    terminal = mindful("chat")
    terminal.shows(PROMPT)
    terminal.press("/hlep\r")
    terminal.shows(r"mindful: unknown command '/hlep': /help lists the commands\r\n" + PROMPT)
    terminal.press("/help\r")
    terminal.shows(r"/help\r\n")
    assert re.findall(r"^/\w+", terminal.shows(r"\n" + PROMPT), re.MULTILINE) == [
        "/help",
        "/retry",
        "/quit",
        "/exit",
    ]
    assert said(ana) == []


def test_ctrl_c_at_the_prompt_leaves(mindful: Open) -> None:
    terminal = mindful("chat")
    terminal.shows(PROMPT)
    terminal.press("half a message")
    terminal.shows("half a message")
    assert terminal.interrupted() == 0


@pytest.mark.usefixtures("scripted_answers")
def test_the_line_can_be_edited(mindful: Open, ana: psycopg.Connection) -> None:
    terminal = mindful("chat")
    terminal.shows(PROMPT)
    terminal.press("ello.\x01H\r")
    terminal.shows(r"\r\n.+\r\n" + PROMPT)
    terminal.press("\x04")
    terminal.shows("Continue with")
    assert ana.execute("select content from conversation where turn = 1").fetchall() == [("Hello.",)]
