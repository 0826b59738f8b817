"""What install.sh makes of the sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SLICE = """\
create table one (a integer);

create function f(a integer) returns integer
language plpgsql immutable
as $$
begin

    return a;
end
$$;
comment on function f(integer) is
'Returns @VERSION@.';

create function f_of(a integer) returns integer language sql immutable return a;

create view v as
select 1 as a
    where true;
comment on view v is
'One row.';
create function f(a text) returns text
language sql immutable
begin atomic
    select a;
end;
comment on function f_of(integer) is 'Another one.';
comment on function f(text) is 'A second f.';
"""
F = """\
create or replace function f(a integer) returns integer
language plpgsql immutable
as $$
begin

    return a;
end
$$;
comment on function f(integer) is
'Returns 1.2.3.';
create or replace function f(a text) returns text
language sql immutable
begin atomic
    select a;
end;
comment on function f(text) is 'A second f.';
"""
V = """\
create or replace view v as
select 1 as a
    where true;
comment on view v is
'One row.';
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "extension" / "setup", tmp_path / "extension" / "setup")
    (tmp_path / "extension" / "mindful.control").write_text("default_version = '1.2.3'\n")
    (tmp_path / "extension" / "steps").mkdir()
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "one.sql").write_text(SLICE)
    (tmp_path / "sql" / "order.txt").write_text("one.sql\n")
    return tmp_path


def built(tree: Path, step: str) -> subprocess.CompletedProcess[str]:
    (tree / "extension" / "steps" / "mindful--1.2.2--1.2.3.sql").write_text(step)
    command = ["bash", str(tree / "extension" / "setup" / "install.sh"), "build"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_step_includes_files_and_what_they_say_of_a_name(tree: Path) -> None:
    whole = "-- include sql/one.sql"
    done = built(tree, f"drop view w;\n{whole}\n{whole} f\n{whole} v\n-- the end\n")
    assert done.returncode == 0, done.stderr
    step = (tree / "extension" / "mindful--1.2.2--1.2.3.sql").read_text()
    assert step == f"drop view w;\n{SLICE.replace('@VERSION@', '1.2.3')}{F}{V}-- the end\n"


def test_a_step_repeats_every_comment(tree: Path) -> None:
    done = built(tree, "-- comments\n-- the end\n")
    assert done.returncode == 0, done.stderr
    step = (tree / "extension" / "mindful--1.2.2--1.2.3.sql").read_text()
    assert step.splitlines() == [
        "comment on function f(integer) is",
        "'Returns 1.2.3.';",
        "comment on view v is",
        "'One row.';",
        "comment on function f_of(integer) is 'Another one.';",
        "comment on function f(text) is 'A second f.';",
        "-- the end",
    ]


def test_a_step_repeats_every_setting(tree: Path) -> None:
    (tree / "sql" / "one.sql").write_text(
        SLICE + "insert into setting_definition (key) values\n    ('a'),\n    ('b; c');\nselect 1;\n"
    )
    done = built(tree, "-- settings\n-- the end\n")
    assert done.returncode == 0, done.stderr
    step = (tree / "extension" / "mindful--1.2.2--1.2.3.sql").read_text().splitlines()
    assert step[:3] == ["insert into setting_definition (key) values", "    ('a'),", "    ('b; c')"]
    assert step[3].startswith("on conflict (tenant, key) do update set")
    assert step[-1] == "-- the end"
    assert "select 1;" not in step


@pytest.mark.parametrize("included", ["sql/two.sql", "sql/one.sql g", "sql/one.sql one"])
def test_what_is_not_there_is_not_included(tree: Path, included: str) -> None:
    done = built(tree, f"-- include {included}\n")
    assert done.returncode != 0
    assert included.split()[-1] in done.stderr
    assert not (tree / "extension" / "mindful--1.2.2--1.2.3.sql").exists()
