"""Settings in force."""

from __future__ import annotations

from typing import Any

from mindful.core.jsontext import loads
from mindful.core.ports import Database


def setting_get(db: Database, key: str, session_id: str | None = None) -> Any:
    """Return the value in force: the session's, else the caller's, else the global one, else the initial one."""
    found = db.one("select mindful.setting_get($1, $2) as value", ("text", "uuid"), (key, session_id))
    return loads(found["value"])


def settings_get(db: Database) -> dict[str, Any]:
    """Read all of the caller's settings in force."""
    settings: dict[str, Any] = loads(db.one("select _mindful.settings(null) as found")["found"])
    return settings
