"""``kubestow trace``: one pod through every extension point, in order."""

from __future__ import annotations

from pathlib import Path

import click

from kubestow.cli.exit_status import bad_input_is_status_1
from kubestow.cli.options.cluster import cluster_options, load_cluster
from kubestow.cli.options.scheduler import plugin_classes, scheduler_options
from kubestow.cli.output.documents import OUTPUTS, print_result

__all__ = ["trace"]


@click.command()
@click.argument("pod", metavar="POD")
@cluster_options
@scheduler_options
@click.option("-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True)
@bad_input_is_status_1
def trace(
    pod: str,
    clusters: tuple[str, ...],
    kubeconfig: str,
    config: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str,
    output: str,
) -> int:
    """Trace POD (namespace/name) through the scheduling framework.

    The scheduler runs on the cluster in virtual time, with POD as its only pending pod. Printed are the calls at every
    extension point in order, with input and result, and the moves in the queue. Nothing is written to a live cluster.
    """
    from kubestow import config as configurations
    from kubestow.simulation.explanation.trace import trace as traced
    from kubestow.simulation.pipeline.offline_scheduler import SchedulerOptions

    options = SchedulerOptions(config, plugin_classes(plugins), configurations.FeatureGates.parse(feature_gates))
    found = traced(load_cluster(clusters, kubeconfig), pod, options)
    for remark in found.remarks:
        click.echo(f"remark: {remark}", err=True)
    print_result(found.document() if output != "table" else {}, found, output)
    return 0
