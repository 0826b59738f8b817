"""Rows that the functions return. Each field is a column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

T = TypeVar("T")


@dataclass(frozen=True)
class GenerationDetail:
    """An answer with its cost and the model's confidence."""

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
class Completion:
    """One answer to a list of messages, what it cost, and how sure the model was."""

    choice: int
    text: str
    tool_calls: list[dict[str, str]] | None
    finish_reason: str
    logprobs: list[dict[str, Any]] | None
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    confidence: float
    signals: dict[str, float]
    first_token_ms: float | None
    total_ms: float


@dataclass(frozen=True)
class CompletionPiece:
    """A part of an answer to a list of messages; `bytes` is hexadecimal, as a token may be part of a character."""

    choice: int
    text: str
    token: str | None
    bytes: str | None
    logprob: float | None
    alternatives: list[dict[str, Any]] | None
    tool_call: dict[str, str] | None
    finish_reason: str | None
    usage: dict[str, Any] | None


@dataclass(frozen=True)
class KeyDetail:
    """A key of the service; the key itself is not stored."""

    id: UUID
    tenant: str
    name: str
    scopes: list[str]
    requests_per_minute: int | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_by: str
    created_at: datetime


@dataclass(frozen=True)
class KeyUse:
    """Whose a key is, and how many seconds to wait where its requests of this minute are spent."""

    tenant: str
    id: UUID
    scopes: list[str]
    wait_s: int


@dataclass(frozen=True)
class LabelDetail:
    """The most probable label of a text, its probability, and the probabilities of all labels."""

    label: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result for one text of a call over many, or its error: sqlstate, message and hint. number counts from 1."""

    number: int
    result: T | None
    error: dict[str, Any] | None


@dataclass(frozen=True)
class Ranked:
    """A text, its position among the ranked ones from 1, and its score: higher is better."""

    number: int
    content: str
    score: float


@dataclass(frozen=True)
class ClassifierDetail:
    """A trained classifier with the cross-validated accuracy of both methods and of the most frequent label."""

    name: str
    embedder: str
    labels: list[str]
    method: str
    examples: int
    accuracy: float
    accuracy_neighbors: float
    accuracy_logistic: float
    accuracy_largest: float


@dataclass(frozen=True)
class ContextPart:
    """One part of the prompt."""

    part: str
    role: str
    content: str
    tokens: int
    memory_id: int | None
    score: float | None
    reason: str


@dataclass(frozen=True)
class ChatDetail:
    """A reply with its message id, the memories in the prompt, its cost and the model's confidence."""

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
    """A memory that matches a query, with the components of its score: None if that search did not find it."""

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
    source_key: str | None


@dataclass(frozen=True)
class MemoryDetail:
    """A memory as memory_get and memory_list return it."""

    id: int
    content: str
    kind: str
    metadata: dict[str, Any]
    session_id: UUID | None
    turn: int | None
    role: str | None
    source: str | None
    source_key: str | None
    importance: float
    confidence: float | None
    level: str
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by: int | None
    created_at: datetime


@dataclass(frozen=True)
class SessionDetail:
    """A session, the number of its messages and the time of the last one."""

    session_id: UUID
    title: str | None
    system_prompt: str | None
    metadata: dict[str, Any]
    created_at: datetime
    messages: int
    last_message_at: datetime | None


@dataclass(frozen=True)
class DocumentChange:
    """Chunks of a document: how many it has, and how many were inserted, replaced, kept and deleted."""

    chunks: int
    inserted: int
    replaced: int
    kept: int
    deleted: int


@dataclass(frozen=True)
class DocumentDetail:
    """A stored document."""

    source: str
    title: str | None
    chunks: int
    bytes: int
    created_at: datetime
    updated_at: datetime
    fingerprint: str | None


@dataclass(frozen=True)
class ImportChange:
    """Rows that an import added. `kept` counts memories that existed already."""

    sessions: int
    memories: int
    kept: int
    links: int
    evidence: int
    accesses: int


@dataclass(frozen=True)
class MemoryVersion:
    """A version of a memory, and the time in which it was true."""

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
    """A linked memory and the path of links to it."""

    id: int
    content: str
    kind: str
    relation: str
    weight: float
    depth: int
    path: list[int]


@dataclass(frozen=True)
class ForgetCount:
    """Rows of a table that were deleted, changed or kept, or that mention what was deleted."""

    receipt_id: int | None
    relation: str
    action: str
    rows: int


@dataclass(frozen=True)
class ForgetFinding:
    """A remaining row that refers to or repeats what was deleted."""

    relation: str
    column_name: str
    key: dict[str, Any]
    finding: str


@dataclass(frozen=True)
class PruneDetail:
    """A memory that a retention policy deletes, and the reason."""

    id: int
    kind: str
    value: float
    created_at: datetime
    last_accessed_at: datetime | None
    reason: str


@dataclass(frozen=True)
class JobOutcome:
    """Counts of a worker: embeddings stored, jobs without work left, failed attempts."""

    embedded: int
    dropped: int
    failed: int


@dataclass(frozen=True)
class ComparedMemory:
    """A memory near a query by one embedder."""

    model: str
    rank: int
    id: int
    similarity: float
    content: str


@dataclass(frozen=True)
class ReviewDetail:
    """A model's review of an answer."""

    score: float
    verdict: str
    signals: dict[str, float]


@dataclass(frozen=True)
class CalibrationDetail:
    """The calibration of one kind of a model's answers. Fields of steps that were not reached are None."""

    model: str
    ways: list[str]
    second_model: str | None
    with_memory: bool
    signal_tier: int
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
    budget: float | None
    delta_spent: float | None
    more_labels: int | None
    ladder: list[dict[str, Any]] | None


@dataclass(frozen=True)
class TuningDetail:
    """The result of confidence_tune for one setting. Pass change_id to setting_undo to take it back."""

    key: str
    current_value: Any
    candidate: Any
    adopted: bool
    change_id: int | None
    reason: str
    evidence: dict[str, Any]


@dataclass(frozen=True)
class ActionGain:
    """The measured gain of another way to an answer on labeled questions."""

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
    """Versions, and the models and memory of this connection."""

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
    """Counts of a consolidation: texts read, facts, rejections by reason, texts left."""

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
    """Counts of a replay: facts, pairs, refusals by reason, and facts below each threshold."""

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
    """An adapter that was trained on a memory, and whether the memory has been deleted since."""

    training_id: int
    adapter: str | None
    base: str
    active: bool
    forgotten: bool
    withdrawn: bool
