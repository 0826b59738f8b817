"""Settings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, scalar


def setting_get(key: str, *, session_id: UUID | str | None = DEFAULT) -> Call[Any]:
    """Return the value of a setting that is in force for the caller, or None where there is no such setting."""
    return scalar("setting_get", locals())


def setting_set(
    key: str,
    value: Any,
    *,
    scope: str = DEFAULT,
    session_id: UUID | str | None = DEFAULT,
    reason: str | None = DEFAULT,
    confirmed_rows: int | None = DEFAULT,
) -> Call[Any]:
    """Set a value for all (scope global), for the caller (user) or for a session; return what is now in force.

    None takes the scope's setting back. A global retention setting needs confirmed_rows: the error says how many.

    Raises NotFoundError (no such setting), InvalidInputError (type, range, scope), NotAllowedError, NotReadyError.
    """
    return scalar("setting_set", locals())


def setting_undo(change_id: int) -> Call[Any]:
    """Set a setting back to what it was before a change, and return the value that is now in force.

    Raises NotFoundError (no such change of yours), NotReadyError (changed again since), NotAllowedError.
    """
    return scalar("setting_undo", locals())
