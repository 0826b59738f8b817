"""POST /v1/embeddings and POST /v1/rerank."""

from __future__ import annotations

import base64
import struct
from typing import Any

from starlette.responses import JSONResponse, Response

from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange
from mindful_serve.requests import EmbeddingRequest, RerankRequest

# One statement: the vectors in the order of the texts, and how many tokens these have.
_EMBED = """
    with model as (
        select coalesce(%(model)s::text, m.name) as name
        from mindful.model m where m.kind = 'embedder' and m.is_default
    )
    select v.vector::real[] as vector, mindful.llm_token_count(v.content, m.name) as tokens
    from model m,
        unnest(mindful.llm_embed_many(%(contents)s::text[], m.name), %(contents)s::text[]) with ordinality
            as v (vector, content, number)
    order by v.number
"""
_RERANK = """
    select r.score, r.number - 1 as index
    from unnest(mindful.llm_rerank(%(query)s, %(contents)s::text[], %(model)s)) with ordinality as r (score, number)
    order by r.score desc nulls last, r.number
    limit %(top_n)s
"""


async def embed(exchange: Exchange, body: EmbeddingRequest) -> Response:
    """Embed texts."""
    exchange.require("embed")
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(
            400,
            "input must be a text or an array of texts; token ids are not supported "
            "(LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))",
            param="input",
        )
    arguments = {"model": exchange.settings.model(body.model), "contents": checked_texts("input", texts)}
    work = exchange.database.compute(exchange.caller.tenant, _EMBED, arguments, reads=True)
    rows = await exchange.whole(work)
    if body.dimensions not in (None, len(rows[0]["vector"])):
        raise ApiError(
            400,
            f"dimensions is {body.dimensions}, the model's vectors have {len(rows[0]['vector'])}",
            code="unsupported_parameter",
            param="dimensions",
        )
    tokens = sum(row["tokens"] for row in rows)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    exchange.note(usage=usage)
    shown = [
        {"object": "embedding", "index": at, "embedding": _written(row["vector"], body.encoding_format)}
        for at, row in enumerate(rows)
    ]
    return JSONResponse({"object": "list", "data": shown, "model": body.model, "usage": usage})


async def rerank(exchange: Exchange, body: RerankRequest) -> Response:
    """Order documents by how well they answer a query."""
    exchange.require("embed")
    texts = [one.get("text") if isinstance(one, dict) else one for one in body.documents]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "documents must be texts, or objects with a text", param="documents")
    arguments = {
        "model": exchange.settings.model(body.model),
        "query": checked_texts("query", [body.query])[0],
        "contents": checked_texts("documents", texts),
        "top_n": body.top_n,
    }
    work = exchange.database.compute(exchange.caller.tenant, _RERANK, arguments, reads=True)
    rows = await exchange.whole(work)
    results: list[dict[str, Any]] = [{"index": row["index"], "relevance_score": row["score"]} for row in rows]
    if body.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    return JSONResponse({"object": "list", "model": body.model, "results": results})


def checked_texts(param: str, texts: list[Any]) -> list[str]:
    """Refuse what PostgreSQL's text cannot hold."""
    for text in texts:
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ApiError(400, f"{param} holds NUL or a lone surrogate", param=param)
    return texts


def _written(vector: list[float], encoding: str) -> list[float] | str:
    if encoding == "float":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
