"""Generators behind any server of OpenAI's form."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast, overload

from mindful.core.errors import MissingPackageError
from mindful.core.ports import Completion, Interrupts, Message, Piece, Sampling, Workers
from mindful.models.providers.openai.crew import side_by_side
from mindful.models.providers.openai.http import Server
from mindful.models.providers.openai.served import ServedGenerator, malformed, note
from mindful.models.providers.turns import merged

_BYTES = 3.0
"""Bytes of text a token, where a server does not count them: English has 4 to 5, so this is cautious."""
_AROUND = 8
"""Tokens of a chat template around each message."""
_TOP = 20
"""The most that OpenAI's form gives."""


class Prompt(Sequence[int]):
    """A conversation that the server renders: as long as its tokens are counted, or estimated, to be."""

    def __init__(self, messages: Sequence[Message], tokens: int) -> None:
        self.messages = tuple(messages)
        self._tokens = tokens

    def __len__(self) -> int:
        return self._tokens

    def __repr__(self) -> str:
        return repr(self.messages)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        return range(self._tokens)[at]


class ChatGenerator(ServedGenerator):
    """A generator of which no more is known than its form: it renders conversations, and shows likely tokens."""

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
        self._dialect = str(options["server"])
        self._labels = str(options.get("labels", "top_logprobs"))
        self._prefix = str(options.get("echo_prefix", ""))
        self._path = server.address.path
        self._endpoint = f"{self._path}/chat/completions"

    def count(self, text: str) -> int:
        """Count the tokens of a text where the server does, else estimate them by its bytes."""
        root = self._server.address.root
        if self._dialect == "llama-cpp-python":
            return self._counted(f"{root}/extras/tokenize/count", {"input": text}, text)
        if self._dialect == "vllm":
            body = {"model": self._model, "prompt": text, "add_special_tokens": False}
            return self._counted(f"{root}/tokenize", body, text)
        return math.ceil(len(text.encode()) / _BYTES)

    def truncate(self, text: str, tokens: int) -> str:
        """Return a long beginning of the text that has at most this many tokens."""
        while text and (count := self.count(text)) > tokens:
            text = text[: min(len(text) - 1, len(text) * tokens // count)]
        return text

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Keep messages for the server to render; its length is an estimate."""
        parts = merged(messages)
        # As long as a list of tokens, which is all that others ask of it.
        return cast("list[int]", Prompt(parts, sum(self.count(part.content) + _AROUND for part in parts)))

    def tokenize(self, text: str, opens: bool = False) -> list[int]:
        """Refuse: the server's form has no text that goes on from another."""
        raise MissingPackageError(
            "the server continues no text",
            "End the messages with the user's, or use a model of llama.cpp's server.",
        )

    def score(
        self, prompts: Sequence[str], candidates: Sequence[str], end: str, workers: Workers
    ) -> list[list[float]]:
        """Mean log-probability of each candidate's tokens: of the prompt's own, where the server tells them."""
        if self._labels != "echo":
            jobs = [partial(self._distinct, prompt, candidates) for prompt in prompts]
            return side_by_side(jobs, self._parallel, workers)
        lengths = {len(self._echoed(prompts[0], text, workers)) for text in candidates}
        ending = end if len(lengths) > 1 else ""
        echoes = [partial(self._echoed, prompt, text + ending) for prompt in prompts for text in candidates]
        found = iter(side_by_side(echoes, self._parallel, workers))
        return [[_mean(next(found)) for _ in candidates] for _ in prompts]

    def next_logprobs(
        self, tokens: Sequence[int], candidates: Sequence[str], interrupts: Interrupts
    ) -> list[float]:
        """Log-probability of each candidate's beginning; of one that the server does not show, the most it can be."""
        top = self._likeliest(_prompt(tokens).messages, interrupts)
        rest = math.log(max(1 - math.fsum(math.exp(value) for _, value in top), 1e-9))
        unseen = min(rest, min(value for _, value in top))
        return [
            max((value for text, value in top if text.strip() and candidate.startswith(text)), default=unseen)
            for candidate in candidates
        ]

    def next_logprobs_many(
        self, prompts: Sequence[Sequence[int]], candidates: Sequence[str], workers: Workers
    ) -> list[list[float]]:
        """Do so for many prompts."""
        jobs = [partial(self._next, tokens, candidates) for tokens in prompts]
        return side_by_side(jobs, self._parallel, workers)

    def _next(self, tokens: Sequence[int], candidates: Sequence[str], interrupts: Interrupts) -> list[float]:
        return self.next_logprobs(tokens, candidates, interrupts)

    def _counted(self, path: str, body: Mapping[str, Any], text: str) -> int:
        def ask() -> int:
            count = self._server.post(path, body, self._host).get("count")
            if not isinstance(count, int):
                raise malformed("count")
            return count

        return self._remembered(("count", text), ask)

    def _pieces(
        self, event: Mapping[str, Any], completion: Completion, alternatives: int | None
    ) -> list[bytes]:
        content = _content(event, completion, alternatives)
        return [content.encode(errors="replace")] if content else []

    def _body(self, tokens: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        return self._asked(_prompt(tokens).messages, sampling)

    def _events(self, answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        try:
            [choice] = answer["choices"]
            content = str(choice["message"].get("content") or "")
            rows = list((choice.get("logprobs") or {}).get("content") or ())
            texts = _shares(content, [_bytes(row) for row in rows])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise malformed("choices of OpenAI's form") from None
        yield {"usage": answer.get("usage"), "choices": [{"finish_reason": choice.get("finish_reason")}]}
        for text, row in zip(texts, [[row] for row in rows] or [[]], strict=True):
            yield {"choices": [{"delta": {"content": text}, "logprobs": {"content": row}}]}

    def _asked(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": part.role, "content": part.content} for part in messages],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": True,
            "top_logprobs": self._top,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.penalties.presence or sampling.penalties.frequency:
            body["presence_penalty"] = sampling.penalties.presence
            body["frequency_penalty"] = sampling.penalties.frequency
        if sampling.biases:
            body["logit_bias"] = {str(token): bias for token, bias in sampling.biases}
        if self._dialect == "llama-cpp-python":
            del body["stream_options"]
            body |= {
                "top_k": sampling.top_k,
                "min_p": sampling.min_p,
                "repeat_penalty": sampling.penalties.repeat,
            }
        return body

    def _echoed(self, prompt: str, candidate: str, interrupts: Interrupts) -> list[float]:
        """Log-probabilities of a candidate's tokens, as the server repeats the prompt with them."""
        body = repetition(self._model, self._prefix + prompt + candidate)
        answer = self._server.post(f"{self._path}/completions", body, interrupts)
        found = repeated(answer, len(prompt), len(prompt) + len(candidate))
        if not found:
            raise malformed("log-probabilities of the prompt")
        return found

    def _distinct(self, prompt: str, candidates: Sequence[str], interrupts: Interrupts) -> list[float]:
        """Log-probability of each candidate's beginning, where the server shows it and no other begins so."""
        if len(candidates) == 1:
            raise MissingPackageError(
                "the server does not tell how likely a text is",
                "Use a reranker, or a model of llama.cpp's server.",
            )
        top = self._likeliest([Message("user", prompt)], interrupts)
        scores: list[float] = []
        for candidate in candidates:
            found = [
                math.exp(value)
                for text, value in top
                if text.strip()
                and candidate.strip().startswith(text.strip())
                and sum(other.strip().startswith(text.strip()) for other in candidates) == 1
            ]
            if not found:
                raise MissingPackageError(
                    f"the server shows the {len(top)} likeliest tokens alone, and they do not tell the labels apart",
                    "Use a model of llama.cpp's server, or labels that begin with different common words.",
                )
            scores.append(math.log(math.fsum(found)))
        return scores

    def _likeliest(self, messages: Sequence[Message], interrupts: Interrupts) -> list[tuple[str, float]]:
        body = self._asked(messages, Sampling(1)) | {"stream": False, "top_logprobs": _TOP}
        body.pop("stream_options", None)
        answer = self._server.post(self._endpoint, body, interrupts)
        try:
            [token, *_] = answer["choices"][0]["logprobs"]["content"]
            found = [(str(row["token"]), min(float(row["logprob"]), 0.0)) for row in token["top_logprobs"]]
        except (KeyError, TypeError, ValueError, IndexError):
            raise malformed("top_logprobs") from None
        if not found:
            raise malformed("top_logprobs")
        return found


def repetition(model: str, text: str) -> dict[str, Any]:
    """Return a request that has the server repeat a text with the log-probabilities of its tokens."""
    return {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}


def repeated(answer: Mapping[str, Any], first: int, last: int) -> list[float]:
    """Return the log-probabilities of tokens that begin in this part of the text; none of a malformed answer."""
    try:
        told = answer["choices"][0]["logprobs"]
        pairs = zip(told["text_offset"], told["token_logprobs"], strict=True)
        return [float(value) for at, value in pairs if first <= at < last]
    except (KeyError, TypeError, ValueError, IndexError):
        return []


def _prompt(tokens: Sequence[int]) -> Prompt:
    assert isinstance(tokens, Prompt)
    return tokens


def _content(event: Mapping[str, Any], completion: Completion, alternatives: int | None) -> str:
    """Note what an event tells of its tokens, and return its text."""
    try:
        if usage := event.get("usage"):
            completion.prompt_tokens = int(usage["prompt_tokens"])
        choices = event["choices"]
        if not choices:
            return ""
        choice = choices[0]
        if choice.get("finish_reason"):
            completion.finish_reason = "length" if choice["finish_reason"] == "length" else "stop"
        content = str(choice.get("delta", {}).get("content") or "")
        rows = (choice.get("logprobs") or {}).get("content") or ()
        for row in rows:
            top = [float(other["logprob"]) for other in row.get("top_logprobs") or ()]
            note(completion, float(row["logprob"]), top)
            if alternatives is not None:
                likeliest = [
                    (_bytes(other), float(other["logprob"])) for other in row["top_logprobs"][:alternatives]
                ]
                completion.pieces.append(Piece(_bytes(row), completion.logprobs[-1], tuple(likeliest)))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise malformed("choices of OpenAI's form") from None
    if content and not rows:
        raise malformed("log-probabilities, which confidence is made of")
    return content


def _bytes(row: Mapping[str, Any]) -> bytes:
    return bytes(row["bytes"]) if row.get("bytes") else str(row["token"]).encode(errors="replace")


def _shares(content: str, tokens: Sequence[bytes]) -> list[str]:
    """Divide a text among its tokens. One that the text does not have, such as the end's, gets no text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    left, texts = content.encode(errors="replace"), []
    for token in tokens or [b""]:
        share = token if left.startswith(token) else b""
        left = left[len(share) :]
        texts.append(decoder.decode(share))
    texts[-1] += decoder.decode(left)
    return texts


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
