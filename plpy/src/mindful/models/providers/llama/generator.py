"""The token loop of llama.cpp, with one KV cache per backend."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from mindful.core.errors import ContextLengthError, CorruptedModelError, NotReadyError
from mindful.core.ports import Completion, Message, Sampling, Workers
from mindful.core.text import TextStream
from mindful.models.providers.llama import state as kv
from mindful.models.providers.llama.arrays import np
from mindful.models.providers.llama.batch import Answers, Scorer, Sequences
from mindful.models.providers.llama.library import ABORTED, last_error, llama
from mindful.models.providers.llama.sampler import Dry, Sampler
from mindful.models.providers.llama.signals import SignalReader
from mindful.models.providers.llama.template import ChatTemplate
from mindful.models.providers.llama.weights import Weights
from mindful.models.providers.lookup import Lookup
from mindful.models.providers.packing import common_prefix

_BATCH = 128
"""Tokens at once, between two checks for waiting backends."""
_SLOW_BATCH = 32
"""The same for large models, which else take seconds. Flash attention would round so few tokens in another way."""
_NEWEST = 2
"""Tokens of a prompt that are evaluated in any case without flash attention. llama.cpp rounds a token that is
evaluated alone in another way, so that a prompt asked again would get other logits."""
_WIDE = 16
"""From this many tokens on several threads are faster than one."""
_SLOW_TOKEN_S = 0.05
_TOKENIZED = 64
"""Texts tokenized between two checks for interrupts."""


class LlamaGenerator:
    """A generator that reuses the longest common beginning of a prompt and its KV cache."""

    served = False

    def __init__(
        self,
        weights: Weights,
        context_length: int,
        threads: int,
        lookup: int = 0,
        template: str | None = None,
        stop: Sequence[str] = (),
        dry: float = 0.0,
        flash: bool = False,
    ) -> None:
        """Create the context.

        `lookup` is the largest number of tokens that prompt lookup guesses (see Lookup), `dry` the multiplier of DRY,
        `flash` whether single answers use flash attention. Batches always do.
        """
        self.context_length = context_length
        self._weights = weights
        self._template = ChatTemplate(weights, template)
        self._stop = tuple(stop)
        self._signals = SignalReader(weights.vocabulary_size)
        self._threads = threads
        self._scorer = Scorer(weights, threads)
        self._room: Sequences | None = None
        """A small context that keeps the prompt of the last single answer."""
        params = llama.llama_context_default_params()
        params.n_ctx = context_length
        params.n_batch = params.n_ubatch = min(_BATCH, context_length)
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = (
            llama.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.no_perf = True
        params.n_seq_max, params.kv_unified = kv.SEQUENCES, True
        self._context = weights.context(params)
        if not self._context:
            raise CorruptedModelError(
                f"llama.cpp cannot make a context of {context_length} tokens: {last_error()}",
                "Register the model with a smaller option context_length.",
            )
        self._memory = llama.llama_get_memory(self._context)
        self._cached: list[int] = []  # tokens whose keys and values are in the cache
        self._cached_for: str | None = None  # the tenant whose tokens they are
        self._tenant: str | None = None
        self._holder: object = None  # the stream that evaluated last
        self._slow = False
        self.state_format = kv.format_of(weights, context_length, flash)
        # Lookup needs a cache from which single tokens can be removed.
        self._lookup = lookup if self.state_format is not None else 0
        self._flash = flash
        self._dry = Dry(weights, dry, context_length) if dry else None

    @property
    def template(self) -> str:
        """The chat template."""
        return self._template.source

    def held(self, tokens: Sequence[int]) -> int:
        """Count the tokens from the first on that are in the cache."""
        return common_prefix(self._cached, tokens) if self._tenant == self._cached_for else 0

    def save(self, first: int, last: int) -> bytes:
        """Return the state of the cached tokens at first <= position < last."""
        return kv.take(self._context, first, last)

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        """Cache tokens from position `first` on from their state."""
        self._holder = None
        self._keep(first if self._tenant == self._cached_for else 0)
        self._cached_for = self._tenant
        loaded = len(self._cached) == first and kv.give(self._context, state)
        if loaded:
            self._cached.extend(tokens)
        return loaded

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""
        return len(self._weights.tokenize(text))

    def truncate(self, text: str, tokens: int) -> str:
        """Return the longest beginning of the text that has at most this many tokens."""
        kept = self._weights.tokenize(text, most=tokens)
        return b"".join(map(self._weights.piece, kept)).decode(errors="ignore")

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages with the model's chat template, up to the start of the answer, as tokens."""
        return self._template.encode(messages)

    def tokenize(self, text: str, opens: bool = False) -> list[int]:
        """Return the tokens of a plain text; those before a text that opens a prompt too."""
        return [*(self._weights.before if opens else ()), *self._weights.tokenize(text)]

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, workers: Workers
    ) -> Iterator[str]:
        """Generate the continuation of the tokens, and yield it piece by piece."""
        started, tenant, sampling = time.perf_counter(), self._tenant, self._completed(sampling)
        context, text, holder = list(tokens), TextStream(sampling.stop), object()
        completion.prompt_tokens = len(context)
        # A cache changes the shapes of batches and the last bits of logits, so calls with a seed do not use it.
        completion.cached_tokens = self._evaluate(context, tenant, workers, reuse=sampling.seed is None)
        self._holder = holder
        lookup, at = Lookup(self._lookup if sampling.temperature == 0 else 0), -1
        with Sampler(self._weights, sampling, workers, self._dry) as sampler:
            for made in range(min(sampling.max_tokens, self.context_length - len(context))):
                if self._holder is not holder:  # another call of this backend ran while ours was suspended
                    self._evaluate(context, tenant, workers)
                    self._holder, at = holder, lookup.forget()
                elif made:
                    at = self._advance(context, lookup, workers)
                logits = self._logits(at)
                token = sampler.choose(self._context, at, logits)
                likeliest = self._signals.read(logits, token, completion, sampling.alternatives or 0)
                completion.total_ms = (time.perf_counter() - started) * 1000
                completion.first_token_ms = completion.first_token_ms or completion.total_ms
                if self._weights.ends(token):
                    completion.finish_reason = "stop"
                    break
                if sampling.alternatives is not None:
                    completion.pieces.append(self._weights.shown(token, completion.logprobs[-1], likeliest))
                context.append(token)
                if shown := text.push(self._weights.piece(token)):
                    yield shown
                if text.stopped:
                    completion.finish_reason = "stop"
                    break
        completion.total_ms = (time.perf_counter() - started) * 1000
        if rest := text.flush():
            yield rest

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], workers: Workers
    ) -> list[float]:
        """Return the log-probability of the first token of each candidate as the next token."""
        self._evaluate(list(tokens), self._tenant, workers)
        logits = self._logits().astype(np.float64)
        log_total = logits.max() + np.log(np.exp(logits - logits.max()).sum())
        return [float(logits[first] - log_total) for [first] in self._first_tokens(candidates)]

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do the same for many prompts in shared batches, in the context of the scorer."""
        return self._scorer.score(prompts, self._first_tokens(candidates), workers)

    def serve(self, tenant: str) -> None:
        """Set the tenant of the next calls. The number of cached tokens would reveal another tenant's prompts."""
        if tenant != self._tenant:
            self._scorer.forget()
            if self._room is not None:
                self._room.prefix = []
        self._tenant = tenant

    def stream_many(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        workers: Workers,
    ) -> list[str]:
        """Generate the continuations of many prompts in shared batches."""
        samplings = [*map(self._completed, samplings)]
        kept = self._kept_room() if Answers.fit(prompts, samplings) else None
        answers = Answers(
            *(self._weights, self.context_length, self._threads, prompts, samplings, completions),
            *(kept, self._dry),
        )
        return answers.run(workers)

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Return the mean log-probability of each candidate's tokens after each plain text."""
        # A tokenizer may join a candidate's first character with the preceding one, or add a space before it.
        last = prompts[0][-1]
        before = len(self._weights.tokenize(last))
        after = [self._weights.tokenize(last + text)[before:] for text in candidates]
        if len(set(map(len, after))) > 1:
            after = [self._weights.tokenize(last + text + end)[before:] for text in candidates]
        tokens = []
        for at, prompt in enumerate(prompts):
            if at % _TOKENIZED == 0:
                workers.check()
            tokens.append(self._weights.tokenize(prompt, surround=True))
        longest = max(map(len, tokens)) + max(map(len, after))
        if longest > self.context_length:
            raise ContextLengthError(
                f"a text with its label has {longest} tokens, the model's context holds {self.context_length}",
                "Shorten it, or register the model with a larger option context_length.",
            )
        return self._scorer.score(tokens, after, workers)

    def close(self) -> None:
        """Free the memory. A suspended stream fails when it is resumed."""
        if self._dry is not None:
            self._dry.close()
            self._dry = None
        self._scorer.close()
        if self._room is not None:
            self._room.close()
            self._room = None
        llama.llama_free(self._context)
        self._context = self._holder = None
        self._cached.clear()
        self._weights.close()

    def _completed(self, sampling: Sampling) -> Sampling:
        """Add the model's own stops, and take no more tokens than the context holds: penalties allocate for each."""
        most = min(sampling.max_tokens, self.context_length)
        return sampling._replace(stop=(*sampling.stop, *self._stop), max_tokens=most)

    def _kept_room(self) -> Sequences:
        if self._room is None:
            self._room = Answers.room(self._weights, self._threads)
        return self._room

    def _first_tokens(self, candidates: Sequence[str]) -> list[list[int]]:
        return [self._weights.tokenize(text, most=1) for text in candidates]

    def _evaluate(self, tokens: list[int], tenant: str | None, workers: Workers, reuse: bool = True) -> int:
        """Fill the cache with exactly these tokens, and return how many of them it had already.

        This takes the cache from suspended streams: they evaluate their tokens again, even if this call fails.
        """
        self._holder = None
        if not self._context:
            raise NotReadyError(
                "the model was unloaded while its answer was read", "Call the function again."
            )
        # The last token is always evaluated, because its logits give the next token.
        known = reuse and tenant == self._cached_for
        newest = 1 if self._flash else _NEWEST
        shared = common_prefix(self._cached, tokens[:-newest]) if known else 0
        self._keep(shared)
        self._cached_for = tenant
        shared = len(self._cached)
        with workers.wide() if len(tokens) - shared >= _WIDE else nullcontext():
            self._append(tokens[shared:], workers)
        return shared

    def _advance(self, context: Sequence[int], lookup: Lookup, workers: Workers) -> int:
        """Evaluate the newest token, unless it was guessed, and return the batch entry with its logits."""
        confirmed = lookup.confirm(context[-1])
        if confirmed is not None:
            return confirmed
        if len(self._cached) >= len(context):
            self._keep(len(context) - 1)
        guessed = lookup.guess(context, self.context_length - len(context))
        self._append([context[-1], *guessed], workers, every_logit=bool(guessed))
        return 0 if guessed else -1

    def _append(self, tokens: Sequence[int], workers: Workers, every_logit: bool = False) -> None:
        left, most = list(tokens), _SLOW_BATCH if self._slow and not self._flash else _BATCH
        while left:
            size = most - (len(left) == most + 1)  # no single token is left over
            part, left = left[:size], left[size:]
            workers.check()
            self._decode(part, workers, every_logit)
            self._cached.extend(part)

    def _decode(self, tokens: Sequence[int], workers: Workers, every_logit: bool) -> None:
        # The callback runs once per graph node: negligible for a batch, a few percent for a token of a small model.
        watched = len(tokens) > 1 or self._slow
        callback = llama.ggml_abort_callback((lambda _data: workers.pending()) if watched else 0)
        llama.llama_set_abort_callback(self._context, callback, None)
        array = (llama.llama_token * len(tokens))(*tokens)
        batch = llama.llama_batch_get_one(array, len(tokens))
        if every_logit:
            batch.logits = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        # The first number is for a single token, in which threads would mostly wait for each other.
        llama.llama_set_n_threads(self._context, self._threads, max(self._threads, workers.threads))
        started = time.perf_counter()
        status = llama.llama_decode(self._context, batch)
        if len(tokens) == 1:
            self._slow = time.perf_counter() - started > _SLOW_TOKEN_S
        if status != 0:
            self._keep(len(self._cached))
            workers.check()
            reason = "it was aborted" if status == ABORTED else last_error()
            raise CorruptedModelError(f"llama.cpp failed to evaluate {len(tokens)} tokens: {reason}")

    def _keep(self, tokens: int) -> None:
        """Remove all but the first `tokens` tokens from the cache."""
        if tokens and llama.llama_memory_seq_rm(self._memory, 0, tokens, -1):
            del self._cached[tokens:]
        else:  # some architectures cannot remove a part
            llama.llama_memory_clear(self._memory, False)
            self._cached.clear()

    def _logits(self, at: int = -1) -> Any:
        pointer = llama.llama_get_logits_ith(self._context, at)
        return np.ctypeslib.as_array(pointer, shape=(self._weights.vocabulary_size,))
