"""Generators behind llama.cpp's own server, by its own form: prompts are tokens, and any token can be scored."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.core.ports import Completion, Interrupts, Message, Piece, Sampling, Workers
from mindful.models.providers.openai.constraint import Constraint
from mindful.models.providers.openai.crew import side_by_side
from mindful.models.providers.openai.http import Server
from mindful.models.providers.openai.served import ServedGenerator, malformed, note
from mindful.models.providers.packing import common_prefix
from mindful.models.providers.turns import as_user, merged

if TYPE_CHECKING:
    from mindful.models.providers.template import Template

_TOP = 200
"""Likeliest tokens that are asked for where candidates are scored; others are asked for one by one."""
_ALL = 1 << 20
"""More tokens than any vocabulary has. The server lists a part of a character among the likeliest tokens only."""
_COMPLETE = " a"
"""A text whose first token is whole characters."""
_SURE = 1000.0
"""Added to a token's logit, so that it is chosen; probabilities are told as they were before."""
_REFUSED = (400, 500)
"""What the server answers where its template raises."""


class LlamaServerGenerator(ServedGenerator):
    """A generator whose prompts and candidates are tokenized by the server, users' words without control tokens."""

    def __init__(
        self,
        server: Server,
        host: Interrupts,
        context_length: int,
        parallel: int,
        top: int,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(server, host, context_length, parallel, top, options)
        self._caches = bool(options.get("prompt_cache", True))
        self._root = server.address.root
        self._endpoint = f"{self._root}/completion"
        self._mark = os.urandom(8).hex()
        self._skeletons: dict[tuple[str, ...], list[list[int] | int] | None] = {}
        self._before: Sequence[int] = ()
        self._template: Template | None = None
        self._source: str | None = options.get("template")

    def serve(self, tenant: str) -> None:
        """Say for whom the next calls are."""
        if tenant != self._tenant:
            self._before = ()
        super().serve(tenant)

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""
        return len(self._tokens(text))

    def truncate(self, text: str, tokens: int) -> str:
        """Return the longest beginning of the text that has at most this many tokens."""
        kept = self._tokens(text)[:tokens]
        answer = self._server.post(f"{self._root}/detokenize", {"tokens": kept}, self._host)
        content = answer.get("content")
        if not isinstance(content, str):
            raise malformed("content")
        return content.rstrip("\ufffd")

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages with the model's chat template, ready for its answer, as tokens.

        Marks are rendered in the place of contents: a user's <|im_end|> is text, as in the embedded engine.
        """
        if self._source is not None:
            return self._own_template(self._source).encode(messages, self._template_tokens, self._tokens)
        parts = merged(messages)
        skeleton = self._skeleton(parts)
        if skeleton is None:
            parts = merged(as_user(parts))
            skeleton = self._skeleton(parts)
        if skeleton is None:
            raise InvalidParameterError(
                "the model's chat template refuses this conversation",
                f"The roles were: {', '.join(message.role for message in messages)}.",
            )
        tokens: list[int] = []
        for part in skeleton:
            tokens += self._tokens(parts[part].content) if isinstance(part, int) else part
        return tokens

    def tokenize(self, text: str, opens: bool = False) -> list[int]:
        """Return the tokens of a plain text; those before a text that opens a prompt too."""
        return self._tokens(text, surround=opens)

    def stream(
        self, tokens: Sequence[int], sampling: Sampling, completion: Completion, interrupts: Interrupts
    ) -> Iterator[str]:
        """Continue the tokens, yielding text as it is made."""
        own, self._before = common_prefix(self._before, tokens), tokens
        yield from super().stream(tokens, sampling, completion, interrupts)
        # What another tenant asked is in the server's cache too, and is not told of.
        completion.cached_tokens = min(completion.cached_tokens, own)

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Mean log-probability of each candidate's tokens, as what follows each of these plain texts."""
        last = prompts[0][-1]
        before = len(self._tokens(last))
        after = [self._tokens(last + text)[before:] for text in candidates]
        if len(set(map(len, after))) > 1:
            after = [self._tokens(last + text + end)[before:] for text in candidates]
        tokens = [self._tokens(prompt, surround=True) for prompt in prompts]
        longest = max(map(len, tokens)) + max(map(len, after))
        if longest > self.context_length:
            raise ContextLengthError(
                f"a text with its label has {longest} tokens, the model's context holds {self.context_length}",
                "Shorten it, or give the server a longer context.",
            )
        nodes = _nodes(after)
        jobs = [
            partial(self._next, (*prompt, *path), sorted(following))
            for prompt in tokens
            for path, following in nodes.items()
        ]
        found = iter(self._scored(jobs, workers))
        scores = []
        for _ in tokens:
            logprobs = {path: next(found) for path in nodes}
            scores.append([_mean(row, logprobs) for row in after])
        return scores

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], interrupts: Interrupts
    ) -> list[float]:
        """Log-probability of the first token of each candidate, as the next token."""
        firsts = [self._tokens(text)[0] for text in candidates]
        found = self._next(tokens, sorted(set(firsts)), interrupts)
        return [found[first] for first in firsts]

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do so for many prompts."""
        firsts = [self._tokens(text)[0] for text in candidates]
        jobs = [partial(self._next, tuple(tokens), sorted(set(firsts))) for tokens in prompts]
        return [[row[first] for first in firsts] for row in self._scored(jobs, workers)]

    def _scored(self, jobs: Sequence[Any], workers: Workers) -> list[dict[int, float]]:
        if len(jobs) == 1:
            return [self._remembered(("next", *map(tuple, jobs[0].args)), lambda: jobs[0](workers))]
        return side_by_side(jobs, self._parallel, workers)

    def _next(self, tokens: Sequence[int], wanted: Sequence[int], interrupts: Interrupts) -> dict[int, float]:
        """Log-probability of some tokens as the next one: each that is not among the likeliest is asked for alone."""
        few = _TOP if len(wanted) > 1 else 1
        found: dict[int, float] = {}
        for token in wanted:
            if token not in found:
                found |= self._next_logprobs(tokens, token, few, interrupts)
            if token not in found:
                found |= self._next_logprobs(tokens, self._tokens(_COMPLETE)[0], _ALL, interrupts)
            if token not in found:
                raise malformed(f"log-probability of token {token}")
        return found

    def _next_logprobs(
        self, tokens: Sequence[int], chosen: int, count: int, interrupts: Interrupts
    ) -> dict[int, float]:
        """Log-probability of a token and of the likeliest ones as the next one; nothing for a part of a character."""
        body = self._body(tokens, Sampling(1))
        body |= {"n_predict": 1, "n_probs": count, "logit_bias": [[chosen, _SURE]], "stream": False}
        answer = self._server.post(f"{self._root}/completion", body, interrupts)
        try:
            rows = [
                row
                for one in answer.get("completion_probabilities", ())
                for row in (one, *one["top_logprobs"])
            ]
            return {int(row["id"]): min(float(row["logprob"]), 0.0) for row in rows}
        except (KeyError, TypeError, ValueError):
            raise malformed("completion_probabilities") from None

    def _whole(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        constraint: Constraint,
        completion: Completion,
        interrupts: Interrupts,
    ) -> str:
        text = super()._whole(tokens, sampling, constraint, completion, interrupts)
        completion.cached_tokens = 0
        return text

    def _body(self, tokens: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "prompt": list(tokens),
            "n_predict": min(sampling.max_tokens, self.context_length - len(tokens)),
            "n_probs": max(self._top, sampling.alternatives or 0),
            "temperature": sampling.temperature,
            "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "presence_penalty": sampling.penalties.presence,
            "frequency_penalty": sampling.penalties.frequency,
            "repeat_penalty": sampling.penalties.repeat,
            "logit_bias": [list(bias) for bias in sampling.biases],
            "cache_prompt": self._caches and sampling.seed is None,
            "stream": True,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        return body

    def _pieces(
        self, event: Mapping[str, Any], completion: Completion, alternatives: int | None
    ) -> list[bytes]:
        """Note the tokens of an event, and return their bytes."""
        pieces = []
        try:
            for token in event.get("completion_probabilities", ()):
                piece = bytes(token["bytes"])
                note(
                    completion,
                    float(token["logprob"]),
                    [float(row["logprob"]) for row in token["top_logprobs"]],
                )
                pieces.append(piece)
                if alternatives is not None:
                    likeliest = [
                        (bytes(row["bytes"]), float(row["logprob"]))
                        for row in token["top_logprobs"][:alternatives]
                    ]
                    completion.pieces.append(Piece(piece, completion.logprobs[-1], tuple(likeliest)))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise malformed("log-probabilities") from None
        if event.get("stop") is True:
            completion.finish_reason = "length" if event.get("stop_type") == "limit" else "stop"
            completion.cached_tokens = int(_timing(event, "cache_n"))
            if completion.first_token_ms is None:  # a whole answer: all before the tokens after the first one
                completion.first_token_ms = max(completion.total_ms - _timing(event, "predicted_ms"), 0.0)
        return pieces

    def _events(self, answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        tokens = answer.get("completion_probabilities")
        if answer.get("stop") is not True or not isinstance(tokens, list):
            raise malformed("end and log-probabilities")
        yield {**answer, "completion_probabilities": ()}
        for token in tokens:
            yield {"completion_probabilities": (token,)}

    def _tokens(self, text: str, surround: bool = False, special: bool = False) -> list[int]:
        if not text and not surround:
            return []
        return self._remembered((text, surround, special), lambda: self._tokenized(text, surround, special))

    def _tokenized(self, text: str, surround: bool, special: bool) -> list[int]:
        body = {"content": text, "add_special": surround, "parse_special": special}
        tokens = self._server.post(f"{self._root}/tokenize", body, self._host).get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise malformed("tokens")
        return tokens

    def _skeleton(self, parts: Sequence[Message]) -> list[list[int] | int] | None:
        roles = tuple(part.role for part in parts)
        if roles not in self._skeletons:
            self._skeletons[roles] = self._rendered(roles)
        return self._skeletons[roles]

    def _rendered(self, roles: Sequence[str]) -> list[list[int] | int] | None:
        body = {
            "messages": [{"role": role, "content": f"{self._mark}_{at}_"} for at, role in enumerate(roles)]
        }
        answer = self._server.ask(f"{self._root}/apply-template", body, self._host, _REFUSED)
        if answer is None:
            return None
        prompt = answer.get("prompt")
        if not isinstance(prompt, str):
            raise malformed("prompt")
        first, *others = prompt.split(f"{self._mark}_")
        bos = self._special("bos")
        skeleton: list[list[int] | int] = [self._template_tokens(first, not (bos and first.startswith(bos)))]
        for other in others:
            at, _, rest = other.partition("_")
            skeleton += [int(at), self._template_tokens(rest, False)]
        return skeleton

    def _template_tokens(self, text: str, opens: bool) -> list[int]:
        return self._tokens(text, surround=opens, special=True)

    def _own_template(self, source: str) -> Template:
        if self._template is None:
            from mindful.models.providers.template import Template  # loads jinja2, which few models need

            self._template = Template(source, self._special("bos"), self._special("eos"))
        return self._template

    def _special(self, name: str) -> str:
        def ask() -> str:
            props = self._server.get(f"{self._root}/props", self._host) or {}
            return str(props.get(f"{name}_token") or "")

        return self._remembered(name, ask)


def _timing(event: Mapping[str, Any], name: str) -> float:
    timings = event.get("timings")
    value = timings.get(name) if isinstance(timings, dict) else None
    return value if isinstance(value, int | float) else 0


def _nodes(after: Sequence[Sequence[int]]) -> dict[tuple[int, ...], set[int]]:
    """Collect the places in candidates, by what stands before them, with the tokens that are scored there."""
    nodes: dict[tuple[int, ...], set[int]] = {}
    for row in after:
        for at, token in enumerate(row):
            nodes.setdefault(tuple(row[:at]), set()).add(token)
    return nodes


def _mean(row: Sequence[int], logprobs: Mapping[tuple[int, ...], Mapping[int, float]]) -> float:
    return sum(logprobs[tuple(row[:at])][token] for at, token in enumerate(row)) / len(row)
