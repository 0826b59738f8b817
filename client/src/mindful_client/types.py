"""Rows that the functions return, field by column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class GenerationDetail:
    """An answer, what it cost, and how sure the model was."""

    text: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish_reason: str
    confidence: float
    signals: dict[str, float]
    first_token_ms: float | None
    total_ms: float


@dataclass(frozen=True)
class LabelDetail:
    """The label that fits a text best, its probability, and those of all labels; all None for no text."""

    label: str | None
    probability: float | None
    probabilities: dict[str, float] | None


@dataclass(frozen=True)
class ContextPart:
    """One part of what the model would be shown."""

    part: str
    role: str
    content: str
    tokens: int
    memory_id: int | None
    score: float | None


@dataclass(frozen=True)
class ChatDetail:
    """A reply, where it is stored, what it rests on, what it cost, and how sure the model was."""

    reply: str
    session_id: UUID
    message_id: int
    action: str
    confidence: float
    threshold: float | None
    memory_ids: list[int]
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish_reason: str
    signals: dict[str, float]
    first_token_ms: float | None
    total_ms: float
    probability: float
    reason: str
    decision_id: int


@dataclass(frozen=True)
class RecalledMemory:
    """A memory that matches a query; similarity and bm25 are None where that arm did not find it."""

    id: int
    content: str
    kind: str
    score: float
    similarity: float | None
    bm25: float | None
    metadata: dict[str, Any]
    session_id: UUID | None
    turn: int | None
    role: str | None
    source: str | None
    created_at: datetime


@dataclass(frozen=True)
class ReviewDetail:
    """A model's second look at an answer."""

    score: float
    verdict: str
    signals: dict[str, float]


@dataclass(frozen=True)
class CalibrationDetail:
    """What calibrate made of one kind of a model's answers; None for what was not reached."""

    model: str
    with_memory: bool
    tier: int
    labels: int
    wrong: int
    calibrator_id: int | None
    threshold_id: int | None
    status: str
    threshold: float | None
    bound: float | None
    coverage: float | None
    metrics: dict[str, Any] | None
    reason: str


@dataclass(frozen=True)
class StatusDetail:
    """What mindful runs on, and what the connection that was asked holds."""

    extension_version: str
    package_version: str
    server_version: str
    vector_version: str
    python_version: str
    python_prefix: str
    llama_cpp_version: str
    tenant: str
    backend_pid: int
    private_bytes: int
    shared_bytes: int
    models: list[dict[str, Any]]
