"""What mindful runs on, and what this backend holds."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from typing import Any

from mindful import __version__, process, runtime
from mindful.entry import sql_function
from mindful.ports import Database


@sql_function
def mindful_status(db: Database) -> dict[str, Any]:
    """Report versions, the Python environment, and this backend's models and memory."""
    versions = db.one(
        """select pg_catalog.current_setting('server_version') as server_version,
               (select extversion from pg_catalog.pg_extension where extname = 'mindful') as extension_version,
               (select extversion from pg_catalog.pg_extension where extname = 'vector') as vector_version,
               mindful._tenant() as tenant"""
    )
    models = [
        {
            "name": held.spec.name,
            "kind": held.spec.kind,
            "provider": held.spec.provider,
            "load_ms": round(held.load_ms, 1),
            "private_bytes": held.private_bytes,
        }
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


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
