"""Models that a server runs, and that this process runs itself while the server is down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from mindful.core.errors import EngineError
from mindful.core.ports import (
    Completion,
    Embedder,
    Generator,
    Interrupts,
    Message,
    Model,
    Sampling,
    Vector,
    Workers,
)
from mindful.core.slot import Turn

M = TypeVar("M", Generator, Embedder)
T = TypeVar("T")


class _Standby(Generic[M]):
    """A served model for one call. After the server's first failure the embedded model takes its place.

    A check before the call is not enough: a server can end between any two requests, and in the middle of an answer.
    """

    def __init__(self, served: M, embedded: Callable[[], Model]) -> None:
        self.served = True
        self._model: M = served
        self._embedded = embedded

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""
        return self._ask(lambda model: model.count(text))

    def close(self) -> None:
        """Do nothing: the connection keeps both models."""

    def _ask(
        self,
        work: Callable[[M], T],
        interrupts: Interrupts | None = None,
        completions: Sequence[Completion] = (),
    ) -> T:
        """Do work, or do it again from its beginning if the server fails."""
        if self.served:
            try:
                return work(self._model)
            except EngineError:
                pass
            self._fall_back(interrupts, completions)
        return work(self._model)

    def _fall_back(self, interrupts: Interrupts | None, completions: Sequence[Completion]) -> None:
        for completion in completions:
            completion.restart()
        self._model = cast(M, self._embedded())
        self.served = False
        if isinstance(interrupts, Turn):
            interrupts.compute()


class StandbyEmbedder(_Standby[Embedder]):
    """An embedder of a server."""

    def __init__(self, served: Embedder, embedded: Callable[[], Model]) -> None:
        super().__init__(served, embedded)
        self.dims = served.dims
        self.context_length = served.context_length

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors."""
        return self._ask(lambda model: model.embed(texts, interrupts), interrupts)


class StandbyGenerator(_Standby[Generator]):
    """A generator of a server. Both models have the same tokens, so a prompt can go to either."""

    def __init__(self, served: Generator, embedded: Callable[[], Model]) -> None:
        super().__init__(served, embedded)
        self.context_length = served.context_length
        self.state_format = served.state_format
        self._tenant: str | None = None

    def held(self, tokens: Sequence[int]) -> int:
        """Count the tokens from the first on that are cached."""
        return self._model.held(tokens)

    def save(self, first: int, last: int) -> bytes:
        """Return the state of the cached tokens at first <= position < last."""
        return self._model.save(first, last)

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        """Cache tokens from position `first` on from their saved state. Return whether that succeeded."""
        return self._model.load(first, tokens, state)

    def serve(self, tenant: str) -> None:
        """Set the tenant of the next calls."""
        self._tenant = tenant
        self._model.serve(tenant)

    def truncate(self, text: str, tokens: int) -> str:
        """Return the longest beginning of the text that has at most this many tokens."""
        return self._ask(lambda model: model.truncate(text, tokens))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages with the model's chat template, up to the start of the answer, as tokens."""
        return self._ask(lambda model: model.encode(messages))

    def tokenize(self, text: str, opens: bool = False) -> list[int]:
        """Return the tokens of a plain text."""
        return self._ask(lambda model: model.tokenize(text, opens))

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, workers: Workers
    ) -> Iterator[str]:
        """Continue the tokens. Error 08006: the server failed after a part of the answer was shown."""
        begun = False
        while True:
            try:
                for piece in self._model.stream(tokens, sampling, completion, workers):
                    begun = True
                    yield piece
            except EngineError:
                if begun or not self.served:
                    raise
            else:
                return
            self._fall_back(workers, [completion])

    def whole(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        completion: Completion,
        workers: Workers,
        watched: Callable[[Iterator[str]], Iterator[str]] = iter,
    ) -> str:
        """Return the whole continuation of the tokens. Nothing of it was shown before, so it may begin again."""
        return self._ask(
            lambda model: _joined(model, tokens, sampling, completion, workers, watched),
            workers,
            [completion],
        )

    def stream_many(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        workers: Workers,
    ) -> list[str]:
        """Continue many prompts."""
        return self._ask(
            lambda model: model.stream_many(prompts, samplings, completions, workers), workers, completions
        )

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Return the mean log-probability of each candidate's tokens after each plain text."""
        return self._ask(lambda model: model.score(prompts, candidates, end, workers), workers)

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], workers: Workers
    ) -> list[float]:
        """Return the log-probability of the first token of each candidate as the next token."""
        return self._ask(lambda model: model.next_logprobs(tokens, candidates, workers), workers)

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do the same for many prompts."""
        return self._ask(lambda model: model.next_logprobs_many(prompts, candidates, workers), workers)

    def _fall_back(self, interrupts: Interrupts | None, completions: Sequence[Completion]) -> None:
        super()._fall_back(interrupts, completions)
        self.state_format = self._model.state_format
        if self._tenant is not None:  # before any call: the embedded model may hold another tenant's words
            self._model.serve(self._tenant)


def whole(
    generator: Generator,
    tokens: Sequence[int],
    sampling: Sampling,
    completion: Completion,
    workers: Workers,
    watched: Callable[[Iterator[str]], Iterator[str]] = iter,
) -> str:
    """Return the whole continuation of the tokens, which is shown to no one before its end."""
    if isinstance(generator, StandbyGenerator):
        return generator.whole(tokens, sampling, completion, workers, watched)
    return _joined(generator, tokens, sampling, completion, workers, watched)


def _joined(
    generator: Generator,
    tokens: Sequence[int],
    sampling: Sampling,
    completion: Completion,
    workers: Workers,
    watched: Callable[[Iterator[str]], Iterator[str]],
) -> str:
    hidden = sampling._replace(shown=False)
    return "".join(watched(generator.stream(tokens, hidden, completion, workers)))
