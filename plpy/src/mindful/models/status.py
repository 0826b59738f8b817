"""Versions of mindful and its parts, and the models and memory of this backend."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from typing import Any

from mindful import __version__
from mindful.core import process
from mindful.core.entry import sql_function
from mindful.core.ports import Database
from mindful.models import runtime


@sql_function
def mindful_status(db: Database) -> dict[str, Any]:
    """Return versions, the Python environment, and this backend's models and memory."""
    versions = db.one(
        """select pg_catalog.current_setting('server_version') as server_version,
               (select extversion from pg_catalog.pg_extension where extname = 'mindful') as extension_version,
               (select extversion from pg_catalog.pg_extension where extname = 'vector') as vector_version,
               _mindful.tenant() as tenant"""
    )
    models = [
        {
            "name": held.spec.name,
            "kind": held.spec.kind,
            "provider": held.spec.provider,
            "load_ms": round(held.load_ms, 1),
            "private_bytes": held.private_bytes,
        }
        | _server(held)
        for held in runtime.serving(db)
    ]
    return dict(versions) | {
        "package_version": __version__,
        "python_version": platform.python_version(),
        "python_prefix": sys.prefix,
        "llama_cpp_version": _version("llama-cpp-python"),
        "backend_pid": os.getpid(),
        "private_bytes": process.private_bytes(),
        "shared_bytes": process.shared_bytes(),
        "models": json.dumps(models),
    }


def _server(held: runtime.Loaded) -> dict[str, Any]:
    """Describe a served model's server, without its key."""
    server = getattr(held.model, "server", None)
    if server is None:
        return {}
    return {
        "address": server.address.origin,
        "health": server.health.state,
        "latency_ms": server.health.latency_ms,
        "last_error": server.health.last_error,
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
