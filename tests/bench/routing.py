"""Measure what routing adds to a recall. Run by `make bench-router`.

It makes a router and two partitions in the cluster of MINDFUL_TEST_DSN, and asks directly and routed in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time

import psycopg
from support.cluster import Cluster
from support.query import one
from support.routed import made, removed


def milliseconds(connection: psycopg.Connection, statement: bytes) -> float:
    """Return the time of a statement."""
    started = time.perf_counter()
    connection.execute(statement).fetchall()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Print p50 and p99 of both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recalls", type=int, default=200)
    parser.add_argument("--memories", type=int, default=500)
    options = parser.parse_args()
    cluster = Cluster.of_environment()
    roles = {"ana": cluster.create_role("ana", "mindful_user")}
    routed = made(cluster, roles, 2)
    try:
        router = routed.connect("ana")
        direct = routed.partition(one(router, "select number from partition_find()"), "ana")
        router.execute(
            "select memory_insert('Note ' || n || ' on tea, rye and ' || md5(n::text)) from generate_series(1, %s) n",
            (options.memories,),
        )
        statement = b"select id, content, score from memory_recall('notes on tea', k => 10)"
        taken: dict[str, list[float]] = {"direct": [], "routed": []}
        for n in range(options.recalls + 10):
            for name, connection in (("direct", direct), ("routed", router)):
                spent = milliseconds(connection, statement)
                if n >= 10:
                    taken[name].append(spent)
        print("| way | p50 ms | p99 ms |\n|---|---|---|")
        for name, times in taken.items():
            print(
                f"| {name} | {statistics.median(times):.2f} | {statistics.quantiles(times, n=100)[98]:.2f} |"
            )
    finally:
        removed(routed)
        cluster.drop_role(roles["ana"])


if __name__ == "__main__":
    main()
