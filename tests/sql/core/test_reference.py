from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff

import psycopg
import pytest
from support.cluster import Cluster
from support.pages import NOTES, blocks, sections
from support.reference import PAGE, page


def test_the_reference_is_what_the_catalog_says(cluster: Cluster, bare_template: str) -> None:
    with cluster.connect(bare_template) as connection:
        now = page(connection)
    differences = [
        *unified_diff(PAGE.read_text().splitlines(), now.splitlines(), "page", "catalog", n=0, lineterm="")
    ]
    if differences:
        pytest.fail(
            "docs/reference.md is out of date: run make reference\n" + "\n".join(differences[:20]), False
        )


def test_every_public_object_has_a_comment(cluster: Cluster, bare_template: str) -> None:
    with cluster.connect(bare_template) as connection:
        silent = connection.execute("""
            select p.proname from pg_proc p where p.pronamespace = 'mindful'::regnamespace
                and obj_description(p.oid, 'pg_proc') is null
            union all
            select c.relname from pg_class c where c.relnamespace = 'mindful'::regnamespace
                and c.relkind in ('r', 'v', 'm', 'c')
                and obj_description(c.oid, 'pg_class') is null and obj_description(c.reltype, 'pg_type') is null
        """).fetchall()
    assert silent == []


def test_a_comment_has_at_most_400_characters(cluster: Cluster, bare_template: str) -> None:
    """psql shows it in one column. What is longer goes into the page beside the SQL file."""
    with cluster.connect(bare_template) as connection:
        long = connection.execute("""
            select pg_describe_object(d.classoid, d.objoid, d.objsubid), length(d.description)
            from pg_description d
            join pg_depend e on (e.classid, e.objid) = (d.classoid, d.objoid) and e.deptype = 'e'
            join pg_extension x on x.oid = e.refobjid and x.extname = 'mindful'
            where length(d.description) > 400
            order by 1
        """).fetchall()
    assert long == []


def test_the_arguments_that_a_page_lists_are_the_objects_own(cluster: Cluster, bare_template: str) -> None:
    listed = {
        (name, argument)
        for page in NOTES
        for name, text in sections(page).items()
        for part in re.findall(
            r"^(?:Arguments|Columns)[^\n]*:\n\n((?:[- ] .*\n)+)", text + "\n", re.MULTILINE
        )
        for argument in re.findall(r"^- `(\w+)`", part, re.MULTILINE)
    }
    with cluster.connect(bare_template) as connection:
        named = connection.execute("""
            select proname, unnest(proargnames) from pg_proc where pronamespace = 'mindful'::regnamespace
            union
            select p.proname, a.attname from pg_proc p
            join pg_type t on t.oid = p.prorettype join pg_attribute a on a.attrelid = t.typrelid
            union
            select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
            where c.relnamespace = 'mindful'::regnamespace and c.relkind <> 'i'
        """).fetchall()
    assert len(listed) > 80
    assert listed - set(named) == set()


def examples(comments: Iterable[str]) -> Iterator[str]:
    """Yield the queries that comments and the pages beside SQL files give as examples."""
    for comment in comments:
        yield from re.findall(r"(?im)Example: (select .+?)(?:;|$)", comment)
    for note in NOTES:
        for block in blocks(note, "sql"):
            yield from re.findall(r"(?s)(\S.+?);\n", block)


def test_the_examples_of_comments_and_pages_fit_the_signatures(cluster: Cluster, bare_template: str) -> None:
    """Prepared, not run: names, arguments and their types are resolved."""
    wrong = []
    with cluster.connect(bare_template) as connection, connection.transaction(force_rollback=True):
        connection.execute("create table public.ticket (subject text, body text, priority text)")
        connection.execute("create function public.weather(city text) returns text return 'Sunny.'")
        connection.execute("set local search_path = mindful, public")
        comments = connection.execute("select description from pg_description").fetchall()
        found = [*examples(comment for (comment,) in comments)]
        for number, example in enumerate(found):
            try:
                with connection.transaction():
                    connection.execute(f"prepare example_{number} as {example}".encode())
            except psycopg.Error as error:
                wrong.append(f"{example}: {error}")
    assert len(found) > 60
    assert wrong == []
