"""What a role without rights in mindful does to stop the calls of others."""

import psycopg
from support import Connect, fails

LOCKS_TO_TRY = """select count(*) filter (where pg_try_advisory_lock(class, slot))
    from unnest(array[0, 1, 1835626093, 1835626094]) class, generate_series(0, 64) slot"""
SEEN = """select pg_try_advisory_lock(classid::integer, objid::integer) from pg_locks
    where locktype = 'advisory' and pid <> pg_backend_pid()"""


def test_a_stranger_cannot_take_slots(connect: Connect, db: psycopg.Connection) -> None:
    """Takes every advisory lock that could be a slot, so that all calls of models wait."""
    stranger, ana = connect("stranger"), connect("ana")
    ana.execute("select setting_set('model_slot_wait_ms', '100')")
    assert stranger.execute(LOCKS_TO_TRY).fetchone() == (4 * 65,)
    stranger.execute(SEEN)
    assert ana.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')").fetchone()


def test_the_file_of_slots_is_out_of_reach(connect: Connect) -> None:
    """Opens the file of slots by SQL to lock or to empty it."""
    ana = connect("ana")
    ana.execute("select llm_embed('Hi')")
    for attempt in (
        "select pg_read_file('mindful.slots')",
        "select pg_stat_file('mindful.slots')",
        "copy (select 1) to '/tmp/mindful.slots'",
        "select lo_import('mindful.slots')",
        "select slot_status()",
    ):
        with fails("42501", hint=None):
            ana.execute(attempt.encode())
