"""The default generator under other names, without its trial, which takes seconds."""

from __future__ import annotations

import psycopg
from psycopg.types.json import Jsonb

from support.models import model_files


def register_copy(db: psycopg.Connection, name: str, **options: object) -> str:
    """Enter the default generator's file under another name, unless it is there, and return the name."""
    db.execute(
        """insert into model (name, kind, provider, source, options, sha256, context_length, license, granted_to)
           select %s, kind, 'llama_cpp', case provider when 'llama_cpp' then source else %s end, given, sha256,
               coalesce((given ->> 'context_length')::int, context_length), license, granted_to
           from model, cast(%s as jsonb) given where kind = 'generator' and is_default on conflict do nothing""",
        (name, model_files(db)["generator"], Jsonb(options)),
    )
    return name
