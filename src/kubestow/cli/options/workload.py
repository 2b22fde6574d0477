"""The cluster and the workload that are simulated: files, or a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.output.input_summary import print_input

if TYPE_CHECKING:
    from kubestow.simulation.input.arrivals import Arrivals
    from kubestow.simulation.input.cluster import Cluster

__all__ = ["read_input", "workload_options"]


def workload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which cluster and workload are simulated."""
    for option in (
        click.option("--strict", is_flag=True, help="Refuse input with any problem."),
        click.option("--node-list", default="gpu_node", show_default=True, help="Node list of the trace."),
        click.option("--pod-list", default="default", show_default=True, help="Pod list of the trace."),
        click.option("--trace", type=click.Path(path_type=Path), help="Folder with Alibaba's openb trace."),
        click.option("--workload", "workloads", multiple=True, help="Manifests of the pods to schedule."),
        click.option("--cluster", "clusters", multiple=True, help="Dump or folder with the cluster; - is stdin."),
    ):
        command = option(command)
    return command


def read_input(
    clusters: tuple[str, ...], workloads: tuple[str, ...], trace: Path | None, lists: tuple[str, str], strict: bool
) -> tuple[Cluster, Arrivals]:
    """The cluster and the workload that the options name; ``lists`` are those of the trace. Raises InputError."""
    from kubestow.simulation.input.arrivals import Arrivals
    from kubestow.simulation.input.cluster import Cluster

    if (trace is None) == (not clusters) or (trace is not None and workloads):
        raise click.UsageError("expected either --cluster, with or without --workload, or --trace")
    if trace is not None:
        from kubestow.simulation.input.trace import load_trace

        cluster, arrivals = load_trace(trace, pods=lists[0], nodes=lists[1])
    else:
        cluster = Cluster.load(*clusters, strict=strict)
        arrivals = Arrivals.load(*workloads, cluster=cluster, strict=strict) if workloads else Arrivals()
    print_input("cluster", cluster.summary)
    if workloads or trace:
        print_input("workload", arrivals.summary)
    return cluster, arrivals
