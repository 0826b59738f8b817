"""Write the client for ordinary code from the one for asyncio: twin.py prints it, twin.py --write writes it."""

from __future__ import annotations

import re
import subprocess
import sys

from support.sources import ROOT

_FOLDER = ROOT / "client" / "src" / "mindful_client"
SOURCE, TARGET = _FOLDER / "aio.py", _FOLDER / "client.py"
_DOCSTRING = (
    '"""The client for ordinary code. `make client` writes this file from aio.py: change that one."""'
)
_WORDS = (
    (r'\A""".*?"""', _DOCSTRING),
    (r"\bawait ", ""),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bCoroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\bAsyncGenerator\[([^\[\],]+), None\]", r"Generator[\1, None, None]"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"\baclosing\b", "closing"),
    (r"\basyncio\b", "threading"),
    (r"\b(Abstract)?Async(?=[A-Z])", r"\1"),
    (r"\banother task\b", "another thread or a signal handler"),
    (r"\b(several|Two) tasks\b", r"\1 threads"),
)


def twin() -> str:
    """Return what client.py is to be."""
    text = SOURCE.read_text()
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return _ruff(_ruff(text, "check", "--fix", "--quiet"), "format")


def _ruff(text: str, *command: str) -> str:
    """Sort and prune imports, join `with` statements, break lines."""
    arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        TARGET.write_text(twin())
    else:
        print(twin(), end="")
