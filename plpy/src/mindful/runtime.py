"""What one backend keeps between calls: its loaded models. A cache only; nothing here is missed when lost."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from mindful import process, providers
from mindful.errors import NotReadyError, UndefinedObjectError
from mindful.ports import Database, Embedder, Generator, Model, ModelSpec, Reranker


@dataclass(frozen=True)
class Loaded:
    """A model in this backend's memory."""

    spec: ModelSpec
    model: Model
    load_ms: float
    private_bytes: int


_loaded: dict[str, Loaded] = {}


def loaded() -> list[Loaded]:
    """List the models that this backend holds."""
    return list(_loaded.values())


def serving(db: Database) -> list[Loaded]:
    """List the models that this backend holds and that serve the current tenant."""
    if (
        not _loaded
        or not db.one("select pg_catalog.has_table_privilege('mindful.model', 'select') as may")["may"]
    ):
        return []
    rows = db.rows(
        """select m.name from mindful.model m
           where mindful._model_serves(m.name, m.granted_to, m.trained_on, m.withdrawn_at)"""
    )
    names = {row["name"] for row in rows}
    return [held for held in loaded() if held.spec.name in names]


def generator(db: Database, name: str | None) -> tuple[ModelSpec, Generator]:
    """Return the named generator, or the default one, loading it at its first use."""
    spec = find(db, "generator", name)
    model: Generator = _load(db, spec)  # type: ignore[assignment]
    model.serve(db.one("select mindful._tenant_required() as tenant")["tenant"])
    return spec, model


def embedder(db: Database, name: str | None) -> tuple[ModelSpec, Embedder]:
    """Return the named embedder, or the default one, loading it at its first use."""
    spec = find(db, "embedder", name)
    return spec, _load(db, spec)  # type: ignore[return-value]


def reranker(db: Database, name: str | None) -> tuple[ModelSpec, Reranker]:
    """Return the named reranker, or the default one, loading it at its first use."""
    spec = find(db, "reranker", name)
    return spec, _load(db, spec)  # type: ignore[return-value]


def find(db: Database, kind: str, name: str | None) -> ModelSpec:
    """Look a model up in the registry, as far as the calling role may see it."""
    rows = db.rows(
        "select name, kind, provider, source, sha256, options, adapter from mindful._model_find($1, $2)",
        ("text", "text"),
        (kind, name),
    )
    if rows:
        row = dict(rows[0])
        return ModelSpec(**row | {"options": json.loads(row["options"])})
    if name is None:
        raise NotReadyError(
            f"there is no default {kind}",
            f"Register one with mindful.model_register(name, '{kind}', provider, source).",
        )
    if db.rows("select from mindful.model where name = $1 and withdrawn_at is not null", ("text",), (name,)):
        raise NotReadyError(
            f'adapter "{name}" was withdrawn: a text that it was trained on was forgotten',
            "Train an adapter anew, or use its base.",
        )
    raise UndefinedObjectError(
        f'there is no {kind} "{name}"', "The models that you may use are listed in mindful.model."
    )


def unload(name: str | None = None) -> int:
    """Close the named model, or all, and return how many there were."""
    names = [key for key in _loaded if name in (None, key)]
    for key in names:
        _loaded.pop(key).model.close()
    if names:
        process.return_free_memory()
    return len(names)


def _load(db: Database, spec: ModelSpec) -> Model:
    if not db.one("select mindful.setting_get('model_keep') = 'true' as keep")["keep"]:
        db.after_transaction(unload)
    held = _loaded.get(spec.name)
    if held is not None and held.spec == spec:
        return held.model
    unload(spec.name)
    before, started = process.private_bytes(), time.perf_counter()
    model = providers.load(spec, db)
    elapsed = (time.perf_counter() - started) * 1000
    _loaded[spec.name] = Loaded(spec, model, elapsed, process.private_bytes() - before)
    return model
