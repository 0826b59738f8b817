"""mindful mcp."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--tools",
    default="core",
    show_default=True,
    metavar="NAMES",
    help="Tools to offer: core, all, or names with commas between them.",
)
@click.option(
    "--connections", type=click.IntRange(1, 100), default=2, show_default=True, help="Calls answered at once."
)
@click.option(
    "--request-seconds", type=click.FloatRange(1), default=600, show_default=True, help="Longest call."
)
@click.pass_context
def mcp(context: click.Context, tools: str, connections: int, request_seconds: float) -> None:
    """Answer MCP on standard input and output, for assistants that start it, such as Claude Code.

    It acts as the connection's role, or as --tenant. `mindful serve` answers MCP over HTTP, at /mcp.
    """
    from mindful_serve.mcp.stdio import run
    from mindful_serve.settings import Settings

    target = context.find_root().params
    settings = Settings(
        dsn=target["dsn"], tenant=target["tenant"], connections=connections, request_s=request_seconds
    )
    run(settings, tools)
