"""Keys of the service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, nothing, rows, scalar
from mindful_client.types import KeyDetail, KeyUse


def key_create(
    name: str,
    *,
    tenant: str | None = DEFAULT,
    scopes: Sequence[str] = DEFAULT,
    requests_per_minute: int | None = DEFAULT,
    expires_at: datetime | None = DEFAULT,
) -> Call[str]:
    """Make a key for a tenant, and return it: it cannot be shown again. Scopes: chat, embed, memory.

    Raises InvalidInputError (also where the tenant is a role), NotAllowedError (another tenant).
    """
    return scalar("key_create", locals())


def key_list() -> Call[list[KeyDetail]]:
    """List the keys of the tenant; for an administrator, those of all tenants."""
    return rows("key_list", locals(), KeyDetail)


def key_revoke(id: UUID | str) -> Call[None]:
    """End a key.

    Raises NotFoundError.
    """
    return scalar("key_revoke", locals(), convert=nothing, id="uuid")


def key_use(key: str) -> Call[list[KeyUse]]:
    """Return whose a key is, and count the request; for members of mindful_application.

    Raises NotAllowedError (unknown, expired or revoked).
    """
    return rows("key_use", locals(), KeyUse)
