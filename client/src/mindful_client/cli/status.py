"""mindful status."""

from __future__ import annotations

import dataclasses

import click

from mindful_client.cli.output import show
from mindful_client.client import Client


@click.command()
@click.pass_obj
def status(client: Client) -> None:
    """Print versions, the tenant, loaded models and memory in use."""
    for name, value in dataclasses.asdict(client.mindful_status()).items():
        if name.endswith("_bytes"):
            value = f"{value / 1e6:.0f} MB"
        elif name == "models":
            value = ", ".join(model["name"] for model in value) or "none loaded by this connection"
        show(f"{name.removesuffix('_bytes').replace('_', ' '):18} {value}")
