"""``kubestow when``: when a job will start, why not yet, what has to end, and what would make it start now."""

from __future__ import annotations

import click

from kubestow.cli.commands.why import PodSelection, Workload, read_selected
from kubestow.cli.input.cluster import ClusterInput, cluster_options
from kubestow.cli.input.pod_names import PodName, namespace_option
from kubestow.cli.input.running_scheduler import configured_as_running
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, output_option, print_result, with_versions
from kubestow.errors import InputError


@click.command()
@click.argument("name", metavar="JOB")
@namespace_option
@cluster_options
@scheduler_options
@output_option(*OUTPUTS)
def when(name: str, namespace: str, source: ClusterInput, scheduler: SchedulerInput, output: str) -> int:
    """Say when JOB will start: its position, why not yet, what has to end, and what would make it start now.

    JOB is job/NAME, jobset/NAME, lws/NAME, rayjob/NAME, trainjob/NAME, podgroup/NAME, workload/NAME or pod/NAME. The
    answer is from the queues that have it: those of the plugin JobQueues, if the configuration enables it.
    """
    from kubestow.engine.job_forecasts import forecast_jobs
    from kubestow.reports.model import Paragraph
    from kubestow.reports.text import View

    scheduler = configured_as_running(scheduler, source)
    workload = Workload.parse(name)
    if workload is None:
        pod = PodName(name, namespace).within(source)
        cluster = source.read(scheduler)
        pods, subject = [each for each in cluster.pods if each.key == str(pod)], f"pod {pod}"
    else:
        namespace = namespace or source.default_namespace()
        selection = PodSelection(workload, namespace)
        cluster, state = read_selected(selection, source, scheduler)
        pods = list(selection.resolved(state).select(cluster))
        subject = f"{workload} in namespace {namespace}"
    if not pods:
        raise InputError(subject, "has no pod, finished pods aside")
    options = scheduler.read(cluster)
    system, answer = forecast_jobs(cluster, pods, options, subject)
    for remark in answer.remarks:
        click.echo(f"remark: {remark}", err=True)
    shown = View([*answer.blocks(), Paragraph(f"forecast by {system}", note=True)])
    print_result(
        with_versions(lambda: {"forecastBy": system, **answer.document()}, options.gates.minor, cluster.server_version),
        shown,
        output,
    )
    return 0
