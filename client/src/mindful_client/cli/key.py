"""mindful key."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import click

from mindful_client.cli.output import given, json_text, show
from mindful_client.client import Client

_SCOPES = ("chat", "embed", "memory")


@click.group()
def key() -> None:
    """Make, list and revoke the keys of `mindful serve`."""


@key.command()
@click.argument("name")
@click.option("--for", "tenant", help="The tenant that the key acts for; the caller's own where not given.")
@click.option("--scope", "scopes", type=click.Choice(_SCOPES), multiple=True, help="All where not given.")
@click.option("--requests-per-minute", type=click.IntRange(1, 1_000_000), help="600 where not given.")
@click.option(
    "--days", type=click.IntRange(1, 36_500), help="Days until the key expires; never where not given."
)
@click.pass_obj
def create(
    client: Client,
    name: str,
    tenant: str | None,
    scopes: tuple[str, ...],
    requests_per_minute: int | None,
    days: int | None,
) -> None:
    """Make a key and print it, which is possible only once."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    options = given(
        tenant=tenant, scopes=scopes or None, requests_per_minute=requests_per_minute, expires_at=expires_at
    )
    show(client.key_create(name, **options))


@key.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a key.")
@click.pass_obj
def list_(client: Client, as_json: bool) -> None:
    """List the keys of the tenant; an administrator sees those of all tenants."""
    now = datetime.now(UTC)
    for one in client.key_list():
        if as_json:
            show(json_text(dataclasses.asdict(one)))
            continue
        expired = one.expires_at is not None and one.expires_at <= now
        state = "revoked" if one.revoked_at else "expired" if expired else "valid"
        used = f"{one.last_used_at:%Y-%m-%d %H:%M}" if one.last_used_at else "never used"
        show(f"{one.id}  {state:8} {one.tenant}  {one.name}  {','.join(one.scopes)}  {used}")


@key.command()
@click.argument("id", type=click.UUID)
@click.pass_obj
def revoke(client: Client, id: object) -> None:
    """End a key."""
    client.key_revoke(str(id))
    show(f"Key {id} is revoked.")
