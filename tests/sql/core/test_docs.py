"""What the pages say of SQL is true of this server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.answers import answered
from support.cluster import Cluster
from support.pages import PAGES, blocks, code
from support.sources import ROOT

_KNOWN = """
    select proname::text from pg_proc where pronamespace <> '_mindful'::regnamespace
    union select '_mindful.' || proname from pg_proc where pronamespace = '_mindful'::regnamespace
    union select relname::text from pg_class
    union select attname::text from pg_attribute
    union select tgname::text from pg_trigger
    union select typname::text from pg_type
    union select name from pg_settings
    union select rolname::text from pg_roles
    union select key from mindful.setting_definition
    union select unnest(proargnames) from pg_proc where pronamespace = 'mindful'::regnamespace
    union select nspname::text from pg_namespace
    union select word from pg_get_keywords()
"""
_NAME = re.compile(r"(?<![\w.$%'/-])((?:_mindful\.)?[a-z][a-z0-9]*(?:_[a-z0-9]+)+)\b(?![-./=])")
_INTERNAL = re.compile(r"^_(?!_|mindful)[a-z_]+")
"""Internal functions without their schema: nothing has such a name."""
_CALL = re.compile(r"(?<![\w.])((?:_mindful\.)?[a-z_][a-z0-9_]*)\(")
_SOURCES = (
    "client/src",
    "extension/setup",
    "extension/router",
    "tests/bench",
    "tests/sql",
    "pyproject.toml",
    "Makefile",
)
"""Where names are from that are not SQL's: arguments of Python, settings of make."""
_OTHERS = {
    "auto_explain", "pg_stat_statements", "pg_upgrade", "ef_construction", "security_invoker", "load_dataset",
    "bearer_token_env_var", "pg_basebackup", "writing_function", "sql_function", "assemble", "_mindful.name", "im_end",
    "ef_search", "pg_ctlcluster", "pg_dumpall", "remote_apply", "remote_write", "server_lifetime",
    "use_mmap", "mindful_3", "vocab_only",
}  # fmt: skip
"""Names of PostgreSQL's tools, of other projects, and of databases in examples."""


def words_of_sources() -> set[str]:
    files = [file for name in _SOURCES for file in [ROOT / name, *(ROOT / name).rglob("*")] if file.is_file()]
    texts = (file.read_text(errors="replace") for file in files if file.suffix != ".pyc")
    words = {word for text in texts for word in re.findall(r"[a-z_][a-z0-9_]*", text)}
    inner = (
        file.read_text() for folder in ("sql", "plpy/src") for file in (ROOT / folder).rglob("*.[ps][yq]*")
    )
    return words | {word for text in inner for word in re.findall(r"""["']([a-z_]+)["']""", text)}


def run_psql(dsn: str, *arguments: str, script: str | None = None, **variables: str) -> None:
    psql = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *arguments, dsn]
    done = subprocess.run(
        psql,
        input=script,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


def drop_roles(cluster: Cluster, database: str, named: list[str]) -> None:
    with cluster.connect(database) as connection:
        made = connection.execute("select rolname from pg_roles where rolname = any (%s)", (named,))
        for (role,) in made.fetchall():
            connection.execute(f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize("page", ["tour.md", "operation.md"])
def test_pages_that_are_followed_run_as_they_stand(page: str, cluster: Cluster, database: str) -> None:
    script = "\n".join(blocks(ROOT / "docs" / page, "sql"))
    try:
        run_psql(cluster.dsn(database), script=script)
    finally:
        drop_roles(cluster, database, re.findall(r"CREATE ROLE (\w+)", script))


def test_the_readme_runs_and_the_answers_that_it_prints_have_the_columns_of_today(
    cluster: Cluster, database: str
) -> None:
    page = (ROOT / "README.md").read_text()
    try:
        today = answered(page, cluster.dsn(database))
    finally:
        drop_roles(cluster, database, re.findall(r"CREATE ROLE (\w+)", page))
    assert heads(page) == heads(today)
    assert len(heads(page)) >= 4


def heads(page: str) -> list[list[str]]:
    """The columns of each table that psql printed: the line above its dashes."""
    return [line.replace("|", " ").split() for line in re.findall(r"^(.+)\n-[-+]+$", page, re.MULTILINE)]


def test_the_demo_runs_as_it_stands_and_again(cluster: Cluster, database: str, tmp_path: Path) -> None:
    manual = tmp_path / "chapter.html"
    paragraph = "Vacuuming keeps transaction identifiers from wrapping around and losing data. " * 2
    manual.write_text(f'<html xmlns="http://www.w3.org/1999/xhtml"><p>{paragraph}</p></html>')
    demo = ROOT / "extension/demo.sql"
    try:
        for _ in range(2):
            run_psql(cluster.dsn(database), "-f", str(demo), MANUAL=str(manual))
    finally:
        drop_roles(cluster, database, re.findall(r"create role (\w+)", demo.read_text()))


def test_every_name_in_the_pages_exists(cluster: Cluster, bare_template: str) -> None:
    with cluster.connect(bare_template) as connection:
        known = {name for (name,) in connection.execute(_KNOWN)}
    made = {
        name for page in PAGES for part in code(page) for name in re.findall(r"(?i)create \w+ (\w+)", part)
    }
    known |= made | words_of_sources() | _OTHERS
    unknown = {
        f"{page.name}: {name}"
        for page in PAGES
        for part in code(page)
        for name in (*_NAME.findall(part), *_CALL.findall(part), *_INTERNAL.findall(part))
        if name.removeprefix("partition_") not in known
        or (name.startswith("_") and not name.startswith("_mindful."))
    }
    if unknown:
        pytest.fail("pages name what does not exist:\n" + "\n".join(sorted(unknown)), False)
