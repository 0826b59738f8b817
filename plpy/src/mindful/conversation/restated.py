"""Stored statements as the user's next messages corrected them. What is stored stays as it was said."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from mindful.conversation.correction import corrected, is_bare, statement_corrected
from mindful.conversation.named import asks_to_forget
from mindful.core.ports import Database, Row


def said_next(db: Database, rows: Sequence[Row]) -> list[Row]:
    """Return memories with said_next, what the user said after them; None if they are no messages of the user."""
    ids = [row["id"] for row in rows if row["role"] == "user"]
    found = db.rows(
        """select m.id, n.said_next from mindful.memory m cross join lateral _mindful.said_next(m.session_id, m.turn) n
           where m.tenant = (select _mindful.tenant()) and m.id = any ($1)""",
        ("bigint[]",),
        (ids,),
    )
    said = {row["id"]: row["said_next"] for row in found}
    return [{**row, "said_next": said.get(row["id"])} for row in rows]


def restated(db: Database, rows: Sequence[Row]) -> list[Row]:
    """Return memories as later messages corrected them, without messages that only correct, or ask to forget.

    Rows have id, role, content and said_next.
    """
    rows = [row for row in rows if row["role"] != "user" or not asks_to_forget(row["content"])]
    bare = corrections(db, [row["id"] for row in rows if row["role"] == "user" and is_bare(row["content"])])
    return [
        {**row, "content": corrected(row["content"], row["said_next"] or ())}
        for row in rows
        if row["id"] not in bare
    ]


def corrections(db: Database, messages: Sequence[int]) -> dict[int, int]:
    """Return the ids of those messages that correct a statement before them, and of the statements."""
    if not messages:
        return {}
    rows = db.rows(
        """select m.id as message, m.content as said, b.id, b.role, b.content
           from mindful.memory m
           cross join lateral _mindful.said_before(m.session_id, m.turn) b
           where m.tenant = (select _mindful.tenant()) and m.id = any ($1) and m.role = 'user'
           order by m.id, b.turn desc""",
        ("bigint[]",),
        (list(messages),),
    )
    found: dict[int, int] = {}
    for (message, said), before in groupby(rows, key=lambda row: (row["message"], row["said"])):
        db.check()
        if statement := statement_corrected(list(before), said):
            found[message] = statement["id"]
    return found
