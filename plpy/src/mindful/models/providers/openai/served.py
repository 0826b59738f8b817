"""What generators behind a server have in common."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from mindful.core.errors import EngineAnswerError
from mindful.core.ports import Completion, Interrupts, Sampling, Workers
from mindful.core.text import TextStream
from mindful.models.providers.openai.constraint import Constraint, Constraints
from mindful.models.providers.openai.crew import side_by_side
from mindful.models.providers.openai.http import EndedError, Server

T = TypeVar("T")

_REMEMBERED = 512
_SHORT = 128
"""Tokens. A longer answer is streamed: a loop is ended early, and a server that hangs is noticed by its silence."""
_LEAST = 1e-9
"""Of a probability, so that its logarithm is a number."""


class Served:
    """A model behind a server: it holds connections and small caches, and computes nothing here."""

    served = True
    state_format: str | None = None

    def __init__(self, server: Server, host: Interrupts) -> None:
        self._server = server
        self._host = host
        self._tenant: str | None = None
        self._known: OrderedDict[object, object] = OrderedDict()

    @property
    def server(self) -> Server:
        """The server."""
        return self._server

    def held(self, tokens: Sequence[int]) -> int:
        """Hold nothing: what the server's cache holds of a prompt, it alone knows."""
        return 0

    def save(self, first: int, last: int) -> bytes:
        """Have no state."""
        return b""

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        """Take no state."""
        return False

    def serve(self, tenant: str) -> None:
        """Say for whom the next calls are; what is remembered of another's is forgotten."""
        if tenant != self._tenant:
            self._known.clear()
        self._tenant = tenant

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _remembered(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = make()
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]  # type: ignore[return-value]


class ServedGenerator(Served, ABC):
    """A generator behind a server, of either form."""

    _endpoint: str
    """The path of streams."""

    def __init__(
        self,
        server: Server,
        host: Interrupts,
        context_length: int,
        parallel: int,
        top: int,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(server, host)
        self.context_length = context_length
        self._parallel = parallel
        self._top = top
        self._model = str(options["model"])
        self._stop = tuple(options.get("stop", ()))
        self._constraints = Constraints(options)

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, interrupts: Interrupts
    ) -> Iterator[str]:
        """Continue the tokens, yielding text as it is made."""
        constraint = self._constraints.of(sampling, interrupts)
        try:
            yield from self._stream(tokens, sampling, constraint, completion, interrupts)
        except EndedError:
            if completion.logprobs:
                raise
            constraint = self._constraints.of(sampling, interrupts)
            yield from self._stream(tokens, sampling, constraint, completion, interrupts)

    def stream_many(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        workers: Workers,
    ) -> list[str]:
        """Continue many prompts, as many at once as the server has slots."""
        constraints = [self._constraints.of(sampling, workers) for sampling in samplings]
        calls = zip(prompts, samplings, constraints, completions, strict=True)
        return side_by_side([partial(self._whole, *call) for call in calls], self._parallel, workers)

    def _whole(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        constraint: Constraint,
        completion: Completion,
        interrupts: Interrupts,
    ) -> str:
        hidden = sampling._replace(shown=False)
        return "".join(self._stream(tokens, hidden, constraint, completion, interrupts))

    def _stream(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        constraint: Constraint,
        completion: Completion,
        interrupts: Interrupts,
    ) -> Iterator[str]:
        started, stop = time.perf_counter(), (*sampling.stop, *self._stop)
        text = TextStream(stop)
        completion.prompt_tokens = len(tokens)
        body = self._body(tokens, sampling) | constraint.body
        # Where the answer may have to be ended before its last token, it is read as it is made.
        streams = sampling.shown or sampling.max_tokens > _SHORT or bool(stop) or constraint.watches
        events = self._server.events if streams else self._parts
        with closing(events(self._endpoint, body, interrupts)) as parts:
            for event in parts:
                interrupts.check()
                completion.total_ms = (time.perf_counter() - started) * 1000
                pieces = self._pieces(event, completion, sampling.alternatives)
                if pieces and streams:
                    completion.first_token_ms = completion.first_token_ms or completion.total_ms
                for piece in pieces:
                    constraint.take(piece)
                    if shown := text.push(piece):
                        yield shown
                    if text.stopped:
                        break
                if text.stopped or len(completion.logprobs) > sampling.max_tokens:
                    completion.finish_reason = "stop"  # the connection is closed, so the server stops
                    break
        if rest := text.flush():
            yield rest

    def _parts(
        self, path: str, body: Mapping[str, Any], interrupts: Interrupts
    ) -> Generator[Mapping[str, Any], None, None]:
        """Ask for a whole answer, and yield it as the events of a stream: the last one first, then each token's.

        A stream makes the server wake all its threads, and this process parse JSON, for each token.
        """
        whole = {key: value for key, value in body.items() if key != "stream_options"} | {"stream": False}
        answer = self._server.post(path, whole, interrupts, patient=True)
        yield from self._events(answer)

    @abstractmethod
    def _body(self, tokens: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        """Return the request for a stream, without its constraint."""

    @abstractmethod
    def _events(self, answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield a whole answer as the events of a stream: first how it ended, then each token."""

    @abstractmethod
    def _pieces(
        self, event: Mapping[str, Any], completion: Completion, alternatives: int | None
    ) -> list[bytes]:
        """Note what an event tells, and return the bytes of its tokens."""


def note(completion: Completion, logprob: float, top: Iterable[float]) -> None:
    """Add a token's signals: the entropy counts all tokens that the server did not tell of as a single one."""
    if not math.isfinite(logprob) or logprob > 0.001:
        raise EngineAnswerError("the server gives a log-probability above 0", "See the server's log.")
    probabilities = sorted((math.exp(min(value, 0.0)) for value in top), reverse=True)
    if len(probabilities) < 2:
        probabilities = [math.exp(logprob)]
    rest = max(1.0 - math.fsum(probabilities), 0.0)
    entropy = -math.fsum(p * math.log(p) for p in (*probabilities, rest) if p > _LEAST)
    second = probabilities[1] if len(probabilities) > 1 else rest
    completion.logprobs.append(min(logprob, 0.0))
    completion.entropies.append(max(entropy, 0.0))
    completion.margins.append(abs(probabilities[0] - second))


def malformed(what: str) -> EngineAnswerError:
    """Return the error for an answer that lacks something."""
    return EngineAnswerError(f"the server's answer has no {what}", "Is it a server of OpenAI's form?")
