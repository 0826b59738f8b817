from __future__ import annotations

from difflib import unified_diff

import pytest
from support.cluster import Cluster
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
