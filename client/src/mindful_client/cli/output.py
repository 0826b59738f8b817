"""What commands print, and what they pass on."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from mindful_client.calls.statement import json_default
from mindful_client.errors import MindfulError

_CONTROLS = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")
_JSON_CONTROLS = re.compile(r"[\x7f-\x9f]")
"""Those that json.dumps leaves as they are."""


def show(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text without its control characters: the only way from this package to a terminal."""
    click.echo(printable(str(text)), err=err, nl=nl)


def json_text(value: Any, indent: int | None = None) -> str:
    """Write JSON whose control characters are escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=json_default)
    return _JSON_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def report(error: MindfulError) -> None:
    """Print an error as a line and a hint."""
    show(f"mindful: {error.message}", err=True)
    if error.hint:
        show(f"Hint: {error.hint}", err=True)


def given(**options: Any) -> dict[str, Any]:
    """Leave out the options that were not given: their defaults are the server's."""
    return {name: value for name, value in options.items() if value is not None}


def printable(text: str) -> str:
    """Replace control characters: what is remembered or generated must not steer the user's terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
