"""The command line, run within the test's process."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result
from mindful_client.cli import main


class Command:
    """Runs the command as somebody; `words` go before the arguments."""

    def __init__(self, dsn: str, *words: str) -> None:
        self.dsn, self._words = dsn, words

    def __call__(self, *arguments: str | Path, input: bytes | str | None = None) -> Result:  # noqa: A002
        given = [*self._words, *map(str, arguments)]
        return CliRunner().invoke(main, given, input=input, env={"MINDFUL_DSN": self.dsn})
