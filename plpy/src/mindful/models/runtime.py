"""The models that this backend has loaded. It is a cache: a lost entry is loaded again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from mindful.core import process
from mindful.core.errors import InvalidParameterError, NotReadyError, UndefinedObjectError
from mindful.core.jsontext import loads
from mindful.core.ports import Database, Embedder, Generator, Model, ModelSpec, Reranker, Vector
from mindful.core.slot import Turn
from mindful.models import providers
from mindful.models.parts import embed_whole
from mindful.models.standby import StandbyEmbedder, StandbyGenerator

WHEN_DOWN = ("embedded", "error")
"""What a call does if the server of a model's file is down."""


class Loaded(NamedTuple):
    """A model in this backend's memory."""

    spec: ModelSpec
    model: Model
    load_ms: float
    private_bytes: int


_loaded: dict[tuple[str, str], Loaded] = {}
"""By name and provider: a model that a server runs may be embedded too, for when the server is down."""
_replaced: set[tuple[str, str]] = set()
"""Embedded models whose server is up again. A suspended stream of this transaction may still use them."""
_embedded: deque[tuple[tuple[str | None, ModelSpec], str, Vector]] = deque(maxlen=16)
"""Texts that this transaction embedded, by tenant and model."""
_KEPT = 2
"""Texts embedded at once whose vectors are kept. More are rows, which no call needs twice."""


def loaded() -> list[Loaded]:
    """List the models that this backend has loaded."""
    return list(_loaded.values())


def serving(db: Database) -> list[Loaded]:
    """List the models that this backend has loaded and the current tenant may use."""
    if (
        not _loaded
        or not db.one("select pg_catalog.has_table_privilege('mindful.model', 'select') as may")["may"]
    ):
        return []
    rows = db.rows(
        """select m.name from mindful.model m
           where _mindful.model_serves(m.name, m.granted_to, m.trained_on, m.withdrawn_at)"""
    )
    names = {row["name"] for row in rows}
    return [held for held in loaded() if held.spec.name in names]


class _Found(NamedTuple):
    """A registered model, and the tenant of the call."""

    spec: ModelSpec
    tenant: str | None
    keep: bool
    """Whether the connection keeps the model when the transaction ends."""
    relation: str
    """The table of its vectors, if it is an embedder."""


def generator(db: Database, name: str | None) -> tuple[ModelSpec, Generator]:
    """Return the named generator, or the default one. The first use loads it."""
    found = _find(db, "generator", name)
    model: Generator = _load(db, found)  # type: ignore[assignment]
    tenant = found.tenant or db.one("select _mindful.tenant_required() as tenant")["tenant"]
    model.serve(tenant)
    return found.spec, model


def embedder(db: Database, name: str | None) -> tuple[ModelSpec, Embedder]:
    """Return the named embedder, or the default one. The first use loads it."""
    found = _find(db, "embedder", name)
    return found.spec, _load(db, found)  # type: ignore[return-value]


def counter(db: Database, name: str | None) -> Generator | Embedder:
    """Return the named generator or embedder, or the default generator, to count tokens with."""
    is_embedder = name is not None and db.rows(
        "select from _mindful.model_find('embedder', $1)", ("text",), (name,)
    )
    return embedder(db, name)[1] if is_embedder else generator(db, name)[1]


def reranker(db: Database, name: str | None) -> tuple[ModelSpec, Reranker]:
    """Return the named reranker, or the default one. The first use loads it."""
    found = _find(db, "reranker", name)
    return found.spec, _load(db, found)  # type: ignore[return-value]


def embed(db: Database, name: str | None, texts: Sequence[str]) -> list[Vector]:
    """Embed texts with the named embedder, or the default one; see FoundEmbedder.embed."""
    return FoundEmbedder(db, _find(db, "embedder", name)).embed(texts)


class FoundEmbedder:
    """An embedder as one call found it, for the call's tenant and role. Keep it no longer than the call."""

    def __init__(self, db: Database, found: _Found) -> None:
        self._db = db
        self._found = found
        self._turn = Turn(db)
        self.name = found.spec.name
        self.sha256 = found.spec.sha256
        self.relation = found.relation
        """The table of its vectors."""

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts. One or two texts that were embedded in this transaction are not embedded again.

        A chat embeds a message and its question for recall, and the message again to store it. The vectors are cached
        per tenant and model until the transaction ends.
        """
        model: Embedder = _load(self._db, self._found)  # type: ignore[assignment]
        owner = (self._found.tenant, self._found.spec)
        vectors = {text: vector for kept, text, vector in _embedded if text in texts and kept == owner}
        missing = [text for text in texts if text not in vectors]
        if missing:
            with Turn(self._db, served=True) if model.served else self._turn as turn:
                made = embed_whole(model, missing, turn)
            vectors |= zip(missing, made, strict=True)
            if len(texts) <= _KEPT:
                _embedded.extend((owner, *one) for one in zip(missing, made, strict=True))
                self._db.after_transaction(_embedded.clear)
        return [vectors[text] for text in texts]


def default_embedder(db: Database) -> FoundEmbedder | None:
    """Return the default embedder, or None without one."""
    found = _lookup(db, "embedder", None)
    return None if found is None else FoundEmbedder(db, found)


def find(db: Database, kind: str, name: str | None) -> ModelSpec:
    """Return a model of the registry that the calling role may use. None as name is the default of the kind."""
    return _find(db, kind, name).spec


def _lookup(db: Database, kind: str, name: str | None) -> _Found | None:
    rows = db.rows(
        """select name, kind, provider, source, sha256, options, adapter,
               _mindful.tenant() as tenant, mindful.setting_get('model_keep') = 'true' as keep,
               _mindful.embedding_table(name) as relation
           from _mindful.model_find($1, $2)""",
        ("text", "text"),
        (kind, name),
    )
    if not rows:
        return None
    row = dict(rows[0])
    tenant, keep, relation = (row.pop(key) for key in ("tenant", "keep", "relation"))
    return _Found(ModelSpec(**row | {"options": loads(row["options"])}), tenant, keep, relation)


def _find(db: Database, kind: str, name: str | None) -> _Found:
    found = _lookup(db, kind, name)
    if found is not None:
        return found
    if name is None:
        raise NotReadyError(
            f"there is no default {kind}",
            f"Register a model with mindful.model_register(name, '{kind}', provider, source).",
        )
    known = db.rows(
        "select kind, withdrawn_at is not null as is_withdrawn from mindful.model where name = $1",
        ("text",),
        (name,),
    )
    if known and known[0]["is_withdrawn"]:
        raise NotReadyError(
            f'adapter "{name}" was withdrawn because a text of its training was deleted',
            "Train a new adapter or use its base.",
        )
    other = f'"{name}" is a model of kind {known[0]["kind"]}. ' if known else ""
    raise UndefinedObjectError(
        f'there is no {kind} "{name}"', f"{other}The table mindful.model lists the models that you may use."
    )


def unload(name: str | None = None) -> int:
    """Close the named model, or all (None), and return their number."""
    return _close([key for key in _loaded if name in (None, key[0])])


def _close(keys: Sequence[tuple[str, str]]) -> int:
    held = [_loaded.pop(key) for key in keys if key in _loaded]
    for one in held:
        one.model.close()
    if held:
        process.return_free_memory()
    return len(held)


def _load(db: Database, found: _Found) -> Model:
    spec = found.spec
    if not found.keep:
        db.after_transaction(unload)
    served = served_spec(spec)
    if served is None:
        return _loaded_model(db, spec)
    model: Any = _loaded_model(db, served)
    if spec.options["served"]["when_down"] == "error":
        return cast(Model, model)
    if not model.server.reachable(db, f"{model.server.address.root}/health"):
        return _loaded_model(db, spec)
    embedded = (spec.name, spec.provider)
    if embedded in _loaded:
        _replaced.add(embedded)
        db.after_transaction(_close_replaced)
    if spec.kind == "embedder":
        return StandbyEmbedder(model, lambda: _loaded_model(db, spec))
    return StandbyGenerator(model, lambda: _loaded_model(db, spec))


def _close_replaced() -> None:
    _close([*_replaced])
    _replaced.clear()


def served_spec(spec: ModelSpec) -> ModelSpec | None:
    """Return what is needed to use the server that runs a model's file, if model_serve has named one."""
    served = spec.options.get("served")
    if served is None or spec.adapter is not None:
        return None
    if not (
        isinstance(served, dict)
        and served.keys() == {"address", "when_down", "options"}
        and served["when_down"] in WHEN_DOWN
        and isinstance(served["address"], str)
        and isinstance(served["options"], dict)
    ):
        raise InvalidParameterError(
            f'option served of model "{spec.name}" is not one that model_serve writes',
            f"Call mindful.model_serve('{spec.name}', server), or with NULL to run the model in each connection.",
        )
    answering = {key: spec.options[key] for key in ("stop",) if key in spec.options}
    return spec._replace(provider="openai", source=served["address"], options=answering | served["options"])


def _loaded_model(db: Database, spec: ModelSpec) -> Model:
    key = (spec.name, spec.provider)
    held = _loaded.get(key)
    if held is not None and held.spec == spec:
        return held.model
    _close([key] if held is not None else [])
    before, started = process.private_bytes(), time.perf_counter()
    model = providers.load(spec, db)
    elapsed = (time.perf_counter() - started) * 1000
    _loaded[key] = Loaded(spec, model, elapsed, process.private_bytes() - before)
    return model
