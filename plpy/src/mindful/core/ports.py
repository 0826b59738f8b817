"""Interfaces between the rooms: the database, the models, and the values they exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

Row = Mapping[str, Any]
Vector = Sequence[float]


class Interrupts(Protocol):
    """Checks for interrupts: cancels, timeouts and terminations."""

    def check(self) -> None:
        """Raise if an interrupt is pending."""

    def pending(self) -> bool:
        """Return whether an interrupt is pending. It can be called from a C library's callback."""


class Host(Interrupts, Protocol):
    """Interrupts, and the server's data directory."""

    def directory(self) -> str:
        """Return the server's data directory."""


class Workers(Interrupts, Protocol):
    """Interrupts, and the number of threads that may compute, which changes during a call."""

    @property
    def threads(self) -> int:
        """Return the number of threads that may compute now."""

    def wide(self) -> AbstractContextManager[object]:
        """Use the threads that are free until the context ends, for work that several threads share well."""


class Single:
    """Workers of a call without a turn: one thread."""

    threads = 1

    def __init__(self, interrupts: Interrupts) -> None:
        self.check, self.pending = interrupts.check, interrupts.pending

    def wide(self) -> AbstractContextManager[object]:
        """Stay one."""
        return nullcontext()


class Database(Interrupts, Protocol):
    """SQL as the calling role, in its transaction."""

    def rows(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> list[Row]:
        """Run one statement with arguments $1.. of the named types."""

    def one(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> Row:
        """Run a statement that yields at least one row, and return its first."""

    def commit(self) -> None:
        """Commit, and continue in a new transaction. Error 55000: the caller is in a transaction block."""

    def attempt(
        self, sql: str, types: Sequence[str], arguments: Sequence[Any], undo: bool, timeout_ms: int
    ) -> list[Row]:
        """Run any statement in a subtransaction, and raise its errors as AttemptError.

        With undo the subtransaction is rolled back. After timeout_ms the SQLSTATE is 57014. A cancel of the caller is
        not caught.
        """

    def warning(self, message: str, hint: str) -> None:
        """Send a warning to the client."""

    def after_transaction(self, action: Callable[[], object]) -> None:
        """Call an action once after the commit or rollback of this transaction. It must not use the database."""

    def sleep(self, seconds: float) -> None:
        """Sleep until `wake` or the end of the time. Raise as soon as an interrupt is pending."""

    def wake(self, process: int) -> None:
        """End the sleep of another backend."""

    def directory(self) -> str:
        """Return the server's data directory."""

    def secret(self) -> bytes:
        """Return a key of 32 bytes that all processes of this server share. No role can read it by SQL."""


class Message(NamedTuple):
    """One message of a conversation, with the fields of chat templates."""

    role: str
    content: str


class Penalties(NamedTuple):
    """Penalties on the logits of tokens that the answer already has. The defaults change nothing."""

    presence: float = 0.0
    frequency: float = 0.0
    repeat: float = 1.0


class Sampling(NamedTuple):
    """Parameters of generation. Temperature 0 is greedy, a seed makes the call repeatable, the grammar is GBNF.

    top_k 0, top_p 1 and min_p 0 keep all tokens. `biases` are pairs of a token and a number that is added to its
    logit. `alternatives` is the number of most likely tokens recorded per position; None: no pieces are recorded.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    is_users_grammar: bool = False
    """Whether a user wrote the grammar, which may be made to take long."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the grammar, for servers that accept schemas instead of grammars."""
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    penalties: Penalties = Penalties()
    biases: tuple[tuple[int, float], ...] = ()
    alternatives: int | None = None
    shown: bool = True
    """Whether the pieces are shown before the answer ends. A server may send an answer that is not as a whole."""


class Piece(NamedTuple):
    """One token of an answer: its bytes, its log-probability, and those of the most likely tokens at its position."""

    data: bytes
    logprob: float
    alternatives: tuple[tuple[bytes, float], ...] = ()


class Completion:
    """Facts about a generated text. The model's token loop fills them in.

    The arrays hold one value per sampled token, the end token included: its log-probability (nats), the entropy of
    the distribution (nats), and the difference of the two highest probabilities. They are computed from the raw
    logits (temperature 1), whatever the sampling.
    """

    def __init__(
        self,
        logprobs: Iterable[float] = (),
        entropies: Iterable[float] = (),
        margins: Iterable[float] = (),
    ) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.finish_reason = "length"
        self.first_token_ms: float | None = None
        self.total_ms = 0.0
        self.signal_ms = 0.0
        """The part of total_ms that computing the arrays below took."""
        self.logprobs = list(logprobs)
        self.entropies = list(entropies)
        self.margins = list(margins)
        self.pieces: list[Piece] = []
        """The tokens without the end token, if `Sampling.alternatives` is set."""
        self.looped = False
        """Whether the answer was ended because it repeated itself. The arrays then end before the repetitions."""

    def restart(self) -> None:
        """Forget an attempt that failed."""
        vars(self).update(vars(Completion()))


class Generator(Protocol):
    """A loaded language model."""

    served: bool
    """Whether another process computes. Calls of a served model need no slot."""
    context_length: int
    state_format: str | None
    """Identifies everything else that a saved state depends on beside model and tokens. None: no saved states."""

    def held(self, tokens: Sequence[int]) -> int:
        """Count the tokens from the first on that are cached."""

    def save(self, first: int, last: int) -> bytes:
        """Return the state of the cached tokens at first <= position < last."""

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        """Cache tokens from position `first` on from their saved state. Return whether that succeeded.

        The caller must make sure that this server saved the state of these tokens, at this position, in this format.
        """

    def serve(self, tenant: str) -> None:
        """Set the tenant of the next calls. They must not use or report the cache of another tenant."""

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""

    def truncate(self, text: str, tokens: int) -> str:
        """Return the longest beginning of the text that has at most this many tokens."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages with the model's chat template, up to the start of the answer, as tokens."""

    def tokenize(self, text: str, opens: bool = False) -> list[int]:
        """Return the tokens of a plain text without control tokens. `opens` adds the tokens that begin a prompt."""

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, workers: Workers
    ) -> Iterator[str]:
        """Generate the continuation of the tokens. Yield whole characters, and no part of a stop string."""

    def stream_many(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        workers: Workers,
    ) -> list[str]:
        """Generate the continuations of at least one prompt in shared batches. Each has its sampling and completion."""

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Return the mean log-probability (nats per token) of each candidate after each plain text, a row per text.

        If candidates differ in length, the end is scored too, so that a beginning of another candidate has no
        advantage. No chat template is applied. A common beginning of the texts is evaluated once; a single text
        shares its beginning with the text of the previous call.
        """

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], workers: Workers
    ) -> list[float]:
        """Return the log-probability of the first token of each candidate as the next token.

        It uses and extends the cache as `stream` does.
        """

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do the same for many prompts in shared batches. The cache of a conversation stays unchanged."""

    def close(self) -> None:
        """Free the memory."""


class Embedder(Protocol):
    """A loaded embedding model."""

    served: bool
    dims: int
    context_length: int

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors of `dims` numbers. Texts longer than the context are cut; see `embed_whole`."""

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""

    def close(self) -> None:
        """Free the memory."""


class Reranker(Protocol):
    """A loaded model that scores a query and a text together."""

    served: bool

    def score(self, query: str, texts: Sequence[str], interrupts: Interrupts) -> Iterator[float]:
        """Yield a score per text: how well it answers the query. Higher is better."""

    def close(self) -> None:
        """Free the memory."""


Model = Generator | Embedder | Reranker


class ModelSpec(NamedTuple):
    """The columns of the table `model` that are needed to load a model."""

    name: str
    kind: str
    provider: str
    source: str
    sha256: str
    options: Mapping[str, Any]
    adapter: str | None = None
    """The file of a LoRA adapter for the model in `source`. name, sha256 and options are then the adapter's."""


class ModelFacts(NamedTuple):
    """Facts about a model that its provider finds at registration."""

    sha256: str
    context_length: int | None
    dims: int | None
    license: str | None
    found: Mapping[str, Any] = MappingProxyType({})
    """Options that the caller did not pass and the provider found out."""
    warnings: tuple[tuple[str, str], ...] = ()
    """Messages and hints about what the model lacks."""
