"""Settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, scalar


def setting_get(key: str, *, session_id: UUID | str | None = DEFAULT) -> Call[Any]:
    """Return the value of a setting that is in force for the caller, or None if the setting does not exist."""
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
    """Set a value for all tenants (scope global), the caller (user) or a session, and return the value in force.

    None removes the scope's setting. A global retention setting needs confirmed_rows; the error has the number.

    Raises NotFoundError (no such setting), InvalidInputError (type, range, scope), NotAllowedError, NotReadyError.
    """
    return scalar("setting_set", locals())


def setting_reset(
    key: str | None = DEFAULT,
    *,
    scope: str = DEFAULT,
    session_id: UUID | str | None = DEFAULT,
    reason: str | None = DEFAULT,
) -> Call[int]:
    """Take one setting of a scope back, or all, and return the number of settings that changed.

    Raises NotFoundError (no such setting or session), InvalidInputError (scope), NotAllowedError.
    """
    return scalar("setting_reset", locals())


def setting_define(
    key: str,
    type: str,
    description: str,
    *,
    initial: Any = DEFAULT,
    low: float | None = DEFAULT,
    high: float | None = DEFAULT,
    choices: Sequence[str] | None = DEFAULT,
    prompt: str | None = DEFAULT,
) -> Call[None]:
    """Define a setting of the caller's own, such as app.units, of type integer, number, boolean or text.

    Raises InvalidInputError, NotReadyError (it has another type).
    """
    return scalar("setting_define", locals())


def setting_undefine(key: str) -> Call[bool]:
    """Delete a setting of the caller's own with its values, and return whether it existed."""
    return scalar("setting_undefine", locals())


def setting_undo(change_id: int) -> Call[Any]:
    """Undo a change of a setting, and return the value that is in force afterwards.

    Raises NotFoundError (no such change of yours), NotReadyError (changed again since), NotAllowedError.
    """
    return scalar("setting_undo", locals())
