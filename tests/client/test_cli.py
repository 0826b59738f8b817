"""The command line, with a scripted model as the default where an answer is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version

import psycopg
import pytest
from click.testing import CliRunner
from mindful_client.cli import main
from mindful_client.cli.label import described
from mindful_client.types import CalibrationDetail
from support import EMBEDDER, SCRIPTED_GENERATOR
from support.command import Command

QUESTION = "What is the capital of France?"
REPLY = "The capital of France is Paris."


@pytest.fixture
def scripted(quick: None, db: psycopg.Connection) -> None:
    """Let a script answer. The real embedder tells what a question is about: the scripted one knows no meanings."""
    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    db.execute("select model_default_set(%s, force => true)", (EMBEDDER,))


def said(connection: psycopg.Connection) -> list[tuple[str, str]]:
    return connection.execute("select role, content from conversation order by session_id, turn").fetchall()


@pytest.mark.smoke
def test_what_is_remembered_is_recalled(mindful: Command) -> None:
    assert mindful("remember", "The cat is called Tom.").stdout == "1\n"
    assert mindful("remember", "-", input="Lisbon lies\nby the sea.\n").stdout == "2\n"
    shown = mindful("recall", "sea", "-k", "1").stdout
    assert shown.startswith("0.94  fact, ")  # a perfect match (0.25 + 0.65), and more for being new
    assert shown.endswith(", id 2\n  Lisbon lies\n  by the sea.\n")
    (found,) = json.loads(mindful("recall", "cat", "-k", "1", "--json").stdout)
    assert (found["id"], found["content"], found["session_id"]) == (1, "The cat is called Tom.", None)


def test_nothing_found_prints_nothing(mindful: Command) -> None:
    found = mindful("recall", "cat")
    assert (found.exit_code, found.stdout, found.stderr) == (0, "", "No memory matches.\n")
    assert mindful("recall", "cat", "--json").stdout == "[]\n"


def test_memories_are_forgotten_by_id(mindful: Command, ana: psycopg.Connection) -> None:
    for text in ("The cat is called Tom.", "Lisbon lies by the sea."):
        mindful("remember", text)
    tried = mindful("forget", "--dry-run", "1")
    assert (tried.exit_code, tried.stderr) == (0, "Nothing was deleted.\n")
    assert "     1  memory deleted\n" in tried.stdout
    deleted = mindful("forget", "1")
    assert (deleted.stdout, deleted.stderr) == (tried.stdout, "Receipt 1.\n")
    assert ana.execute("select content from memory").fetchall() == [("Lisbon lies by the sea.",)]
    assert mindful("forget").exit_code == 2
    assert "there is no memory 99" in mindful("forget", "99").stderr


def test_conversations_are_listed_and_forgotten(mindful: Command, ana: psycopg.Connection) -> None:
    (session,) = ana.execute("select session_start('Tea')").fetchone() or ()
    ana.execute("select message_insert(%s, 'user', 'I like tea.')", (session,))
    listed = mindful("sessions").stdout
    assert listed.startswith(f"{session}  ")
    assert listed.endswith("  Tea\n")
    (row,) = json.loads(mindful("sessions", "--json").stdout)
    assert (row["title"], row["messages"]) == ("Tea", 1)
    assert mindful("forget", "--session", str(session)).exit_code == 0
    assert mindful("sessions").stdout == ""


@pytest.mark.usefixtures("scripted")
def test_a_message_is_answered_and_the_conversation_continued(
    mindful: Command, ana: psycopg.Connection
) -> None:
    first = mindful("chat", "--system", "Be brief.", QUESTION)
    assert (first.exit_code, first.stdout) == (0, f"{REPLY}\n")
    session_id = first.stderr.removeprefix("Continue with: mindful chat --session ").strip()
    assert ana.execute("select session_id::text, system_prompt, title from session").fetchall() == [
        (session_id, "Be brief.", QUESTION)
    ]
    again = mindful("chat", "--session", session_id, "--memories", "0", "Sure?")
    assert (again.exit_code, again.stderr) == (0, "")
    assert [role for role, _ in said(ana)] == ["user", "assistant"] * 2


@pytest.mark.usefixtures("scripted")
def test_what_is_known_of_an_answer_is_printed_on_request(mindful: Command, ana: psycopg.Connection) -> None:
    told = REPLY
    ana.execute("select memory_insert(%s)", (told,))
    answered = mindful("chat", "--explain", QUESTION)
    assert answered.stdout == f"{REPLY}\n"
    summary, meaning, memory, *_ = answered.stderr.splitlines()
    assert re.fullmatch(r"\[uncalibrated; confidence \d\.\d\d; 1 memory\]", summary)
    assert meaning.startswith("  Such answers are not calibrated yet: ")
    assert len(meaning) <= 100
    assert memory == f"  - {told}"
    twice = mindful("chat", "--explain", input=f"{QUESTION}\n{QUESTION}\n").stderr
    assert twice.count("[uncalibrated; ") == 2
    assert twice.count("not calibrated yet") == 1


@pytest.mark.usefixtures("scripted")
def test_an_answer_that_was_cut_is_marked(mindful: Command) -> None:
    cut = mindful("chat", "--max-tokens", "3", QUESTION)
    assert cut.exit_code == 0
    assert REPLY.startswith(cut.stdout.strip())
    assert "[cut at 3 tokens; --max-tokens sets the limit]\n" in cut.stderr
    assert "[cut at" not in mindful("chat", QUESTION).stderr


@pytest.mark.usefixtures("scripted")
def test_every_line_of_a_pipe_is_a_message(mindful: Command, ana: psycopg.Connection) -> None:
    result = mindful("chat", input=f"Hello.\n\n{QUESTION}\n")
    assert (result.exit_code, result.stdout) == (0, f"I do not know.\n{REPLY}\n")
    assert said(ana) == [
        ("user", "Hello."),
        ("assistant", "I do not know."),
        ("user", QUESTION),
        ("assistant", REPLY),
    ]


@pytest.mark.usefixtures("scripted")
def test_a_line_with_another_slash_is_a_message_and_quit_ends_a_pipe(
    mindful: Command, ana: psycopg.Connection
) -> None:
    result = mindful("chat", input="/etc/hosts is a file.\n/quit\nHello.\n")
    assert (result.exit_code, result.stdout) == (0, "I do not know.\n")
    assert said(ana) == [("user", "/etc/hosts is a file."), ("assistant", "I do not know.")]


@pytest.mark.parametrize("line", ["/hlep", "/retry now", "/etc is a folder."])
@pytest.mark.shares
def test_an_unknown_command_is_an_error_of_one_line(mindful: Command, line: str) -> None:
    result = mindful("chat", line)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"mindful: unknown command '{line}': /help lists the commands\n"


@pytest.mark.usefixtures("scripted")
def test_a_waiting_message_is_asked_again(mindful: Command, ana: psycopg.Connection) -> None:
    row = ana.execute("select session_start()").fetchone()
    assert row is not None
    session_id = str(row[0])
    ana.execute("select message_insert(%s, 'user', %s)", (session_id, QUESTION))
    assert mindful("chat", "--session", session_id, "/retry").stdout == f"{REPLY}\n"
    assert said(ana) == [("user", QUESTION), ("assistant", REPLY)]


@pytest.mark.usefixtures("scripted")
def test_a_finished_answer_is_drawn_again(mindful: Command, ana: psycopg.Connection) -> None:
    told = mindful("chat", QUESTION)
    assert told.stdout == f"{REPLY}\n"
    (session_id,) = re.findall(r"--session (\S+)", told.stderr)
    (first,) = ana.execute("select id from memory where role = 'assistant'").fetchone() or (None,)
    assert mindful("chat", "--session", session_id, "/retry").stdout == f"{REPLY}\n"
    assert said(ana) == [("user", QUESTION), ("assistant", REPLY)]
    assert ana.execute("select id from memory where id = %s", (first,)).fetchone() is None
    assert ana.execute("select temperature > 0 from generation").fetchall() == [(True,)]
    ana.execute("select message_insert(%s, 'assistant', 'By the way.')", (session_id,))
    again = mindful("chat", "--session", session_id, "/retry")
    assert again.exit_code == 1
    assert "no message that waits for an answer" in again.stderr
    assert said(ana)[1:] == [("assistant", REPLY), ("assistant", "By the way.")]


def test_status_tells_whose_memories_these_are(mindful: Command, ana: psycopg.Connection) -> None:
    lines = dict(line.split(None, 1) for line in mindful("status").stdout.splitlines())
    assert lines["tenant"] == ana.info.user
    assert lines["private"].endswith(" MB")
    assert lines["models"] == "none loaded by this connection"


def test_the_version_is_the_distributions() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"mindful {version('pg-mindful')}\n"


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (("recall", "x", "-k", "0"), None, "k is 0"),
        (("remember", ""), None, "content is empty"),
        (("remember", "-"), b"a\0b", "content contains NUL at character 2"),
        (("remember", "-"), b"caf\xe9", "content contains a lone surrogate at character 4"),
        (("chat",), b"caf\xe9\n", "content contains a lone surrogate at character 4"),
        (("chat", "/retry"), None, "no message waits for an answer"),
        (("chat", "--memories", "99", "hi"), None, "memories is 99"),
        (("chat", "--session", "00000000-0000-0000-0000-000000000000", "hi"), None, "there is no session "),
    ],
)
@pytest.mark.shares
def test_an_error_is_one_line_and_a_hint(
    mindful: Command, arguments: tuple[str, ...], text: bytes | None, message: str
) -> None:
    result = mindful(*arguments, input=text)
    assert (result.exit_code, result.stdout) == (1, "")
    error, hint, *rest = [line for line in result.stderr.splitlines() if not line.startswith("Continue")]
    assert error.startswith(f"mindful: {message}")
    assert hint.startswith("Hint: ")
    assert rest == []


@pytest.mark.parametrize("dsn", ["host=/nonexistent", "nonexistent"])
def test_no_server_is_an_error_that_names_the_option(dsn: str) -> None:
    result = CliRunner().invoke(main, ["--dsn", dsn, "status"], env={"MINDFUL_DSN": "host=/other"})
    error, hint = result.stderr.splitlines()
    assert result.exit_code == 1
    assert "nonexistent" in error
    assert hint.endswith("Check MINDFUL_DSN or --dsn, such as 'host=localhost dbname=app'.")


def test_a_system_prompt_is_for_new_conversations(mindful: Command) -> None:
    result = mindful("chat", "--session", "00000000-0000-0000-0000-000000000000", "--system", "x", "hi")
    assert result.exit_code == 2


def test_what_is_shown_cannot_steer_the_terminal(mindful: Command, ana: psycopg.Connection) -> None:
    ana.execute(
        "select memory_insert(E'A red \\x1b[31mcat\\u009b2J.', source => E'\\x1b]0;title', source_key => '1')"
    )
    shown = mindful("recall", "cat").stdout
    assert "A red \N{REPLACEMENT CHARACTER}[31mcat\N{REPLACEMENT CHARACTER}2J." in shown
    assert "\x1b" not in shown


def test_libpqs_variables_are_enough(dsn_of: Mapping[str, str], ana: psycopg.Connection) -> None:
    names = {
        "host": "PGHOST",
        "port": "PGPORT",
        "user": "PGUSER",
        "password": "PGPASSWORD",
        "dbname": "PGDATABASE",
    }
    given = psycopg.conninfo.conninfo_to_dict(dsn_of["ana"])
    env: dict[str, str | None] = {
        variable: str(given[name]) for name, variable in names.items() if name in given
    }
    result = CliRunner().invoke(main, ["status"], env=env | {"MINDFUL_DSN": None})
    assert (result.exit_code, f"{ana.info.user}\n" in result.stdout) == (0, True)


def test_a_reader_that_leaves_ends_it_quietly(dsn_of: Mapping[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mindful_client", "chat", "Tell me a long story."],
        env=os.environ | {"MINDFUL_DSN": dsn_of["ana"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait() == 1
    assert errors.startswith("Continue with: mindful chat --session ")
    assert errors.count("\n") == 1


def test_answers_are_labeled_by_id_or_one_after_the_other(
    scripted: None, mindful: Command, ana: psycopg.Connection
) -> None:
    for question in (QUESTION, "And of Spain?"):
        mindful("chat", question)
    (first,) = ana.execute(
        "select min(message_id) from conversation where role = 'assistant'"
    ).fetchone() or (0,)
    assert mindful("label", str(first), "wrong", "--note", "It is Lyon.").exit_code == 0
    asked = mindful("label", input="right\n")
    assert (asked.exit_code, asked.stderr) == (0, "1 answer labeled.\n")
    assert "And of Spain?\n" in asked.stdout
    assert ana.execute("select correct, note from outcome order by id").fetchall() == [
        (False, "It is Lyon."),
        (True, None),
    ]
    assert mindful("label", str(first)).exit_code == 2
    assert mindful("label", "999", "right").stderr.startswith("mindful: ")


@pytest.mark.usefixtures("scripted")
def test_a_letter_is_enough_for_a_label_and_q_quits(mindful: Command, ana: psycopg.Connection) -> None:
    for question in (QUESTION, "And of Spain?", "And of Italy?", "And of Norway?"):
        mindful("chat", question)
    asked = mindful("label", input="x\nW\ns\nr\nq\n")
    assert (asked.exit_code, asked.stderr.splitlines()[-1]) == (0, "2 answers labeled.")
    assert ana.execute("select correct from outcome order by id").fetchall() == [(False,), (True,)]


def test_calibrate_says_how_many_labels_lack(scripted: None, mindful: Command) -> None:
    mindful("chat", QUESTION)
    mindful("label", input="right\n")
    tried = mindful("calibrate", "--error-budget", "0.2")
    assert tried.exit_code == 1
    assert "30 labels are needed" in tried.stderr
    assert mindful("calibrate", "--error-budget", "7").exit_code == 1


def test_a_calibration_is_one_line() -> None:
    shown = described(
        CalibrationDetail(
            model="small", ways=[], second_model=None, with_memory=True, signal_tier=0, labels=120, wrong=30,
            calibrator_id=1, threshold_id=1, status="certified", threshold=0.8312, bound=0.09, coverage=0.4,
            metrics={}, reason="", budget=0.2, delta_spent=0.1, more_labels=None, ladder=[],
        )
    )  # fmt: skip
    assert shown == (
        "small with memories, tier 0: certified (120 labels, 30 wrong, threshold 0.83, coverage 40%)"
    )
