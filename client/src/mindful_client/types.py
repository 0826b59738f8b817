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
    reason: str


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
    """A memory that matches a query, with every component of its score; None where that arm did not find it."""

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
    bm25_context: float | None
    similarity_context: float
    recency: float
    importance: float
    access: float
    rerank: float | None


@dataclass(frozen=True)
class DocumentChange:
    """How many chunks a document has now, and what became of them and of those of its last version."""

    chunks: int
    inserted: int
    replaced: int
    kept: int
    deleted: int


@dataclass(frozen=True)
class DocumentDetail:
    """A document that is remembered."""

    source: str
    title: str | None
    chunks: int
    bytes: int
    created_at: datetime
    updated_at: datetime
    fingerprint: str | None


@dataclass(frozen=True)
class ImportChange:
    """How many rows an import added; kept counts the memories that were there already."""

    sessions: int
    memories: int
    kept: int
    links: int
    evidence: int
    accesses: int


@dataclass(frozen=True)
class MemoryVersion:
    """What a memory said, and when that was true."""

    id: int
    content: str
    importance: float
    confidence: float | None
    level: str
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by: int | None
    created_at: datetime


@dataclass(frozen=True)
class MemoryNeighbor:
    """A memory, and the links that lead to it."""

    id: int
    content: str
    kind: str
    relation: str
    weight: float
    depth: int
    path: list[int]


@dataclass(frozen=True)
class ForgetCount:
    """How many rows of a table were deleted, changed, kept, or mention what was forgotten."""

    receipt_id: int | None
    relation: str
    action: str
    rows: int


@dataclass(frozen=True)
class ForgetFinding:
    """A row that still has to do with what was forgotten."""

    relation: str
    column_name: str
    key: dict[str, Any]
    finding: str


@dataclass(frozen=True)
class PruneDetail:
    """A memory that a policy does not keep, and why."""

    id: int
    kind: str
    value: float
    created_at: datetime
    last_accessed_at: datetime | None
    reason: str


@dataclass(frozen=True)
class JobOutcome:
    """What a worker did: embeddings stored, jobs there was nothing left to do for, attempts that failed."""

    embedded: int
    dropped: int
    failed: int


@dataclass(frozen=True)
class ComparedMemory:
    """A memory that is near to a query in one embedder's space."""

    model: str
    rank: int
    id: int
    similarity: float
    content: str


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
class AdaptationDetail:
    """What confidence_adapt made of one setting; change_id is for setting_undo."""

    key: str
    held: Any
    candidate: Any
    adopted: bool
    change_id: int | None
    reason: str
    evidence: dict[str, Any]


@dataclass(frozen=True)
class ActionGain:
    """What a replay on labelled questions showed of another way to an answer."""

    tenant: str
    id: int
    action: str
    model: str
    temperature: float | None
    answers: int
    changed: int
    gained: int
    lost: int
    p_value: float
    helps: bool
    made_by: str
    created_at: datetime


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


@dataclass(frozen=True)
class SlotHolder:
    """A server process that holds a slot, or waits for one (slot is None)."""

    slot: int | None
    pid: int


@dataclass(frozen=True)
class ConsolidationDetail:
    """What a run has read, what came of it, what was rejected by reason, and how many texts are left."""

    id: int
    status: str
    extractor: str
    memories_processed: int
    remaining: int
    facts: int | None
    strengthened: int | None
    refined: int | None
    contradicted: int | None
    links: int | None
    promoted: int | None
    decayed: int | None
    rejected: dict[str, int] | None
    error: str | None


@dataclass(frozen=True)
class ReplayDetail:
    """A run's facts, the pairs made of them, those refused by reason, and the facts below each threshold."""

    id: int
    status: str
    model: str
    facts: int
    accepted: int
    refused: dict[str, int] | None
    below: dict[str, int] | None
    error: str | None


@dataclass(frozen=True)
class TrainedAdapter:
    """An adapter that was trained on a memory, and whether that has been forgotten since."""

    training_id: int
    adapter: str | None
    base: str
    active: bool
    forgotten: bool
    withdrawn: bool


@dataclass(frozen=True)
class TrainingDetail:
    """What a training came to, and the figures that decided."""

    verdict: str
    active: bool
    base_figures: dict[str, Any]
    adapter_figures: dict[str, Any]
