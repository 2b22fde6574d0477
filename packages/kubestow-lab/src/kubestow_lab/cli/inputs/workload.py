"""The cluster and the workload that are simulated: files, or a trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.inputs.grouped import grouped_options
from kubestow.cli.output.input_summary import print_input

if TYPE_CHECKING:
    from kubestow.engine.input.cluster import Cluster
    from kubestow_lab.simulation.arrivals import Arrivals

__all__ = ["WorkloadInput", "workload_options"]


@dataclass(frozen=True, slots=True)
class WorkloadInput:
    """The files of a cluster and of a workload, or the folder of a trace and the lists of it."""

    clusters: tuple[str, ...]
    workloads: tuple[str, ...]
    trace: Path | None
    pod_list: str
    node_list: str
    strict: bool

    def read(self) -> tuple[Cluster, Arrivals]:
        """The cluster and the workload; what was read is printed on standard error. Raises InputError."""
        from kubestow.engine.input.cluster import Cluster
        from kubestow_lab.simulation.arrivals import Arrivals

        if (self.trace is None) == (not self.clusters) or (self.trace is not None and self.workloads):
            raise click.UsageError("expected either --cluster, with or without --workload, or --trace")
        if self.trace is not None:
            from kubestow_lab.simulation.trace import load_trace

            cluster, arrivals = load_trace(self.trace, pods=self.pod_list, nodes=self.node_list)
        else:
            cluster = Cluster.load(*self.clusters, strict=self.strict)
            arrivals = (
                Arrivals.load(*self.workloads, cluster=cluster, strict=self.strict) if self.workloads else Arrivals()
            )
        print_input("cluster", cluster.summary)
        if self.workloads or self.trace:
            print_input("workload", arrivals.summary)
        return cluster, arrivals


#: Adds the options that say which cluster and workload are simulated; the command gets them as ``workload``.
workload_options = grouped_options(
    "workload",
    WorkloadInput,
    (
        click.option("--cluster", "clusters", multiple=True, help="Dump or folder with the cluster; - is stdin."),
        click.option("--workload", "workloads", multiple=True, help="Manifests of the pods to schedule."),
        click.option("--trace", type=click.Path(path_type=Path), help="Folder with Alibaba's openb trace."),
        click.option("--pod-list", default="default", show_default=True, help="Pod list of the trace."),
        click.option("--node-list", default="gpu_node", show_default=True, help="Node list of the trace."),
        click.option("--strict", is_flag=True, help="Refuse input with any problem."),
    ),
)
