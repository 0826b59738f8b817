"""mindful partition."""

from __future__ import annotations

from dataclasses import replace

import click
import psycopg

from mindful_client.cli.output import show
from mindful_client.errors import MindfulError, NotReadyError, from_psycopg
from mindful_client.partition import change, checking, copying
from mindful_client.partition.atlas import OPTIONS, connected, read
from mindful_client.partition.change import Servers

_GROUPS = ("user", "reader", "admin", "application")


def _tell(step: str) -> None:
    show(f"{step} ...", err=True)


@click.group()
@click.option(
    "--router", "routers", multiple=True, metavar="DSN", help="Another router with the same map. Repeat it."
)
@click.option(
    "--partition-dsn",
    envvar="MINDFUL_PARTITION_DSN",
    default="",
    help="Parameters of superusers' connections to partitions that differ from --dsn, such as user and password.",
)
@click.pass_context
def partition(context: click.Context, routers: tuple[str, ...], partition_dsn: str) -> None:
    """Make, list, move, check and split the partitions of a router. --dsn is the router, as superuser."""
    context.obj = Servers(context.find_root().params["dsn"], routers, partition_dsn)


@partition.command()
@click.option("--partitions", type=int, default=16, show_default=True, help="A power of two.")
@click.option("--host", "hosts", multiple=True, required=True, metavar="DSN", help="A server of partitions.")
@click.option(
    "--prefix", default="mindful_", show_default=True, help="Names of databases, before the number."
)
@click.option(
    "--options", default=OPTIONS, show_default=True, help="libpq's parameters of the router's connections."
)
@click.pass_obj
def init(servers: Servers, partitions: int, hosts: tuple[str, ...], prefix: str, options: str) -> None:
    """Make the partitions' databases on the hosts in turn, and the map."""
    change.init(servers, hosts, partitions, prefix, options, _tell)
    show(f"{partitions} partitions on {len(hosts)} servers. Register models on each: mindful partition run.")


@partition.command("list")
@click.pass_obj
def list_(servers: Servers) -> None:
    """List partitions, their places, and tenants that are pinned."""
    with connected(servers.router) as router:
        atlas = read(router)
        pins = router.execute("select number, tenant from mindful.partition_pin order by 1, 2").fetchall()
    show(f"map {atlas.id}, version {atlas.version}, {atlas.partitions} partitions")
    for one in atlas.places:
        names = [tenant for number, tenant in pins if number == one.number]
        show(f"{one.number:4}  {one}" + (f"  pinned: {', '.join(names)}" if names else ""))


@partition.command()
@click.option(
    "--repair", is_flag=True, help="Make partitions serve what the map says, and end interrupted changes."
)
@click.pass_obj
def check(servers: Servers, repair: bool) -> None:
    """Name unreachable partitions, other versions, other maps, missing roles and misplaced rows. Exit code 1 if any."""
    if repair:
        with connected(servers.router) as router:
            atlas = read(router)
        for line in change.repair(servers, atlas):
            show(line)
    found = list(checking.problems(servers))
    for line in found:
        show(line)
    if found:
        raise NotReadyError(
            f"{len(found)} problems", hint="mindful partition check --repair ends interrupted changes."
        )
    show("no problems")


@partition.command()
@click.argument("number", type=int)
@click.option(
    "--to", "target", required=True, metavar="DSN", help="The server, and dbname if it is another one."
)
@click.option("--drop", is_flag=True, help="Drop the old database at the end.")
@click.pass_obj
def move(servers: Servers, number: int, target: str, drop: bool) -> None:
    """Move a partition to another server. Its calls wait while it is copied and compared."""
    change.move(servers, number, target, tell=_tell, drop=drop)
    show(f"partition {number} was moved")


@partition.command()
@click.pass_obj
def split(servers: Servers) -> None:
    """Double the number of partitions. Then move the new ones into databases of their own."""
    change.split(servers, tell=_tell)
    with connected(servers.router) as router:
        show(f"{read(router).partitions} partitions")


@partition.command()
@click.argument("tenant")
@click.argument("number", type=int)
@click.pass_obj
def pin(servers: Servers, tenant: str, number: int) -> None:
    """Put a tenant that has no rows yet on a partition."""
    change.pin(servers, tenant, number)
    show(f"tenant {tenant} is on partition {number}")


@partition.command()
@click.argument("name")
@click.option(
    "--group", "groups", type=click.Choice(_GROUPS), multiple=True, help="By default as on the router."
)
@click.option("--password", envvar="MINDFUL_ROLE_PASSWORD", help="By default a random one.")
@click.pass_obj
def role(servers: Servers, name: str, groups: tuple[str, ...], password: str | None) -> None:
    """Make a role on all partitions, and let it call through the router."""
    checking.give_role(servers, name, [f"mindful_{one}" for one in groups], password)
    show(f"role {name} may call through the router")


@partition.command()
@click.pass_obj
def clean(servers: Servers) -> None:
    """Delete rows of tenants whose partition is another one, after a move that was interrupted at its end."""
    with connected(servers.router) as router:
        atlas = read(router)
        for place in atlas.databases():
            with connected(servers.of(place)) as database:
                wanted = dict.fromkeys(atlas.numbers(place.database), "")
                names = [tenant for tenant, _ in checking.strangers(router, database, wanted)]
                show(f"{place}: {copying.delete_tenants(database, names)} rows deleted")


@partition.command()
@click.argument("statement")
@click.pass_obj
def run(servers: Servers, statement: str) -> None:
    """Run a statement on each partition's database as superuser, such as model_register()."""
    failed = 0
    with connected(servers.router) as router:
        atlas = read(router)
    for place in atlas.databases():
        try:
            with connected(servers.of(replace(place))) as database:
                database.execute("reset search_path")
                cursor = database.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
                for row in rows or [()]:
                    show(f"{place}  {'  '.join(map(str, row))}")
        except (MindfulError, psycopg.Error) as error:
            failed += 1
            mindful_error = error if isinstance(error, MindfulError) else from_psycopg(error)
            show(f"{place}  error: {mindful_error.message}")
    if failed:
        raise NotReadyError(f"{failed} of {len(atlas.databases())} databases failed")
