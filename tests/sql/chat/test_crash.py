"""A backend that is killed while a model is at work: the database recovers, and nothing is held or half-written."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import psycopg
import pytest
from support import SCRIPTED_GENERATOR
from support.clock import Deadline
from support.cluster import Cluster
from support.slots import taken, wait_until_taken
from support.work import AT_WORK

pytestmark = pytest.mark.skipif(
    "MINDFUL_TEST_CRASH" not in os.environ, reason="ends every connection of the cluster"
)

ROWS = """select (select count(*) from memory), (select count(*) from session), (select count(*) from memory_term),
    (select count(*) from generation), (select array_agg(m::text order by m.tenant) from memory_count m),
    (select count(*) from memory where not exists (
        select from memory_embedding_all_minilm_l6_v2 e where e.tenant = memory.tenant and e.id = memory.id))"""
KILL = "do language plpython3u $$import os, signal; os.kill({}, signal.SIGKILL)$$"


def connected(cluster: Cluster, database: str) -> psycopg.Connection:
    """Connect as soon as the server is back."""
    deadline = Deadline()
    while True:
        try:
            return cluster.connect(database)
        except psycopg.OperationalError:
            assert not deadline.passed()
            time.sleep(0.1)


@pytest.mark.parametrize("work", AT_WORK)
def test_a_killed_backend_leaves_the_database_whole_and_its_slot_free(
    cluster: Cluster, database: str, work: str
) -> None:
    busy, db = cluster.connect(database), cluster.connect(database)
    busy.execute("set synchronous_commit = on")  # the tests' cluster has it off
    busy.execute("select memory_insert('The key is under the pot.'), llm_chat('Hi', max_tokens => 2)")
    before = db.execute(ROWS).fetchone()
    failed: list[psycopg.Error] = []

    def run() -> None:
        try:
            busy.execute(AT_WORK[work])
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until_taken(db)
    time.sleep(0.3)
    with pytest.raises(psycopg.OperationalError):
        db.execute(f"{KILL.format(busy.info.backend_pid)}; select pg_sleep(10)".encode())
    thread.join()
    assert failed
    with connected(cluster, database) as after:
        assert after.execute(ROWS).fetchone() == before
        assert before is not None
        assert before[-1] == 0
        assert taken(after) == 0
        assert after.execute("select llm_chat('Where is the key?', max_tokens => 4)").fetchone()
        assert after.execute("select count(*) from memory_recall('key')").fetchone() != (0,)
        assert taken(after) == 0


@pytest.mark.parametrize("kill", range(int(os.environ.get("MINDFUL_TEST_KILLS", "5"))))
def test_an_acknowledged_chat_outlives_a_kill(cluster: Cluster, database: str, kill: int) -> None:
    db = cluster.connect(database)
    sent: list[str] = []
    acknowledged: list[str] = []

    def talk(connection: psycopg.Connection, speaker: int) -> None:
        with contextlib.suppress(psycopg.Error):
            connection.execute("set synchronous_commit = on")  # the tests' cluster has it off
            row = connection.execute("select session_start()").fetchone()
            assert row is not None
            for n in range(1000):
                text = f"Message {n} of speaker {speaker}."
                sent.append(text)
                connection.execute("select llm_chat(%s, %s, model => %s)", (text, row[0], SCRIPTED_GENERATOR))
                acknowledged.append(text)

    talkers = [cluster.connect(database) for _ in range(4)]
    threads = [threading.Thread(target=talk, args=(talker, n)) for n, talker in enumerate(talkers)]
    for thread in threads:
        thread.start()
    time.sleep(1 + kill * 0.37)
    with pytest.raises(psycopg.OperationalError):
        db.execute(f"{KILL.format(talkers[kill % 4].info.backend_pid)}; select pg_sleep(10)".encode())
    for thread in threads:
        thread.join()
    with connected(cluster, database) as after:
        stored = [row[0] for row in after.execute("select content from memory where role = 'user'")]
        print(f"\n{len(acknowledged)} chats acknowledged of {len(sent)} sent, {len(stored)} stored")
        assert len(acknowledged) > 4
        assert set(acknowledged) <= set(stored) <= set(sent)
        assert len(stored) == len(set(stored))
        whole = """select bool_and(users = replies and turns = 2 * users and last = turns)
            from (
                select count(*) filter (where role = 'user') as users, count(*) as turns, max(turn) as last,
                    count(*) filter (where role = 'assistant') as replies
                from memory where kind = 'message' group by tenant, session_id
            ) s"""
        assert after.execute(whole.encode()).fetchone() == (True,)
        counted = """select (select sum(memories) from memory_count) = (select count(*) from memory),
            not exists (select from memory m where not exists (
                select from memory_term t where t.tenant = m.tenant and t.id = m.id)),
            not exists (select from memory m where not exists (
                select from memory_embedding_all_minilm_l6_v2 e where e.tenant = m.tenant and e.id = m.id))"""
        assert after.execute(counted.encode()).fetchone() == (True, True, True)
