"""mindful serve."""

from __future__ import annotations

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option(
    "--keys/--no-keys",
    "needs_key",
    default=None,
    help="Whether requests need a key. [default: beyond loopback]",
)
@click.option(
    "--alias", "aliases", multiple=True, metavar="NAME=MODEL", help="Another name of a model; * is any name."
)
@click.option(
    "--done/--no-done", default=True, show_default=True, help="Whether streams end with data: [DONE]."
)
@click.option(
    "--connections", type=click.IntRange(1, 1000), default=8, show_default=True, help="Answers made at once."
)
@click.option(
    "--queue-seconds", type=click.FloatRange(0.1), default=30, show_default=True, help="Waiting before 429."
)
@click.option(
    "--request-seconds", type=click.FloatRange(1), default=600, show_default=True, help="Longest answer."
)
@click.option(
    "--body-megabytes", type=click.FloatRange(0.001, 1000), default=4, show_default=True, help="Before 413."
)
@click.option("--origin", "origins", multiple=True, help="Origin whose pages may call the service (CORS).")
@click.option(
    "--audit-contents", is_flag=True, help="Log texts too, with secrets and personal data replaced by [KIND]."
)
@click.pass_context
def serve(
    context: click.Context,
    host: str,
    port: int,
    needs_key: bool | None,
    aliases: tuple[str, ...],
    done: bool,
    connections: int,
    queue_seconds: float,
    request_seconds: float,
    body_megabytes: float,
    origins: tuple[str, ...],
    audit_contents: bool,
) -> None:
    """Answer HTTP in OpenAI's form: /v1/chat/completions, /v1/responses, /v1/embeddings and others.

    Model NAME keeps nothing; mindful/NAME recalls memories and stores what is said. Without keys the service
    listens on this machine only, and acts as the connection's role or as --tenant.
    """
    from mindful_serve.cli import check, parsed_aliases, run
    from mindful_serve.settings import Settings, is_loopback

    target = context.find_root().params
    settings = Settings(
        dsn=target["dsn"],
        read_dsn=target["read_dsn"],
        stream_dsn=target["stream_dsn"],
        host=host,
        port=port,
        needs_key=not is_loopback(host) if needs_key is None else needs_key,
        tenant=target["tenant"],
        aliases=parsed_aliases(aliases),
        sends_done=done,
        connections=connections,
        queue_s=queue_seconds,
        request_s=request_seconds,
        most_bytes=int(body_megabytes * (1 << 20)),
        origins=origins,
        audits_contents=audit_contents,
    )
    check(settings)
    run(settings)
