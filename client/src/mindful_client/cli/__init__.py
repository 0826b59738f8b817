"""The command `mindful`. Each module beside this one has the commands of a feature."""

from __future__ import annotations

import io
import sys
from typing import Any

import click

from mindful_client.cli.chat import chat
from mindful_client.cli.confidence import report_
from mindful_client.cli.engine import engine
from mindful_client.cli.ingest import ingest
from mindful_client.cli.key import key
from mindful_client.cli.label import calibrate, label
from mindful_client.cli.mcp import mcp
from mindful_client.cli.memory import forget, recall, remember, sessions
from mindful_client.cli.models import models
from mindful_client.cli.output import report
from mindful_client.cli.partition import partition
from mindful_client.cli.replay import consolidate, replay, train
from mindful_client.cli.serve import serve
from mindful_client.cli.status import status
from mindful_client.cli.transfer import export_, import_
from mindful_client.cli.worker import worker
from mindful_client.client import Client, Partitions
from mindful_client.errors import MindfulError, NotReadyError


class _Commands(click.Group):
    """Report errors as one line and a hint, with exit code 1."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MindfulError as error:
            report(error)
        except ModuleNotFoundError as error:
            report(
                NotReadyError(
                    f"the Python package {error.name} is not installed",
                    hint="Install the extras: pip install 'pg-mindful[client,ingest,serve]'.",
                )
            )
        return context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dsn",
    envvar="MINDFUL_DSN",
    default="",
    help="Connection string. The default is MINDFUL_DSN, then libpq's PGHOST, PGDATABASE and so on.",
)
@click.option(
    "--tenant",
    envvar="MINDFUL_TENANT",
    help="Tenant to act for, as a member of mindful_application. The default is MINDFUL_TENANT.",
)
@click.option(
    "--read-dsn",
    envvar="MINDFUL_READ_DSN",
    default="",
    help="Where calls that only read go, such as 'host=a,b target_session_attrs=prefer-standby'.",
)
@click.option(
    "--stream-dsn",
    envvar="MINDFUL_STREAM_DSN",
    default="",
    help="Parameters of a stream's connection to a router's partition that differ from --dsn, such as password.",
)
@click.version_option(package_name="pg-mindful", message="mindful %(version)s")
@click.pass_context
def main(context: click.Context, dsn: str, tenant: str | None, read_dsn: str, stream_dsn: str) -> None:
    """Chat, remember and recall in a PostgreSQL database that has the extension mindful."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper):  # report bytes that are not text, do not crash
            stream.reconfigure(errors=errors)
    partitions = Partitions(stream_dsn)
    context.call_on_close(partitions.close)
    context.obj = context.with_resource(
        Client(dsn, tenant=tenant, reads=read_dsn or None, partitions=partitions)
    )


for command in (
    calibrate,
    chat,
    consolidate,
    engine,
    export_,
    forget,
    import_,
    ingest,
    key,
    label,
    mcp,
    models,
    partition,
    recall,
    remember,
    replay,
    report_,
    serve,
    sessions,
    status,
    train,
    worker,
):
    main.add_command(command)
