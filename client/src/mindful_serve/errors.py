"""Errors in OpenAI's form."""

from __future__ import annotations

from typing import Any

import psycopg
from mindful_client.errors import MindfulError
from starlette.responses import JSONResponse

INVALID = "invalid_request_error"


class ApiError(Exception):
    """A response with a status and the four members of OpenAI's error."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = INVALID,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }
        self.headers = headers or {}

    def response(self) -> JSONResponse:
        """Return the error as a response."""
        return JSONResponse(self.body, self.status, self.headers)


def busy(message: str, wait_s: int = 1) -> ApiError:
    """Return the error of a request that should be sent again later."""
    headers = {"retry-after": str(wait_s), "retry-after-ms": str(wait_s * 1000)}
    return ApiError(429, message, "rate_limit_error", code="rate_limit_exceeded", headers=headers)


def unavailable(message: str) -> ApiError:
    """Return the error of a database that does not answer."""
    return ApiError(503, message, "server_error", code="service_unavailable", headers={"retry-after": "1"})


# The longest prefix of the SQLSTATE decides.
_STATES: dict[str, tuple[int, str, str | None]] = {
    "0A": (400, INVALID, "unsupported"),
    "22": (400, INVALID, None),
    "25006": (503, "server_error", "read_only"),
    "28": (401, "authentication_error", "invalid_api_key"),
    "42501": (403, "permission_error", "permission_denied"),
    "3F": (503, "server_error", "not_ready"),
    "42601": (400, INVALID, None),
    "42809": (400, INVALID, None),
    "42883": (503, "server_error", "not_ready"),
    "42P01": (503, "server_error", "not_ready"),
    "42704": (404, INVALID, "model_not_found"),
    "53": (503, "server_error", "service_unavailable"),
    "54": (400, INVALID, None),
    "54000": (400, INVALID, "context_length_exceeded"),
    "55000": (503, "server_error", "not_ready"),
    "57014": (504, "server_error", "timeout"),
    "57P": (503, "server_error", "service_unavailable"),
    "08": (503, "server_error", "service_unavailable"),
}


def api_error(error: MindfulError) -> ApiError:
    """Return the response of an error of the database."""
    message = f"{error.message}. {error.hint}" if error.hint else error.message
    state = error.sqlstate
    if isinstance(error.__cause__, psycopg.DataError) and state is None:  # psycopg did not send it
        return ApiError(400, error.message, INVALID)
    if state is None:
        return unavailable("the database cannot be reached")
    if state == "55P03":
        return busy(message)
    found = next((_STATES[state[:at]] for at in range(5, 1, -1) if state[:at] in _STATES), None)
    if found is None:
        return ApiError(500, "the database reported an error", "server_error", code=state)
    status, kind, code = found
    if code == "context_length_exceeded" and "context" in message:
        # Clients such as litellm recognize the error by OpenAI's words, and then send less.
        message = f"this model's maximum context length is exceeded: {message}"
    headers = {
        504: {"x-should-retry": "false"},
        503: {"retry-after": "1"},
        401: {"www-authenticate": "Bearer"},
    }
    return ApiError(status, message, kind, code=code, headers=headers.get(status))
