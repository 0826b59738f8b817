"""A server that runs the file of an embedded model: whether it is the same model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from typing import Any, cast

from mindful.core.errors import InvalidParameterError
from mindful.core.ports import Embedder, Generator, Host, Message, ModelSpec, Single
from mindful.models import providers

_TEXT = "Marta moved to Toronto in 2019, and caf\u00e9s there cost 5 dollars."
_CONVERSATIONS = (
    [Message("system", "Be brief."), Message("user", _TEXT)],
    [Message("user", _TEXT), Message("assistant", "Yes."), Message("user", _TEXT)],
)
_CANDIDATES = (" the", " a", "The", "I", "Yes", "No")
_FARTHEST_NATS = 0.5
_LEAST_COSINE = 0.999


def examined(host: Host, spec: ModelSpec, address: str) -> Mapping[str, Any]:
    """Return the options of a served model that computes what the embedded one does, or raise 22023."""
    embedded = spec._replace(options={key: spec.options[key] for key in spec.options if key != "served"})
    model = cast(Any, providers.load(embedded, host))
    try:
        given = {"context_length": model.context_length} if spec.kind == "generator" else {}
        if spec.kind == "embedder":
            given = {"context_length": model.context_length, "strip_accents": model.strips_accents}
        same = _same_embedder if spec.kind == "embedder" else _same_generator
        # A server has a template of its own where the file has none, and renders some in another way.
        templates = [{"template": model.template}] if spec.kind == "generator" else []
        for more in ({}, *templates):
            found = providers.module("openai").inspect(spec.kind, address, given | more, host).found
            with closing(_served(spec.kind, address, found, host)) as served:
                if same(model, served, host):
                    return found
    finally:
        model.close()
    raise InvalidParameterError(
        f'the server {address} runs another model than the file of "{spec.name}"',
        "Start the server with the same file.",
    )


def _served(kind: str, address: str, options: Mapping[str, Any], host: Host) -> Any:
    return providers.module("openai").load(ModelSpec("", kind, "openai", address, "", options), host)


def _same_embedder(embedded: Embedder, served: Embedder, host: Host) -> bool:
    if embedded.dims != served.dims:
        return False
    [ours], [theirs] = embedded.embed([_TEXT], host), served.embed([_TEXT], host)
    return math.fsum(a * b for a, b in zip(ours, theirs, strict=True)) >= _LEAST_COSINE


def _same_generator(embedded: Generator, served: Generator, host: Host) -> bool:
    if any(list(embedded.encode(one)) != list(served.encode(one)) for one in _CONVERSATIONS):
        return False
    tokens = embedded.encode(_CONVERSATIONS[0])
    ours, theirs = (model.next_logprobs(tokens, _CANDIDATES, Single(host)) for model in (embedded, served))
    # Those that are nearly impossible are rounded more.
    return all(abs(a - b) < _FARTHEST_NATS or max(a, b) < -10 for a, b in zip(ours, theirs, strict=True))
