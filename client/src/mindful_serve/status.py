"""GET /health, /ready and /metrics: what says nothing of any tenant needs no key."""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mindful_serve.database import Database

_HELP = {
    "requests_total": ("counter", "Requests by path and status."),
    "request_seconds_total": ("counter", "Seconds of all requests, by path."),
    "tokens_total": ("counter", "Tokens of prompts, of their cached part, and of answers."),
    "requests_running": ("gauge", "Requests that are being answered."),
    "connections": (
        "gauge",
        "Connections that run models, those without work, and requests that wait for one.",
    ),
    "resident_bytes": ("gauge", "Memory of the service."),
}


class Metrics:
    """Figures since the process started."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self.running = 0

    def add(self, name: str, amount: float, **labels: object) -> None:
        """Add to a counter."""
        written = ",".join(f'{key}="{value}"' for key, value in labels.items())
        self._counts[name, written] += amount  # type: ignore[assignment]

    def text(self, connections: dict[str, int]) -> str:
        """Write all figures in Prometheus' form."""
        values = dict(self._counts)
        values["requests_running", ""] = self.running
        values["resident_bytes", ""] = _resident_bytes()
        values |= {("connections", f'state="{state}"'): count for state, count in connections.items()}
        lines = []
        for name, (kind, help_text) in _HELP.items():
            lines += [f"# HELP mindful_serve_{name} {help_text}", f"# TYPE mindful_serve_{name} {kind}"]
            for (own, labels), value in sorted(values.items()):
                if own == name:
                    lines.append(
                        f"mindful_serve_{name}{{{labels}}} {value:.10g}"
                        if labels
                        else f"mindful_serve_{name} {value}"
                    )
        return "\n".join(lines) + "\n"


async def health(_request: Request) -> Response:
    """Tell that the process runs."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Tell that the database answers and has the extension."""
    database: Database = request.app.state.database
    started = time.perf_counter()
    rows = await database.rows(
        None, "select extversion from pg_catalog.pg_extension where extname = 'mindful'"
    )
    if not rows:
        return JSONResponse({"status": "the database has no extension mindful"}, 503)
    ms = round((time.perf_counter() - started) * 1000, 1)
    return JSONResponse({"status": "ok", "version": rows[0]["extversion"], "database_ms": ms})


async def metrics(request: Request) -> Response:
    """Show the figures of the process."""
    state = request.app.state
    return PlainTextResponse(
        state.metrics.text(dict(state.database.figures)), media_type="text/plain; version=0.0.4"
    )


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
