"""Pages and their parts: how they are written, and what a browser may do with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import jinja2
from mindful_client.meaning import CONFIDENCE, probability_meaning
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from mindful_serve.errors import ApiError

COOKIE = "mindful_key"
_HEADERS = {
    # No script and no style but the service's own files: a text that is shown cannot bring any.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
VIEWS = (
    ("1", "/", "Chat"),
    ("2", "/desk/memories", "Memories"),
    ("3", "/desk/labels", "Labels"),
    ("4", "/desk/confidence", "Confidence"),
    ("5", "/desk/status", "Status"),
)
_ACTIONS = {
    "answer": "answered",
    "flag": "flagged: check this",
    "retrieve": "answered again with more memories",
    "retry": "answered again by sampling",
    "escalate": "answered by the second model",
    "clarify": "asked back",
    "abstain": "no answer: not sure enough",
    "uncalibrated": "not calibrated yet: check this",
}
# Parts of a recalled memory's score, as recalled_memory names them.
_PARTS = {
    "similarity": "meaning",
    "bm25": "words",
    "similarity_context": "meaning of the turns beside it",
    "bm25_context": "words with the turns beside it",
    "recency": "recency",
    "importance": "importance",
    "access": "use",
}


def page(name: str, request: Request, status: int = 200, **values: Any) -> Response:
    """Write a whole page."""
    return _response(name, request, status, {"views": VIEWS, "path": request.url.path} | values)


def part(name: str, request: Request, status: int = 200, **values: Any) -> Response:
    """Write a part of a page."""
    return _response(name, request, status, values)


def written(name: str, **values: Any) -> str:
    """Fill a template; all values are escaped."""
    return _TEMPLATES.get_template(name).render(values)


def refused(request: Request, error: ApiError) -> Response:
    """Tell a person of an error, where a program would get JSON."""
    if error.status == 401:
        return redirect(request, "/desk/signin")
    values = {"message": error.body["error"]["message"]}
    if "hx-request" in request.headers:
        response = part("error.html", request, error.status, **values)
        response.headers["hx-reswap"] = "beforeend"  # beside what it is about
    else:
        response = page("failed.html", request, error.status, title="Error", **values)
    response.headers.update(error.headers)
    return response


def moved(request: Request, key: str | None) -> Response:
    """Go to the desk's first view with a key, or without any to the page that asks for one."""
    response = redirect(request, "/desk/signin" if key is None else "/")
    if key is None:
        response.delete_cookie(COOKIE)
    else:
        is_secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, key, httponly=True, samesite="strict", secure=is_secure)
    return response


def check_origin(request: Request) -> None:
    """Refuse what another site's page sends: browsers name the origin of all that they post."""
    if urlsplit(request.headers.get("origin", "")).netloc != request.headers.get("host"):
        raise ApiError(403, "a page of another site sent this", "permission_error", code="permission_denied")


def _response(name: str, request: Request, status: int, values: Mapping[str, Any]) -> Response:
    signed = COOKIE in request.cookies
    return HTMLResponse(written(name, is_signed_in=signed, **values), status, _HEADERS)


def redirect(request: Request, address: str) -> Response:
    """Go to another page."""
    if "hx-request" in request.headers:
        return Response(status_code=204, headers={"hx-redirect": address} | _HEADERS)
    return RedirectResponse(address, 303, _HEADERS)


def _odds(turn: Mapping[str, Any]) -> str:
    """Say how sure a reply is, in words."""
    if turn["probability"] is None or turn["action"] == "uncalibrated":
        return ""
    if not turn["is_calibrated"]:
        return "not calibrated yet"
    words = ((0.9, "very likely right"), (0.7, "likely right"), (0.4, "uncertain"), (0.0, "likely wrong"))
    found = next(text for least, text in words if turn["probability"] >= least)
    return f"{found} ({turn['probability']:.0%})"


def _parts(memory: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the parts of a score that add something, with their names in words."""
    return [(text, memory[name]) for name, text in _PARTS.items() if memory.get(name)]


def _when(value: str | datetime | None) -> str:
    if value is None:
        return ""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def _number(value: float | None) -> str:
    """Write a figure with two or three digits that say something."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}".rstrip("0").rstrip(".")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader("mindful_serve.desk", "templates"),
                jinja2.PackageLoader("mindful_client.cli", "templates"),
            ]
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"odds": _odds, "parts": _parts, "when": _when, "number": _number}
    environment.filters["meaning"] = lambda row: probability_meaning(row["probability"], row["action"])
    environment.globals["confidence_meaning"] = CONFIDENCE
    environment.filters["action"] = lambda name: _ACTIONS.get(name, name)
    return environment


_TEMPLATES = _environment()
