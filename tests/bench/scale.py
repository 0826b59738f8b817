"""Measure memory_recall among many memories of many tenants, against bare queries on the same rows in the same run.

Usage: scale.py [--rows N ...] [--dims N] [--queries N] [--one-tenant] [--vector-type TYPE] [--keep] [--likeness LOCOMO]
[--write FILE]. The server comes from MINDFUL_DSN, as `make dsn` prints it; each size is a database of its own there,
dropped at the end. The peers are one HNSW index and one GIN index over all rows, asked for the 10 nearest of all
tenants', by a superuser and without a filter. The query's embedding is given to both, so the model's time is left out.
With --keep the one tenant's database stays, and the next run begins where this one ended: loaded, or indexed too.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import likeness
import numpy as np
import psycopg
from nearest import Query, nearest_of_all
from psycopg import sql
from psycopg.conninfo import make_conninfo
from synthetic import EMBEDDER, TABLE, Corpus, NestedCorpus, Tenant, load, load_rows, load_words, tenants

K = 10
DATABASE = "mindful_bench_scale"
ROLE = "mindful_bench"


@dataclass
class Times:
    """Milliseconds of one kind of query."""

    values: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Of the backend, which other processes disturb less."""

    def take(self, db: psycopg.Connection, statement: str, arguments: Sequence[object]) -> list[Any]:
        """Run and time one query."""
        spent, started = _processor_ms(db), time.perf_counter()
        rows = db.execute(statement, arguments, prepare=True).fetchall()
        self.values.append((time.perf_counter() - started) * 1000)
        self.processor.append(_processor_ms(db) - spent)
        return rows

    @property
    def p50(self) -> float:
        return statistics.median(self.values)

    @property
    def p99(self) -> float:
        return float(np.percentile(self.values, 99))


def _processor_ms(db: psycopg.Connection) -> float:
    """Return the processor time that a backend of this machine has taken."""
    return int(Path(f"/proc/{db.info.backend_pid}/schedstat").read_text().split()[0]) / 1e6


RECALL = (
    "select id, score from _mindful.memory_recall(%s, %s::vector, %s, 10,"
    " _mindful.recall_filter(null, null, null, now(), null))"
)
RECALL_FACTS = RECALL.replace("recall_filter(null", "recall_filter(array['fact']")
NEAREST = "select id from bare order by embedding <=> %s::vector limit 10"
NEAREST_OWN = f"select id from {TABLE} where tenant = %s order by embedding <=> %s::vector limit 10"
MATCHING = """select id from bare where words @@ to_tsquery('english', %s)
    order by ts_rank(words, to_tsquery('english', %s)) desc limit 10"""

PARTS = {
    "settings": ("select _mindful.recall_options()", ()),
    "memories valid": ("select _mindful.recall_hidden(now())", ()),
    "dense arm": (
        "select id from _mindful.recall_dense(%s::vector, %s, 50, null)",
        ("vector", "embedder"),
    ),
    "lexical arm": ("select id from _mindful.recall_lexical(%s, 50, null)", ("text",)),
    "reading 50 memories": (
        "select place_number, memory from _mindful.memory_places(array_fill(null::uuid, array[50]), %s)",
        ("ids",),
    ),
}
"""What a recall must do, each part as a statement of its own."""


@contextmanager
def database(dsn: str, name: str = DATABASE, keep: bool = False) -> Iterator[str]:
    """Make a database, unless it is kept from an earlier run, and drop it and the application's role at the end."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        if not (keep and admin.execute("select 1 from pg_database where datname = %s", (name,)).fetchone()):
            _drop(admin, name)
            admin.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
            admin.execute(
                sql.SQL('alter database {} set search_path = "$user", public, mindful').format(
                    sql.Identifier(name)
                )
            )
        try:
            yield make_conninfo(dsn, dbname=name)
        finally:
            if not keep:
                _drop(admin, name)
            admin.execute(_DROP_ROLE)


def _drop(admin: psycopg.Connection, name: str) -> None:
    admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


_DROP_ROLE = sql.SQL("drop role if exists {}").format(sql.Identifier(ROLE))
"""Other benches have a role of this name, with other rights."""


def make_role(db: psycopg.Connection) -> None:
    """Make the application's role."""
    db.execute(_DROP_ROLE)
    db.execute(f"create role {ROLE} in role mindful_user, mindful_application")


def fill(db: psycopg.Connection, rows: int, dims: int) -> list[Tenant]:
    """Load the rows, index the large tenants' embeddings, and make the peers' table."""
    _progress(f"loading {rows} memories")
    db.execute("set client_min_messages = warning")
    made = tenants(rows)
    load(db, made, Corpus(dims))
    make_role(db)
    _progress("making the indexes")
    db.execute("set maintenance_work_mem = '6GB'")
    db.execute("set max_parallel_maintenance_workers = 2")
    for tenant in made:
        if tenant.size >= 10_000:
            db.execute("select memory_index_create(%s)", (tenant.name,))
    db.execute(
        f"""create unlogged table bare as
            select e.id, e.embedding, to_tsvector('english', m.content) as words
            from {TABLE} e join memory m using (tenant, id)"""
    )
    db.execute("create index on bare using gin (words)")
    db.execute("create index on bare using hnsw (embedding vector_cosine_ops)")
    db.execute("vacuum analyze bare")
    return made


def queries(db: psycopg.Connection, chosen: Sequence[Tenant], corpus: Corpus) -> list[Query]:
    """Ask each tenant for something like one of its memories."""
    rng = np.random.default_rng(3)
    made = []
    for tenant in chosen:
        row = db.execute(
            f"select m.content, e.embedding::text from memory m join {TABLE} e using (tenant, id)"
            " where m.tenant = %s and m.id = %s",
            (tenant.name, int(tenant.first + rng.integers(tenant.size))),
        ).fetchone()
        assert row
        words = row[0].split()
        vector = corpus.around(np.array([[float(x) for x in row[1][1:-1].split(",")]], dtype=np.float32))[0]
        made.append(
            Query(
                tenant.name,
                " ".join(rng.choice(words, size=min(6, len(words)), replace=False)),
                "[" + ",".join(f"{x:.6f}" for x in vector) + "]",
            )
        )
    return made


def measure(user: psycopg.Connection, db: psycopg.Connection, asked: Sequence[Query]) -> dict[str, Times]:
    """Time ours and the peers in turns, after a warm-up over the same queries."""
    times: dict[str, Times] = {}
    for _ in range(2):
        times = {name: Times() for name in ("recall", "nearest", "nearest of the tenant", "full text")}
        for query in asked:
            user.execute("select set_config('mindful.tenant', %s, false)", (query.tenant,))
            words = " | ".join(query.text.split())
            times["recall"].take(user, RECALL, (query.text, query.vector, EMBEDDER))
            times["nearest"].take(db, NEAREST, (query.vector,))
            times["nearest of the tenant"].take(db, NEAREST_OWN, (query.tenant, query.vector))
            if len(times["full text"].values) < 30:  # it takes seconds
                times["full text"].take(db, MATCHING, (words, words))
    return times


def parts(user: psycopg.Connection, asked: Sequence[Query]) -> list[str]:
    """Time the parts of a recall in turns, and write their medians, and that of an empty statement."""
    times = {name: Times() for name in (*PARTS, "empty statement")}
    for query in asked:
        user.execute("select set_config('mindful.tenant', %s, false)", (query.tenant,))
        ids = user.execute("select array(select id from mindful.memory order by id limit 50)").fetchone()
        assert ids
        given = {"vector": query.vector, "text": query.text, "embedder": EMBEDDER, "ids": ids[0]}
        for name, (statement, names) in PARTS.items():
            times[name].take(user, statement, [given[one] for one in names])
        times["empty statement"].take(user, "select", ())
    return [f"{one.p50:.2f}" for one in times.values()]


FILTERS = {
    "tenant": ("null", "true"),
    "kind (a fifth)": ("_mindful.recall_filter(array['fact'], null, null, null, null)", "m.kind = 'fact'"),
    "metadata (a twentieth)": (
        """_mindful.recall_filter(null, '{"topic": 3}', null, null, null)""",
        """m.metadata @> '{"topic": 3}'""",
    ),
}


CONDITIONS = {name: condition for name, (_, condition) in FILTERS.items()}


def agreement(
    user: psycopg.Connection, nearest: Mapping[str, Sequence[set[int]]], asked: Sequence[Query]
) -> str:
    """Recall@10 of the dense arm against the nearest memories, by filter."""
    found = []
    for name, (given, _) in FILTERS.items():
        shares = []
        for query, exact in zip(asked, nearest[name], strict=True):
            user.execute("select set_config('mindful.tenant', %s, false)", (query.tenant,))
            ours = user.execute(
                f"select id from _mindful.recall_dense(%s::vector, %s, 70, {given}) order by similarity desc limit {K}",
                (query.vector, EMBEDDER),
            ).fetchall()
            if exact:
                shares.append(len({id_ for (id_,) in ours} & exact) / len(exact))
        found.append(f"{statistics.fmean(shares):.3f}")
    return " / ".join(found)


def breadths(db: psycopg.Connection, nearest: Sequence[set[int]], asked: Sequence[Query]) -> str:
    """Recall@10 and milliseconds of the index alone, by hnsw.ef_search."""
    statement = NEAREST_OWN.replace("%s", f"'{asked[0].tenant}'", 1)
    shown = []
    for breadth in (40, 100, 150, 200, 300, 400, 600, 1000):
        db.execute(f"set hnsw.ef_search = {breadth}".encode())
        times, shares = Times(), []
        for query, exact in zip(asked, nearest, strict=True):
            shares.append(len(exact & {id_ for (id_,) in times.take(db, statement, (query.vector,))}) / K)
        shown.append(f"{breadth}: {statistics.fmean(shares):.3f}, {times.p50:.2f} / {times.p99:.2f}")
    db.execute("reset hnsw.ef_search")
    return "; ".join(shown)


def scans(user: psycopg.Connection, asked: Sequence[Query]) -> int:
    """Count the scans of whole tables that recalls make, by the server's own statistics."""
    counted = """select coalesce(sum(seq_scan), 0) from pg_stat_xact_user_tables
        where schemaname = 'mindful' and relname like 'memory%'"""
    with user.transaction():
        for query in asked:
            user.execute("select set_config('mindful.tenant', %s, false)", (query.tenant,))
            user.execute(RECALL, (query.text, query.vector, EMBEDDER))
        row = user.execute(counted).fetchone()
    assert row
    return int(row[0])


def size(dsn: str, rows: int, dims: int, count: int) -> tuple[list[str], list[str]]:
    """Measure one size, and write its lines of both tables."""
    with (
        database(dsn) as own,
        psycopg.connect(own, autocommit=True) as db,
        psycopg.connect(own, autocommit=True) as user,
    ):
        made = fill(db, rows, dims)
        user.execute(f"set role {ROLE}")
        rng = np.random.default_rng(5)
        corpus = Corpus(dims)
        lines, alone = [], []
        for name, chosen in (
            ("any tenant", [made[at] for at in rng.integers(1, len(made), size=count)]),
            (f"the largest, {made[0].size:,}", [made[0]] * count),
        ):
            _progress(f"asking {name}")
            asked = queries(db, chosen, corpus)
            times = measure(user, db, asked)
            recall, nearest = times["recall"], times["nearest"]
            processor = statistics.median(recall.processor) / statistics.median(nearest.processor)
            shown = [f"{t.p50:.2f} / {t.p99:.2f}" for t in times.values()]
            exact = agreement(user, nearest_of_all(db, asked[:50], CONDITIONS, K), asked[:50])
            lines.append(
                f"| {rows:,} | {name} | {' | '.join(shown)} | **{recall.p50 / nearest.p50:.2f}** | {processor:.2f} "
                f"| {exact} "
                f"| {scans(user, asked[:50])} |"
            )
            alone.append(f"| {rows:,} | {name} | {' | '.join(parts(user, asked))} |")
        return lines, alone


def one_tenant(dsn: str, rows: int, dims: int, count: int, vector_type: str, keep: bool) -> str:
    """Measure one tenant that has all rows, and write its line of the table."""
    with (
        database(dsn, f"{DATABASE}_{rows}_{vector_type}", keep) as own,
        psycopg.connect(own, autocommit=True) as db,
        psycopg.connect(own, autocommit=True) as user,
    ):
        db.execute("set client_min_messages = warning")
        tenant, corpus = Tenant("t00000", 1, rows), NestedCorpus(dims)
        _progress(f"loading {rows} memories of one tenant, unless they are there")
        load_rows(db, [tenant], corpus, vector_type)
        make_role(db)
        with psycopg.connect(own, autocommit=True) as beside, ThreadPoolExecutor(1) as thread:
            words = thread.submit(load_words, beside, [tenant])
            built = build(db, tenant, rows * (dims * (2 if vector_type == "halfvec" else 4) + GRAPH))
            words.result()
        user.execute(f"set role {ROLE}")
        _progress("asking")
        asked = queries(db, [tenant] * count, corpus)
        times = {}
        for _ in range(2):
            times = {name: Times() for name in ("recall", "recall of facts", "nearest of the tenant")}
            for query in asked:
                user.execute("select set_config('mindful.tenant', %s, false)", (query.tenant,))
                times["recall"].take(user, RECALL, (query.text, query.vector, EMBEDDER))
                times["recall of facts"].take(user, RECALL_FACTS, (query.text, query.vector, EMBEDDER))
                times["nearest of the tenant"].take(
                    db, NEAREST_OWN.replace("%s", f"'{query.tenant}'", 1), (query.vector,)
                )
        memory = user.execute("select private_bytes / 1e6 from mindful_status()").fetchone()
        assert memory
        _progress("comparing with all")
        every = nearest_of_all(db, asked[:50], CONDITIONS, K)
        exact = agreement(user, every, asked[:50])
        _progress(f"HNSW alone by hnsw.ef_search: {breadths(db, every['tenant'], asked[:50])}")
        shown = [f"{t.p50:.2f} / {t.p99:.2f}" for t in times.values()]
        return (
            f"| {rows:,} | {vector_type} | {' | '.join(shown)} | {exact} | {built} | {disk(db)} "
            f"| {memory[0]:.0f} | {scans(user, asked[:50])} |"
        )


GRAPH = 760
"""Bytes of HNSW's graph for a memory, beside its embedding, with m = 16: 703 in pgvector 0.8.0, and a reserve."""

BUILT = f"""select x.indexrelid::regclass::text, obj_description(x.indexrelid, 'pg_class')
    from pg_index x join pg_class c on c.oid = x.indexrelid join pg_am a on a.oid = c.relam
    where x.indrelid = '{TABLE}'::regclass and a.amname = 'hnsw'"""


def build(db: psycopg.Connection, tenant: Tenant, need: int) -> str:
    """Build the tenant's index in parallel, in memory. Return the minutes, and the memory in GB.

    They stay in the index's comment, for a later run over the same database.
    """
    if (built := db.execute(BUILT).fetchone()) and built[1]:
        return str(built[1])
    _progress("making the index")
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    db.execute(f"set maintenance_work_mem = '{need >> 20}MB'".encode())
    db.execute("set max_parallel_maintenance_workers = 2")
    db.execute("set client_min_messages = notice")
    started = time.perf_counter()
    db.execute("select memory_index_create(%s)", (tenant.name,))
    minutes = (time.perf_counter() - started) / 60
    db.execute("set client_min_messages = warning")
    if any("no longer fits" in notice for notice in notices):
        _progress(f"the graph did not fit: {notices}")
    figures, row = f"{minutes:.1f} | {need / 1e9:.1f}", db.execute(BUILT).fetchone()
    assert row
    db.execute(sql.SQL("comment on index {} is {}").format(sql.SQL(row[0]), figures))
    return figures


def disk(db: psycopg.Connection) -> str:
    """Return the gigabytes of the HNSW index, the embeddings, the words and the whole database."""
    row = db.execute(
        f"""select (select sum(pg_relation_size(indexrelid)) from pg_index
                where indrelid = '{TABLE}'::regclass and not indisprimary),
            pg_table_size('{TABLE}'), pg_total_relation_size('memory_term'), pg_database_size(current_database())"""
    ).fetchone()
    assert row
    return " / ".join(f"{float(size) / 1e9:.2f}" for size in row)


def embedding(dsn: str) -> str:
    """Time the default embedder of the DSN's own database on a query."""
    times = Times()
    with psycopg.connect(dsn, autocommit=True) as db:
        for number in range(21):
            times.take(
                db, "select mindful.llm_embed(%s)", (f"Where did I leave the {number} keys of the shed?",)
            )
    times.values.pop(0)
    return f"The query's embedding, which is left out above, takes {times.p50:.1f} ms (p99 {times.p99:.1f})."


_TABLE = [
    "Milliseconds, p50 / p99, over an existing connection:",
    "",
    "| memories | asked | `memory_recall`, k = 10 | bare HNSW, all rows | HNSW or exact, the tenant's rows "
    "| bare full text, all rows | recall / bare HNSW | by processor time | dense arm's recall@10 under "
    + " / ".join(FILTERS)
    + " | table scans in 50 recalls |",
    "|---|---|---|---|---|---|---|---|---|---|",
]
_PARTS = [
    "The parts of such a recall as statements of their own, milliseconds, p50:",
    "",
    "| memories | asked | " + " | ".join((*PARTS, "empty statement")) + " |",
    "|---|---|" + "---|" * (len(PARTS) + 1),
]


_ONE_TENANT = [
    "One tenant with all memories. Milliseconds are p50 / p99 over an existing connection:",
    "",
    "| memories | column | `memory_recall`, k = 10 | of kind `fact` (a fifth) | HNSW alone "
    "| dense arm's recall@10 under "
    + " / ".join(FILTERS)
    + " | build of the index beside that of the words, minutes | `maintenance_work_mem`, GB "
    "| HNSW / embeddings / words / all on disk, GB | the connection's own memory, MB | table scans in 50 recalls |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
]


def _progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--one-tenant", action="store_true", help="give all rows to one tenant")
    parser.add_argument(
        "--vector-type", choices=["vector", "halfvec"], default="halfvec", help="of one tenant"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the one tenant's database, and go on with it in the next run",
    )
    parser.add_argument(
        "--likeness", type=Path, metavar="LOCOMO", help="compare the embeddings with LoCoMo's, and end"
    )
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    dsn = os.environ["MINDFUL_DSN"]
    if options.likeness:
        print("\n".join(likeness.table(dsn, options.likeness)))
        return
    lines, alone = list(_ONE_TENANT if options.one_tenant else _TABLE), list(_PARTS)
    for rows in options.rows:
        if options.one_tenant:
            lines.append(
                one_tenant(dsn, rows, options.dims, options.queries, options.vector_type, options.keep)
            )
        else:
            made = size(dsn, rows, options.dims, options.queries)
            lines += made[0]
            alone += made[1]
        print("\n".join(lines), flush=True)
    more = [] if options.one_tenant else ["", *alone]
    text = "\n".join([*lines, "", embedding(dsn), *more]) + "\n"
    print(text, end="")
    if options.write:
        options.write.write_text(
            f"# Recall among many memories\n\nAs `make bench-scale` printed it.\n\n{text}"
        )


if __name__ == "__main__":
    main()
