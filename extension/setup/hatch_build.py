"""Copies htmx, which the service's page loads, out of the package that carries it."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FILES = {"htmx-4.min.js": "htmx.js", "ext/hx-sse-4.min.js": "hx-sse.js"}


class Htmx(BuildHookInterface[Any]):
    """The files are part of the wheel, so that the service needs neither a network nor Django."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Copy the files before the build."""
        package = find_spec("django_htmx")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("django_htmx")
        source = Path(package.origin).parent / "static" / "django_htmx"
        target = Path(self.root, "client/src/mindful_serve/desk/static")
        for name, short in _FILES.items():
            shutil.copyfile(source / name, target / short)
            build_data["artifacts"].append(f"client/src/mindful_serve/desk/static/{short}")
