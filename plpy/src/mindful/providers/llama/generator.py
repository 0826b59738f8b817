"""The token loop: a language model of llama.cpp, with one KV cache a backend."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from mindful.errors import ContextLengthError, CorruptedModelError, NotReadyError
from mindful.ports import Completion, Interrupts, Message, Sampling, Workers
from mindful.providers.llama import state as kv
from mindful.providers.llama.batch import Answers, Scorer
from mindful.providers.llama.library import ABORTED, last_error, llama, np
from mindful.providers.llama.sampler import Sampler
from mindful.providers.llama.signals import SignalReader
from mindful.providers.llama.template import ChatTemplate
from mindful.providers.llama.weights import Weights
from mindful.providers.lookup import Lookup
from mindful.providers.packing import common_prefix
from mindful.text import TextStream

_BATCH = 512
_SLOW_TOKEN_S = 0.05
_TOKENIZED = 64
"""Texts tokenized between two looks at cancels."""


class LlamaGenerator:
    """A generator whose KV cache serves the longest prefix that a prompt shares with what was seen before."""

    def __init__(
        self,
        weights: Weights,
        context_length: int,
        threads: int,
        lookup: int = 0,
        template: str | None = None,
        stop: Sequence[str] = (),
    ) -> None:
        """Make the context; `lookup` is how many tokens are guessed at most, where answers repeat (Lookup)."""
        self.context_length = context_length
        self._weights = weights
        self._template = ChatTemplate(weights, template)
        self._stop = tuple(stop)
        self._signals = SignalReader(weights.vocabulary_size)
        self._threads = threads
        self._scorer = Scorer(weights, threads)
        params = llama.llama_context_default_params()
        params.n_ctx = context_length
        params.n_batch = params.n_ubatch = min(_BATCH, context_length)
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.no_perf = True
        params.n_seq_max, params.kv_unified = kv.SEQUENCES, True
        self._context = weights.context(params)
        if not self._context:
            raise CorruptedModelError(
                f"llama.cpp cannot make a context of {context_length} tokens: {last_error()}",
                "Register the model with a smaller option context_length.",
            )
        self._memory = llama.llama_get_memory(self._context)
        self._cached: list[int] = []  # the tokens whose keys and values the cache holds
        self._cached_for: str | None = None  # the tenant whose tokens they are
        self._tenant: str | None = None
        self._holder: object = None  # the stream that evaluated last
        self._slow = False
        self.state_format = kv.format_of(weights, context_length)
        # Wrong guesses must be forgotten one by one.
        self._lookup = lookup if self.state_format is not None else 0

    def held(self, tokens: Sequence[int]) -> int:
        """Count how many tokens, from the first, the cache holds."""
        return common_prefix(self._cached, tokens) if self._tenant == self._cached_for else 0

    def save(self, first: int, last: int) -> bytes:
        """Return the state of the held tokens at first <= position < last."""
        return kv.take(self._context, first, last)

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        """Hold tokens from position `first` on by their state."""
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
        """Render messages with the model's chat template, ready for its answer, as tokens."""
        return self._template.encode(messages)

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, interrupts: Interrupts
    ) -> Iterator[str]:
        """Continue the tokens, yielding text as it is made."""
        started, tenant = time.perf_counter(), self._tenant
        context, text, holder = list(tokens), TextStream((*sampling.stop, *self._stop)), object()
        completion.prompt_tokens = len(context)
        # Batch shapes differ with a warm cache and with them the last bits of the logits: a seed asks for repetition.
        completion.cached_tokens = self._evaluate(context, tenant, interrupts, reuse=sampling.seed is None)
        self._holder = holder
        lookup, at = Lookup(self._lookup if sampling.temperature == 0 else 0), -1
        with Sampler(self._weights, sampling, interrupts) as sampler:
            for made in range(min(sampling.max_tokens, self.context_length - len(context))):
                if self._holder is not holder:  # another call of this backend ran while ours was suspended
                    self._evaluate(context, tenant, interrupts)
                    self._holder, at = holder, lookup.forget()
                elif made:
                    at = self._advance(context, lookup, interrupts)
                logits = self._logits(at)
                token = sampler.choose(self._context, at, logits)
                self._signals.read(logits, token, completion)
                completion.total_ms = (time.perf_counter() - started) * 1000
                completion.first_token_ms = completion.first_token_ms or completion.total_ms
                if self._weights.ends(token):
                    completion.finish_reason = "stop"
                    break
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
        self, tokens: Sequence[int], candidates: Sequence[str], interrupts: Interrupts
    ) -> list[float]:
        """Log-probability of the first token of each candidate, as the next token."""
        self._evaluate(list(tokens), self._tenant, interrupts)
        logits = self._logits().astype(np.float64)
        log_total = logits.max() + np.log(np.exp(logits - logits.max()).sum())
        return [float(logits[first] - log_total) for [first] in self._first_tokens(candidates)]

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do so for many prompts side by side, in the context of scores."""
        return self._scorer.score(prompts, self._first_tokens(candidates), workers)

    def serve(self, tenant: str) -> None:
        """Say for whom the next calls are: how much of a prompt is cached would tell what another had asked."""
        if tenant != self._tenant:
            self._scorer.forget()
        self._tenant = tenant

    def stream_many(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        workers: Workers,
    ) -> list[str]:
        """Continue many prompts side by side."""
        samplings = [replace(one, stop=(*one.stop, *self._stop)) for one in samplings]
        answers = Answers(self._weights, self.context_length, self._threads, prompts, samplings, completions)
        return answers.run(workers)

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Mean log-probability of each candidate's tokens, as what follows each of these plain texts."""
        # A tokenizer may join a candidate's first character to what stands before it, or set a space before it.
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
        """Give the memory back; a stream that is still suspended fails when it is resumed."""
        self._scorer.close()
        llama.llama_free(self._context)
        self._context = self._holder = None
        self._cached.clear()
        self._weights.close()

    def _first_tokens(self, candidates: Sequence[str]) -> list[list[int]]:
        return [self._weights.tokenize(text, most=1) for text in candidates]

    def _evaluate(
        self, tokens: list[int], tenant: str | None, interrupts: Interrupts, reuse: bool = True
    ) -> int:
        """Make the cache hold just these tokens, and return how many it held already.

        Nobody holds the cache from here on: whoever is suspended must evaluate anew, even if this call fails.
        """
        self._holder = None
        if not self._context:
            raise NotReadyError("the model was unloaded while its answer was read", "Ask again.")
        # The last token is always evaluated: its logits are what comes next.
        known = reuse and tenant == self._cached_for
        shared = common_prefix(self._cached, tokens[:-1]) if known else 0
        self._keep(shared)
        self._cached_for = tenant
        shared = len(self._cached)
        self._append(tokens[shared:], interrupts)
        return shared

    def _advance(self, context: Sequence[int], lookup: Lookup, interrupts: Interrupts) -> int:
        """Evaluate the newest token, unless it was guessed, and return the batch's entry whose logits follow it."""
        confirmed = lookup.confirm(context[-1])
        if confirmed is not None:
            return confirmed
        if len(self._cached) >= len(context):
            self._keep(len(context) - 1)
        guessed = lookup.guess(context, self.context_length - len(context))
        self._append([context[-1], *guessed], interrupts, every_logit=bool(guessed))
        return 0 if guessed else -1

    def _append(self, tokens: Sequence[int], interrupts: Interrupts, every_logit: bool = False) -> None:
        for start in range(0, len(tokens), _BATCH):
            part = tokens[start : start + _BATCH]
            interrupts.check()
            self._decode(part, interrupts, every_logit)
            self._cached.extend(part)

    def _decode(self, tokens: Sequence[int], interrupts: Interrupts, every_logit: bool) -> None:
        # The callback runs once a graph node: nothing beside a batch, a few per cent of a small model's token.
        watched = len(tokens) > 1 or self._slow
        callback = llama.ggml_abort_callback((lambda _data: interrupts.pending()) if watched else 0)
        llama.llama_set_abort_callback(self._context, callback, None)
        array = (llama.llama_token * len(tokens))(*tokens)
        batch = llama.llama_batch_get_one(array, len(tokens))
        if every_logit:
            batch.logits = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        started = time.perf_counter()
        status = llama.llama_decode(self._context, batch)
        if len(tokens) == 1:
            self._slow = time.perf_counter() - started > _SLOW_TOKEN_S
        if status != 0:
            self._keep(len(self._cached))
            interrupts.check()
            reason = "it was aborted" if status == ABORTED else last_error()
            raise CorruptedModelError(f"llama.cpp failed to evaluate {len(tokens)} tokens: {reason}")

    def _keep(self, tokens: int) -> None:
        """Drop from the cache what stands after its first `tokens` tokens."""
        if tokens and llama.llama_memory_seq_rm(self._memory, 0, tokens, -1):
            del self._cached[tokens:]
        else:  # some architectures cannot forget a part
            llama.llama_memory_clear(self._memory, False)
            self._cached.clear()

    def _logits(self, at: int = -1) -> Any:
        pointer = llama.llama_get_logits_ith(self._context, at)
        return np.ctypeslib.as_array(pointer, shape=(self._weights.vocabulary_size,))
