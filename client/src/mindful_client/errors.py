"""Errors, in the few classes that callers handle differently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg


class MindfulError(Exception):
    """An error of the server, or of a call that the client refused.

    Attributes:
        message: What is wrong, in one line.
        sqlstate: PostgreSQL's five characters for the kind of error; None if no server was reached.
        hint: What to do about it, or None.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        self.hint = hint


class InvalidInputError(MindfulError):
    """An argument is invalid: empty, too long, out of range, or of the wrong type."""


class NotFoundError(MindfulError):
    """The model, session, message, table or file does not exist, or the caller may not see it."""


class AlreadyExistsError(MindfulError):
    """The name, or the pair of source and source_key, already exists."""


class NotAllowedError(MindfulError):
    """The role lacks a right."""


class NotReadyError(MindfulError):
    """The server cannot do this now, or not with what is installed or configured."""


class QueryCancelledError(MindfulError):
    """The call was cancelled, or reached statement_timeout."""


class UnavailableError(MindfulError):
    """The server could not be reached, or the connection broke."""


# The longest prefix of the SQLSTATE decides.
_CLASSES: dict[str, type[MindfulError]] = {
    "08": UnavailableError,
    "0A": NotReadyError,
    "22": InvalidInputError,
    "23": InvalidInputError,
    "23505": AlreadyExistsError,
    "28": NotAllowedError,
    "3D": UnavailableError,
    "3F": NotReadyError,
    "42": InvalidInputError,
    "42501": NotAllowedError,
    "42704": NotFoundError,
    "42710": AlreadyExistsError,
    "42883": NotReadyError,
    "42P01": NotFoundError,
    "53": NotReadyError,
    "54": InvalidInputError,
    "55": NotReadyError,
    "57014": QueryCancelledError,
    "57P": UnavailableError,
    "58P01": NotFoundError,
}
_HINTS = {
    "3F000": "Run CREATE EXTENSION mindful CASCADE in this database.",
    "42501": "An administrator can GRANT mindful_user TO the role.",
    "42883": "Extension and client differ in version. Compare mindful_status() with mindful --version.",
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise an error of psycopg as a MindfulError, with the original as its cause."""
    try:
        yield
    except psycopg.Error as error:
        raise from_psycopg(error) from error


def from_psycopg(error: psycopg.Error) -> MindfulError:
    """Convert an error of psycopg to a MindfulError."""
    lines = _text_of(error).strip().splitlines() or [type(error).__name__]
    below = " ".join(line.strip() for line in lines[1:])
    hint = error.diag.message_hint
    # PostgreSQL's own hint is to add type casts.
    if hint is None or (error.sqlstate == "42883" and "mindful." in lines[0]):
        hint = _HINTS.get(error.sqlstate or "") or below or None
    return _class_of(error)(lines[0].removeprefix("mindful: "), sqlstate=error.sqlstate, hint=hint)


def _text_of(error: psycopg.Error) -> str:
    detail = error.diag.message_detail or ""
    if detail.startswith("mindful: "):  # PL/Python moves the message there if a set-returning function fails
        return detail
    return error.diag.message_primary or str(error)


def _class_of(error: psycopg.Error) -> type[MindfulError]:
    state = error.sqlstate
    if state is None:
        return UnavailableError if isinstance(error, psycopg.OperationalError) else MindfulError
    prefixes = (state[:length] for length in range(len(state), 1, -1))
    return next((_CLASSES[prefix] for prefix in prefixes if prefix in _CLASSES), MindfulError)
