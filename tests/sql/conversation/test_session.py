"""Sessions: read one, list them, delete one."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import fails, one
from support.memories import contents, remember


@pytest.fixture(autouse=True)
def quick(scripted: None) -> None:
    """The embedder takes no time."""


def start(connection: psycopg.Connection, title: str, *messages: str) -> str:
    session = one(connection, "select session_start(%s, 'Be brief.')", title)
    for message in messages:
        connection.execute("select message_insert(%s, 'user', %s)", (session, message))
    return str(session)


def test_a_session_is_read_with_the_number_of_its_messages(ana: psycopg.Connection) -> None:
    session = start(ana, "Tea", "I like tea.", "Green tea.")
    start(ana, "Other", "Hello.")
    assert one(ana, "select title, system_prompt, messages, metadata from session_get(%s)", session) == (
        "Tea",
        "Be brief.",
        2,
        {},
    )
    times = "select last_message_at, (select max(created_at) from memory where session_id = %s) from session_get(%s)"
    last, newest = one(ana, times, session, session)
    assert last == newest
    assert one(ana, "select messages, last_message_at from session_get(%s)", start(ana, "New")) == (0, None)


def test_sessions_are_listed_newest_first_page_by_page(ana: psycopg.Connection) -> None:
    started = [start(ana, f"Talk {n}", *["Hi."] * n) for n in range(5)]
    rows = ana.execute("select session_id::text, messages from session_list()").fetchall()
    assert rows == [(session, n) for n, session in reversed(list(enumerate(started)))]
    page = "select session_id::text from session_list(%s, 2)"
    first = [row[0] for row in ana.execute(page, (None,))]
    second = [row[0] for row in ana.execute(page, (first[-1],))]
    third = [row[0] for row in ana.execute(page, (second[-1],))]
    assert first + second + third == started[::-1]


def test_sessions_that_were_started_at_once_are_each_listed_once(ana: psycopg.Connection) -> None:
    with ana.transaction():
        started = {start(ana, f"Talk {n}") for n in range(5)}
    seen: list[str] = []
    for _ in range(3):
        last = seen[-1] if seen else None
        seen += [row[0] for row in ana.execute("select session_id::text from session_list(%s, 2)", (last,))]
    assert (len(seen), set(seen)) == (5, started)


def test_a_deleted_session_goes_with_what_was_said_in_it(ana: psycopg.Connection) -> None:
    session = start(ana, "Tea", "I like tea.", "Green tea.")
    other = start(ana, "Other", "Hello.")
    fact = remember(ana, "I like tea.")
    count = "select sum(rows) from session_delete(%s, %s) where (relation, action) = (%s, 'deleted')"
    assert one(ana, count, session, True, "memory") == 2
    assert len(contents(ana)) == 4
    assert one(ana, count, session, False, "session") == 1
    assert ana.execute("select session_id::text from session_list()").fetchall() == [(other,)]
    assert contents(ana) == ["Hello.", "I like tea."]
    assert one(ana, "select content from memory_get(%s)", fact) == "I like tea."
    receipt = one(ana, "select max(id) from forget_receipt where scope = 'session'")
    assert one(ana, "select count(*) from memory_forget_check(%s) where finding = 'reference'", receipt) == 0


def test_another_tenants_session_is_not_found(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    session = start(ana, "Tea", "I like tea.")
    for call in ("session_get(%s)", "session_list(%s)", "session_delete(%s)"):
        with fails("42704"):
            bob.execute(f"select {call}", (session,))
    assert bob.execute("select * from session_list()").fetchall() == []
    assert contents(ana) == ["I like tea."]


def test_null_is_no_session(ana: psycopg.Connection) -> None:
    start(ana, "Tea", "I like tea.")
    with fails("42704"):
        ana.execute("select session_get(null)")
    with fails("22004"):
        ana.execute("select session_delete(null)")
    with fails("22023"):
        ana.execute("select session_list(max_count => 0)")
    assert contents(ana) == ["I like tea."]


def test_a_message_of_more_than_256_kib_is_kept_whole_and_found(ana: psycopg.Connection) -> None:
    filler = "The committee discussed the agenda of the next meeting at length.\n"
    long = filler * 3000 + "The spare key lies under the blue flowerpot.\n" + filler * 2500
    messages = [{"role": "user", "content": text} for text in ("Hello.", long, "Bye.")]
    ids = ana.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),)).fetchall()
    assert len(ids) == 3
    turns = ana.execute("select id, content, metadata from memory order by turn").fetchall()
    assert "".join(content for _, content, _ in turns[1:-1]) == long
    assert [metadata["part"] for _, _, metadata in turns[1:-1]] == list(range(1, len(turns) - 1))
    assert (turns[0][0], turns[1][0], turns[-1][0]) == tuple(number for (number,) in ids)
    assert turns[0][2] == {}
    found = ana.execute("select content from memory_recall('Where is the spare key?', k => 1)").fetchone()
    assert found is not None
    assert "blue flowerpot" in found[0]


def test_long_messages_have_bounds(ana: psycopg.Connection) -> None:
    for content in ("x" * 4_194_305, " " * 300_000):
        with fails("54000" if "x" in content else "22023"):
            ana.execute("select message_insert(session_start(), 'user', %s)", (content,))
    ana.execute("select message_insert(session_start(), 'user', %s)", ("x" * 300_000,))
    joined = ana.execute("select length(string_agg(content, '')) from memory").fetchone()
    assert joined == (300_000,)
