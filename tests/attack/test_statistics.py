"""The planner knows nothing of others' rows, so EXPLAIN cannot tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg
import pytest
from support import Connect
from support.fill import STATISTICS, fill

# Of each column that the role may read, each operator that the planner trusts with others' rows.
OPERATORS = """
    select c.oid::regclass::text, quote_ident(a.attname), format_type(a.atttypid, null), o.oprname,
        o.oprright::regtype::text
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    join pg_operator o on o.oprleft in (a.atttypid, case when a.atttypid = 'regclass'::regtype then 'oid'::regtype end)
        and o.oprresult = 'boolean'::regtype
    join pg_proc p on p.oid = o.oprcode and p.proleakproof
    where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('r', 'v', 'm', 'p')
        and has_column_privilege(c.oid, a.attnum, 'select')
    order by 1, 2, 4, 5"""


class Comparison(NamedTuple):
    """An operator, and the column on its left."""

    relation: str
    column: str
    type: str
    operator: str
    right: str


_DAY = "timestamptz '2026-01-01' + make_interval(days => %s)"
# As support.fill makes values of numbers.
_KINDS = {
    "text": "'word %s'",
    "uuid": "md5('%s')",
    "bytea": "'%s'",
    "timestamp with time zone": _DAY,
    "date": _DAY,
    "interval": "interval '%s s'",
}


def guesses(comparison: Comparison) -> list[str]:
    """What half of others' rows hold, what one of them holds, a key of theirs, and what none of them does."""
    values = ["true", "false"]
    if comparison.type != "boolean":
        values = [_KINDS.get(comparison.type, "%s") % number for number in (0, 301, 10301, 7777)]
    return [f"({value})::{comparison.type}::{comparison.right}" for value in values]


def estimates(user: psycopg.Connection, comparison: Comparison) -> set[tuple[Any, ...]]:
    """Everything that the planner believes of a comparison with one guess or another."""
    # There are tens of thousands: a round trip for each takes as long as to plan it.
    cursor = user.execute(
        "; ".join(
            f"""explain (format json) select from {comparison.relation}
                where {comparison.column} operator(pg_catalog.{comparison.operator}) {guess}"""
            for guess in guesses(comparison)
        ).encode()
    )
    found = set()
    for result in cursor.results():
        ((plan,),) = result.fetchall()
        found.add(tuple(beliefs(plan[0]["Plan"])))
    return found


def beliefs(node: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Yield what the planner believes of a node of a plan, and of those below it."""
    yield node["Node Type"], node["Plan Rows"], node["Total Cost"]
    for below in node.get("Plans", []):
        yield from beliefs(below)


def telling(user: psycopg.Connection, relation: str | None = None) -> tuple[int, list[Comparison]]:
    """How many comparisons there are, and those whose estimates depend on the guess."""
    compared = [
        comparison
        for comparison in map(Comparison._make, user.execute(OPERATORS).fetchall())
        if relation in (None, comparison.relation)
    ]
    found = []
    for comparison in compared:
        # TRUE and FALSE are tested in different ways, each by the same estimate whatever the rows are.
        if len(estimates(user, comparison)) > (2 if comparison.type == "boolean" else 1):
            found.append(comparison)
    return len(compared), found


@pytest.fixture
def analyzed(connect: Connect, db: psycopg.Connection, ana: psycopg.Connection) -> psycopg.Connection:
    """Two tenants with rows in all tables, of which the server has gathered what statistics it can."""
    filled = fill(db, [ana.info.user, "somebody else"])
    assert len(filled) > 30
    db.execute("analyze")
    return connect("bob")


@pytest.mark.timeout(300)
@pytest.mark.long
def test_no_estimate_depends_on_a_guess(analyzed: psycopg.Connection, db: psycopg.Connection) -> None:
    """Reads another tenant's values by EXPLAIN, with every leakproof operator on every column."""
    count, found = telling(analyzed)
    assert count > 1000
    assert found == []
    # The test would notice.
    db.execute("alter table memory alter column content set statistics 100")
    db.execute("analyze memory")
    assert {comparison.column for comparison in telling(analyzed, "memory")[1]} == {"content"}


def test_analyze_leaves_nothing(analyzed: psycopg.Connection, db: psycopg.Connection) -> None:
    """Reads histograms and most common values where an administrator has created statistics."""
    db.execute("create statistics mindful.asked (dependencies, mcv) on kind, role, source from memory")
    db.execute("analyze")
    assert db.execute(STATISTICS).fetchall() == []
    assert analyzed.execute("select * from pg_stats where schemaname = 'mindful'").fetchall() == []
    assert analyzed.execute("select * from pg_stats_ext where schemaname = 'mindful'").fetchall() == []


def test_no_column_is_left_out(db: psycopg.Connection) -> None:
    """Reads statistics of a column that was added without thought of it."""
    columns = """
        select c.oid::regclass::text, a.attname
        from pg_class c
        left join pg_index i on i.indexrelid = c.oid
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'mindful'::regnamespace and a.attstattarget is distinct from 0
            and (c.relkind in ('r', 'm', 'p') or i.indkey[a.attnum - 1] = 0)"""
    assert db.execute(columns).fetchall() == []
    db.execute("alter table memory add column note text")
    db.execute("create index on memory (lower(note))")
    assert len(db.execute(columns).fetchall()) == 2
    db.execute("select _mindful.statistics_remove()")
    assert db.execute(columns).fetchall() == []
