"""Figures of all partitions, for readers; a partition that is down is named."""

from __future__ import annotations

from support import one
from support.routed import Routed, remember


def test_a_reader_sees_the_figures_of_all_partitions(own: Routed) -> None:
    application = own.connect("application")
    for number in (0, 1):
        for tenant in own.tenants(number, 2):
            remember(application, tenant, "I like tea.")
    figures = own.connect("reader").execute(
        "select partition, error, sum(memories)::int from partition_memory_overview group by 1, 2 order by 1"
    )
    assert figures.fetchall() == [(0, None, 2), (1, None, 2)]


def test_a_partition_that_is_down_is_named(own: Routed) -> None:
    application = own.connect("application")
    (tenant,) = own.tenants(1)
    remember(application, tenant, "I like tea.")
    name = own.atlas.place(0).dbname
    own.connect().execute(f"alter database {name} rename to {name}_away".encode())
    try:
        rows = (
            own.connect("reader")
            .execute("select partition, error, tenant from partition_memory_overview")
            .fetchall()
        )
    finally:
        own.connect().execute(f"alter database {name}_away rename to {name}".encode())
    assert [(number, name) for number, _, name in rows] == [(0, None), (1, tenant)]
    assert "partition 0" in rows[0][1]
    assert "is unreachable" in rows[0][1]


def test_partitions_that_share_a_database_count_once(own: Routed) -> None:
    from mindful_client.partition import change

    remember(own.connect("application"), own.tenants(0)[0], "I like tea.")
    change.split(own.servers, tell=lambda _: None)
    assert one(own.connect("reader"), "select sum(memories) from partition_memory_overview") == 1
    assert (
        one(own.connect("reader"), "select count(*) from partition_model_usage where error is not null") == 0
    )
