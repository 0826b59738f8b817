"""What a chat reads of a session before it recalls, in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mindful.conversation.correction import corrected_turns
from mindful.core.errors import UndefinedObjectError
from mindful.core.jsontext import loads
from mindful.core.ports import Database, Row


class Reading(NamedTuple):
    """A session and the settings in force in it; without a session, the caller's settings."""

    session_id: str | None
    settings: Mapping[str, Any]
    prompts: Mapping[str, Row]
    """The sentences that settings add to the system prompt."""
    system_prompt: str | None
    turns: Sequence[Row]
    """The newest turns, newest first; the user's statements as later turns corrected them."""
    shown_from: int | None
    """The first turn that the model was shown for its last reply."""
    core: Sequence[Row]
    labeled: bool
    """Whether answers have labels, of which there may be lessons."""


def read(db: Database, session_id: str | None, turns: int, model: str, message: str | None = None) -> Reading:
    """Read a session; raise if the caller has none with this id, or if the message cannot be stored."""
    row = db.one(
        "select _mindful.session_read($1, $2, $3, $4) as found",
        ("uuid", "integer", "text", "text"),
        (session_id, turns, model, message),
    )
    found = loads(row["found"])
    if session_id is not None and found["session"] is None:
        raise UndefinedObjectError(
            f"there is no session {session_id}", "Start one with session_start(), or look in mindful.session."
        )
    return Reading(
        session_id,
        found["settings"],
        found["prompts"],
        (found["session"] or {}).get("system_prompt"),
        corrected_turns(found["turns"] or ()),
        found["shown_from"],
        found["core"] or (),
        found["labeled"],
    )
