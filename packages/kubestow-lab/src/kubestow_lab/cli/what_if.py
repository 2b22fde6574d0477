"""``kubestow what-if``: pods of nodes that are drained or lost, nodes to add until all fit, moves that make room.

Nothing is changed: the cluster is a dump, or a live one that is only read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.command_group import CommandGroup
from kubestow.cli.input.cluster import ClusterInput, cluster_options
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, output_option, print_input, print_result, progress_bar, with_versions
from kubestow.reports.model import counted
from kubestow_lab.cli.simulation_inputs import print_remarks, report_plugin_failures

if TYPE_CHECKING:
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow_lab.what_if.pod_fates import NodeRemoval


@click.group(cls=CommandGroup)
def what_if() -> None:
    """Ask what would happen if nodes were drained, lost or added; nothing is changed."""


def _common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The cluster, the scheduler and the form of the output."""
    strict = click.option("--strict", is_flag=True, help="Refuse input with any problem.")
    return cluster_options(scheduler_options(strict(output_option(*OUTPUTS)(command))))


_selector = click.option(
    "-l", "--selector", default="", metavar="SELECTOR", help="All nodes with these labels, such as pool=gpu."
)
_max_pending = click.option(
    "--max-pending", type=click.IntRange(min=0), help="Exit with status 1 if more pods do not come back."
)


@what_if.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@_selector
@_common_options
@click.option("--force", is_flag=True, help="Evict pods without a controller as well; they are lost.")
@_max_pending
def drain(
    nodes: tuple[str, ...],
    selector: str,
    source: ClusterInput,
    scheduler: SchedulerInput,
    force: bool,
    max_pending: int | None,
    strict: bool,
    output: str,
) -> int:
    """Say where the pods of nodes go if these are drained, and which block the drain.

    Pods are evicted as by kubectl drain --ignore-daemonsets --delete-emptydir-data: disruption budgets are kept, and
    pods without a controller stay unless --force is given.
    """
    from kubestow_lab.what_if.node_removal import drain as drained
    from kubestow_lab.what_if.node_removal import nodes_named, nodes_selected

    if bool(nodes) == bool(selector):
        raise click.UsageError("expected either nodes or --selector")
    cluster = source.read(scheduler, strict=strict)
    names = nodes_named(cluster, nodes) if nodes else nodes_selected(cluster, selector)
    options = scheduler.read(cluster)
    removal = drained(cluster, names, options, force=force)
    return _report(removal, options, cluster.server_version, output, max_pending)


@what_if.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--zone", help="All nodes of this zone.")
@_selector
@_common_options
@_max_pending
def lose(
    nodes: tuple[str, ...],
    zone: str | None,
    selector: str,
    source: ClusterInput,
    scheduler: SchedulerInput,
    max_pending: int | None,
    strict: bool,
    output: str,
) -> int:
    """Say which pods come back where, and which do not, if nodes or a zone are lost at once."""
    from kubestow_lab.what_if.node_removal import lose as lost
    from kubestow_lab.what_if.node_removal import nodes_in_zone, nodes_named, nodes_selected

    if sum((bool(nodes), zone is not None, bool(selector))) != 1:
        raise click.UsageError("expected either nodes, --zone or --selector")
    cluster = source.read(scheduler, strict=strict)
    if zone is not None:
        names = nodes_in_zone(cluster, zone)
    else:
        names = nodes_named(cluster, nodes) if nodes else nodes_selected(cluster, selector)
    options = scheduler.read(cluster)
    return _report(lost(cluster, names, options), options, cluster.server_version, output, max_pending)


@what_if.command()
@_common_options
@click.option("--workload", "workloads", multiple=True, help="Manifests of further pods that have to fit.")
@click.option("--node-pool", "pools", multiple=True, help="A Node, or a price list of node pools, in YAML.")
@click.option("--like", "likes", multiple=True, metavar="NODE", help="Nodes like this one of the cluster.")
def add_nodes(
    source: ClusterInput,
    scheduler: SchedulerInput,
    workloads: tuple[str, ...],
    pools: tuple[str, ...],
    likes: tuple[str, ...],
    strict: bool,
    output: str,
) -> int:
    """Say how many nodes to add until all pods fit, and the cheapest mix of several node pools.

    The pods are the pending ones of the cluster and those of the workload. Pods that fit with no number of nodes are
    named with their reasons, the answer is about the others, and the exit status is 1.
    """
    from kubestow_lab.simulation.arrivals import Arrivals
    from kubestow_lab.what_if.node_count import nodes_needed
    from kubestow_lab.what_if.node_pools import pool_like, read_node_pools

    if not pools and not likes:
        raise click.UsageError("expected --node-pool or --like")
    cluster = source.read(scheduler, strict=strict)
    arrivals = Arrivals.load(*workloads, cluster=cluster, strict=strict) if workloads else Arrivals()
    if arrivals.summary.problems:
        print_input("workload", arrivals.summary)
    print_remarks(arrivals.remarks)
    shapes = [pool for path in pools for pool in read_node_pools(path)]
    shapes += [pool_like(cluster, name) for name in likes]
    options = scheduler.read(cluster)
    with progress_bar("searching", "decisions about pods") as progress:
        found = nodes_needed(cluster, arrivals, shapes, options, progress=progress)
    print_result(with_versions(found.document, options.gates.minor, cluster.server_version), found, output)
    return int(bool(found.never or arrivals.refused))


@what_if.command()
@_common_options
@click.option("--for", "gang", metavar="FILE", help="Manifests of the gang that is to fit.")
@click.option("--free", type=click.IntRange(min=1), metavar="N", help="Free N whole nodes, or N domains of a label.")
@click.option(
    "--topology-key",
    default="kubernetes.io/hostname",
    show_default=True,
    metavar="LABEL",
    help="The label of the domains that --free frees, such as that of racks or NVLink domains.",
)
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Free only domains of nodes with these labels.")
@click.option("--max-moves", default=20, show_default=True, type=click.IntRange(min=1), help="The most evictions.")
def defragment(
    source: ClusterInput,
    scheduler: SchedulerInput,
    gang: str | None,
    free: int | None,
    topology_key: str,
    selector: str,
    max_moves: int,
    strict: bool,
    output: str,
) -> int:
    """Say which pods to evict, in which steps, so that a gang fits, or that whole nodes or racks are free.

    Pods that a controller replaces may move, as their disruption budgets allow; each step is decided by the scheduler's
    plugins. With --for and --free the gang fits in the freed domains. `kubestow deschedule --plan` carries out the plan
    of -o json. The exit status is 1 if there is no plan. Needs kubestow-lab[flow].
    """
    from kubestow_lab.simulation.arrivals import Arrivals
    from kubestow_lab.what_if.defragmentation import DomainsToFree, plan_defragmentation
    from kubestow_lab.what_if.node_removal import nodes_selected

    if gang is None and free is None:
        raise click.UsageError("expected --for, --free or both")
    if selector and free is None:
        raise click.UsageError("--selector is about the domains of --free")
    cluster = source.read(scheduler, strict=strict)
    arrivals = None if gang is None else Arrivals.load(gang, cluster=cluster, strict=strict)
    if arrivals is not None:
        if arrivals.summary.problems:
            print_input("gang", arrivals.summary)
        print_remarks(arrivals.remarks)
    selected = nodes_selected(cluster, selector) if selector else None
    domains = None if free is None else DomainsToFree(free, topology_key, selected)
    options = scheduler.read(cluster)
    plan = plan_defragmentation(cluster, arrivals, options, free=domains, max_moves=max_moves)
    print_result(with_versions(plan.document, options.gates.minor, cluster.server_version), plan, output)
    return int(not plan.exists)


def _report(
    removal: NodeRemoval, options: SchedulerOptions, server_version: str, output: str, max_pending: int | None
) -> int:
    from kubestow_lab.what_if.pod_fates import Fate

    print_remarks(removal.remarks)
    print_result(with_versions(removal.document, options.gates.minor, server_version), removal, output)
    failed = report_plugin_failures(removal.plugin_failures)
    missing = removal.count(Fate.PENDING, Fate.LOST, Fate.BLOCKED)
    if max_pending is not None and missing > max_pending:
        click.echo(
            f"kubestow: {counted(missing, 'pod does', 'pods do')} not come back, more than --max-pending={max_pending}",
            err=True,
        )
        return 1
    return int(failed)
