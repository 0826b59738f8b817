"""Embedders and rerankers behind a server."""

from __future__ import annotations

import array
import base64
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mindful.core.errors import EngineAnswerError
from mindful.core.ports import Interrupts, Vector
from mindful.core.text import strip_accents
from mindful.core.vector import unit
from mindful.models.providers.openai.crew import side_by_side
from mindful.models.providers.openai.http import Server
from mindful.models.providers.openai.served import Served, malformed

_BATCH = 32
"""Texts a request: a cancel waits for none, and a server has something to put together."""
_RERANKED = 8
_CHARACTERS = 64
"""Characters a token of which a text is sent: the end of a huge one would be cut anyway."""
_BYTES = 3


class ServedEmbedder(Served):
    """An embedder; texts past its context are cut, as by the embedded one."""

    def __init__(
        self, server: Server, host: Interrupts, dims: int | None, parallel: int, options: Mapping[str, Any]
    ) -> None:
        super().__init__(server, host)
        self.dims = dims or 0
        self._parallel = parallel
        self._model = options["model"]
        self.context_length = int(options["context_length"])
        self._native = options["server"] == "llama.cpp"
        self._strips_accents = bool(options.get("strip_accents", False))
        self._path = f"{server.address.path}/embeddings"
        if dims is None:
            self.dims = len(self.embed(["dimensions"], host)[0])

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        groups = [order[at : at + _BATCH] for at in range(0, len(order), _BATCH)]
        jobs = [partial(self._embedded, [texts[at] for at in group]) for group in groups]
        vectors: list[Vector] = [()] * len(texts)
        for group, found in zip(groups, side_by_side(jobs, self._parallel, interrupts), strict=True):
            for at, vector in zip(group, found, strict=True):
                vectors[at] = vector
        return vectors

    def count(self, text: str) -> int:
        """Count the tokens of a text where the server does, else estimate them by its bytes."""
        if self._native:
            return len(self._tokens(text, self._host, surround=False))
        return math.ceil(len(text.encode()) / _BYTES)

    def _embedded(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        body = {"input": [self._input(text, interrupts) for text in texts], "model": self._model}
        if self._native:
            body["encoding_format"] = "base64"
        answer = self._server.post(self._path, body, interrupts)
        try:
            rows = sorted(answer["data"], key=lambda row: int(row["index"]))
            vectors = [unit(_numbers(row["embedding"])) for row in rows]
        except (KeyError, TypeError, ValueError):
            raise malformed("embeddings of finite numbers") from None
        if len(vectors) != len(texts) or [row["index"] for row in rows] != list(range(len(texts))):
            raise EngineAnswerError(
                f"the server gave {len(vectors)} embeddings for {len(texts)} texts", "See its log."
            )
        for vector in vectors:
            if self.dims and len(vector) != self.dims:
                raise EngineAnswerError(
                    f"the server gave an embedding of {len(vector)} numbers, the model has {self.dims}",
                    "Does the server run another model than the one that was registered?",
                )
        return vectors

    def _input(self, text: str, interrupts: Interrupts) -> str | list[int]:
        text = text[: self.context_length * _CHARACTERS]
        if self._strips_accents:
            text = strip_accents(text)
        if len(text.encode()) <= self.context_length - 2:  # no token has less than a byte
            return text
        if not self._native:
            return text[: self.context_length * _BYTES]
        tokens = self._tokens(text, interrupts, surround=True)
        if len(tokens) <= self.context_length:
            return tokens
        return [*tokens[: self.context_length - 1], tokens[-1]]

    def _tokens(self, text: str, interrupts: Interrupts, surround: bool) -> list[int]:
        body = {"content": text, "add_special": surround, "parse_special": False}
        tokens = self._server.post(f"{self._server.address.root}/tokenize", body, interrupts).get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise malformed("tokens")
        return tokens


class ServedReranker(Served):
    """A reranker by the form of Jina, Cohere and llama.cpp."""

    def __init__(self, server: Server, host: Interrupts, options: Mapping[str, Any]) -> None:
        super().__init__(server, host)
        self._model = options["model"]

    def score(self, query: str, texts: Sequence[str], interrupts: Interrupts) -> Iterator[float]:
        """Yield how well each text answers the query, the higher the better."""
        for at in range(0, len(texts), _RERANKED):
            interrupts.check()
            part = list(texts[at : at + _RERANKED])
            body = {"model": self._model, "query": query, "documents": part, "top_n": len(part)}
            answer = self._server.post(f"{self._server.address.path}/rerank", body, interrupts)
            try:
                found = {int(row["index"]): float(row["relevance_score"]) for row in answer["results"]}
                scores = [found[index] for index in range(len(part))]
            except (KeyError, TypeError, ValueError):
                raise malformed("relevance scores") from None
            if not all(map(math.isfinite, scores)):
                raise malformed("finite relevance scores")
            yield from scores


def _numbers(embedding: str | Sequence[float]) -> Sequence[float]:
    if not isinstance(embedding, str):
        return [float(value) for value in embedding]
    numbers = array.array("f", base64.b64decode(embedding, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
