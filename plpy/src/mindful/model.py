"""The registry of models: the table `model`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from mindful import providers, runtime
from mindful.entry import sql_function, writing_function
from mindful.errors import DuplicateObjectError, InvalidParameterError, NullValueError
from mindful.ports import Database, ModelFacts, ModelSpec

_STRONGEST = 10.0
"""Of an adapter's scale."""


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
    """Check a model's files by loading them once, and enter the model."""
    if name is None or kind is None or provider is None or source is None:
        raise NullValueError("name, kind, provider and source must not be null", "Give all four.")
    if kind not in providers.KINDS:
        raise InvalidParameterError(f'there is no kind "{kind}"', f"Kinds are {', '.join(providers.KINDS)}.")
    _check_free(db, name)
    settings = _settings(options)
    if provider == "llama_cpp":
        from mindful.providers.llama.probe import probe

        probe(ModelSpec(name, kind, provider, source, "", settings), db)
    facts = providers.module(provider).inspect(kind, source, settings)
    _insert(db, (name, kind, provider, source, json.dumps(settings)), granted_to, facts)
    if kind == "embedder":
        db.rows("select mindful._embedding_table_create($1, $2)", ("text", "integer"), (name, facts.dims))
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
    """Check an adapter by loading it with its base once, and enter it as a generator of its own."""
    if name is None or base is None or source is None or scale is None:
        raise NullValueError("name, base, source and scale must not be null", "Give all four.")
    if not -_STRONGEST <= scale <= _STRONGEST:
        raise InvalidParameterError(
            f"scale is {scale}", f"It must be between {-_STRONGEST} and {_STRONGEST}; 1 is as it was trained."
        )
    trainings = _trainings(trained_on)
    if bool(trainings) == (granted_to is not None):
        raise InvalidParameterError(
            f"{'both' if trainings else 'neither'} granted_to and trained_on are given",
            "Use trained_on => '{\"TENANT\": TRAINING}' for an adapter that was trained on tenants' texts, else "
            "granted_to => '{mindful_user}' for all users.",
        )
    _check_free(db, name)
    model = runtime.find(db, "generator", base)
    if model.provider != "llama_cpp" or model.adapter is not None:
        raise InvalidParameterError(
            f'"{base}" cannot be the base of an adapter', "Name a generator of llama_cpp that is no adapter."
        )
    from mindful.providers.llama import inspect_adapter

    settings = _settings(options) | {"scale": round(scale, 6)}  # a real has no more digits
    facts = inspect_adapter(model, source, settings, db)
    identity = (name, "generator", model.provider, source, json.dumps(settings))
    _insert(db, identity, granted_to or (), facts, base, trainings)
    db.rows(
        """insert into mindful.model_tenant (tenant, model, training_id)
           select t.key, $1, t.value::bigint from pg_catalog.jsonb_each_text($2) t""",
        ("text", "jsonb"),
        (name, json.dumps(trainings)),
    )
    return name


@sql_function
def model_unload(db: Database, name: str | None) -> int:
    """Give back the memory of one model, or of all, in this backend; count those that serve the caller."""
    serving = runtime.serving(db)
    runtime.unload(name)
    return sum(held.spec.name in (name or held.spec.name,) for held in serving)


def _check_free(db: Database, name: str) -> None:
    # Names that differ in punctuation alone would share an embedding table.
    taken = db.rows(
        """select m.name from mindful.model m
           where pg_catalog.translate(m.name, '.-', '__') = pg_catalog.translate($1, '.-', '__')""",
        ("text",),
        (name,),
    )
    if taken:
        raise DuplicateObjectError(
            f'there is a model "{taken[0]["name"]}" already',
            "Choose a name that differs in more than punctuation; models are listed in mindful.model.",
        )


def _settings(options: str | None) -> dict[str, Any]:
    return _object("options", options, '{"context_length": 2048}')


def _trainings(trained_on: str | None) -> dict[str, int]:
    trainings = _object("trained_on", trained_on, '{"ana": 3}')
    for tenant, training in trainings.items():
        if not tenant or type(training) is not int:
            raise InvalidParameterError(
                f"trained_on has {json.dumps(training)} for tenant {json.dumps(tenant)}",
                "Give each tenant the id of its training.",
            )
    return trainings


def _object(name: str, value: str | None, example: str) -> dict[str, Any]:
    try:
        found = json.loads(value or "{}")
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise InvalidParameterError(f"{name} is not a JSON object", f"Give an object, such as {example}.")
    return found


def _insert(
    db: Database,
    identity: tuple[str, ...],
    granted_to: Sequence[str] | None,
    facts: ModelFacts,
    base: str | None = None,
    trained_on: Collection[str] = (),
) -> None:
    # A repeated training gives the same file; any other name would give the weights another audience.
    private = db.rows(
        """select m.name from mindful.model m join mindful.model_tenant t on t.model = m.name
           where m.sha256 = $1 and m.trained_on > 0
           group by m.name having pg_catalog.bool_or(m.withdrawn_at is not null)
               or pg_catalog.array_agg(t.tenant order by t.tenant collate "C") <> $2""",
        ("text", "text[]"),
        (facts.sha256, sorted(trained_on)),
    )
    if private:
        raise DuplicateObjectError(
            f'the file is that of the adapter "{private[0]["name"]}", which was trained on other tenants\' texts'
            " or withdrawn",
            "Use mindful.adapter_share to have an adapter serve others.",
        )
    db.rows(
        """insert into mindful.model (name, kind, provider, source, options, granted_to,
                                      sha256, context_length, dims, licence, base, trained_on, is_default)
           select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
               $12 = 0 and not exists (select from mindful.model m where m.kind = $2 and m.is_default)""",
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
            facts.licence,
            base,
            len(trained_on),
        ),
    )
