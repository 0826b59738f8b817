"""What the model is shown, and why: core memories, counts of tokens, and the memories that were shown."""

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, Connect, one
from support.deletion import delete


def parts(connection: psycopg.Connection, message: str = "Hello?") -> list[tuple[str, str, str]]:
    return connection.execute(
        "select part, content, reason from session_context(session_start(), %s)", (message,)
    ).fetchall()


def remember(connection: psycopg.Connection, content: str, metadata: dict[str, object]) -> int:
    row = connection.execute(
        "select memory_insert(%s, metadata => %s)", (content, Jsonb(metadata))
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_core_memories_are_shown_with_every_message(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    remember(ana, "I am allergic to nuts.", {"core": True})
    remember(ana, "I like jazz.", {"core": False})
    remember(ana, "I like tea.", {"core": "yes"})
    past = remember(ana, "I live in Porto.", {"core": True})
    ana.execute("update memory set valid_to = now() - interval '1 day' where id = %s", (past,))
    core = ("core", "I am allergic to nuts.", "its metadata say core")
    assert [part for part in parts(ana) if part[0] == "core"] == [core]
    assert parts(ana)[0][0] == "system"
    assert [part for part in parts(bob) if part[0] == "core"] == []
    ana.execute("select setting_set('core_memory_tokens', '0')")
    assert [part for part in parts(ana) if part[0] == "core"] == []


def test_the_most_important_core_memory_goes_first_and_is_not_recalled_beside(
    ana: psycopg.Connection,
) -> None:
    remember(ana, "The door code is 17.", {"core": True})
    first = remember(ana, "The alarm code is 42.", {"core": True})
    ana.execute("update memory set importance = 0.9 where id = %s", (first,))
    shown = [part[:2] for part in parts(ana, "What is the alarm code?")]
    assert shown[1:-1] == [("core", "The alarm code is 42."), ("core", "The door code is 17.")]


@pytest.mark.smoke
def test_core_memories_are_found_by_their_index(ana: psycopg.Connection) -> None:
    ana.execute("select memory_insert('I like jazz.') from generate_series(1, 3)")
    ana.execute("set enable_seqscan = off")
    ana.execute("set plan_cache_mode = force_generic_plan")
    plan = ana.execute(
        """explain select id from memory
           where tenant = (select _mindful.tenant()) and metadata -> 'core' = 'true' order by importance desc, id"""
    ).fetchall()
    assert any("memory_core" in line for (line,) in plan), plan


def test_the_tokens_are_those_of_the_prompt(brief: str, ana: psycopg.Connection) -> None:
    remember(ana, "I am allergic to nuts.", {"core": True})
    ana.execute("select memory_insert('The alarm code is 42.')")
    row = ana.execute("select session_start()").fetchone()
    assert row is not None
    said = [
        {"role": ("user", "assistant")[at % 2], "content": f"Number {at}, said in words."} for at in range(36)
    ]
    ana.execute("select message_insert_many(%s, %s)", (row[0], Jsonb(said)))
    ana.execute("select session_summarize(%s)", row)
    told = ana.execute(
        "select part, tokens from session_context(%s, 'What is the alarm code?')", row
    ).fetchall()
    assert {part for part, _ in told} == {"system", "core", "summary", "memory", "turn", "message"}
    detail = ana.execute(
        "select prompt_tokens from llm_chat_detail('What is the alarm code?', %s, max_tokens => 1)", row
    ).fetchone()
    assert detail is not None
    counted = sum(tokens for _, tokens in told)
    # Counted is at most: the template's own tokens, and the layout's around memories, which are no part.
    assert detail[0] - 12 <= counted <= detail[0] * 1.25


def test_what_was_shown_is_counted(ana: psycopg.Connection, connect: Connect) -> None:
    known = remember(ana, "The alarm code is 42.", {})
    accesses = "select id, access_count from memory_access"
    ask = "select llm_chat('What is the alarm code?', model => %s)"
    parts(ana, "What is the alarm code?")
    assert ana.execute(accesses).fetchall() == []
    ana.execute(ask, (SCRIPTED_GENERATOR,))
    assert ana.execute(accesses).fetchall() == [(known, 1)]
    ana.execute(ask, (SCRIPTED_GENERATOR,))
    assert (known, 2) in ana.execute(accesses).fetchall()
    with ana.transaction():
        ana.execute("update memory_access set last_accessed_at = now()")
        other = connect("ana")
        other.execute("set lock_timeout = '1s'")
        other.execute(ask, (SCRIPTED_GENERATOR,))  # waits for nobody
    assert (known, 2) in ana.execute(accesses).fetchall()


def test_a_turn_that_was_rolled_back_is_shown_to_nobody(brief: str, ana: psycopg.Connection) -> None:
    """The connection that computed it holds its tokens still: what is shown comes from the table."""
    row = ana.execute("select session_start()").fetchone()
    assert row is not None
    ana.execute("select llm_chat('I like tea.', %s, max_tokens => 4)", row)
    with ana.transaction(force_rollback=True):
        ana.execute("select llm_chat('The code is 4711, keep it.', %s, max_tokens => 4)", row)
    shown = ana.execute("select content from session_context(%s, 'What is the code?')", row).fetchall()
    assert not [content for (content,) in shown if "4711" in content]
    counted = "select (llm_chat_detail('What is it?', %s, max_tokens => 1)).prompt_tokens"
    with ana.transaction(force_rollback=True):
        warm = ana.execute(counted, row).fetchone()
    ana.execute("select model_unload()")
    assert ana.execute(counted, row).fetchone() == warm


def test_a_memory_that_is_being_forgotten_ends_no_chat(connect: Connect) -> None:
    first, second = connect("ana"), connect("ana")
    gone = remember(first, "The bicycle is in the shed.", {})
    with first.transaction():
        delete(first, "memory")
        second.execute("set lock_timeout = '200ms'")
        second.execute("select _mindful.memory_shown(array[%s]::bigint[])", (gone,))
    second.execute("select _mindful.memory_shown(array[%s]::bigint[])", (gone,))
    assert one(first, "select count(*) from memory_access") == 0
