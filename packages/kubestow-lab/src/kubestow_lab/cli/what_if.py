"""``kubestow what-if``: nodes that are drained, lost or added, moves that make room, and other quotas.

Nothing is changed: the cluster is a dump, or a live one that is only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.command_group import CommandGroup
from kubestow.cli.input.cluster import ClusterInput, cluster_options
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, output_option, print_input, print_result, progress_bar, with_versions
from kubestow.reports.model import counted
from kubestow_lab.cli.simulation_inputs import QueueInput, print_remarks, queue_options, report_plugin_failures

if TYPE_CHECKING:
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.job_admission import QuotaChange
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow_lab.simulation.arrivals import Arrivals
    from kubestow_lab.what_if.job_admissions import AdmissionChanges
    from kubestow_lab.what_if.pod_fates import NodeRemoval


@click.group(cls=CommandGroup)
def what_if() -> None:
    """Ask what would happen if nodes were drained, lost or added, or quotas changed; nothing is changed."""


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
@queue_options
@click.option("--force", is_flag=True, help="Evict pods without a controller as well; they are lost.")
@_max_pending
def drain(
    nodes: tuple[str, ...],
    selector: str,
    source: ClusterInput,
    scheduler: SchedulerInput,
    queues: QueueInput,
    force: bool,
    max_pending: int | None,
    strict: bool,
    output: str,
) -> int:
    """Say where the pods of nodes go if these are drained, and which block the drain.

    Pods are evicted as by kubectl drain --ignore-daemonsets --delete-emptydir-data: disruption budgets are kept, and
    pods without a controller stay unless --force is given. With --kueue also, which jobs its queues admit then.
    """
    from kubestow_lab.what_if.node_removal import drain as drained
    from kubestow_lab.what_if.node_removal import nodes_named, nodes_selected

    if bool(nodes) == bool(selector):
        raise click.UsageError("expected either nodes or --selector")
    queues.require_dump(source.clusters)
    cluster = source.read(scheduler, strict=strict)
    names = nodes_named(cluster, nodes) if nodes else nodes_selected(cluster, selector)
    options = scheduler.read(cluster)
    removal = drained(cluster, names, options, force=force)
    return _report(removal, cluster, options, queues, output, max_pending)


@what_if.command()
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--zone", help="All nodes of this zone.")
@_selector
@_common_options
@queue_options
@_max_pending
def lose(
    nodes: tuple[str, ...],
    zone: str | None,
    selector: str,
    source: ClusterInput,
    scheduler: SchedulerInput,
    queues: QueueInput,
    max_pending: int | None,
    strict: bool,
    output: str,
) -> int:
    """Say which pods come back where, and which do not, if nodes or a zone are lost at once.

    With --kueue also, which jobs its queues admit then.
    """
    from kubestow_lab.what_if.node_removal import lose as lost
    from kubestow_lab.what_if.node_removal import nodes_in_zone, nodes_named, nodes_selected

    if sum((bool(nodes), zone is not None, bool(selector))) != 1:
        raise click.UsageError("expected either nodes, --zone or --selector")
    queues.require_dump(source.clusters)
    cluster = source.read(scheduler, strict=strict)
    if zone is not None:
        names = nodes_in_zone(cluster, zone)
    else:
        names = nodes_named(cluster, nodes) if nodes else nodes_selected(cluster, selector)
    options = scheduler.read(cluster)
    return _report(lost(cluster, names, options), cluster, options, queues, output, max_pending)


@what_if.command()
@_common_options
@queue_options
@click.option("--workload", "workloads", multiple=True, help="Manifests of further pods that have to fit.")
@click.option("--node-pool", "pools", multiple=True, help="A Node, or a price list of node pools, in YAML.")
@click.option("--like", "likes", multiple=True, metavar="NODE", help="Nodes like this one of the cluster.")
@click.option(
    "--count", type=click.IntRange(min=1), help="Add so many nodes of one pool, instead of as many as are needed."
)
def add_nodes(
    source: ClusterInput,
    scheduler: SchedulerInput,
    queues: QueueInput,
    workloads: tuple[str, ...],
    pools: tuple[str, ...],
    likes: tuple[str, ...],
    count: int | None,
    strict: bool,
    output: str,
) -> int:
    """Say how many nodes to add until all pods fit, and the cheapest mix of several node pools.

    The pods are the pending ones of the cluster and those of the workload. Pods that fit with no number of nodes are
    named with their reasons, the answer is about the others, and the exit status is 1. With --kueue the pods of jobs
    that its queues would admit count too, and the answer says which jobs are admitted with the nodes; --count says it
    of so many nodes.
    """
    from kubestow.errors import InputError
    from kubestow.reports.text import View
    from kubestow_lab.what_if.job_admissions import pods_of_admitted
    from kubestow_lab.what_if.node_count import nodes_needed
    from kubestow_lab.what_if.node_pools import pool_like, read_node_pools

    if not pools and not likes:
        raise click.UsageError("expected --node-pool or --like")
    if count is not None and not queues.kueue:
        raise click.UsageError("--count is about the jobs of --kueue")
    queues.require_dump(source.clusters)
    cluster = source.read(scheduler, strict=strict)
    arrivals = _workload(workloads, cluster, source, queues, strict=strict)
    shapes = [pool for path in pools for pool in read_node_pools(path)]
    shapes += [pool_like(cluster, name) for name in likes]
    options = scheduler.read(cluster)
    found, mix = None, {}
    if count is not None:
        if len(shapes) != 1:
            raise InputError("--count", f"is about the nodes of one pool, got {len(shapes)}")
        mix = {shapes[0].name: count}
    else:
        wanted = arrivals
        if queues.kueue:
            admitted = pods_of_admitted(cluster, queues.opener(arrivals.custom_resources), arrivals.jobs)
            wanted = replace(arrivals, pods=[*arrivals.pods, *admitted])
        with progress_bar("searching", "decisions about pods") as progress:
            found = nodes_needed(cluster, wanted, shapes, options, progress=progress)
        mix = dict(found.mix or {})
    jobs = None
    if queues.kueue:
        added = [pool.node(number) for pool in shapes for number in range(mix.get(pool.name, 0))]
        jobs = _compared(cluster, cluster.altered(nodes=[*cluster.nodes, *added]), queues, options, arrivals)

    def document() -> dict[str, Any]:
        data = {"kind": "AddedNodes", "nodes": mix} if found is None else dict(found.document())
        return data if jobs is None else data | {"jobs": jobs.document()["jobs"]}

    blocks = [*([] if found is None else found.blocks()), *([] if jobs is None else jobs.blocks())]
    print_result(with_versions(document, options.gates.minor, cluster.server_version), View(blocks), output)
    failed = jobs is not None and report_plugin_failures(jobs.plugin_failures)
    return int(failed or arrivals.refused_count > 0 or (found is not None and bool(found.never)))


class _Quota(click.ParamType):  # type: ignore[type-arg]
    """``CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT``; the name of the resource may have a slash."""

    name = "quota"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, str, str]:
        path, equals, amount = value.partition("=")
        queue, flavor, resource = (*path.split("/", 2), "", "")[:3]
        if not (equals and amount and queue and flavor and resource):
            self.fail(f"expected CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT, got {value!r}", param, ctx)
        return queue, flavor, resource, amount


@what_if.command()
@click.argument("quotas", nargs=-1, type=_Quota(), metavar="[CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT...]")
@click.option("--apply", "files", multiple=True, metavar="FILE", help="Manifests of Kueue's objects as they would be.")
@click.option("--workload", "workloads", multiple=True, help="Manifests of further jobs and pods.")
@_common_options
@queue_options
def quota(
    quotas: tuple[tuple[str, str, str, str], ...],
    files: tuple[str, ...],
    workloads: tuple[str, ...],
    source: ClusterInput,
    scheduler: SchedulerInput,
    queues: QueueInput,
    strict: bool,
    output: str,
) -> int:
    """Say which jobs Kueue would admit with other quotas, and which not, with the reasons.

    A quota such as research/h100/nvidia.com/gpu=16 is the nominal one of a resource in a flavor of a ClusterQueue.
    --apply changes anything else: limits, cohorts, flavors, priorities. Needs --kueue and a dump.
    """
    from kubestow.engine.input.documents import Problems, read_objects
    from kubestow.engine.job_admission import QuotaChange, find_admission_system
    from kubestow_lab.what_if.job_admissions import with_applied

    if not queues.kueue:
        raise click.UsageError("quotas are those of --kueue")
    if not quotas and not files:
        raise click.UsageError("expected quotas or --apply")
    queues.require_dump(source.clusters)
    cluster = source.read(scheduler, strict=strict)
    arrivals = _workload(workloads, cluster, source, queues, strict=strict)
    problems = Problems(strict=strict)
    changed = with_applied(cluster, read_objects(files, problems)) if files else cluster
    print_remarks(map(str, problems))
    changes: list[QuotaChange] = [QuotaChange(*each) for each in quotas]
    changed = changed.altered(
        custom_resources=find_admission_system("kueue").with_quotas(changed.custom_resources, changes)
    )
    options = scheduler.read(cluster)
    jobs = _compared(cluster, changed, queues, options, arrivals)
    print_result(with_versions(jobs.document, options.gates.minor, cluster.server_version), jobs, output)
    return int(report_plugin_failures(jobs.plugin_failures))


def _workload(
    paths: tuple[str, ...], cluster: ClusterObjects, source: ClusterInput, queues: QueueInput, *, strict: bool
) -> Arrivals:
    """The pods and jobs of manifests; what is wrong with them is printed."""
    from kubestow_lab.simulation.arrivals import Arrivals

    if not paths:
        return Arrivals()
    arrivals = Arrivals.load(*paths, cluster=cluster, strict=strict, queued=queues.queued(source.clusters))
    if arrivals.summary.problems:
        print_input("workload", arrivals.summary)
    print_remarks(arrivals.remarks)
    return arrivals


def _compared(
    cluster: ClusterObjects,
    changed: ClusterObjects,
    queues: QueueInput,
    options: SchedulerOptions,
    arrivals: Arrivals | None = None,
    gone: tuple[str, ...] = (),
) -> AdmissionChanges:
    """What the queues decide in both clusters, with a workload; remarks about it are printed."""
    from kubestow_lab.what_if.job_admissions import compare_admissions

    further = [] if arrivals is None else arrivals.custom_resources
    if arrivals is not None:
        pods, objects = [arrival.pod for arrival in arrivals.pods], arrivals.objects
        cluster, changed = (
            each.altered(pods=[*each.pods, *pods], objects=[*each.objects, *objects]) for each in (cluster, changed)
        )
    jobs = () if arrivals is None else arrivals.jobs
    compared = compare_admissions(cluster, changed, queues.opener(further), options, gone=gone, jobs=jobs)
    print_remarks(compared.remarks)
    return compared


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
    removal: NodeRemoval,
    cluster: ClusterObjects,
    options: SchedulerOptions,
    queues: QueueInput,
    output: str,
    max_pending: int | None,
) -> int:
    from kubestow.reports.text import View
    from kubestow_lab.what_if.pod_fates import Fate

    print_remarks(removal.remarks)
    jobs = _compared(cluster, removal.after, queues, options, gone=removal.nodes) if queues.kueue else None

    def document() -> dict[str, Any]:
        return removal.document() | ({} if jobs is None else {"jobs": jobs.document()["jobs"]})

    blocks = [*removal.blocks(), *([] if jobs is None else jobs.blocks())]
    print_result(with_versions(document, options.gates.minor, cluster.server_version), View(blocks), output)
    failures = (*removal.plugin_failures, *(() if jobs is None else jobs.plugin_failures))
    failed = report_plugin_failures(failures)
    missing = removal.count(Fate.PENDING, Fate.LOST, Fate.BLOCKED)
    if max_pending is not None and missing > max_pending:
        click.echo(
            f"kubestow: {counted(missing, 'pod does', 'pods do')} not come back, more than --max-pending={max_pending}",
            err=True,
        )
        return 1
    return int(failed)
