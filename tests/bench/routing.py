"""Measure what routing adds to a recall, and what a partition takes. Run by `make bench-router`.

It makes a router and two partitions in the cluster of MINDFUL_TEST_DSN, and asks directly and routed in turn. The parts
of the way are asked alone, in the same turns. Memory is of the processes alone (Private in smaps), which root may read.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql
from support.cluster import Cluster
from support.programs import program, run
from support.query import one
from support.routed import Routed, made, removed


def milliseconds(connection: psycopg.Connection, statement: bytes) -> float:
    """Return the time of a statement."""
    started = time.perf_counter()
    connection.execute(statement).fetchall()
    return (time.perf_counter() - started) * 1000


def cpu(pids: Sequence[int]) -> float:
    """Return the milliseconds that processes have computed, which other programs on the machine do not change much."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e6


def private(connection: psycopg.Connection) -> float:
    """Return the megabytes that a connection's process has alone."""
    text = Path(f"/proc/{connection.info.backend_pid}/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE))) / 1024


def sizes(routed: Routed, cluster: Cluster) -> dict[str, str]:
    """Return what an empty partition and its connections take."""
    found = {}
    place = routed.atlas.place(1)
    with cluster.connect(place.dbname) as partition:
        rows = partition.execute(
            """select pg_database_size(current_database()), count(*), count(*) filter (where relfilenode <> 0)
               from pg_class"""
        ).fetchone()
        assert rows
        found["database without rows, MB"] = f"{rows[0] / 1e6:.1f}"
        found["relations in its catalog, files"] = f"{rows[1]}, {rows[2]}"
        dump = program(partition, "pg_dump")
        started = time.perf_counter()
        size = len(run(dump, "-d", cluster.dsn(place.dbname)))
        found["pg_dump without rows, s and MB"] = f"{time.perf_counter() - started:.1f}, {size / 1e6:.2f}"
    # One tenant a partition, so that one connection of the router opens a connection to each.
    tenants = [routed.tenants(number)[0] for number in (0, 1)]
    with cluster.connect(routed.router, routed.roles["application"]) as router:
        before = [private(router)]
        for tenant in tenants:
            with router.transaction():
                router.execute("select tenant_set(%s)", (tenant,))
                router.execute("select * from memory_recall('tea')").fetchall()
            before.append(private(router))
    found["router's connection: idle, after one partition, after two, MB"] = ", ".join(
        f"{mb:.1f}" for mb in before
    )
    with cluster.connect(place.dbname, routed.roles["application"]) as direct:
        steps = [private(direct)]
        direct.execute("set mindful.tenant = 'customer-x'")
        direct.execute("select * from memory_recall('tea')").fetchall()
        steps.append(private(direct))
        direct.execute("select llm_embed('tea', 'all-minilm-l6-v2')")
        steps.append(private(direct))
        direct.execute("select llm_generate('Hi', max_tokens => 2, model => 'smollm2-135m-instruct')")
        steps.append(private(direct))
    found["partition's connection: idle, after a recall, embedder, generator, MB"] = ", ".join(
        f"{mb:.1f}" for mb in steps
    )
    return found


def main() -> None:
    """Print p50 and p99 of both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recalls", type=int, default=200)
    parser.add_argument("--memories", type=int, default=500)
    options = parser.parse_args()
    cluster = Cluster.of_environment()
    roles = {
        "ana": cluster.create_role("ana", "mindful_user"),
        "application": cluster.create_role("application", "mindful_application"),
    }
    routed = made(cluster, roles, 2)
    try:
        router = routed.connect("ana")
        direct = routed.partition(one(router, "select number from partition_find()"), "ana")
        router.execute(
            "select memory_insert('Note ' || n || ' on tea, rye and ' || md5(n::text)) from generate_series(1, %s) n",
            (options.memories,),
        )
        statement = b"select id, content, score from memory_recall('notes on tea', k => 10)"
        number, place, tenant = (
            router.execute("select number, map, caller from partition_find()").fetchone() or ()
        )
        enter = sql.SQL("select mindful_route.enter({}, {}, {})").format(number, place, tenant)
        asked: dict[str, tuple[psycopg.Connection, bytes]] = {
            "recall, direct": (direct, statement),
            "recall, routed": (router, statement),
            "its route alone, on the router": (router, b"select _mindful.route()"),
            "its check alone, on the partition": (direct, enter.as_bytes()),
            "setting_get, direct": (direct, b"select setting_get('recall_scope')"),
            "setting_get, routed": (router, b"select setting_get('recall_scope')"),
        }
        taken: dict[str, list[float]] = {name: [] for name in asked}
        computed = dict.fromkeys(asked, 0.0)
        with cluster.connect() as server:
            served = "select array_agg(pid) from pg_stat_activity where datname = any (%s) and usename = %s"
            pids = one(
                server, served, [routed.router, *(p.dbname for p in routed.atlas.places)], roles["ana"]
            )
        for n in range(options.recalls + 10):
            for name, (connection, query) in asked.items():
                before = cpu(pids)
                spent = milliseconds(connection, query)
                if n >= 10:
                    taken[name].append(spent)
                    computed[name] += (cpu(pids) - before) / options.recalls
        print("| call | p50 ms | p99 ms | computing, mean ms |\n|---|---|---|---|")
        for name, times in taken.items():
            p99 = statistics.quantiles(times, n=100)[98]
            print(f"| {name} | {statistics.median(times):.2f} | {p99:.2f} | {computed[name]:.2f} |")
        print("\n| of a partition | |\n|---|---|")
        for name, value in sizes(routed, cluster).items():
            print(f"| {name} | {value} |")
    finally:
        removed(routed)
        for role in roles.values():
            cluster.drop_role(role)


if __name__ == "__main__":
    main()
