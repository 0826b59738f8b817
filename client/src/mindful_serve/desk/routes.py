"""The desk's addresses, and who may use them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import parse_qsl

from mindful_client.errors import MindfulError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from mindful_serve.database import Database
from mindful_serve.desk import page, views
from mindful_serve.errors import ApiError, api_error
from mindful_serve.exchange import Exchange, error_response, read
from mindful_serve.settings import Settings

View = Callable[[Exchange, Mapping[str, str]], Coroutine[Any, Any, Response]]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
_MOST_FIELDS = 20


def routes(settings: Settings, database: Database) -> list[BaseRoute]:
    """Return what the service answers people with."""

    def viewed(view: View) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            caller = await database.caller(request.cookies.get(page.COOKIE))
            exchange = Exchange(request, settings, database, caller)
            exchange.note(tenant=caller.tenant, key=caller.key_id)
            exchange.require("memory")
            form = await _form(request, settings) if request.method == "POST" else request.query_params
            return await view(exchange, form)

        return _guarded(endpoint)

    sign_in, sign_out = _door(settings, database)

    def get(path: str, view: View) -> Route:
        return Route(path, viewed(view), methods=["GET"])

    def post(path: str, view: View) -> Route:
        return Route(path, viewed(view), methods=["POST"])

    return [
        get("/", views.chat),
        post("/desk/say", views.say),
        get("/desk/replies/{id}/memories", views.shown),
        post("/desk/replies/{id}/label", views.label),
        get("/desk/memories", views.memories),
        post("/desk/memories", views.remember),
        post("/desk/memories/{id}/correct", views.correct),
        post("/desk/memories/{id}/forget", views.forget),
        get("/desk/labels", views.labels),
        get("/desk/confidence", views.confidence),
        get("/desk/status", views.status),
        post("/desk/retry", views.retry),
        Route("/desk/signin", _guarded(sign_in), methods=["GET", "POST"]),
        Route("/desk/signout", _guarded(sign_out), methods=["POST"]),
        Mount("/desk/static", StaticFiles(packages=[("mindful_serve.desk", "static")])),
    ]


def _door(settings: Settings, database: Database) -> tuple[Endpoint, Endpoint]:
    """Return what signs a person in and out."""

    async def sign_in(request: Request) -> Response:
        if not settings.needs_key:
            return page.redirect(request, "/")
        if request.method == "GET":
            return page.page("signin.html", request, title="Sign in", views=(), message="")
        key = (await _form(request, settings)).get("key", "").strip()
        key = key if key.isascii() and key.isprintable() else "-"  # as no key is
        try:
            caller = await database.caller(key or None)
        except (ApiError, MindfulError) as error:
            refusal = error if isinstance(error, ApiError) else api_error(error)
            message = (
                refusal.body["error"]["message"]
                if refusal.status != 401
                else "The key is wrong, expired or revoked."
            )
            return page.page(
                "signin.html", request, refusal.status, title="Sign in", views=(), message=message
            )
        if "memory" not in caller.scopes:
            message = "This key does not have the scope memory."
            return page.page("signin.html", request, 403, title="Sign in", views=(), message=message)
        return page.moved(request, key)

    async def sign_out(request: Request) -> Response:
        await _form(request, settings)
        return page.moved(request, None)

    return sign_in, sign_out


async def _form(request: Request, settings: Settings) -> Mapping[str, str]:
    """Read a form that a page of this service sent."""
    page.check_origin(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ApiError(415, "the content type must be application/x-www-form-urlencoded")
    try:
        content = (await read(request, settings)).decode("ascii")
        return dict(parse_qsl(content, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise ApiError(400, "the form is not URL-encoded UTF-8, or it has too many fields") from None


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except MindfulError as error:
            return page.refused(request, api_error(error))
        except ApiError as error:
            return page.refused(request, error)
        except Exception as error:
            return error_response(error)

    return guarded
