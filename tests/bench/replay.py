"""What consolidation makes of LoCoMo's conversations, and training of that: replay.py FILE [--train] [--print N] ...

Every conversation is a tenant of a new database, or all of them one, which is dropped at the end, or left with
--keep NAME. To train, the Python that runs this needs the extra `train` too.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from support.cluster import Cluster
from support.files import readable_folder
from support.models import GENERATOR, model_files, register_models


def main() -> None:
    """Load, consolidate, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="locomo10.json, or a part of it")
    parser.add_argument("--extractor", choices=("rule", "model"), default="rule")
    parser.add_argument("--conversations", type=int, help="how many, from the first")
    parser.add_argument("--turns", type=int, help="how many turns of each, from the first")
    parser.add_argument("--print", type=int, default=0, dest="shown", help="print facts drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--together", help="name of one tenant for all conversations")
    parser.add_argument("--keep", help="name of a database to keep")
    parser.add_argument("--train", action="store_true", help="train on the pairs; all are one tenant then")
    parser.add_argument("--python", default=sys.executable, help="the one that has the extra `train`")
    parser.add_argument("--epochs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.train:
        arguments.together = arguments.together or "everybody"
    cluster = Cluster.of_environment()
    with cluster.connect() as connection:
        files = model_files(connection)
        if arguments.keep:
            connection.execute(f'create database "{arguments.keep}"')
    name = arguments.keep or cluster.create_database()
    try:
        with cluster.connect(name) as db:
            db.execute("set search_path = public, mindful; set client_min_messages = warning")
            db.execute("create extension mindful cascade")
            register_models(db, files)
            run(db, arguments)
            if arguments.train:
                dsn = make_conninfo(cluster.dsn(name), options=f"-c mindful.tenant={arguments.together}")
                train(db, dsn, arguments.python, arguments.epochs)
    finally:
        if not arguments.keep:
            cluster.drop_database(name)


def run(db: psycopg.Connection, arguments: argparse.Namespace) -> None:
    """Consolidate conversation by conversation."""
    conversations = json.loads(arguments.file.read_text())[: arguments.conversations]
    loaded: dict[str, int] = {}
    for row in conversations:
        tenant = arguments.together or row["sample_id"]
        loaded[tenant] = loaded.get(tenant, 0) + load(db, tenant, row, arguments.turns)
    started, sums, rejected = time.perf_counter(), dict.fromkeys(COUNTS, 0), dict[str, int]()
    for tenant in loaded:
        db.execute("select set_config('mindful.tenant', %s, false)", (tenant,))
        while True:
            cursor = db.execute(
                "select * from memory_consolidate(limits => '{\"memories\": 200}', extractor => %s)",
                (arguments.extractor,),
            )
            row = named(cursor)
            if row["error"]:
                raise SystemExit(row["error"])
            if row["status"] == "completed":
                break
        for key in COUNTS:
            sums[key] += row[key] or 0
        for key, value in (row["rejected"] or {}).items():
            rejected[key] = rejected.get(key, 0) + value
    seconds = time.perf_counter() - started
    turns = sum(loaded.values())
    (quotes, found) = first(
        db,
        "select count(*), count(*) filter (where strpos(m.content, e.quote) > 0)"
        " from memory_evidence e join memory m on m.tenant = e.tenant and m.id = e.source_id",
    )
    print(f"extractor                    {arguments.extractor}")
    print(f"conversations, turns         {len(conversations)}, {turns}")
    print(f"seconds per 1,000 turns      {seconds / turns * 1000:.1f}")
    status = named(db.execute("select * from mindful_status()"))
    print(f"private memory of backend    {status['private_bytes'] / 1e6:.0f} MB")
    for key, value in sums.items():
        print(f"{key:28} {value}")
    print(f"rejected                     {rejected}")
    print(f"quotes, found in the source  {quotes}, {found}")
    relations = db.execute("select relation, count(*) from memory_link group by 1 order by 1").fetchall()
    print(f"links                        {dict(relations)}")
    replay(db, list(loaded))
    show(db, arguments.shown, arguments.seed)


COUNTS = (
    "memories_processed",
    "facts",
    "strengthened",
    "refined",
    "contradicted",
    "links",
    "promoted",
    "decayed",
)


def replay(db: psycopg.Connection, tenants: list[str]) -> None:
    """Make training samples of every tenant's facts, single-sourced ones too."""
    db.execute("select training_configure(%s, 'chat', 512)", (GENERATOR,))
    accepted, refused = 0, dict[str, int]()
    started = time.perf_counter()
    for tenant in tenants:
        db.execute("select set_config('mindful.tenant', %s, false)", (tenant,))
        db.execute("select setting_set('training_consent', 'true')")
        row = named(
            db.execute("select * from replay_run(%s, %s)", (GENERATOR, Jsonb({"level": "information"})))
        )
        if row["error"]:
            raise SystemExit(row["error"])
        accepted += row["accepted"]
        for key, value in (row["refused"] or {}).items():
            refused[key] = refused.get(key, 0) + value
    print(f"pairs kept, refused          {accepted}, {refused}, {time.perf_counter() - started:.1f} s")


def train(db: psycopg.Connection, dsn: str, python: str, epochs: int) -> None:
    """Export, train by the command line, print the figures and answers of both, and roll back."""
    forms = db.execute(
        "select split, form, count(*) from training_sample where refused = '{}' group by 1, 2 order by 1, 2"
    ).fetchall()
    print(f"pairs by split and form      {[tuple(row) for row in forms]}")
    (shared,) = first(
        db,
        "select count(*) from (select e.source_id from training_sample s"
        " join training_sample_memory x on x.tenant = s.tenant and x.sample_id = s.id"
        " join memory_evidence e on e.tenant = x.tenant and e.id = x.memory_id"
        " where s.refused = '{}' group by s.tenant, e.source_id having count(distinct s.split) > 1) both_parts",
    )
    print(f"sources in both parts        {shared}")
    (run_,) = first(db, "select max(id) from consolidation where type = 'replay'")

    def mindful(*words: str) -> str:
        command = [python, "-m", "mindful_client", "--dsn", dsn, *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    with readable_folder() as folder:
        manifest = mindful("replay", "export", str(run_), str(folder))
        started = time.perf_counter()
        figures = json.loads(mindful("train", "--epochs", str(epochs), manifest))
        print(f"training and measuring       {time.perf_counter() - started:.0f} s, loss {figures['loss']}")
        for key in figures["base"]:
            print(f"{key:28} {figures['base'][key]} -> {figures['tuned'][key]}")
        print(f"verdict                      {figures['verdict']}")
        for asked in held_out(db, run_):
            for model in (GENERATOR, figures["adapter"]):
                (answer,) = first(db, "select llm_generate(%s, %s, max_tokens => 40)", asked, model)
                print(f"- {model}: {asked!r} -> {answer!r}")
        if figures["verdict"].startswith("active"):
            default = "select name from _mindful.model_find('generator', null)"
            (active,), (rolled,) = first(db, default), first(db, "select adapter_rollback(%s)", GENERATOR)
            print(f"default, rolled back, default  {active}, {rolled}, {first(db, default)[0]}")


def held_out(db: psycopg.Connection, run: int) -> list[str]:
    """Return a held-out question of each form, the first."""
    rows = db.execute(
        "select distinct on (form) _mindful.sample_prompt(instruction, input) from training_sample"
        " where consolidation_id = %s and split = 'validation' and refused = '{}' order by form, id",
        (run,),
    )
    return [asked for (asked,) in rows]


def show(db: psycopg.Connection, number: int, seed: int) -> None:
    """Print facts drawn at random, to be read by eye."""
    rows = db.execute(
        "select m.content, min(e.quote) from memory_statement s join memory m using (tenant, id)"
        " join memory_evidence e using (tenant, id) group by s.tenant, s.id, m.content order by s.tenant, s.id"
    ).fetchall()
    for content, quote in random.Random(seed).sample(rows, min(number, len(rows))):
        print(f"- {content}  <- {quote!r}")


def load(db: psycopg.Connection, tenant: str, sample: dict[str, Any], most: int | None) -> int:
    """Store a conversation as its tenant's sessions: both speak for themselves, none is an assistant."""
    db.execute("select set_config('mindful.tenant', %s, false)", (tenant,))
    messages = list(turns(sample))[:most]
    for title in dict.fromkeys(title for title, _ in messages):
        (session,) = first(db, "select session_start(%s)", title)
        part = [message for name, message in messages if name == title]
        db.execute("select count(*) from message_insert_many(%s, %s)", (session, Jsonb(part)))
    return len(messages)


def turns(sample: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each turn with the name of its session."""
    conversation = sample["conversation"]
    for name, session in conversation.items():
        if not isinstance(session, list):
            continue
        at = datetime.strptime(conversation[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for turn in session:
            if turn["text"].strip():
                yield (
                    name,
                    {
                        "role": "user",
                        "content": turn["text"],
                        "metadata": {"speaker": turn["speaker"]},
                        "created_at": at.isoformat(),
                    },
                )


def first(db: psycopg.Connection, query: str, *arguments: object) -> tuple[Any, ...]:
    """Return the first row."""
    row = db.execute(query.encode(), arguments).fetchone()
    assert row is not None
    return row


def named(cursor: psycopg.Cursor[Any]) -> dict[str, Any]:
    """Return the first row by its columns' names."""
    row = cursor.fetchone()
    assert row is not None
    return {column.name: value for column, value in zip(cursor.description or (), row, strict=True)}


if __name__ == "__main__":
    main()
