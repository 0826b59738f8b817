"""Errors that are reported as SQL errors, with a SQLSTATE and a hint."""

from typing import ClassVar

_LONGEST = 1000
"""Characters of a message. A message may quote an argument, and the server logs it."""


class MindfulError(Exception):
    """An error that is reported with the SQLSTATE of its class."""

    sqlstate: ClassVar[str] = "XX000"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message[:_LONGEST])
        self.hint = hint and hint[:_LONGEST]

    def about(self, what: str) -> "MindfulError":
        """Return this error with what it is about before its message."""
        self.args = (f"{what}: {self}"[:_LONGEST],)
        return self


class InvalidParameterError(MindfulError):
    """invalid_parameter_value."""

    sqlstate = "22023"


class WrongObjectError(MindfulError):
    """wrong_object_type."""

    sqlstate = "42809"


class DataError(MindfulError):
    """data_exception: a model's answer does not have the requested form."""

    sqlstate = "22000"


class NullValueError(MindfulError):
    """null_value_not_allowed."""

    sqlstate = "22004"


class UndefinedObjectError(MindfulError):
    """undefined_object."""

    sqlstate = "42704"


class DuplicateObjectError(MindfulError):
    """duplicate_object."""

    sqlstate = "42710"


class UndefinedFileError(MindfulError):
    """undefined_file."""

    sqlstate = "58P01"


class CorruptedModelError(MindfulError):
    """data_corrupted: a model file that cannot be loaded."""

    sqlstate = "XX001"


class ContextLengthError(MindfulError):
    """program_limit_exceeded: more tokens than the model's context holds."""

    sqlstate = "54000"


class NotReadyError(MindfulError):
    """object_not_in_prerequisite_state."""

    sqlstate = "55000"


class ParallelQueryError(MindfulError):
    """A parallel query, in which no statement of PL/Python can run."""

    sqlstate = "25000"


class SlotsBusyError(MindfulError):
    """lock_not_available."""

    sqlstate = "55P03"


class LockFileError(MindfulError):
    """io_error."""

    sqlstate = "58030"


class AttemptError(MindfulError):
    """An error of a statement that `Database.attempt` ran, with the statement's SQLSTATE."""

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate  # type: ignore[misc]


class MissingPackageError(MindfulError):
    """feature_not_supported: an optional Python package is not installed."""

    sqlstate = "0A000"


class EngineError(MindfulError):
    """connection_failure: a served model's server is down, too slow, or fails."""

    sqlstate = "08006"


class EngineAnswerError(MindfulError):
    """protocol_violation: the answer of a served model's server does not have the expected form."""

    sqlstate = "08P01"


class AddressError(MindfulError):
    """insufficient_privilege: the owner of the database server does not allow an address."""

    sqlstate = "42501"
