"""Output of commands, and the options they pass on."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import psycopg

from mindful_client.calls.statement import json_default
from mindful_client.errors import MindfulError

_ORDER = r"\u202a-\u202e\u2066-\u2069"
"""Characters that reverse the order in which a terminal shows what follows."""
_CONTROLS = re.compile(rf"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]|[{_ORDER}]")
_JSON_CONTROLS = re.compile(rf"[\x7f-\x9f{_ORDER}]")
"""Control characters that json.dumps does not escape."""
_SERVER = "Check MINDFUL_DSN or --dsn, such as 'host=localhost dbname=app'."
_TENANT = "Set MINDFUL_TENANT or pass --tenant, such as --tenant customer-7."


def show(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text without its control characters. Every output of this package goes through here."""
    click.echo(printable(str(text)), err=err, nl=nl)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON with escaped control characters."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=json_default)
    return _JSON_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def report(error: MindfulError) -> None:
    """Print an error as a line and a hint."""
    show(f"mindful: {error.message}", err=True)
    if hint := _hint(error):
        show(f"Hint: {hint}", err=True)


def _hint(error: MindfulError) -> str | None:
    """Return the hint of an error, which names the option where one corrects it."""
    if error.sqlstate is None and isinstance(
        error.__cause__, psycopg.Error
    ):  # no server was reached, or it is gone
        return f"{error.hint} {_SERVER}" if error.hint else _SERVER
    return _TENANT if error.message == "no tenant is set" else error.hint


def given(**options: Any) -> dict[str, Any]:
    """Leave out options that were not given, so that the server's defaults apply."""
    return {name: value for name, value in options.items() if value is not None}


def printable(text: str) -> str:
    """Replace control characters, so that stored or generated text cannot steer the terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
