"""``kubestow explain``: why a pod is on its node or on none, and what would make it fit."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.input.cluster import ClusterInput, cluster_options
from kubestow.cli.input.pod_names import PodName, pod_argument
from kubestow.cli.input.running_scheduler import configured_as_running
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, OutputForms, emit, print_result, with_versions

if TYPE_CHECKING:
    from kubestow.engine.explanation.explanation import Explanation
    from kubestow.engine.explanation.node_tables import NodeComparison


@click.command()
@pod_argument
@cluster_options
@click.option("--node", help="Explain this node; if the pod does not fit there, the changes are for it.")
@click.option("--versus", help="Another node, to be compared with --node, or else with the pod's or the best node.")
@click.option("--counterfactuals/--no-counterfactuals", default=True, show_default=True, help="What would help.")
@scheduler_options
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputForms(*OUTPUTS, files=("html",)),
    default=["table"],
    help="table, json or yaml, to a file with FORM=FILE; or html=FILE. Can be repeated.",
)
def explain(
    pod: PodName,
    source: ClusterInput,
    node: str | None,
    versus: str | None,
    counterfactuals: bool,
    scheduler: SchedulerInput,
    outputs: tuple[tuple[str, str], ...],
) -> int:
    """Explain why POD (namespace/name) is on its node, or on none.

    Every node and every plugin: verdict, reason, raw, normalized and weighted score. For a pod that fits nowhere, the
    least changes with which it would, each verified. A bound pod is evaluated as if it was not there. The cluster is a
    dump, or the live one of a kubeconfig.

    With podgroup/NAME: a placement for all pods of a group, or the proof that there is none and what is missing.
    """
    from kubestow.engine.explanation.explain import explain as explained

    pod = pod.within(source)
    if pod.is_group:
        if node or versus or any(form == "html" for form, _ in outputs):
            raise click.UsageError("--node, --versus and html are for pods, not for pod groups")
        return _explain_group(str(pod), source, configured_as_running(scheduler, source), outputs)
    scheduler = configured_as_running(scheduler, source)
    cluster = source.read(scheduler)
    options = scheduler.read(cluster)
    found = explained(cluster, str(pod), options, target=node, counterfactuals=counterfactuals)
    for remark in found.remarks:
        click.echo(f"remark: {remark}", err=True)
    comparison = None
    if versus is not None:
        one = node or found.bound_to or next((best.node for best in found.best(1)), "")
        if not one:
            raise click.UsageError("--versus needs --node, because the pod has no node and fits on none")
        comparison = found.compare(one, versus)
    for form, target in outputs:
        if form == "html":
            from kubestow.engine.explanation.explanation_report import explanation_report
            from kubestow.engine.input.cluster_version import versions_text

            versions = versions_text(str(options.gates.minor), server_version=cluster.server_version)
            emit(explanation_report(found, versions), target)
            continue
        if comparison is None:
            document = with_versions(found.document, options.gates.minor, cluster.server_version)
            print_result(document, found if node is None else found.about(node), form, target)
        else:
            compared = functools.partial(_with_comparison, found, comparison)
            print_result(with_versions(compared, options.gates.minor, cluster.server_version), comparison, form, target)
    return 0


def _explain_group(
    name: str, source: ClusterInput, scheduler: SchedulerInput, outputs: tuple[tuple[str, str], ...]
) -> int:
    from kubestow.engine.gangs.group_explanation import explain_group

    cluster = source.read(scheduler)
    options = scheduler.read(cluster)
    explained = explain_group(cluster, name, options)
    for remark in explained.remarks:
        click.echo(f"remark: {remark}", err=True)
    document = with_versions(explained.document, options.gates.minor, cluster.server_version)
    for form, target in outputs:
        print_result(document, explained, form, target)
    return 0


def _with_comparison(found: Explanation, comparison: NodeComparison) -> dict[str, Any]:
    return found.document() | {"comparison": comparison.document()}
