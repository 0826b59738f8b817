"""A host that is killed, or whose packets vanish, fails the calls of its tenants soon, and no others."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from mindful_client.partition.atlas import connected, serve, write
from psycopg.conninfo import conninfo_to_dict
from support import one
from support.clock import within
from support.network import Host, host
from support.routed import Routed, refused, remember

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)
LIMIT_S = 2.0


@pytest.fixture
def hosts(own: Routed) -> Iterator[list[Host]]:
    """Two partitions, each on a host of its own."""
    parts = conninfo_to_dict(own.cluster.dsn())
    path = f"{parts['host']}/.s.PGSQL.{parts['port']}"
    with host(1, path) as first, host(2, path) as second:
        places = [
            replace(place, host=made.address, port=5432)
            for place, made in zip(own.atlas.places, (first, second), strict=True)
        ]
        direct = [own.partition(place) for place in own.atlas.places]
        with connected(own.servers.router) as router:
            write(router, places)
        for place, connection in zip(own.atlas.places, direct, strict=True):
            serve(connection, {place.number: own.atlas.served(place)})
        yield [first, second]


def fails_soon(connection: psycopg.Connection, tenant: str) -> None:
    for _ in within(LIMIT_S):
        with refused("08006", "partition 0 .* is unreachable"):
            remember(connection, tenant, "I like tea.")


def test_a_killed_host_fails_the_calls_of_its_tenants_alone(own: Routed, hosts: list[Host]) -> None:
    (near,), (other,) = own.tenants(0), own.tenants(1)
    application = own.connect("application")
    for tenant in (near, other):
        remember(application, tenant, "I like tea.")
    hosts[0].kill()
    for _ in range(3):
        fails_soon(application, near)
        remember(application, other, "I like tea.")


def test_a_host_whose_packets_vanish_fails_open_and_new_connections(own: Routed, hosts: list[Host]) -> None:
    (near,), (other,) = own.tenants(0), own.tenants(1)
    application = own.connect("application")
    for tenant in (near, other):
        remember(application, tenant, "I like tea.")
    hosts[0].vanish()
    fails_soon(application, near)
    fails_soon(application, near)
    remember(application, other, "I like tea.")
    hosts[0].return_()
    remember(application, near, "I like rye.")


def test_a_host_that_vanishes_while_it_computes_fails_the_call(own: Routed, hosts: list[Host]) -> None:
    router = own.connect()
    router.execute(
        "create function _mindful.slow(integer, text, text) returns text language plproxy as"
        " $$ cluster 'mindful'; run on $1; select 'x' from pg_sleep(30); $$"
    )
    router.execute("select _mindful.role_map('postgres', null)")
    number = one(router, "select number from partition_find()")
    for clock in within(0.5 + 2 * LIMIT_S):
        threading.Timer(0.5, hosts[number].vanish).start()
        with pytest.raises(psycopg.Error, match="timed out"):
            router.execute("select _mindful.slow(%s, '', '')", (number,))
        clock.stop()
        hosts[number].return_()


def test_a_slow_host_slows_its_own_tenants_alone(own: Routed, hosts: list[Host]) -> None:
    (near,), (other,) = own.tenants(0), own.tenants(1)
    application = own.connect("application")
    for tenant in (near, other):
        remember(application, tenant, "I like tea.")
    parts = conninfo_to_dict(own.cluster.dsn())
    hosts[0].kill()
    hosts[0].start(f"{parts['host']}/.s.PGSQL.{parts['port']}", 0.15)
    # PL/Proxy tries a connection that was used less than 2 s ago without looking whether it is still open.
    application.close()
    application = own.connect("application")
    for tenant, limit_s, least_s in ((near, 60, 0.3), (other, 0.3, 0.0)):
        for clock in within(limit_s, at_least_s=least_s):
            with application.transaction():
                application.execute("select tenant_set(%s)", (tenant,))
                clock.start()
                assert one(application, "select content from memory_recall('tea')") == "I like tea."
                clock.stop()
