"""The built-in module of PL/Python, as far as mindful uses it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

class Error(Exception):
    sqlstate: str
    detail: str | None
    hint: str | None
    schema_name: str | None
    table_name: str | None
    column_name: str | None
    datatype_name: str | None
    constraint_name: str | None

class SPIError(Error):
    spidata: tuple[Any, ...]

class spiexceptions:  # noqa: N801
    class InvalidTransactionTermination(SPIError): ...  # noqa: N818

class _Plan: ...

class _Result(Sequence[Mapping[str, Any]]):
    def nrows(self) -> int: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __len__(self) -> int: ...

def prepare(query: str, argtypes: Sequence[str] = ...) -> _Plan: ...
def execute(query: str | _Plan, arguments: Sequence[Any] = ..., limit: int = ...) -> _Result: ...
def error(message: str, *, sqlstate: str = ..., detail: str = ..., hint: str = ...) -> NoReturn: ...
def warning(message: str, *, hint: str = ...) -> None: ...
def commit() -> None: ...
def subtransaction() -> AbstractContextManager[None]: ...
