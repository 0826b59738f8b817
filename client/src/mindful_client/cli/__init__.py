"""The command `mindful`; each module beside this one holds the commands of a feature."""

from __future__ import annotations

import io
import sys
from typing import Any

import click

from mindful_client.cli.chat import chat
from mindful_client.cli.confidence import report_
from mindful_client.cli.ingest import ingest
from mindful_client.cli.memory import recall, remember
from mindful_client.cli.output import report
from mindful_client.cli.replay import consolidate, replay, train
from mindful_client.cli.status import status
from mindful_client.cli.transfer import export_, import_
from mindful_client.cli.worker import worker
from mindful_client.client import Client
from mindful_client.errors import MindfulError, NotReadyError


class _Commands(click.Group):
    """Commands that report errors as one line and a hint, with exit code 1."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MindfulError as error:
            report(error)
        except ModuleNotFoundError as error:
            report(
                NotReadyError(
                    f"the Python package {error.name} is not installed",
                    hint="pip install 'pg-mindful[ingest]'",
                )
            )
        return context.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dsn",
    envvar="MINDFUL_DSN",
    default="",
    help="Connection string; MINDFUL_DSN or libpq's PGHOST, PGDATABASE ... where it is not given.",
)
@click.option(
    "--tenant",
    envvar="MINDFUL_TENANT",
    help="Whose memories; for members of mindful_application. Or MINDFUL_TENANT.",
)
@click.version_option(package_name="pg-mindful", message="mindful %(version)s")
@click.pass_context
def main(context: click.Context, dsn: str, tenant: str | None) -> None:
    """Chat with a PostgreSQL database that has the extension mindful."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper):  # bytes that are no text are an error to report, not a crash
            stream.reconfigure(errors=errors)
    context.obj = context.with_resource(Client(dsn, tenant=tenant))


for command in (
    chat,
    consolidate,
    export_,
    import_,
    ingest,
    recall,
    remember,
    replay,
    report_,
    status,
    train,
    worker,
):
    main.add_command(command)
