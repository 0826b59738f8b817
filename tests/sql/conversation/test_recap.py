"""Summaries of what has left the window: what they cover, that they are true to it, and that they go with it."""

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, Connect, fails
from support.deletion import delete

pytestmark = pytest.mark.usefixtures("scripted")


def told(connection: psycopg.Connection, turns: int, words: str = "") -> str:
    """A session with so many turns."""
    row = connection.execute("select session_start()").fetchone()
    assert row is not None
    said = [
        {
            "role": ("user", "assistant")[at % 2],
            "content": f"In {2000 + at} I met Clara{at} in Porto. {words}",
        }
        for at in range(1, turns + 1)
    ]
    connection.execute("select message_insert_many(%s, %s)", (row[0], Jsonb(said)))
    return str(row[0])


def summaries(connection: psycopg.Connection) -> list[tuple[str, str]]:
    return connection.execute(
        "select source_key, metadata ->> 'method' from memory where kind = 'summary' order by id"
    ).fetchall()


@pytest.mark.smoke
def test_each_ten_turns_are_summarized_once(ana: psycopg.Connection) -> None:
    session = told(ana, 25)
    made = "select session_summarize(%s)"
    assert ana.execute(made, (session,)).fetchone() == (2,)
    assert sorted(summaries(ana)) == [("turns 1 to 10", "extract"), ("turns 11 to 20", "extract")]
    assert ana.execute(made, (session,)).fetchone() == (0,)


@pytest.mark.smoke
def test_a_summary_quotes_every_turn_that_it_covers(ana: psycopg.Connection) -> None:
    ana.execute("select session_summarize(%s)", (told(ana, 10),))
    rows = ana.execute(
        """select t.turn, position(e.quote in t.content) > 0
           from memory_evidence e join memory s on s.id = e.id join memory t on t.id = e.source_id
           where s.kind = 'summary' order by 1"""
    ).fetchall()
    assert sorted({turn for turn, _ in rows}) == list(range(1, 11))
    assert all(quoted for _, quoted in rows)
    row = ana.execute("select content from memory where kind = 'summary'").fetchone()
    assert row is not None
    said = {line.split(": ", 1)[1] for line in row[0].splitlines()}
    assert said <= {quote for (quote,) in ana.execute("select quote from memory_evidence")}


def test_a_turn_that_shows_nothing_ends_no_chat(ana: psycopg.Connection) -> None:
    row = ana.execute("select session_start()").fetchone()
    assert row
    for blank in ("\u00a0", "\u3000", "\f", "\u200b", "\u2028\u00a0"):
        ana.execute("select message_insert(%s, 'assistant', %s)", (row[0], blank))
        ana.execute("select llm_chat(%s, %s, model => %s)", (blank, row[0], SCRIPTED_GENERATOR))
    assert len(summaries(ana)) == 1


def test_replies_keep_the_summaries_up(ana: psycopg.Connection) -> None:
    session = told(ana, 48)
    for _ in range(3):
        ana.execute("select llm_chat('And now?', %s, model => %s)", (session, SCRIPTED_GENERATOR))
    # Two a reply, the newest first.
    assert [key for key, _ in summaries(ana)] == [
        f"turns {first} to {first + 9}" for first in (41, 31, 21, 11, 1)
    ]
    parts = ana.execute(
        "select part, reason, content from session_context(%s, 'What now?', model => %s)",
        (session, SCRIPTED_GENERATOR),
    ).fetchall()
    first = next(reason for part, reason, _ in parts if part == "turn")
    shown = [reason for part, reason, _ in parts if part == "summary"]
    begins = int(first.split()[1])
    assert (
        shown
        == [f"turns {at} to {at + 9}, which left the window" for at in (1, 11, 21, 31, 41) if at < begins][
            -len(shown) :
        ]
    )
    assert shown


@pytest.mark.parametrize("method", ["off", "model"])
@pytest.mark.smoke
def test_replies_make_none_where_the_setting_says_so(ana: psycopg.Connection, method: str) -> None:
    ana.execute("select setting_set('session_summary', to_jsonb(%s::text))", (method,))
    ana.execute("select llm_chat('And now?', %s, model => %s)", (told(ana, 12), SCRIPTED_GENERATOR))
    assert summaries(ana) == []


@pytest.mark.parametrize(
    "statement",
    [
        "update memory set content = 'Nothing of it is true.' where turn = 3",
        "select _mindful.memory_delete(array_agg(id)) from memory where turn = 3",
    ],
)
def test_a_summary_goes_with_a_turn_that_changes_and_is_made_again(
    ana: psycopg.Connection, statement: str
) -> None:
    session = told(ana, 20)
    ana.execute("select session_summarize(%s)", (session,))
    ana.execute(statement.encode())
    assert summaries(ana) == [("turns 11 to 20", "extract")]
    assert ana.execute("select session_summarize(%s)", (session,)).fetchone() == (1,)
    again = ana.execute("select content from memory where source_key = 'turns 1 to 10'").fetchone()
    assert again is not None
    assert "Clara3" not in again[0]


def test_other_changes_leave_summaries_alone(ana: psycopg.Connection) -> None:
    ana.execute("select session_summarize(%s)", (told(ana, 10),))
    ana.execute("update memory set importance = 1")
    ana.execute("select memory_insert('A fact.')")
    delete(ana, "memory", "kind = 'fact'")
    assert len(summaries(ana)) == 1


def test_a_turn_that_changes_meanwhile_is_not_summarized(ana: psycopg.Connection, connect: Connect) -> None:
    """Another transaction rewrites a turn after it was read: the writer waits for it, sees it, and stores nothing."""
    session = told(ana, 10)
    hashes = ana.execute("select array_agg(content_hash order by turn) from memory").fetchone()
    ids = ana.execute("select array_agg(id order by turn) from memory").fetchone()
    assert hashes
    assert ids
    ana.execute("update memory set content = 'Rewritten.' where turn = 5")
    write = "select _mindful.recap_write(%s, 1, 10, 'user: x', 'extract', %s, %s, %s)"
    assert connect("ana").execute(write, (session, ids[0], hashes[0], ["q"] * 10)).fetchone() == (None,)
    assert summaries(ana) == []


@pytest.mark.parametrize(
    ("written", "method"),
    [
        ("They met Clara1 in Porto in 2001.", "model"),
        ("They met Barbara in Porto.", "extract"),
        ("They met in 1969.", "extract"),
        ("", "extract"),
    ],
)
@pytest.mark.smoke
def test_what_a_model_writes_must_name_what_was_said(
    ana: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection, written: str, method: str
) -> None:
    admin.execute(
        "select model_register('writer', 'generator', 'scripted', '', %s)", (Jsonb({"default": written}),)
    )
    admin.execute("select model_default_set('writer')")
    ana.execute("select session_summarize(%s, 'model')", (told(ana, 10),))
    row = ana.execute("select content, metadata ->> 'method' from memory where kind = 'summary'").fetchone()
    assert row is not None
    assert row[1] == method
    assert (row[0] == written) == (method == "model")


def test_a_session_without_a_summary_is_nobody_elses(
    ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    session = told(ana, 10)
    for connection, argument, method, sqlstate in (
        (bob, session, None, "42704"),
        (ana, None, None, "22004"),
        (ana, session, "poetry", "22023"),
    ):
        with fails(sqlstate):
            connection.execute("select session_summarize(%s, %s)", (argument, method))
    ana.execute("select session_summarize(%s)", (session,))
    for query in (
        "select id from _mindful.recap_shown(%s, 99)",
        "select id from _mindful.recap_turns(%s, 1, 10)",
        "select first from _mindful.recap_missing(%s, 10, 9)",
    ):
        assert bob.execute(query.encode(), (session,)).fetchall() == []
    with fails("42501", hint=None):
        bob.execute(
            "insert into memory (tenant, kind, content, session_id) values (%s, 'summary', 'planted', %s)",
            (ana.info.user, session),
        )


def test_a_summary_is_cancelled_with_its_call(ana: psycopg.Connection) -> None:
    session = told(ana, 40, "word " * 100)
    ana.execute("set statement_timeout = '100ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        ana.execute("select session_summarize(%s, 'model')", (session,))
    ana.execute("reset statement_timeout")
    assert summaries(ana) == []
