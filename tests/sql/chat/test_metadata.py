"""Callers supply metadata: whatever they hold, no function that reads them fails."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR
from support.query import one

KEYS = (
    "chunk",
    "clarification",
    "confidence",
    "core",
    "fingerprint",
    "from_turn",
    "memory_ids",
    "model",
    "question",
    "reply_to",
    "scope",
    "shown_from",
    "speaker",
    "title",
    "to_turn",
)
"""Keys that the project reads. test_clarification.py has hostile values of what a clarification stores."""
VALUES: tuple[object, ...] = ("msg-abc", -1, 1.5, None, ["a"], [None, {}, [1], 1.5, -1, 1e30], {})
ANSWER = "select answer_label(%s, false, 'It is Tom.')"
QUESTION = "What is the name of my cat?"
READERS = (
    "select * from session_context(%(session)s, %(question)s, 'scripted')",
    "select llm_chat(%(question)s, %(session)s, model => 'scripted')",
    "select llm_chat(%(question)s, model => 'scripted')",
    "select llm_chat('What do you know about me?', model => 'scripted')",
    "select self_review(id, 'scripted') from memory where role = 'assistant' and session_id = %(session)s",
    "select session_summarize(%(session)s, 'extract')",
    "select * from session_get(%(session)s)",
    "select * from session_list()",
    "select * from conversation",
    "select * from decision_log",
    "select * from label_queue",
    "select * from memory_recall(%(question)s, 20, scope => 'home')",
    "select * from memory_list()",
    "select * from document_list()",
    "select * from document",
    "select * from memory_export()",
    "select * from memory_forget_check(ids => %(ids)s)",
    "select * from memory_forget(ids => %(ids)s, dry_run => true)",
    "select replay_run('scripted', '{\"level\": \"data\"}')",
    "select memory_consolidate()",
)
READ = """
    select (regexp_matches(pg_get_functiondef(p.oid), %(key)s, 'g'))[1] from pg_proc p
    where p.pronamespace in ('mindful'::regnamespace, '_mindful'::regnamespace) and p.prokind in ('f', 'p')
    union
    select (regexp_matches(pg_get_viewdef(c.oid), %(key)s, 'g'))[1] from pg_class c
    where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'v'
    order by 1"""
CODE = Path(__file__).parents[3] / "plpy" / "src" / "mindful"


@pytest.mark.shares
def test_every_key_that_is_read_is_tried(db: psycopg.Connection) -> None:
    key = r"metadata (?:->>?|\?) '([a-z_]+)'"
    read = {name for (name,) in db.execute(READ, {"key": key})}
    for path in CODE.rglob("*.py"):
        read.update(re.findall(key, path.read_text(encoding="utf-8")))
    assert read == set(KEYS)


def fill(user: psycopg.Connection) -> dict[str, object]:
    """Give a user a labeled answer and a memory of each kind."""
    user.execute("select setting_set('training_consent', 'true')")
    session = one(user, "select session_start()")
    answer = one(
        user, "select message_id from llm_chat_detail(%s, %s, model => 'scripted')", QUESTION, session
    )
    user.execute(ANSWER, (answer,))
    user.execute("select memory_insert('My cat is called Tom.')")
    user.execute("select document_insert('The cat of the house.', 'cats.md')")
    user.execute(
        "insert into memory (kind, content, session_id) values ('summary', 'A cat.', %s)", (session,)
    )
    ids = one(user, "select array_agg(id) from memory where kind = 'fact'")
    return {"session": session, "question": QUESTION, "ids": ids}


@pytest.mark.shares
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_no_reader_fails(
    value: object, db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select training_configure('scripted', 'chat')")
    given = fill(ana)
    hostile = Jsonb(dict.fromkeys(KEYS, value))
    ana.execute("update session set metadata = %s", (hostile,))
    for reader in READERS:
        ana.execute("update memory set metadata = %s", (hostile,))
        ana.execute(reader.encode(), given)
    lines = one(ana, "select jsonb_agg(line) from memory_export() line")
    bob.execute("select memory_import(%s)", (Jsonb(lines),))
    ana.execute("select memory_forget(everything => true)")
    assert one(ana, "select count(*) from memory") == 0


@pytest.mark.parametrize(
    "metadata", [{"reply_to": "msg-abc"}, {"memory_ids": "x"}, {"memory_ids": ["a"]}, {"reply_to": 1e30}]
)
@pytest.mark.smoke
def test_an_answer_of_a_caller_is_reviewed_and_learned_from(
    metadata: dict[str, object], db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    session = one(ana, "select session_start()")
    ana.execute("select message_insert(%s, 'user', %s)", (session, QUESTION))
    answer = one(ana, "select message_insert(%s, 'assistant', 'Rex.', %s)", session, Jsonb(metadata))
    assert one(ana, "select question, memories from _mindful.review_subject(%s)", answer) == (QUESTION, [])
    ana.execute("select self_review(%s, %s)", (answer, SCRIPTED_GENERATOR))
    labeled = one(
        ana, "select message_id from llm_chat_detail('How is the weather?', model => %s)", SCRIPTED_GENERATOR
    )
    ana.execute(ANSWER, (labeled,))
    ana.execute("select llm_chat(%s, model => %s)", (QUESTION, SCRIPTED_GENERATOR))


def test_reply_to_names_a_question_of_its_own_session_alone(ana: psycopg.Connection) -> None:
    first, second = (one(ana, "select session_start()") for _ in range(2))
    other = one(ana, "select message_insert(%s, 'user', 'Elsewhere?')", first)
    own = one(ana, "select message_insert(%s, 'user', 'Here?')", second)
    ana.execute("select message_insert(%s, 'user', 'And here?')", (second,))
    for reply_to, question in ((own, "Here?"), (other, "And here?")):
        answer = one(
            ana,
            "select message_insert(%s, 'assistant', 'Yes.', %s)",
            second,
            Jsonb({"reply_to": reply_to}),
        )
        assert one(ana, "select question from _mindful.review_subject(%s)", answer) == question
