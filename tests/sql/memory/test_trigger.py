"""The triggers of the table memory are those that docs/decisions.md lists, in their order."""

import re

import psycopg
from support.sources import ROOT

_ROW = re.compile(r"^  \| (insert|update|delete) \| `(\w+)` \| `_mindful\.(\w+)` \|", re.MULTILINE)


def test_the_page_lists_the_triggers_of_memory_in_the_order_in_which_they_fire(
    db: psycopg.Connection,
) -> None:
    fired = db.execute(
        """select event, t.tgname::text, p.proname::text
           from pg_trigger t
           join pg_proc p on p.oid = t.tgfoid
           join (values (4, 'insert'), (16, 'update'), (8, 'delete')) e (bit, event) on t.tgtype & e.bit > 0
           where t.tgrelid = 'mindful.memory'::regclass and not t.tgisinternal and t.tgenabled = 'O'
           order by e.bit = 8, e.bit = 16, t.tgname"""
    ).fetchall()
    assert len(fired) > 10
    assert _ROW.findall((ROOT / "docs/decisions.md").read_text()) == fired


def test_other_triggers_of_memory_fire_at_subscribers_only(db: psycopg.Connection) -> None:
    others = db.execute(
        """select tgname::text, tgenabled::text from pg_trigger
           where tgrelid = 'mindful.memory'::regclass and not tgisinternal and tgenabled <> 'O' order by tgname"""
    ).fetchall()
    assert others == [("enqueue_replicated", "D"), ("forget_replicated", "R")]
