"""What commands print, and what they pass on."""

from __future__ import annotations

import re
from typing import Any

import click

from mindful_client.errors import MindfulError

_CONTROLS = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


def report(error: MindfulError) -> None:
    """Print an error as a line and a hint."""
    click.echo(f"mindful: {printable(error.message)}", err=True)
    if error.hint:
        click.echo(f"Hint: {printable(error.hint)}", err=True)


def given(**options: Any) -> dict[str, Any]:
    """Leave out the options that were not given: their defaults are the server's."""
    return {name: value for name, value in options.items() if value is not None}


def printable(text: str) -> str:
    """Replace control characters: what is remembered or generated must not steer the user's terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
