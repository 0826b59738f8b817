"""What the layers of mindful ask of each other: the database, the models, and the values between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Row = Mapping[str, Any]
Vector = Sequence[float]


class Interrupts(Protocol):
    """A way to learn, between two pieces of work, that the user no longer waits for the result."""

    def check(self) -> None:
        """Raise if a cancel, a time-out or a termination is pending."""

    def pending(self) -> bool:
        """Tell the same without raising; safe to call from within a C library's callback."""


class Workers(Interrupts, Protocol):
    """Interrupts, and how many threads may compute, which changes from one piece of work to the next."""

    @property
    def threads(self) -> int:
        """How many threads may compute."""


class Database(Interrupts, Protocol):
    """SQL as the calling role, inside its transaction."""

    def rows(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> list[Row]:
        """Run one statement with arguments $1.. of the named types."""

    def one(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> Row:
        """Run a statement that yields at least one row, and return its first."""

    def commit(self) -> None:
        """Commit, and go on in a new transaction; only a procedure that is called outside of any can."""

    def attempt(
        self, sql: str, types: Sequence[str], arguments: Sequence[Any], undo: bool, timeout_ms: int
    ) -> list[Row]:
        """Run a statement that may be anything, in a subtransaction, and raise its error as AttemptError.

        With undo whatever it does is undone. Past the time its SQLSTATE is 57014; the caller's own cancel is never
        caught.
        """

    def after_transaction(self, action: Callable[[], object]) -> None:
        """Have something done once, when this transaction has ended in whatever way; it must not use the database."""

    def sleep(self, seconds: float) -> None:
        """Sleep until woken, at most so long; raise as soon as a cancel is pending."""

    def wake(self, process: int) -> None:
        """End the sleep of another backend."""

    def directory(self) -> str:
        """Return the server's data directory."""

    def secret(self) -> bytes:
        """Return a key of 32 bytes that every process of this server has, and nobody can read by SQL."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation, as chat templates name its parts."""

    role: str
    content: str


@dataclass(frozen=True)
class Sampling:
    """How to choose tokens. Temperature 0 is greedy; a seed makes the whole call repeatable; a grammar is GBNF."""

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    grammar: str | None = None


@dataclass
class Completion:
    """What became known while a text was generated; filled by the model's token loop.

    The arrays hold one value a sampled token, the end token included, read from the raw logits (temperature 1)
    whatever the sampling was: its log-probability, the entropy of the distribution (nats), and the difference
    between the two best probabilities.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: str = "length"
    first_token_ms: float | None = None
    total_ms: float = 0.0
    signal_ms: float = 0.0
    """What reading the arrays below took of it."""
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)


class Generator(Protocol):
    """A loaded language model."""

    context_length: int
    state_format: str | None
    """What a saved state depends on beside the registered model and the tokens; None: states cannot be saved."""

    def held(self, tokens: Sequence[int]) -> int:
        """Count how many tokens, from the first, need no evaluation."""

    def save(self, first: int, last: int) -> bytes:
        """Return the state of the held tokens at first <= position < last."""

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        """Hold tokens from position `first` on by the state that was saved of them; whether that could be done.

        The state must be known to be what this server saved of these tokens, at this position, in this format.
        """

    def serve(self, tenant: str) -> None:
        """Say for whom the next calls are: nothing cached for another may be used, or told of."""

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""

    def truncate(self, text: str, tokens: int) -> str:
        """Return the longest beginning of the text that has at most this many tokens."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages with the model's chat template, ready for its answer, as tokens."""

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, interrupts: Interrupts
    ) -> Iterator[str]:
        """Continue the tokens, yielding text as it is made; never half a character or part of a stop string."""

    def stream_many(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        workers: Workers,
    ) -> list[str]:
        """Continue many prompts (at least one) side by side, each with a sampling and a completion of its own."""

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Mean log-probability (nats a token) of each candidate as what follows each plain text: a row a text.

        Where candidates differ in length their ends are scored too: one that another begins with gains nothing by it.
        No chat template is applied. What the texts, or a single one and that of the call before, begin with alike
        is evaluated once.
        """

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], interrupts: Interrupts
    ) -> list[float]:
        """Log-probability of the first token of each candidate, as the next token.

        The cache goes on from what it holds of the tokens, as it does for a stream.
        """

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do so for many prompts side by side, and leave alone what is cached of a conversation."""

    def close(self) -> None:
        """Give the memory back."""


class Embedder(Protocol):
    """A loaded embedding model."""

    dims: int

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors of `dims` numbers; texts past the model's context are cut."""

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""

    def close(self) -> None:
        """Give the memory back."""


class Reranker(Protocol):
    """A loaded model that reads a query and a text together."""

    def score(self, query: str, texts: Sequence[str], interrupts: Interrupts) -> Iterator[float]:
        """Yield how well each text answers the query, the higher the better."""

    def close(self) -> None:
        """Give the memory back."""


Model = Generator | Embedder | Reranker


@dataclass(frozen=True)
class ModelSpec:
    """One row of the table `model`: what is needed to load it."""

    name: str
    kind: str
    provider: str
    source: str
    sha256: str
    options: Mapping[str, Any]
    adapter: str | None = None
    """The file of a LoRA that changes the model in `source`; name, hash and options are then the adapter's."""


@dataclass(frozen=True)
class ModelFacts:
    """What a provider learns from a model's files when it is registered."""

    sha256: str
    context_length: int | None
    dims: int | None
    licence: str | None
