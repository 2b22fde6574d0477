"""``kubestow when``: when a job will start, why not yet, what has to end, and what would make it start now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubestow.cli.commands.why import PodSelection, Workload, forecast_queued, queue_configuration_option, read_selected
from kubestow.cli.input.cluster import ClusterInput, cluster_options
from kubestow.cli.input.pod_names import PodName, namespace_option
from kubestow.cli.input.running_scheduler import configured_as_running
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, output_option, print_result, with_versions
from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.api.core import Pod
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.job_forecasts import ForecastAnswer
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions


@click.command()
@click.argument("name", metavar="JOB")
@namespace_option
@cluster_options
@scheduler_options
@queue_configuration_option
@output_option(*OUTPUTS)
def when(
    name: str,
    namespace: str,
    source: ClusterInput,
    scheduler: SchedulerInput,
    queue_configuration: str,
    output: str,
) -> int:
    """Say when JOB will start: its position, why not yet, what has to end, and what would make it start now.

    JOB is job/NAME, jobset/NAME, lws/NAME, rayjob/NAME, trainjob/NAME, podgroup/NAME, workload/NAME or pod/NAME. The
    answer is from the queues that have it: Kueue's, or those of the plugin JobQueues if the configuration enables it;
    of a pod group in none, whether it fits now.
    """
    from kubestow.reports.model import Paragraph
    from kubestow.reports.text import View

    scheduler = configured_as_running(scheduler, source)
    workload = Workload.parse(name)
    queued: tuple[str, ForecastAnswer] | None = None
    if workload is None:
        pod = PodName(name, namespace).within(source)
        cluster = source.read(scheduler)
        pods, subject = [each for each in cluster.pods if each.key == str(pod)], f"pod {pod}"
    else:
        namespace = namespace or source.default_namespace()
        selection = PodSelection(workload, namespace)
        cluster, state = read_selected(selection, source, scheduler)
        queued = forecast_queued(workload, namespace, cluster, queue_configuration)
        pods = [] if queued is not None and queued[1].waits else list(selection.resolved(state).select(cluster))
        subject = f"{workload} in namespace {namespace}"
    options = scheduler.read(cluster)
    system, answer = _answer(queued, cluster, pods, options, subject)
    for remark in answer.remarks:
        click.echo(f"remark: {remark}", err=True)
    shown = View([*answer.blocks(), Paragraph(f"forecast by {system}", note=True)])
    print_result(
        with_versions(lambda: {"forecastBy": system, **answer.document()}, options.gates.minor, cluster.server_version),
        shown,
        output,
    )
    return 0


def _answer(
    queued: tuple[str, ForecastAnswer] | None,
    cluster: ClusterObjects,
    pods: list[Pod],
    options: SchedulerOptions,
    subject: str,
) -> tuple[str, ForecastAnswer]:
    """The answer of what decides when the job starts: queues without pods, then what has the pods."""
    from kubestow.engine.gangs.group_forecast import forecast_start

    if not pods:
        if queued is None:
            raise InputError(subject, "has no pod, finished pods aside")
        return queued
    try:
        return forecast_start(cluster, pods, options, subject)
    except InputError:
        if queued is None:
            raise
        return queued  # it has its quota, and nothing else holds it back
