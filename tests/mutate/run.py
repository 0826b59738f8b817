"""Change the server's Python at random places, and count how many changes the tests notice.

    make mutate MUTATE_ARGS="--count 100 --seed 1 --write docs/mutation.md"

Cosmic Ray's operators make the mutants: one place of the code is drawn, and one mutant of that place. Each is tried by
the unit tests that run the changed line, then by the type checker and the linter, then by the smoke tests against a
server that has the mutant installed (all of it `make check`), and at last by all tests of the module's room (part of
`make test`). A test that runs too long has noticed as well.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree

import psycopg
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("plpy/src/mindful")
LEFT_OUT = ("core/backend.py", "models/providers/llama/", "_version.py")
ROOMS = ("core", "models", "generate", "memory", "conversation", "learning", "confidence", "chat")
STAGES = ("unit", "lint", "smoke", "room")
_MANY = 60
"""Tests that run a line: of more, all tests are run, those of the room first."""
_NO_TESTS = 5
"""Exit status of pytest where there are none to run."""
UNIT_S, SMOKE_S, ROOM_S = 300, 1200, 1800
"""Seconds after which tests have noticed; enough for a machine with much other work."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path
    line: int
    operator: str
    before: str
    after: str
    code: str
    noticed: str | None = None

    @property
    def room(self) -> str:
        """The folder of the package that the file lies in."""
        return self.path.parts[0]

    def __str__(self) -> str:
        return f"{PACKAGE / self.path}:{self.line}: `{self.before}` became `{self.after}`"


def hints(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what only the type checker reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns


def places(path: Path) -> Iterator[tuple[tuple[int, int], str, int]]:
    """Yield the place, operator and occurrence of every mutant of a file."""
    source = path.read_text()
    spans = [
        ((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0))
        for one in hints(ast.parse(source))
    ]
    nodes = list(ast_nodes(get_ast(source)))
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments():
            continue
        found = (start for node in nodes for start, _ in operator().mutation_positions(node))
        for occurrence, start in enumerate(found):
            if not any(first <= start < last for first, last in spans):
                yield start, name, occurrence


def draw(source: Path, count: int, seed: int, only: str) -> list[Mutant]:
    """Draw mutants: places with equal probability, and one mutant of each."""
    by_place: dict[tuple[Path, tuple[int, int]], list[tuple[str, int]]] = {}
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source)
        if not str(name).startswith(LEFT_OUT) and str(name).startswith(only):
            for start, operator, occurrence in places(path):
                by_place.setdefault((name, start), []).append((operator, occurrence))
    chance = random.Random(seed)
    drawn = list(by_place)
    chance.shuffle(drawn)
    made = (mutant(source, path, start[0], *chance.choice(by_place[path, start])) for path, start in drawn)
    return [one for one, _ in zip((one for one in made if one), range(count), strict=False)]


def mutant(source: Path, path: Path, line: int, operator: str, occurrence: int) -> Mutant | None:
    """Make one mutant; one that is no Python, or the same Python, is none."""
    text = (source / path).read_text()
    code = mutate_code(text, get_operator(operator)(), occurrence)
    try:
        if code is None or ast.dump(ast.parse(code)) == ast.dump(ast.parse(text)):
            return None
    except SyntaxError:
        return None
    changes = list(unified_diff(text.splitlines(), code.splitlines(), n=0, lineterm=""))
    at = int(changes[2].split()[1].removeprefix("-").split(",")[0])
    before, after = (
        next((line[1:].strip() for line in changes[3:] if line.startswith(sign)), "") for sign in "-+"
    )
    return Mutant(path, at, operator.split("/")[-1], before, after, code)


class Workshop:
    """A copy of the project, and a home whose server imports that copy's package."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.home = folder / "tree", folder / "home"
        self.source, self.log = self.tree / PACKAGE, folder / "log"
        self.python = Path(sys.prefix) / "bin"
        self.left_out: list[str] = []
        """Options that leave out the tests that fail before anything is changed."""

    def make(self) -> None:
        """Copy the project; of the server's venv, everything but the project's own packages is a link."""
        copytree(
            ROOT,
            self.tree,
            ignore=ignore_patterns(".git", ".mindful", "__pycache__", ".*_cache", ".hypothesis"),
        )
        real = Path(os.environ["MINDFUL_HOME"])
        site = next((real / "venv/lib").glob("python3*/site-packages"))
        made = self.home / site.relative_to(real)
        made.mkdir(parents=True)
        for entry in site.iterdir():
            if entry.name == "mindful":
                (made / entry.name).symlink_to(self.source)
            elif entry.name.startswith("mindful") and entry.is_dir():
                copytree(entry, made / entry.name)
            else:
                (made / entry.name).symlink_to(entry)
        (self.home / "venv/bin").mkdir()
        for entry in (real / "venv/bin").iterdir():
            (self.home / "venv/bin" / entry.name).symlink_to(entry.resolve())
        (self.home / "venv/pyvenv.cfg").write_bytes((real / "venv/pyvenv.cfg").read_bytes())
        (self.home / "models").symlink_to((real / "models").resolve())
        for path in (self.home, self.tree):
            path.parent.chmod(0o755)

    def write(self, path: Path, code: str) -> None:
        """Change the copy; compiled code that is older by less than a second would be taken for it."""
        target = self.source / path
        target.write_text(code)
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink()

    def run(self, seconds: float, *command: str, **environment: str) -> bool:
        """Tell whether a command succeeds in the copy, in time; its output is kept until the next one."""
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            return process.wait(seconds) in (0, _NO_TESTS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False

    def pytest(self, seconds: float, *arguments: str) -> bool:
        """Tell whether tests pass."""
        options = (
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--timeout",
            "60",
            "-o",
            "addopts=--import-mode=importlib",
        )
        return self.run(seconds, str(self.python / "pytest"), *options, *self.left_out, *arguments)

    def leave_out(self) -> None:
        """Have the tests that have just failed left out from now on."""
        log = self.log.read_text()
        failed = [line.split()[1] for line in log.splitlines() if line.startswith("FAILED ")]
        if not failed:
            raise SystemExit(f"{log[-3000:]}\nthe tests fail before anything is changed")
        print(f"left out, as they fail before anything is changed: {', '.join(failed)}", flush=True)
        self.left_out += [f"--deselect={test}" for test in failed]

    def contexts(self) -> CoverageData:
        """Note which unit test runs which line."""
        settings = self.tree / "coverage.ini"
        data = self.tree / "coverage.data"
        settings.write_text(
            f"[run]\nsource = {self.source}\ndata_file = {data}\ndisable_warnings = no-data-collected\n"
        )
        tests = ("-q", "-m", "smoke", "-p", "no:cacheprovider", "-p", "mutate.context", "tests/unit")
        command = ("-m", "coverage", "run", f"--rcfile={settings}", str(self.python / "pytest"), *tests)
        if not self.run(900, str(self.python / "python"), *command, PYTHONPATH="tests"):
            self.leave_out()
        found = CoverageData(str(data))
        found.read()
        return found


def unit_tests(workshop: Workshop, contexts: CoverageData, one: Mutant) -> list[str]:
    """Return the unit tests that run a mutant's line; what runs at import is for the tests of its room and core."""
    lines = contexts.contexts_by_lineno(str(workshop.source / one.path))
    names = set(lines.get(one.line, ()))
    for near in range(one.line - 1, one.line - 12, -1):  # a statement of several lines is noted at its first
        if names:
            break
        names = set(lines.get(near, ()))
    if "" in names or len(names) > _MANY:
        rooms = [f"tests/unit/{one.room}"] if (workshop.tree / "tests/unit" / one.room).exists() else []
        return [*rooms, "tests/unit"]
    return sorted(names)


def first_to_notice(
    workshop: Workshop, contexts: CoverageData, one: Mutant, stages: Sequence[str]
) -> str | None:
    """Return the first stage that notices a mutant."""
    passes = {"unit": passes_unit, "lint": passes_lint, "smoke": passes_smoke, "room": passes_room}
    original = (workshop.source / one.path).read_text()
    workshop.write(one.path, one.code)
    try:
        return next((stage for stage in stages if not passes[stage](workshop, contexts, one)), None)
    finally:
        workshop.write(one.path, original)


def passes_unit(workshop: Workshop, contexts: CoverageData, one: Mutant) -> bool:
    """Run the unit tests that may notice."""
    tests = unit_tests(workshop, contexts, one)
    return not tests or workshop.pytest(UNIT_S, "-m", "smoke", *tests)


def passes_lint(workshop: Workshop, contexts: CoverageData, one: Mutant) -> bool:
    """Run the linter and the type checker."""
    path = str(PACKAGE / one.path)
    ruff, mypy = str(workshop.python / "ruff"), str(workshop.python / "mypy")
    return workshop.run(60, ruff, "check", path) and workshop.run(300, mypy, path)


def passes_smoke(workshop: Workshop, contexts: CoverageData, one: Mutant) -> bool:
    """Run the smoke tests of the room, of the rooms above it and of the client."""
    rooms = [f"tests/sql/{room}" for room in ROOMS[ROOMS.index(one.room) :]]
    return served(workshop, SMOKE_S, "-m", "smoke", *rooms, "tests/client")


def passes_room(workshop: Workshop, contexts: CoverageData, one: Mutant) -> bool:
    """Run all tests of the room."""
    return served(workshop, ROOM_S, f"tests/sql/{one.room}")


def served(workshop: Workshop, seconds: float, *arguments: str) -> bool:
    """Run tests against the server, and end what they leave behind."""
    passed = workshop.pytest(seconds, *arguments)
    if not passed:
        clear(os.environ["MINDFUL_TEST_DSN"])
    return passed


def clear(dsn: str) -> None:
    """Drop the databases of tests that were ended; a process that no longer hears anything is ended first."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        stuck = connection.execute(
            "select pid from pg_stat_activity where datname like 'mindful_test_%' and state = 'active'"
        ).fetchall()
        for (pid,) in stuck:
            connection.execute("select pg_terminate_backend(%s, 3000)", (pid,))
        alive = connection.execute(
            "select pid from pg_stat_activity where datname like 'mindful_test_%' and state = 'active'"
        ).fetchall()
    for (pid,) in alive:
        os.kill(pid, signal.SIGQUIT)
    for attempt in range(60):
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                for (name,) in connection.execute(
                    "select datname from pg_database where datname like 'mindful_test_%'"
                ).fetchall():
                    connection.execute(f'drop database if exists "{name}" with (force)')
            return
        except psycopg.OperationalError:
            time.sleep(attempt / 10)


def table(mutants: Sequence[Mutant], stages: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a report."""
    noticed = Counter(one.noticed for one in mutants)
    yield "| noticed by | mutants | share so far |"
    yield "|---|---:|---:|"
    so_far = 0
    for stage in stages:
        so_far += noticed[stage]
        yield f"| {stage} | {noticed[stage]} | {so_far / len(mutants):.0%} |"
    yield ""
    rooms = Counter(one.room for one in mutants)
    yield "| room | mutants | survived |"
    yield "|---|---:|---:|"
    for room, count in sorted(rooms.items()):
        yield f"| {room} | {count} | {sum(one.room == room and one.noticed is None for one in mutants)} |"
    yield ""
    yield from (f"- {one}" for one in mutants if one.noticed is None)


def main() -> None:
    """Draw, try and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="begin of the files' paths, such as memory/")
    parser.add_argument("--stages", default="unit,lint,smoke,room")
    parser.add_argument("--write", type=Path, help="put the table into this page")
    arguments = parser.parse_args()
    stages = [stage for stage in STAGES if stage in arguments.stages.split(",")]
    server = bool({"smoke", "room"} & set(stages))
    if "MUTATE_FOLDER" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="mindful-mutate.") as folder:
            Workshop(Path(folder)).make()
            start = [str(ROOT / "extension/setup/test.sh"), "1"] if server else []
            environment = os.environ | {"MUTATE_FOLDER": folder}
            if server:
                environment["MINDFUL_HOME"] = f"{folder}/home"
            sys.exit(subprocess.call([*start, sys.executable, *sys.argv], env=environment))
    workshop = Workshop(Path(os.environ["MUTATE_FOLDER"]))
    contexts = workshop.contexts() if "unit" in stages else CoverageData()
    if server and not served(workshop, SMOKE_S, "--maxfail=20", "-m", "smoke", "tests/sql", "tests/client"):
        workshop.leave_out()
    tried = []
    for one in draw(workshop.source, arguments.count, arguments.seed, arguments.only):
        tried.append(replace(one, noticed=first_to_notice(workshop, contexts, one, stages)))
        print(f"{tried[-1].noticed or 'SURVIVED'}: {one}", flush=True)
    lines = [f"{len(tried)} mutants, seed {arguments.seed}:", "", *table(tried, stages)]
    print("", *lines, sep="\n")
    if arguments.write:
        write(arguments.write, lines)
    rmtree(workshop.tree, ignore_errors=True)


def write(page: Path, lines: Sequence[str]) -> None:
    """Put lines between the page's marks."""
    begin, end = "<!-- mutants -->", "<!-- /mutants -->"
    head, _, rest = page.read_text().partition(begin)
    _, _, tail = rest.partition(end)
    page.write_text("\n".join([f"{head}{begin}", *lines, f"{end}{tail}"]))


if __name__ == "__main__":
    main()
