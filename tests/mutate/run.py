"""Change the server's Python at random places, and count how many changes the tests notice.

    make mutate MUTATE_ARGS="--count 100 --seed 1 --write docs/mutation.md"

Cosmic Ray's operators make the mutants: one place of the code is drawn, and one mutant of that place. Each is tried by
the unit tests that run the changed line, then by the type checker and the linter. A server then has all those installed
that are left, for the smoke tests (with these, `make check`), for all tests of their rooms and at last for those of
attacks, the client and the service (with these, nearly `make test`). Tests that fail are repeated with half of the
mutants, until one of them is found; a test notices only if it passes without. A test that runs too long has noticed as
well.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree

import psycopg
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData
from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("plpy/src/mindful")
LEFT_OUT = ("core/backend.py", "models/providers/llama/", "_version.py")
ROOMS = ("core", "models", "generate", "memory", "conversation", "learning", "confidence", "chat")
SERVED = ("smoke", "room", "other")
STAGES = ("unit", "lint", *SERVED)
_NO_TESTS = 5
"""Exit status of pytest where there are none to run."""
UNIT_S = 900
"""Seconds after which unit tests have noticed; enough for a machine with much other work."""


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
    made: dict[tuple[Path, int], Mutant] = {}  # one a line, as several are installed together
    for path, start in drawn:
        if len(made) == count:
            break
        if one := mutant(source, path, *chance.choice(by_place[path, start])):
            made.setdefault((path, one.line), one)
    return list(made.values())


def mutant(source: Path, path: Path, operator: str, occurrence: int) -> Mutant | None:
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


def merged(text: str, codes: Sequence[str]) -> str:
    """Return a text with the changes of several versions of it, which change different lines."""
    lines = text.splitlines(keepends=True)
    changes = []
    for other in (code.splitlines(keepends=True) for code in codes):
        for kind, start, end, first, last in SequenceMatcher(None, lines, other, False).get_opcodes():
            if kind != "equal":
                changes.append((start, end, other[first:last]))
    for start, end, new in sorted(changes, reverse=True):
        lines[start:end] = new
    return "".join(lines)


class Workshop:
    """A copy of the project, and a home whose server imports that copy's package."""

    def __init__(self, folder: Path, jobs: str = "1") -> None:
        self.jobs = jobs
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

    @contextmanager
    def changed(self, mutants: Sequence[Mutant]) -> Iterator[None]:
        """Have mutants in the copy meanwhile."""
        before = {one.path: (self.source / one.path).read_text() for one in mutants}
        for path, text in before.items():
            self.write(path, merged(text, [one.code for one in mutants if one.path == path]))
        try:
            yield
        finally:
            for path, text in before.items():
                self.write(path, text)

    def write(self, path: Path, code: str) -> None:
        """Change the copy; compiled code that is older by less than a second would be taken for it."""
        target = self.source / path
        target.write_text(code)
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink()

    def run(self, seconds: float | None, *command: str, **environment: str) -> bool:
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

    def pytest(self, seconds: float | None, *arguments: str) -> bool:
        """Tell whether tests pass."""
        options = (
            "-q",
            "-p",
            "no:cacheprovider",
            "--timeout",
            "120",
            "-o",
            "addopts=--import-mode=importlib",
        )
        return self.run(seconds, str(self.python / "pytest"), *options, *self.left_out, *arguments)

    def failed(self) -> list[str]:
        """Return the tests that the last run names as failed."""
        lines = self.log.read_text().splitlines()
        named = (line.split(" ", 1)[1] for line in lines if line.startswith(("FAILED ", "ERROR ")))
        return list(dict.fromkeys(test.split(" - ")[0] for test in named))

    def leave_out(self, *tests: str) -> None:
        """Leave out tests that fail without a mutant."""
        print(f"left out, as they fail without a mutant: {', '.join(tests)}", flush=True)
        self.left_out += [f"--deselect={test}" for test in tests]

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
            self.leave_out(*self.failed())
        found = CoverageData(str(data))
        found.read()
        return found


def unit_tests(workshop: Workshop, contexts: CoverageData, one: Mutant) -> list[str]:
    """Return the unit tests that run a mutant's line, or what it changes at import."""
    lines = contexts.contexts_by_lineno(str(workshop.source / one.path))
    for near in range(one.line, one.line - 12, -1):  # a statement of several lines is noted at its first
        if names := set(lines.get(near, ())):
            break
    if names and "" not in names:
        return sorted(names)
    files = [one.path, *users(workshop.source, one.path)]
    found = [contexts.contexts_by_lineno(str(workshop.source / path)).values() for path in files]
    return sorted({name for tests in found for names in tests for name in names if name})


def users(source: Path, path: Path) -> Iterator[Path]:
    """Yield the modules that import a module."""
    *rooms, name = path.with_suffix("").parts
    within = ".".join(["mindful", *rooms])
    if name == "__init__":
        *_, within, name = ["", *within.rsplit(".", 1)]
    imports = re.compile(rf"from {within}\.{name} import|from {within} import .*\b{name}\b")
    for other in source.rglob("*.py"):
        if imports.search(other.read_text()):
            yield other.relative_to(source)


def first_to_notice(
    workshop: Workshop, contexts: CoverageData, one: Mutant, stages: Sequence[str]
) -> str | None:
    """Return the first stage without a server that notices a mutant."""
    passes: dict[str, Callable[[Workshop, CoverageData, Mutant], bool]] = {
        "unit": passes_unit,
        "lint": passes_lint,
    }
    with workshop.changed([one]):
        return next((stage for stage in stages if not passes[stage](workshop, contexts, one)), None)


def passes_unit(workshop: Workshop, contexts: CoverageData, one: Mutant) -> bool:
    """Run the unit tests that may notice."""
    tests = unit_tests(workshop, contexts, one)
    return not tests or workshop.pytest(UNIT_S, "-x", "-m", "smoke", *tests)


def passes_lint(workshop: Workshop, contexts: CoverageData, one: Mutant) -> bool:
    """Run the linter and the type checker."""
    path = str(PACKAGE / one.path)
    ruff, mypy = str(workshop.python / "ruff"), str(workshop.python / "mypy")
    return workshop.run(60, ruff, "check", path) and workshop.run(300, mypy, path)


def smoke_tests(rooms: set[str]) -> list[str]:
    """Return the arguments for the smoke tests of rooms, of the rooms above them and of the client."""
    first = min(map(ROOMS.index, rooms))
    return ["-m", "smoke", *(f"tests/sql/{room}" for room in ROOMS[first:]), "tests/client"]


def room_tests(rooms: set[str]) -> list[str]:
    """Return the arguments for all tests of rooms."""
    return [f"tests/sql/{room}" for room in ROOMS if room in rooms]


def other_tests(_: set[str]) -> list[str]:
    """Return the arguments for the tests of all rooms together, and for the unit tests that are slow."""
    return ["tests/unit", "tests/attack", "tests/client", "tests/serve"]


def noticed_by(workshop: Workshop, mutants: Sequence[Mutant], tests: Sequence[str]) -> list[Mutant]:
    """Return the mutants that tests against the server notice."""
    left, failed = list(mutants), list(tests)
    while failed and not served(workshop, left, *failed):
        failed = workshop.failed()
        if not failed:
            raise SystemExit(f"{workshop.log.read_text()[-3000:]}\nthe tests end without a result")
        one = culprit(workshop, left, failed[0])
        if one is None:
            workshop.leave_out(failed.pop(0))
        else:
            left.remove(one)
            print(f"{one}\n  noticed by {failed[0]}", flush=True)
    return [one for one in mutants if one not in left]


def culprit(workshop: Workshop, mutants: Sequence[Mutant], test: str) -> Mutant | None:
    """Return a mutant that a failed test notices, found by halves; none where the test fails by itself."""
    suspects = list(mutants)
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        suspects = suspects[len(half) :] if served(workshop, half, test) else half
    one = suspects[0]
    return one if served(workshop, [], test) and not served(workshop, [one], test) else None


def served(workshop: Workshop, mutants: Sequence[Mutant], *tests: str) -> bool:
    """Run tests against a server that has mutants installed, and end what they leave behind."""
    jobs = ("--numprocesses", workshop.jobs, "--dist", "worksteal") if len(tests) > 1 else ()
    with workshop.changed(mutants):
        passed = workshop.pytest(None, *jobs, *tests)
    if not passed:
        for dsn in os.environ["MINDFUL_TEST_DSN"].split():
            clear(dsn)
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
    yield "| noticed by | mutants | share so far | interval of 95% |"
    yield "|---|---:|---:|---|"
    so_far = 0
    for stage in stages:
        so_far += noticed[stage]
        # Clopper and Pearson, who never claim too much of few mutants.
        share = binomtest(so_far, len(mutants)).proportion_ci()
        yield (
            f"| {stage} | {noticed[stage]} | {so_far / len(mutants):.0%} "
            f"| {share.low:.0%} to {share.high:.0%} |"
        )
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
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after so long")
    parser.add_argument("--only", default="", help="begin of the files' paths, such as memory/")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--numprocesses", default="1", help="given by test.sh, as --dist")
    parser.add_argument("--dist", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    arguments = parser.parse_args()
    stages = [stage for stage in STAGES if stage in arguments.stages.split(",")]
    server = bool(set(SERVED) & set(stages))
    if "MUTATE_FOLDER" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="mindful-mutate.") as folder:
            Workshop(Path(folder)).make()
            start = [str(ROOT / "extension/setup/test.sh"), "2"] if server else []
            environment = os.environ | {"MUTATE_FOLDER": folder}
            if server:
                environment["MINDFUL_HOME"] = f"{folder}/home"
            sys.exit(subprocess.call([*start, sys.executable, *sys.argv], env=environment))
    workshop = Workshop(Path(os.environ["MUTATE_FOLDER"]), arguments.numprocesses)
    contexts = workshop.contexts() if "unit" in stages else CoverageData()
    tried: list[Mutant] = []
    end = time.monotonic() + arguments.minutes * 60
    for one in draw(workshop.source, arguments.count, arguments.seed, arguments.only):
        started = time.monotonic()
        if tried and started > end:
            break
        noticed = first_to_notice(workshop, contexts, one, [name for name in stages if name not in SERVED])
        tried.append(replace(one, noticed=noticed))
        print(f"{noticed or 'LEFT'} ({time.monotonic() - started:.0f} s): {one}", flush=True)
    for stage, tests in (("smoke", smoke_tests), ("room", room_tests), ("other", other_tests)):
        left = [one for one in tried if one.noticed is None]
        if stage in stages and left:
            found = noticed_by(workshop, left, tests({one.room for one in left}))
            tried = [replace(one, noticed=stage) if one in found else one for one in tried]
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
