"""PgBouncer before a router as the compose file has it, and before partitions."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from mindful_client import Client
from mindful_client.partition.atlas import connected, serve, write
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support import one
from support.clock import Deadline
from support.pooler import pgbouncer
from support.routed import Routed, refused, remember
from support.sources import ROOT

INI = ROOT / "extension" / "router" / "pgbouncer.ini"


@contextmanager
def of_the_compose_file(routed: Routed) -> Iterator[str]:
    """Run PgBouncer with the file's settings before a router, and give the parameters of connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = conninfo_to_dict(routed.servers.router)
    with tempfile.TemporaryDirectory(prefix="pgbouncer") as folder:
        certificate, key = Path(folder, "server.crt"), Path(folder, "server.key")
        made = ["-keyout", str(key), "-out", str(certificate), "-newkey", "rsa:2048", "-subj", "/CN=x"]
        subprocess.run(["openssl", "req", "-new", "-x509", "-nodes", *made], check=True, capture_output=True)
        settings = INI.read_text()
        for old, new in (
            (
                "mindful = host=/run/router port=5432 dbname=router",
                f"mindful = {make_conninfo('', **server)}",
            ),
            ("listen_addr = *", "listen_addr = 127.0.0.1"),
            ("listen_port = 6432", f"listen_port = {port}"),
            ("/var/lib/mindful/state/tls", folder),
        ):
            assert old in settings
            settings = settings.replace(old, new)
        # The server here is entered by the superuser for auth_query, and by each role for itself.
        settings = settings.replace(" user=postgres", "")
        file = Path(folder, "pgbouncer.ini")
        file.write_text(settings)
        for path in (Path(folder), certificate, key, file):
            path.chmod(0o755)
        user = ["-u", "postgres"] if os.geteuid() == 0 else []
        with subprocess.Popen(["/usr/sbin/pgbouncer", "-q", *user, str(file)]) as running:
            try:
                yield f"host=127.0.0.1 port={port} dbname=mindful sslmode=require"
            finally:
                running.terminate()


def opened(parameters: str, role: str, password: str) -> psycopg.Connection:
    end = Deadline()
    while True:
        try:
            return psycopg.connect(parameters, user=role, password=password, autocommit=True)
        except psycopg.OperationalError as error:
            if "refused" not in str(error) or end.passed():
                raise
            time.sleep(0.05)


def test_roles_enter_by_their_passwords_and_superusers_do_not(routed: Routed) -> None:
    role = routed.roles["application"]
    password = str(conninfo_to_dict(routed.cluster.dsn(role=role))["password"])
    with of_the_compose_file(routed) as parameters:
        with opened(parameters, role, password) as connection:
            client = Client(connection, tenant=routed.tenants(1, 5)[4])
            assert client.memory_insert("I like tea.")
            assert list(client.llm_generate_stream("Hi", max_tokens=3))
        with pytest.raises(psycopg.OperationalError, match=r"(?i)auth|password"):
            opened(parameters, role, "wrong")
        with pytest.raises(psycopg.OperationalError, match=r"(?i)auth|password|no such user"):
            opened(parameters, "postgres", password)
        with pytest.raises(psycopg.OperationalError, match=r"(?i)ssl|tls"):
            opened(parameters.replace("require", "disable"), role, password)


def test_partitions_may_be_behind_pgbouncer(own: Routed) -> None:
    role = own.roles["application"]
    dsns = [own.cluster.dsn(place.dbname, role) for place in own.atlas.places]
    password = str(conninfo_to_dict(dsns[0])["password"])
    direct = [own.partition(place) for place in own.atlas.places]
    with pgbouncer(dsns) as pooled:
        port = int(str(conninfo_to_dict(pooled[0])["port"]))
        places = [replace(place, host="127.0.0.1", port=port, options="") for place in own.atlas.places]
        with connected(own.servers.router) as router:
            write(router, places)
            router.execute("select _mindful.role_map(%s, %s)", (role, password))
        for place, connection in zip(own.atlas.places, direct, strict=True):
            serve(connection, {place.number: own.atlas.served(place)})
        with own.cluster.connect(own.router, role) as first, own.cluster.connect(own.router, role) as second:
            for number in (0, 1):
                for tenant in own.tenants(number, 2):
                    for connection in (first, second):
                        remember(connection, tenant, f"I am {tenant}.")
                assert one(direct[number], "select count(*) from mindful.memory") == 4
                busy = "select count(*) from pg_stat_activity where datname = current_database() and usename = %s"
                assert one(direct[number], busy, role) == 1  # of two connections of the router
            with refused("22023", ""):
                first.execute("select memory_recall('tea', k => 0)")
