"""The registry of models: the table `model`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from mindful.core.entry import sql_function, writing_function
from mindful.core.errors import (
    DuplicateObjectError,
    InvalidParameterError,
    NullValueError,
    UndefinedObjectError,
)
from mindful.core.jsontext import loads
from mindful.core.pattern import linear
from mindful.core.ports import Database, ModelFacts
from mindful.models import providers, runtime

_LONGEST_NAME = 40
_NAME = linear(rf"[a-z0-9][a-z0-9_.-]{{0,{_LONGEST_NAME - 1}}}")
_STRONGEST = 10.0
"""Largest absolute value of an adapter's scale."""


@writing_function
def model_register(
    db: Database,
    name: str | None,
    kind: str | None,
    provider: str | None,
    source: str | None,
    options: str | None,
    granted_to: Sequence[str] | None,
) -> str:
    """Check a model's files by loading them once, and register the model."""
    if name is None or kind is None or provider is None or source is None:
        raise NullValueError("name, kind, provider or source is null", "Pass all four.")
    if kind not in providers.KINDS:
        raise InvalidParameterError(f'kind is "{kind}"', f"It must be one of {', '.join(providers.KINDS)}.")
    _check_name(db, name)
    settings = _settings(options)
    facts = providers.module(provider).inspect(kind, source, settings, db)
    _insert(db, (name, kind, provider, source, json.dumps({**settings, **facts.found})), granted_to, facts)
    for message, hint in facts.warnings:
        db.warning(f'model "{name}": {message}', hint)
    return name


@writing_function
def adapter_register(
    db: Database,
    name: str | None,
    base: str | None,
    source: str | None,
    scale: float | None,
    options: str | None,
    granted_to: Sequence[str] | None,
    trained_on: str | None,
) -> str:
    """Check an adapter by loading it with its base once, and register it as a generator."""
    if name is None or base is None or source is None or scale is None:
        raise NullValueError("name, base, source or scale is null", "Pass all four.")
    if not -_STRONGEST <= scale <= _STRONGEST:
        raise InvalidParameterError(
            f"scale is {scale}",
            f"It must be between {-_STRONGEST} and {_STRONGEST}. 1 is the strength of the training.",
        )
    trainings = _trainings(trained_on)
    if bool(trainings) == (granted_to is not None):
        raise InvalidParameterError(
            "granted_to and trained_on are both passed"
            if trainings
            else "granted_to or trained_on is missing",
            "Pass trained_on => '{\"TENANT\": TRAINING}' for an adapter trained on tenants' texts, else "
            "granted_to => '{mindful_user}' for all users.",
        )
    _check_name(db, name)
    model = runtime.find(db, "generator", base)
    provider = providers.module(model.provider)
    if not hasattr(provider, "inspect_adapter") or model.adapter is not None:
        raise InvalidParameterError(
            f'"{base}" cannot be the base of an adapter',
            "Pass a generator that is not an adapter, of a provider that supports adapters, such as llama_cpp.",
        )
    settings = _settings(options) | {"scale": round(scale, 6)}  # digits beyond those of real
    facts = cast(providers.AdapterProvider, provider).inspect_adapter(model, source, settings, db)
    identity = (name, "generator", model.provider, source, json.dumps(settings))
    _insert(db, identity, granted_to or (), facts, base, len(trainings))
    db.rows(
        """insert into mindful.model_tenant (tenant, model, training_id)
           select t.key, $1, t.value::bigint from pg_catalog.jsonb_each_text($2) t""",
        ("text", "jsonb"),
        (name, json.dumps(trainings)),
    )
    return name


@writing_function
def model_serve(db: Database, name: str | None, server: str | None, when_down: str | None) -> None:
    """Have a server run a model's file, or no longer."""
    if name is None or when_down is None:
        raise NullValueError("name and when_down must not be null", "Give both.")
    if when_down not in runtime.WHEN_DOWN:
        raise InvalidParameterError(
            f'when_down is "{when_down}"', "Give embedded, to run the model in the connection, or error."
        )
    rows = db.rows(
        "select m.kind, m.provider, m.base from mindful.model m where m.name = $1", ("text",), (name,)
    )
    if not rows:
        raise UndefinedObjectError(f'there is no model "{name}"', "Models are listed in mindful.model.")
    if rows[0]["provider"] != "llama_cpp" or rows[0]["base"] is not None:
        raise InvalidParameterError(
            f'"{name}" is not a model file of llama_cpp',
            "Register a model that only a server has with the provider openai.",
        )
    served = None
    if server is not None:
        from mindful.models.providers.openai.standby import examined

        spec = runtime.find(db, rows[0]["kind"], name)
        served = {"address": server, "when_down": when_down, "options": examined(db, spec, server)}
    db.rows(
        """update mindful.model m
           set options = (m.options - 'served')
               || case when $2 = 'null' then '{}' else pg_catalog.jsonb_build_object('served', $2) end
           where m.name = $1""",
        ("text", "jsonb"),
        (name, json.dumps(served)),
    )
    runtime.unload(name)


@sql_function
def model_unload(db: Database, name: str | None) -> int:
    """Free the memory of one model, or of all, in this backend. Return the number of those that serve the caller."""
    serving = runtime.serving(db)
    runtime.unload(name)
    return sum(held.spec.name in (name or held.spec.name,) for held in serving)


def _check_name(db: Database, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidParameterError(
            f'name is "{name[:_LONGEST_NAME]}"',
            f"Pass at most {_LONGEST_NAME} characters a-z, 0-9, _, . and -, a letter or a digit first.",
        )
    _check_free(db, name)


def _check_free(db: Database, name: str) -> None:
    # Two names that differ only in punctuation would get the same table of embeddings.
    taken = db.rows(
        """select m.name from mindful.model m
           where pg_catalog.translate(m.name, '.-', '__') = pg_catalog.translate($1, '.-', '__')""",
        ("text",),
        (name,),
    )
    if taken:
        raise DuplicateObjectError(
            f'model "{taken[0]["name"]}" exists already',
            "Choose a name that differs in more than punctuation. The table mindful.model lists the models.",
        )


def _settings(options: str | None) -> dict[str, Any]:
    return _object("options", options, '{"context_length": 2048}')


def _trainings(trained_on: str | None) -> dict[str, int]:
    trainings = _object("trained_on", trained_on, '{"ana": 3}')
    for tenant, training in trainings.items():
        if not tenant or type(training) is not int:
            raise InvalidParameterError(
                f"trained_on has {json.dumps(training)} for tenant {json.dumps(tenant)}",
                "Map each tenant to the id of its training.",
            )
    return trainings


def _object(name: str, value: str | None, example: str) -> dict[str, Any]:
    found = loads(value or "{}")
    if not isinstance(found, dict):
        raise InvalidParameterError(f"{name} is not a JSON object", f"Pass an object such as {example}.")
    return found


def _insert(
    db: Database,
    identity: tuple[str, ...],
    granted_to: Sequence[str] | None,
    facts: ModelFacts,
    base: str | None = None,
    tenants: int = 0,
) -> None:
    insert = (
        """insert into mindful.model (name, kind, provider, source, options, granted_to,
                                      sha256, context_length, dims, license, base, trained_on, is_default)
           select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
               $12 = 0 and not exists (select from mindful.model m where m.kind = $2 and m.is_default)
           on conflict do nothing returning 1""",
        (
            *("text", "text", "text", "text", "jsonb", "text[]"),
            *("text", "integer", "integer", "text", "text", "integer"),
        ),
        (
            *identity,
            ["mindful_user"] if granted_to is None else list(granted_to),
            facts.sha256,
            facts.context_length,
            facts.dims,
            facts.license,
            base,
            tenants,
        ),
    )
    while not db.rows(*insert):
        _check_free(db, identity[0])  # otherwise a concurrent transaction has just set the default
