"""Draw a session in psql as an SVG picture, from what a server answers now.

picture.py [--write FILE] runs the statements in the database of MINDFUL_TEST_DSN, which has the default models.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

STATEMENTS = (
    "SELECT memory_insert('The spare key is under the blue pot.');",
    "SELECT memory_insert('Marta moved to Toronto in 2019.');",
    "SELECT content, score FROM memory_recall('Where is my key?', k => 1);",
    "SELECT reply, confidence, action, memory_ids FROM llm_chat_detail('Where does Marta live?');",
    "SELECT memory_update(2, 'Marta moved to Oslo in 2024.');",
    "SELECT content FROM memory_recall('Where does Marta live?', k => 1, kinds => '{fact}');",
)
_PROMPT = "mindful=> "
_LINE, _LETTER, _MARGIN = 18, 8.4, 16
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img">
<title>A session in psql</title>
<rect width="100%" height="100%" rx="8" fill="#1e1e2e"/>
<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="#cdd6f4" xml:space="preserve">
"""


def session(dsn: str) -> Iterator[str]:
    """Yield the lines of a terminal: each statement after the prompt, then psql's answer."""
    for statement in STATEMENTS:
        done = subprocess.run(
            ["psql", "-X", "-P", "footer=off", "-c", statement, dsn],
            capture_output=True,
            text=True,
            check=True,
        )
        yield _PROMPT + statement
        yield from done.stdout.splitlines()


def picture(lines: Sequence[str]) -> str:
    """Draw lines of a terminal."""
    width = 2 * _MARGIN + _LETTER * max(map(len, lines))
    head = _HEAD.format(width=width, height=2 * _MARGIN + _LINE * len(lines))
    return head + "".join(_text(at, line) for at, line in enumerate(lines)) + "</g>\n</svg>\n"


def _text(at: int, line: str) -> str:
    color = ' fill="#a6e3a1"' if line.startswith(_PROMPT) else ""
    y = _MARGIN + _LINE * (at + 0.75)
    return f'<text x="{_MARGIN}" y="{y:g}"{color}>{escape(line.rstrip())}</text>\n'


def main() -> None:
    """Print the picture, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    target = parser.parse_args().write
    text = picture([*session(os.environ["MINDFUL_TEST_DSN"])])
    if target:
        target.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
