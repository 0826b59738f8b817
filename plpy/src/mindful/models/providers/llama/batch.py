"""Many sequences in one KV cache, for labels and answers in shared batches. A common beginning is evaluated once."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mindful.core.errors import CorruptedModelError
from mindful.core.ports import Completion, Sampling, Workers
from mindful.core.process import return_free_memory
from mindful.core.text import TextStream
from mindful.models.providers.llama.arrays import np
from mindful.models.providers.llama.library import last_error, llama
from mindful.models.providers.llama.sampler import Dry, Sampler
from mindful.models.providers.llama.signals import SignalReader
from mindful.models.providers.llama.weights import Weights
from mindful.models.providers.packing import common_prefix, groups

_MICRO_BATCH = 60
"""Tokens evaluated at once. From 64 on llama.cpp's attention rounds differently: log-probabilities moved by up to 0.1,
and 28 of 32 greedy answers changed. Below 64 the results equal those of single tokens with flash attention, at a tenth
less speed."""
_LOOK = 2 * _MICRO_BATCH
"""Tokens between two checks for waiting backends."""


class Entry(NamedTuple):
    """A token of a batch: its position, its sequences, and whether its logits are needed."""

    token: int
    position: int
    sequences: Sequence[int]
    logits: bool


class Sequences:
    """A context whose cells many sequences share. Sequence 0 has the common beginning of all others."""

    def __init__(
        self,
        weights: Weights,
        cells: int,
        sequences: int,
        coupled: int,
        threads: int,
        apart: bool = False,
    ) -> None:
        """Create the context.

        Args:
            weights: the model.
            cells: size of the cache in tokens, for all sequences together; a shared token counts once.
            sequences: number of sequences, the shared beginning included.
            coupled: largest number of sequences that a token belongs to.
            threads: smallest number of threads to evaluate with.
            apart: give each sequence its own cells, so that attention skips those of others. The beginning is then
                copied, not shared.
        """
        self.cells, self.sequences = cells, sequences
        self.prefix: list[int] = []
        self._vocabulary_size = weights.vocabulary_size
        self._coupled = coupled
        self._threads = threads
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = cells
        params.n_ubatch = min(_MICRO_BATCH, cells)
        params.n_seq_max = sequences
        params.kv_unified = not apart
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.no_perf = True
        self.context = weights.context(params)
        if not self.context:
            raise CorruptedModelError(
                f"llama.cpp cannot make a context of {cells} tokens for {sequences} sequences: {last_error()}"
            )
        self._memory = llama.llama_get_memory(self.context)
        self._batch = llama.llama_batch_init(cells, 0, coupled)

    def share(self, tokens: Sequence[int], workers: Workers) -> None:
        """Put these tokens into sequence 0, and empty all other sequences."""
        for sequence in range(1, self.sequences):
            self.drop(sequence)
        kept = common_prefix(self.prefix, tokens)
        if not kept or not llama.llama_memory_seq_rm(self._memory, 0, kept, -1):
            llama.llama_memory_clear(self._memory, False)
            kept = 0
        self.prefix = self.prefix[:kept]
        rest = tokens[kept:]
        if rest:
            self.decode([Entry(token, kept + at, (0,), False) for at, token in enumerate(rest)], workers)
        self.prefix = list(tokens)

    def fork(self, sequence: int) -> None:
        """Start a sequence with the shared beginning."""
        if self.prefix:
            llama.llama_memory_seq_cp(self._memory, 0, sequence, -1, -1)

    def drop(self, sequence: int) -> None:
        """Empty a sequence. This frees the cells that no other sequence shares."""
        llama.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def decode(self, entries: Sequence[Entry], workers: Workers) -> None:
        """Evaluate tokens, at most as many as the context has cells."""
        callback = llama.ggml_abort_callback(lambda _data: workers.pending())
        llama.llama_set_abort_callback(self.context, callback, None)
        batch = self._batch
        for at, entry in enumerate(entries):
            batch.token[at], batch.pos[at], batch.logits[at] = entry.token, entry.position, entry.logits
            batch.n_seq_id[at] = len(entry.sequences)
            for place, sequence in enumerate(entry.sequences):
                batch.seq_id[at][place] = sequence
        batch.n_tokens = len(entries)
        workers.check()
        threads = max(self._threads, workers.threads)
        llama.llama_set_n_threads(self.context, threads, threads)
        if status := llama.llama_decode(self.context, batch):
            workers.check()
            raise CorruptedModelError(
                f"llama.cpp failed to evaluate {len(entries)} tokens: status {status}, {last_error()}"
            )

    def logits(self, at: int) -> Any:
        """Return a view of the raw logits after batch entry `at`, valid until the next decode."""
        pointer = llama.llama_get_logits_ith(self.context, at)
        return np.ctypeslib.as_array(pointer, shape=(self._vocabulary_size,))

    def close(self) -> None:
        """Free the memory."""
        llama.llama_batch_free(self._batch)
        llama.llama_free(self.context)


class _Tree:
    """Candidates as a tree of tokens, so that common beginnings are evaluated once.

    A node is a token that has a successor, with its depth and the candidates that contain it. A path has, for each
    token of a candidate, the node before it; -1 is the end of the prompt.
    """

    def __init__(self, candidates: Sequence[Sequence[int]]) -> None:
        self.candidates = candidates
        self.nodes: list[tuple[int, int, list[int]]] = []
        self.paths: list[list[int]] = []
        places: dict[tuple[int, ...], int] = {}
        for member, tokens in enumerate(candidates):
            path = [-1]
            for depth, token in enumerate(tokens[:-1]):
                key = tuple(tokens[: depth + 1])
                if key not in places:
                    places[key] = len(self.nodes)
                    self.nodes.append((token, depth, []))
                self.nodes[places[key]][2].append(member)
                path.append(places[key])
            self.paths.append(path)

    def entries(self, prompt: Sequence[int], shared: int, first: int) -> Iterator[Entry]:
        """Yield a prompt's entries in the sequences from `first` on. Its end and the nodes need logits."""
        everyone = range(first, first + len(self.candidates))
        for position in range(shared, len(prompt)):
            yield Entry(prompt[position], position, everyone, position == len(prompt) - 1)
        for token, depth, members in self.nodes:
            yield Entry(token, len(prompt) + depth, [first + member for member in members], True)

    def means(self, logits: Sequence[Any]) -> list[float]:
        """Return each candidate's mean log-probability, from the logits at the prompt's end and at the nodes."""
        totals = [float(row.max() + np.log(np.exp(row - row.max()).sum())) for row in logits]
        return [
            sum(
                float(logits[node + 1][token]) - totals[node + 1]
                for node, token in zip(path, tokens, strict=True)
            )
            / len(tokens)
            for path, tokens in zip(self.paths, self.candidates, strict=True)
        ]


class Scorer:
    """Scores candidates as continuations of prompts. It keeps a small context with the beginning between calls."""

    _KEPT_CELLS = 512
    _KEPT_SEQUENCES = 64
    _REMEMBERED = 64
    """Number of single prompts with cached scores. Queries that label row by row score the empty text again."""
    _WORTHWHILE = 8
    """Smallest number of tokens for which evaluating a shared beginning separately is faster."""

    def __init__(self, weights: Weights, threads: int) -> None:
        self._weights = weights
        self._threads = threads
        self._kept: Sequences | None = None
        self._previous: Sequence[int] = ()
        self._single: OrderedDict[tuple[tuple[int, ...], ...], list[float]] = OrderedDict()

    def score(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]], workers: Workers
    ) -> list[list[float]]:
        """Return the mean log-probability (nats per token) of each candidate after each prompt."""
        if len(prompts) > 1:
            return self._score(prompts, candidates, workers)
        key = tuple(map(tuple, (*prompts, *candidates)))
        if key not in self._single:
            [self._single[key]] = self._score(prompts, candidates, workers)
            if len(self._single) > self._REMEMBERED:
                self._single.popitem(last=False)
        self._single.move_to_end(key)
        return [self._single[key]]

    def _score(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]], workers: Workers
    ) -> list[list[float]]:
        tree = _Tree(candidates)
        shared = self._shared(prompts)
        lengths = [len(prompt) - shared + len(tree.nodes) for prompt in prompts]
        with self._context(shared + max(lengths), len(candidates)) as context:
            context.share(prompts[0][:shared], workers)
            scores: list[list[float]] = [[]] * len(prompts)
            most = (context.sequences - 1) // len(candidates)
            for group in groups(lengths, min(context.cells - shared, _LOOK), most):
                rows = self._run(context, tree, [prompts[at] for at in group], workers)
                for at, row in zip(group, rows, strict=True):
                    scores[at] = row
        return scores

    def forget(self) -> None:
        """Drop all cached prompts when the tenant changes. Call times would reveal the previous tenant's prompts."""
        self._previous = ()
        self._single.clear()
        if self._kept is not None:
            self._kept.prefix = []

    def close(self) -> None:
        """Free the memory."""
        self.forget()
        if self._kept is not None:
            self._kept.close()
        self._kept = None

    def _shared(self, prompts: Sequence[Sequence[int]]) -> int:
        """Return the length of the common beginning of all prompts, or of a single one and the previous call's."""
        held = self._kept.prefix if self._kept is not None else ()
        known = common_prefix(held, prompts[0][:-1])
        others = prompts[1:] or (self._previous,)
        self._previous = prompts[-1]
        shared = min(common_prefix(prompts[0][:-1], other[:-1]) for other in others)
        return known if known <= shared < known + self._WORTHWHILE else shared

    @contextlib.contextmanager
    def _context(self, cells: int, coupled: int) -> Iterator[Sequences]:
        """Yield the kept context if it is large enough, else a context for this call. An error closes either."""
        if cells <= self._KEPT_CELLS and coupled < self._KEPT_SEQUENCES:
            if self._kept is None:
                self._kept = self._new(self._KEPT_CELLS, self._KEPT_SEQUENCES)
            whole = False
            try:
                yield self._kept
                whole = True
            finally:
                if not whole:
                    self.close()
        else:
            with contextlib.closing(self._new(cells, max(self._KEPT_SEQUENCES, coupled + 1))) as context:
                yield context
            return_free_memory()

    def _new(self, cells: int, sequences: int) -> Sequences:
        return Sequences(self._weights, cells, sequences, sequences - 1, self._threads)

    @staticmethod
    def _run(
        context: Sequences, tree: _Tree, prompts: Sequence[Sequence[int]], workers: Workers
    ) -> list[list[float]]:
        shared = len(context.prefix)
        entries: list[Entry] = []
        used = range(1, 1 + len(prompts) * len(tree.candidates))
        for sequence in used:
            context.fork(sequence)
        for row, prompt in enumerate(prompts):
            entries += tree.entries(prompt, shared, 1 + row * len(tree.candidates))
        context.decode(entries, workers)
        wanted = [at for at, entry in enumerate(entries) if entry.logits]
        each = 1 + len(tree.nodes)
        scores = [
            tree.means([context.logits(at) for at in wanted[start : start + each]])
            for start in range(0, len(wanted), each)
        ]
        for sequence in used:
            context.drop(sequence)
        return scores


@dataclass
class _Job:
    """A prompt with its unfinished answer."""

    at: int
    sequence: int
    pending: list[int]
    """Tokens to evaluate next."""
    position: int
    left: int
    """Number of tokens that may still be generated."""
    sampler: Sampler
    completion: Completion
    text: TextStream
    cells: int
    alternatives: int | None
    pieces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._started = time.perf_counter()

    def take(self) -> list[Entry]:
        """Turn the pending tokens into entries."""
        entries = [
            Entry(token, self.position + at, (self.sequence,), False) for at, token in enumerate(self.pending)
        ]
        self.position += len(entries)
        self.pending = []
        entries[-1] = entries[-1]._replace(logits=True)
        return entries

    def advance(self, token: int, piece: bytes, ends: bool) -> bool:
        """Add a sampled token, and return whether the answer continues."""
        done = self.completion
        done.total_ms = (time.perf_counter() - self._started) * 1000
        done.first_token_ms = done.first_token_ms or done.total_ms
        if not ends:
            self.pieces.append(self.text.push(piece))
        self.left -= 1
        if ends or self.text.stopped:
            done.finish_reason = "stop"
        elif self.left:
            self.pending = [token]
            return True
        self.pieces.append(self.text.flush())
        return False


class Answers:
    """Answers prompts in shared batches in its own context. A waiting prompt takes the place of a finished one."""

    _SLOTS = 32
    _CELLS = 4096
    """Cells of the context, unless a single answer needs more: 94 MB for a model of 135M parameters."""
    _ROOM = 256
    """Cells per answer if it needs no more, the size to which llama.cpp rounds: a seventh faster."""
    _STEP = 512
    """Tokens evaluated between two checks for finished answers."""

    def __init__(
        self,
        weights: Weights,
        context_length: int,
        threads: int,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        completions: Sequence[Completion],
        kept: Sequences | None = None,
        dry: Dry | None = None,
    ) -> None:
        """Prepare the answers. `kept` is a context for a single prompt; it stays open and keeps the prompt."""
        self._weights, self._dry = weights, dry
        self._prompts, self._samplings, self._completions = prompts, samplings, completions
        self._shared = min(common_prefix(prompts[0][:-1], prompt[:-1]) for prompt in prompts)
        self._left = [
            min(sampling.max_tokens, context_length - len(prompt))
            for prompt, sampling in zip(prompts, samplings, strict=True)
        ]
        needs = [len(prompt) - self._shared + left for prompt, left in zip(prompts, self._left, strict=True)]
        slots = min(self._SLOTS, len(prompts))
        apart = self._shared + max(needs) <= self._ROOM
        if apart:
            cells = self._ROOM * (slots + 1)
        else:
            cells = self._shared + max(max(needs), min(sum(needs), self._CELLS - self._shared))
        self._needs = needs
        self._free = cells - self._shared
        self._slots = list(range(slots, 0, -1))
        self._waiting = deque(range(len(prompts)))
        self._running: list[_Job] = []
        self._texts = [""] * len(prompts)
        self._signals = SignalReader(weights.vocabulary_size)
        self._kept = kept is not None
        self._context = kept or Sequences(weights, cells, slots + 1, 1, threads, apart)

    @classmethod
    def room(cls, weights: Weights, threads: int) -> Sequences:
        """Create a context to keep, for single prompts that `fit`."""
        return Sequences(weights, 2 * cls._ROOM, 2, 1, threads, apart=True)

    @classmethod
    def fit(cls, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling]) -> bool:
        """Return whether there is one prompt, short enough for a context of `room`."""
        return len(prompts) == 1 and len(prompts[0]) + samplings[0].max_tokens <= cls._ROOM

    def run(self, workers: Workers) -> list[str]:
        """Generate all answers, and return them in the order of their prompts."""
        try:
            self._context.share(self._prompts[0][: self._shared], workers)
            while self._waiting or self._running:
                self._admit(workers)
                self._step(workers)
        finally:
            for job in self._running:
                job.sampler.close()
            if not self._kept:
                self._context.close()
                return_free_memory()
        return self._texts

    def _admit(self, workers: Workers) -> None:
        while self._waiting and self._slots and self._needs[self._waiting[0]] <= self._free:
            at, sequence = self._waiting.popleft(), self._slots.pop()
            prompt, completion = self._prompts[at], self._completions[at]
            completion.prompt_tokens = len(prompt)
            completion.cached_tokens = self._shared if at else 0
            job = _Job(
                at,
                sequence,
                list(prompt[self._shared :]),
                self._shared,
                self._left[at],
                Sampler(self._weights, self._samplings[at], workers, self._dry),
                completion,
                TextStream(self._samplings[at].stop),
                self._needs[at],
                self._samplings[at].alternatives,
            )
            self._free -= job.cells
            self._context.fork(sequence)
            self._running.append(job)

    def _step(self, workers: Workers) -> None:
        """Evaluate the pending tokens, those of older answers first, and sample a token for each."""
        entries: list[Entry] = []
        ends: list[tuple[_Job, int]] = []
        for job in self._running:
            if entries and len(entries) + len(job.pending) > self._STEP:
                break
            entries += job.take()
            ends.append((job, len(entries) - 1))
        self._context.decode(entries, workers)
        for job, at in ends:
            workers.check()
            logits = self._context.logits(at)
            token = job.sampler.choose(self._context.context, at, logits)
            likeliest = self._signals.read(logits, token, job.completion, job.alternatives or 0)
            is_last = self._weights.ends(token)
            if job.alternatives is not None and not is_last:
                shown = self._weights.shown(token, job.completion.logprobs[-1], likeliest)
                job.completion.pieces.append(shown)
            if not job.advance(token, self._weights.piece(token), is_last):
                self._finish(job)

    def _finish(self, job: _Job) -> None:
        self._texts[job.at] = "".join(job.pieces)
        job.sampler.close()
        self._context.drop(job.sequence)
        self._running.remove(job)
        self._slots.append(job.sequence)
        self._free += job.cells
