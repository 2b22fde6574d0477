"""``kubestow trace``: one pod through every extension point, in order."""

from __future__ import annotations

import click

from kubestow.cli.inputs import ClusterInput, SchedulerInput, cluster_options, scheduler_options
from kubestow.cli.output import OUTPUTS, of_minor, output_option, print_result
from kubestow.cli.pod_names import PodName, pod_argument


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
    print_result(of_minor(found.document, options.gates.minor), found, output)
    return 0
