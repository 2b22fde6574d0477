"""``kubestow trace``: one pod through every extension point, in order."""

from __future__ import annotations

import click

from kubestow.cli.input.cluster import ClusterInput, cluster_options
from kubestow.cli.input.pod_names import PodName, pod_argument
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, output_option, print_result, with_versions


@click.command()
@pod_argument
@cluster_options
@scheduler_options
@output_option(*OUTPUTS)
def trace(pod: PodName, source: ClusterInput, scheduler: SchedulerInput, output: str) -> int:
    """Trace POD (namespace/name) through the scheduling framework.

    The scheduler runs on the cluster in virtual time, with POD as its only pending pod. Printed are the calls at every
    extension point in order, with input and result, and the moves in the queue. Nothing is written to a live cluster.
    """
    from kubestow_lab.call_trace import trace as traced

    pod = pod.within(source)
    cluster = source.read(scheduler)
    options = scheduler.read(cluster)
    found = traced(cluster, str(pod), options)
    for remark in found.remarks:
        click.echo(f"remark: {remark}", err=True)
    print_result(with_versions(found.document, options.gates.minor, cluster.server_version), found, output)
    return 0
