"""GET /v1/models."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from mindful_serve.chunks import MEMORY
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange

_MODELS = """
    select m.name, m.kind, m.provider, floor(extract(epoch from m.created_at))::bigint as created
    from mindful.model m
    where m.withdrawn_at is null
    order by m.name
"""


async def models(exchange: Exchange) -> Response:
    """List the models that the caller may use."""
    return JSONResponse({"object": "list", "data": await _listed(exchange)})


async def model(exchange: Exchange) -> Response:
    """Show one of them."""
    name = exchange.request.path_params["name"]
    found = next((one for one in await _listed(exchange) if one["id"] == name), None)
    if found is None:
        raise ApiError(404, f"there is no model {name!r}", code="model_not_found", param="model")
    return JSONResponse(found)


async def _listed(exchange: Exchange) -> list[dict[str, Any]]:
    rows = await exchange.database.rows(exchange.caller.tenant, _MODELS)
    shown = []
    for row in rows:
        one = {"object": "model", "created": row["created"], "owned_by": row["provider"], "kind": row["kind"]}
        shown.append({"id": row["name"]} | one)
        if row["kind"] == "generator":
            shown.append({"id": MEMORY + row["name"]} | one)
    known = {one["id"]: one for one in shown}
    aliases = exchange.settings.aliases.items()
    shown += [known[name] | {"id": alias} for alias, name in aliases if name in known and alias != "*"]
    return shown
