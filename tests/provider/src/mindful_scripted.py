"""Deterministic models that follow a script, for tests: no file, no library."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mindful.core.errors import CorruptedModelError, InvalidParameterError
from mindful.core.pattern import linear
from mindful.core.ports import (
    Completion,
    Interrupts,
    Message,
    Model,
    ModelFacts,
    ModelSpec,
    Piece,
    Sampling,
    Vector,
    Workers,
)
from mindful.core.text import TextStream
from mindful.models.providers.options import integer

_WORD = linear(r"\s*\S+|\s+$")
_TERM = linear(r"\w+")


class ScriptedGenerator:
    """Answers by the first of its option `replies` whose text the prompt holds, else by `default`.

    Replies are pairs of a text and the reply to it. A token is a word with the space before it.
    The option `logprob` is every token's log-probability; `samples` are the replies with a seed, 1 and on. With
    `fails_after`, evaluating fails once so many tokens are made.
    """

    served = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.context_length = integer(options, "context_length", 2048, 16, 1 << 20)
        self._replies = [(str(asked), str(reply)) for asked, reply in options.get("replies", [])]
        self._default = str(options.get("default", "I do not know."))
        self._logprob = float(options.get("logprob", -0.1))
        if self._logprob > 0:
            raise ValueError("logprob is positive")
        self._samples = [str(reply) for reply in options.get("samples", [])]
        self._fails_after = integer(options, "fails_after", 1 << 20, 0, 1 << 20)
        self._words: dict[str, int] = {}
        self.state_format: str | None = None

    def held(self, tokens: Sequence[int]) -> int:
        """Hold nothing."""
        return 0

    def save(self, first: int, last: int) -> bytes:
        """Have no state."""
        return b""

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        """Take no state."""
        return False

    def serve(self, tenant: str) -> None:
        """Cache nothing for anybody."""

    def count(self, text: str) -> int:
        """Count words."""
        return len(_WORD.findall(text))

    def truncate(self, text: str, tokens: int) -> str:
        """Return the first words of a text."""
        return "".join(_WORD.findall(text)[:tokens])

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Number the words of all messages."""
        words = [
            word
            for message in messages
            for word in (f"{message.role}:", " ", *_WORD.findall(message.content), "\n")
        ]
        return self._numbers(words)

    def tokenize(self, text: str, opens: bool = False) -> list[int]:
        """Number the words of a text."""
        return self._numbers(_WORD.findall(text))

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, interrupts: Interrupts
    ) -> Iterator[str]:
        """Yield the scripted reply word by word."""
        known = list(self._words)
        reply = self._reply("".join(known[token] for token in tokens))
        if self._samples and sampling.seed:
            reply = self._samples[(sampling.seed - 1) % len(self._samples)]
        completion.prompt_tokens, completion.first_token_ms = len(tokens), 0.0
        words, text = _WORD.findall(reply), TextStream(sampling.stop)
        completion.finish_reason = "stop" if len(words) < sampling.max_tokens else "length"
        for word in words[: sampling.max_tokens]:
            interrupts.check()
            if len(completion.logprobs) == self._fails_after:
                raise CorruptedModelError("the script fails", "Leave out fails_after.")
            completion.logprobs.append(self._logprob)
            completion.entropies.append(-self._logprob)
            completion.margins.append(math.exp(self._logprob))
            if sampling.alternatives is not None:
                likeliest = ((word.encode(), self._logprob),)[: sampling.alternatives]
                completion.pieces.append(Piece(word.encode(), self._logprob, likeliest))
            if shown := text.push(word.encode()):
                yield shown
            if text.stopped:
                completion.finish_reason = "stop"
                break
        if rest := text.flush():
            yield rest

    def stream_many(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        workers: Workers,
    ) -> list[str]:
        """Give each prompt its scripted reply."""
        return [
            "".join(self.stream(*call, workers)) for call in zip(prompts, samplings, completions, strict=True)
        ]

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Give the candidate that is the scripted reply the scripted log-probability, the others the rest."""
        workers.check()
        return [self._spread(self._reply(prompt), candidates) for prompt in prompts]

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], interrupts: Interrupts
    ) -> list[float]:
        """Give the candidate that the script would answer the scripted log-probability, the others the rest."""
        return self._spread("".join(self.stream(tokens, Sampling(), Completion(), interrupts)), candidates)

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do so for each of many prompts."""
        return [self.next_logprobs(tokens, candidates, workers) for tokens in prompts]

    def close(self) -> None:
        """Hold nothing."""

    def _numbers(self, words: Sequence[str]) -> list[int]:
        return [self._words.setdefault(word, len(self._words)) for word in words]

    def _reply(self, prompt: str) -> str:
        return next((text for asked, text in self._replies if asked in prompt), self._default)

    def _spread(self, reply: str, candidates: Sequence[str]) -> list[float]:
        rest = math.log(max(1 - math.exp(self._logprob), 1e-9) / max(len(candidates) - 1, 1))
        return [self._logprob if reply.startswith(text.strip()) else rest for text in candidates]


class ScriptedEmbedder:
    """Embeds a text as the sum of its words' hashes: texts that share words are near.

    A text that holds the option `refused` cannot be embedded, nor can others with it in a batch.
    """

    served = False
    context_length = 1 << 30

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.dims = integer(options, "dims", 64, 1, 2000)
        self._refused = str(options.get("refused", "\0"))

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors."""
        interrupts.check()
        if any(self._refused in text for text in texts):
            raise InvalidParameterError("the script refuses a text", "Leave it out.")
        return [self._embed(text) for text in texts]

    def count(self, text: str) -> int:
        """Count words."""
        return len(text.split())

    def close(self) -> None:
        """Hold nothing."""

    def _embed(self, text: str) -> Vector:
        vector = [1e-6] * self.dims
        for word in _TERM.findall(text.lower()):
            digest = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            vector[digest % self.dims] += 1.0
        norm = math.hypot(*vector)
        return [value / norm for value in vector]


class ScriptedReranker:
    """Scores a text by the share of the query's words in it, each text taking `delay_ms` milliseconds."""

    served = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._delay_s = integer(options, "delay_ms", 0, 0, 60_000) / 1000

    def score(self, query: str, texts: Sequence[str], interrupts: Interrupts) -> Iterator[float]:
        """Yield the shares."""
        wanted = set(_TERM.findall(query.lower()))
        for text in texts:
            interrupts.check()
            time.sleep(self._delay_s)
            yield len(wanted & set(_TERM.findall(text.lower()))) / max(len(wanted), 1)

    def close(self) -> None:
        """Hold nothing."""


def inspect(
    kind: str, source: str, options: Mapping[str, Any], interrupts: Interrupts | None = None
) -> ModelFacts:
    """Check a script."""
    model = _model(kind, options)
    digest = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
    return ModelFacts(digest, getattr(model, "context_length", None), getattr(model, "dims", None), None)


def load(spec: ModelSpec, interrupts: Interrupts) -> Model:
    """Make a scripted model."""
    return _model(spec.kind, spec.options)


def _model(kind: str, options: Mapping[str, Any]) -> ScriptedEmbedder | ScriptedGenerator | ScriptedReranker:
    try:
        if kind == "embedder":
            return ScriptedEmbedder(options)
        if kind == "reranker":
            return ScriptedReranker(options)
        return ScriptedGenerator(options)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"the script is broken: {error}", "replies is [[text in the prompt, reply], ...]."
        ) from None
