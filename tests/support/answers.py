"""Print the answers of a page's SQL anew, from what a server answers now.

answers.py [--write] PAGE runs each block of SQL in the database of MINDFUL_TEST_DSN, which has the default models,
and puts psql's answer into the block after it, where the page has one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from pathlib import Path

_BLOCK = re.compile(r"^```sql\n(?P<sql>.*?)^```\n(?:```\n(?P<answer>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_QUIET = r"\set QUIET on" "\n" r"\pset footer off" "\n"


def answered(text: str, dsn: str) -> str:
    """Return the page's text with the answers that its statements have now."""

    def fill(block: re.Match[str]) -> str:
        sql, told = block["sql"], block["answer"]
        answer = _psql(sql, dsn)
        return block[0] if told is None else f"```sql\n{sql}```\n```\n{answer}\n```\n"

    return _BLOCK.sub(fill, text)


def _psql(sql: str, dsn: str) -> str:
    """Run the statements and return the last answer."""
    psql = ["psql", "-X", "-v", "ON_ERROR_STOP=1", dsn]
    done = subprocess.run(psql, input=_QUIET + sql, capture_output=True, text=True, check=True)
    last = done.stdout.rstrip("\n").rpartition("\n\n")[2]
    return "\n".join(map(str.rstrip, last.splitlines()))


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    text = answered(arguments.page.read_text(), os.environ["MINDFUL_TEST_DSN"])
    if arguments.write:
        arguments.page.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
