"""``kubestow compare``: what another configuration or plugin would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kubestow.cli.inputs import SchedulerInput, plugin_option
from kubestow.cli.output import OutputForms, emit, print_result, progress_bar
from kubestow.errors import InputError
from kubestow.rules.minors import NOT_COMPARED
from kubestow_lab.cli.simulation_inputs import (
    SimulationInput,
    WorkloadInput,
    print_remarks,
    report_plugin_failures,
    simulation_options,
    workload_options,
)

if TYPE_CHECKING:
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow_lab.comparison.comparison import SimulationComparison
    from kubestow_lab.comparison.thresholds import CheckedThreshold, Threshold

_PER_SIDE = "Given twice, of the baseline and of the candidate."


@click.command()
@workload_options
@click.option("--config", "configs", multiple=True, help=f"KubeSchedulerConfiguration; '' is the default. {_PER_SIDE}")
@plugin_option
@click.option(
    "--baseline-plugin",
    "baseline_plugins",
    multiple=True,
    metavar="MODULE:CLASS",
    help="Plugin of the baseline only; can be repeated.",
)
@click.option(
    "--candidate-plugin",
    "candidate_plugins",
    multiple=True,
    metavar="MODULE:CLASS",
    help="Plugin of the candidate only; can be repeated.",
)
@click.option("--feature-gates", "gates", multiple=True, help=f"Feature gates: Name=true,Other=false. {_PER_SIDE}")
@click.option(
    "--emulated-version",
    "emulated_versions",
    multiple=True,
    metavar="VERSION",
    help=f"Kubernetes minor to decide as, such as 1.33. Default: the cluster's. {_PER_SIDE} {NOT_COMPARED}.",
)
@simulation_options()
@click.option(
    "--fail-if",
    "thresholds",
    multiple=True,
    metavar="THRESHOLD",
    help="Exit with status 1 if this holds, such as 'pending > baseline * 1.05'. Can be repeated.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputForms("table", "json", "yaml", "markdown", "junit", files=("html",)),
    default=["table"],
    help="table, json, yaml, markdown or junit, to a file with FORM=FILE; or html=FILE. Can be repeated.",
)
def compare(
    workload: WorkloadInput,
    configs: tuple[str, ...],
    plugins: tuple[str, ...],
    baseline_plugins: tuple[str, ...],
    candidate_plugins: tuple[str, ...],
    gates: tuple[str, ...],
    emulated_versions: tuple[str, ...],
    simulation: SimulationInput,
    thresholds: tuple[str, ...],
    outputs: tuple[tuple[str, str], ...],
) -> int:
    """Compare two configurations, or two versions of plugins, on the same cluster and workload.

    The first --config is the baseline, the second the candidate. Both are simulated, as by `kubestow simulate`: which
    pods land elsewhere, win or lose, and which metrics move.
    """
    from kubestow_lab.comparison.comparison import compare as compared
    from kubestow_lab.comparison.tables import crossed_text

    parsed = _parsed(thresholds)
    sides = [
        SchedulerInput(
            _of_side("--config", configs, n) or None,
            (*plugins, *extra),
            _of_side("--feature-gates", gates, n),
            _of_side("--emulated-version", emulated_versions, n),
        )
        for n, extra in enumerate((baseline_plugins, candidate_plugins))
    ]
    per_side = (configs, gates, emulated_versions)
    if all(len(values) < 2 for values in per_side) and not baseline_plugins and not candidate_plugins:
        raise click.UsageError(
            "baseline and candidate are the same, expected --config twice (--config '' is the default configuration),"
            " --feature-gates twice, --emulated-version twice, --baseline-plugin or --candidate-plugin"
        )
    cluster, arrivals = workload.read()
    # Both before anything is simulated, so that errors of either come first.
    if not all(side.emulated_version for side in sides):
        version = str(SchedulerInput(None, (), "").minor(cluster))
        sides = [replace(side, emulated_version=side.emulated_version or version) for side in sides]
    names = _names(configs, emulated_versions, baseline_plugins, candidate_plugins)
    baseline, candidate = map(_read, sides, names if len(set(emulated_versions)) == 2 else ("", ""))
    _check_metrics(parsed, cluster)
    with progress_bar("simulating", "pods") as show:
        found = compared(
            cluster,
            arrivals,
            baseline=baseline,
            candidate=candidate,
            options=simulation.options(),
            names=names,
            progress=lambda progress: show(progress.pods, progress.total),
        )
    for side in (found.baseline, found.candidate):
        print_remarks(side.result.remarks, side.name)
    checked = found.check(parsed)
    for form, target in outputs:
        _write(form, target, found, checked)
    crossed = [each for each in checked if each.crossed]
    for each in crossed:
        click.echo(f"kubestow: threshold crossed: {crossed_text(each)}", err=True)
    failed = [
        report_plugin_failures(side.result.plugin_failures, side.name) for side in (found.baseline, found.candidate)
    ]
    return int(bool(crossed) or any(failed))


# -- what to compare -------------------------------------------------------------------------------------------------


def _of_side(option: str, values: Sequence[str], side: int) -> str:
    """The value of an option for a side; a single one is for both."""
    if len(values) > 2:
        raise click.UsageError(f"expected {option} at most twice, for the baseline and the candidate")
    return values[min(side, len(values) - 1)] if values else ""


def _read(side: SchedulerInput, name: str) -> SchedulerOptions:
    """The scheduler of a side. Raises InputError for its configuration or gates, after printing its name if any."""
    try:
        options = side.read()
        options.read_configuration()
    except InputError:
        if name:
            click.echo(f"kubestow: {name} rejects its configuration:", err=True)
        raise
    return options


def _names(
    configs: Sequence[str], versions: Sequence[str], baseline_plugins: Sequence[str], candidate_plugins: Sequence[str]
) -> list[str]:
    """What the sides are called: by configuration, version and plugins that they do not share, or by their roles."""
    names = []
    for side, plugins in enumerate((baseline_plugins, candidate_plugins)):
        configuration = configs[side] or "default configuration" if len(set(configs)) == 2 else ""
        version = f"Kubernetes {versions[side].removeprefix('kube=')}" if len(set(versions)) == 2 else ""
        parts = (" on ".join(filter(None, (configuration, version))), ", ".join(plugins))
        names.append(" with ".join(filter(None, parts)))
    roles = ("baseline", "candidate")
    return [name or role for name, role in zip(names, roles, strict=True)] if names[0] != names[1] else [*roles]


# -- thresholds ------------------------------------------------------------------------------------------------------


def _parsed(thresholds: Sequence[str]) -> list[Threshold]:
    from kubestow_lab.comparison.thresholds import Threshold

    try:
        return [Threshold.parse(text) for text in thresholds]
    except InputError as error:
        raise click.UsageError(f"--fail-if: {error}") from None


def _check_metrics(thresholds: Sequence[Threshold], cluster: ClusterObjects) -> None:
    """Refuse metrics of resources that the cluster does not have, before anything is simulated."""
    resources = {name for node in cluster.nodes for name in node.status.allocatable} - {"pods"}
    try:
        for threshold in thresholds:
            threshold.require_metric(resources)
    except InputError as error:
        raise click.UsageError(f"--fail-if: {error}") from None


# -- forms of output -------------------------------------------------------------------------------------------------


def _write(form: str, target: str, found: SimulationComparison, checked: Sequence[CheckedThreshold]) -> None:
    match form:
        case "table":
            from kubestow.reports.text import View

            print_result(dict, View([*found.blocks(checked)]), form, target)
        case "markdown":
            from kubestow_lab.comparison.ci_reports import as_markdown

            emit(as_markdown(found, checked), target)
        case "junit":
            from kubestow_lab.comparison.ci_reports import as_junit

            emit(as_junit(found, checked), target)
        case "html":
            from kubestow_lab.reports import comparison_report

            emit(comparison_report(found, checked), target)
        case _:
            print_result(lambda: found.as_json(checked), found, form, target)
