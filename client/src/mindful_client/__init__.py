"""Client of the PostgreSQL extension mindful: a local assistant that remembers, behind SQL functions."""

from mindful_client.aio import AsyncClient
from mindful_client.client import Client
from mindful_client.errors import (
    AlreadyExistsError,
    InvalidInputError,
    MindfulError,
    NotAllowedError,
    NotFoundError,
    NotReadyError,
    QueryCancelledError,
    UnavailableError,
)
from mindful_client.types import (
    ChatDetail,
    ComparedMemory,
    ContextPart,
    DocumentChange,
    DocumentDetail,
    GenerationDetail,
    ImportChange,
    JobOutcome,
    LabelDetail,
    RecalledMemory,
    ReviewDetail,
    SlotHolder,
    StatusDetail,
)

__all__ = [
    "AlreadyExistsError",
    "AsyncClient",
    "ChatDetail",
    "Client",
    "ComparedMemory",
    "ContextPart",
    "DocumentChange",
    "DocumentDetail",
    "GenerationDetail",
    "ImportChange",
    "InvalidInputError",
    "JobOutcome",
    "LabelDetail",
    "MindfulError",
    "NotAllowedError",
    "NotFoundError",
    "NotReadyError",
    "QueryCancelledError",
    "RecalledMemory",
    "ReviewDetail",
    "SlotHolder",
    "StatusDetail",
    "UnavailableError",
]
