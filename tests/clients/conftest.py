"""The fixtures of tests/serve: a service, and keys of it."""

from __future__ import annotations

from serve.conftest import key, service, start

__all__ = ["key", "service", "start"]
