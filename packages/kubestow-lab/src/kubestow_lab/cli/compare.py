"""``kubestow compare``: what another configuration, version or plugin would change."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from kubestow.cli.input.scheduler import SchedulerInput, parse_minor, plugin_option
from kubestow.cli.output import OutputForms, emit, print_result, progress_bar
from kubestow.errors import ConfigurationError, InputError
from kubestow.rules.minors import NOT_COMPARED
from kubestow_lab.cli.simulation_inputs import (
    QueueInput,
    SimulationInput,
    WorkloadInput,
    print_remarks,
    queue_options,
    report_plugin_failures,
    simulation_options,
    workload_options,
)

if TYPE_CHECKING:
    from kubestow.config import FieldError
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow.rules.minors import Minor
    from kubestow_lab.comparison.comparison import SimulationComparison
    from kubestow_lab.comparison.configuration_problems import ConfigurationProblems
    from kubestow_lab.comparison.thresholds import CheckedThreshold, Threshold
    from kubestow_lab.simulation.arrivals import Arrivals
    from kubestow_lab.simulation.other_installation import Installation

_PER_SIDE = "Given twice, of the baseline and of the candidate."
_DEFAULT_CONFIGURATION = "default configuration"
_ROLES = ("baseline", "candidate")
#: The thresholds that the names of ``--fail-on`` stand for.
_FAIL_ON = {
    "any": "changed > 0",
    "lost": "lost > 0",
    "moved": "moved > 0",
    "pending": "pending > baseline",
    "preempted": "preempted > baseline",
}


def _side_options(name: str, metavar: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option for each side, which the command gets as ``baseline_NAMEs`` and ``candidate_NAMEs``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for role in reversed(_ROLES):
            shown = f"{text} of the {role} only; can be repeated."
            option = click.option(f"--{role}-{name}", f"{role}_{name}s", multiple=True, metavar=metavar, help=shown)
            command = option(command)
        return command

    return decorate


@click.command()
@workload_options
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Compare what would have been decided of a record, of kubestow record or a flight record.",
)
@click.option("--baseline", metavar="FILE", help="The baseline's configuration; '' is the default. Once, as --config.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    help=f"KubeSchedulerConfiguration, or that of AKS, EKS or GKE; '' is the default. {_PER_SIDE} Given once and "
    "nothing else differs: of the candidate.",
)
@plugin_option
@_side_options("plugin", "MODULE:CLASS", "Plugin")
@_side_options("path", "PATH", "Folder or wheel with Python modules")
@click.option("--baseline-python", default="", metavar="PYTHON", help="Interpreter or venv that runs the baseline.")
@click.option("--candidate-python", default="", metavar="PYTHON", help="Interpreter or venv that runs the candidate.")
@click.option("--feature-gates", "gates", multiple=True, help=f"Feature gates: Name=true,Other=false. {_PER_SIDE}")
@click.option(
    "--emulated-version",
    "emulated_versions",
    multiple=True,
    metavar="VERSION",
    help=f"Kubernetes minor to decide as, such as 1.33. Default: the cluster's. {_PER_SIDE} {NOT_COMPARED}.",
)
@simulation_options()
@queue_options
@click.option(
    "--fail-if",
    "thresholds",
    multiple=True,
    metavar="THRESHOLD",
    help="Exit with status 1 if this holds, such as 'pending > baseline * 1.05'. Can be repeated.",
)
@click.option(
    "--fail-on",
    "changes",
    multiple=True,
    type=click.Choice([*_FAIL_ON]),
    help="Exit with status 1 if a pod is lost, moved, …, or if more are pending or preempted. Can be repeated.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputForms("table", "json", "yaml", "markdown", "junit", "sarif", files=("html",)),
    default=["table"],
    help="table, json, yaml, markdown, junit or sarif, to a file with FORM=FILE; or html=FILE. Can be repeated.",
)
def compare(
    workload: WorkloadInput,
    record: Path | None,
    baseline: str | None,
    configs: tuple[str, ...],
    plugins: tuple[str, ...],
    baseline_plugins: tuple[str, ...],
    candidate_plugins: tuple[str, ...],
    baseline_paths: tuple[str, ...],
    candidate_paths: tuple[str, ...],
    baseline_python: str,
    candidate_python: str,
    gates: tuple[str, ...],
    emulated_versions: tuple[str, ...],
    simulation: SimulationInput,
    queues: QueueInput,
    thresholds: tuple[str, ...],
    changes: tuple[str, ...],
    outputs: tuple[tuple[str, str], ...],
) -> int:
    """Compare two configurations, Kubernetes minors, or versions of plugins or of kubestow, on the same cluster.

    The first --config is the baseline, the second the candidate; a single one is compared with the default
    configuration. Both are simulated, as by `kubestow simulate`: which pods land elsewhere, win or lose, and which
    metrics move. The cluster is a dump, a live one, which is only read, or a record. Without a workload, it is about
    the pending pods of the cluster, and with --reschedule about the running ones too.
    """
    from kubestow_lab.comparison.configuration_problems import ConfigurationProblems
    from kubestow_lab.comparison.tables import crossed_text
    from kubestow_lab.simulation.other_installation import Installation

    parsed = _parsed((*thresholds, *(_FAIL_ON[change] for change in dict.fromkeys(changes))))
    installations = (Installation(baseline_python, baseline_paths), Installation(candidate_python, candidate_paths))
    side_plugins = (baseline_plugins, candidate_plugins)
    differ = len(gates) > 1 or len(emulated_versions) > 1 or any(side_plugins)
    differ = differ or not all(installation.is_this_one for installation in installations)
    if baseline is not None:
        if len(configs) > 1:
            raise click.UsageError("expected --config at most once with --baseline, for the candidate")
        configs = (baseline, *(configs or ("",)))
    if not differ and not configs:
        raise click.UsageError(
            "baseline and candidate are the same, expected --config (--config '' is the default configuration),"
            " --baseline, --feature-gates twice, --emulated-version twice, or one of the options for one side only"
        )
    has_default_baseline = not differ and len(configs) == 1
    if has_default_baseline:
        configs = ("", *configs)
    names = _names(configs, emulated_versions, side_plugins, installations)
    sides = [
        _Side(
            _ROLES[n],
            names[n],
            SchedulerInput(
                _of_side("--config", configs, n) or None,
                (*plugins, *side_plugins[n]),
                _of_side("--feature-gates", gates, n),
                _of_side("--emulated-version", emulated_versions, n),
            ),
            installations[n],
        )
        for n in range(len(_ROLES))
    ]
    if record is None:
        found = _compare_simulations(sides, workload, simulation, queues, parsed, has_default_baseline)
    else:
        if workload.has_source or queues.kueue or not all(installation.is_this_one for installation in installations):
            raise click.UsageError(
                "--record excludes --cluster, --kubeconfig, --context, --master, --trace, --workload, --reschedule,"
                " --kueue, and the options -path and -python"
            )
        found = _compare_record(record, sides, has_default_baseline)
    if isinstance(found, ConfigurationProblems):
        click.echo(f"kubestow: edit the configuration first: {found.headline}", err=True)
        for form, target in outputs:
            _write_problems(form, target, found)
        return 1
    for side in (found.baseline, found.candidate):
        print_remarks(side.result.remarks, side.name)
    notes = [tuple(side.notes()) for side in sides]
    found = replace(
        found,
        baseline=replace(found.baseline, notes=notes[0]),
        candidate=replace(found.candidate, notes=notes[1]),
    )
    try:
        checked = found.check(parsed)
    except InputError as error:
        raise click.UsageError(f"--fail-if: {error}") from None
    changed_file = str(sides[1].scheduler.config or next(iter(workload.workloads), ""))
    for form, target in outputs:
        _write(form, target, found, checked, changed_file)
    crossed = [each for each in checked if each.crossed]
    for each in crossed:
        click.echo(f"kubestow: threshold crossed: {crossed_text(each)}", err=True)
    failed = [
        report_plugin_failures(side.result.plugin_failures, side.name) for side in (found.baseline, found.candidate)
    ]
    return int(bool(crossed) or any(failed))


# -- what to compare -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the schedulers that are compared, and the installation that simulates it."""

    role: str
    name: str
    scheduler: SchedulerInput
    installation: Installation

    def errors(self, minor: Minor) -> list[FieldError]:
        """All mistakes in its configuration. Raises InputError for a file that cannot be read."""
        from kubestow.config import FeatureGates
        from kubestow.files import read_file
        from kubestow.plugins.configuration_file import diagnose_configuration
        from kubestow.plugins.registry import find_plugins

        # Another installation may have other plugins, and says itself what it does not accept.
        if self.scheduler.config is None or not self.installation.is_this_one:
            return []
        gates = FeatureGates.parse(self.scheduler.feature_gates, minor=minor)
        registry = find_plugins(self.scheduler.plugins, minor=minor)
        return diagnose_configuration(read_file(Path(self.scheduler.config)), gates, registry)

    def notes(self) -> Iterator[str]:
        """What the configuration of a managed service is assumed to mean, which is logged when it is read."""
        from kubestow.config.document import DocumentError
        from kubestow.config.managed_services import read_document
        from kubestow.files import read_file

        if self.scheduler.config is not None:
            with suppress(DocumentError):
                remarks = read_document(read_file(Path(self.scheduler.config))).remarks
                yield from (f"{self.scheduler.config}: {remark}" for remark in remarks)

    def arguments(self) -> Iterator[str]:
        """Its scheduler on the command line of another installation."""
        given = self.scheduler
        for plugin in given.plugins:
            yield from ("--plugin", plugin)
        for option, value in (
            ("--config", given.config),
            ("--feature-gates", given.feature_gates),
            ("--emulated-version", given.emulated_version),
        ):
            if value:
                yield from (option, str(value))


def _of_side(option: str, values: Sequence[str], side: int) -> str:
    """The value of an option for a side; a single one is for both."""
    if len(values) > 2:
        raise click.UsageError(f"expected {option} at most twice, for the baseline and the candidate")
    return values[min(side, len(values) - 1)] if values else ""


def _names(
    configs: Sequence[str],
    versions: Sequence[str],
    plugins: Sequence[Sequence[str]],
    installations: Sequence[Installation],
) -> list[str]:
    """What the sides are called: by configuration, version, plugins and installation that they do not share.

    Sides without such a difference are called by their roles.
    """
    names = []
    for side, installation in enumerate(installations):
        configuration = configs[side] or _DEFAULT_CONFIGURATION if len(set(configs)) == 2 else ""
        version = f"Kubernetes {versions[side].removeprefix('kube=')}" if len(set(versions)) == 2 else ""
        parts = (" on ".join(filter(None, (configuration, version))), ", ".join(plugins[side]))
        names.append(" in ".join(filter(None, (" with ".join(filter(None, parts)), installation.name))))
    return [name or role for name, role in zip(names, _ROLES, strict=True)] if names[0] != names[1] else [*_ROLES]


def _problems(sides: Sequence[_Side], minors: Sequence[Minor]) -> ConfigurationProblems | None:
    """What must be edited first, in the minor version of each side; None if both configurations are valid."""
    from kubestow_lab.comparison.configuration_problems import ConfigurationProblems, SideProblems

    found = []
    for side, minor in zip(sides, minors, strict=True):
        if errors := side.errors(minor):
            found.append(SideProblems(side.role, str(side.scheduler.config), minor, errors))
    return ConfigurationProblems(found) if found else None


def _with_default_baseline(options: Sequence[SchedulerOptions]) -> list[SchedulerOptions]:
    """The baseline with the default plugins for the scheduler names of the candidate: pods of these are compared."""
    from kubestow.config import API_VERSION, KIND

    baseline, candidate = options
    decoded = candidate.read_configuration()
    profiles = [{"schedulerName": profile.scheduler_name} for profile in decoded.profiles]
    configuration = {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}
    return [structs.replace(baseline, configuration=configuration), structs.replace(candidate, configuration=decoded)]


# -- simulations -----------------------------------------------------------------------------------------------------


def _compare_simulations(
    sides: Sequence[_Side],
    workload: WorkloadInput,
    simulation: SimulationInput,
    queues: QueueInput,
    thresholds: Sequence[Threshold],
    has_default_baseline: bool,
) -> SimulationComparison | ConfigurationProblems:
    from kubestow_lab.comparison.comparison import compare as compared

    with _as_files(workload, sides) as source:
        try:
            cluster, arrivals = source.read(
                *(side.scheduler for side in sides), queued=queues.queued(workload.clusters)
            )
        except ConfigurationError:  # found before a live cluster is asked for its version
            problems = _problems(sides, [parse_minor(side.scheduler.emulated_version) for side in sides])
            if problems is None:
                raise
            return problems
        version = ""
        if not all(side.scheduler.emulated_version for side in sides):
            version = str(SchedulerInput(None, (), "").minor(cluster))
        sides = [
            replace(
                side, scheduler=replace(side.scheduler, emulated_version=side.scheduler.emulated_version or version)
            )
            for side in sides
        ]
        # Before anything is simulated, so that the mistakes of both sides come first.
        problems = _problems(sides, [parse_minor(side.scheduler.emulated_version) for side in sides])
        if problems is not None:
            return problems
        _check_metrics(thresholds, cluster)
        if not all(side.installation.is_this_one for side in sides):
            return _compare_installations(sides, source, simulation, queues, cluster, arrivals)
        options = [side.scheduler.read() for side in sides]
        baseline, candidate = _with_default_baseline(options) if has_default_baseline else options
        cluster = source.with_running_pods(cluster, baseline, candidate)
        with progress_bar("simulating", "pods") as show:
            return compared(
                cluster,
                arrivals,
                baseline=baseline,
                candidate=candidate,
                options=simulation.options(),
                admission=queues.admission(cluster, arrivals),
                names=[side.name for side in sides],
                progress=lambda progress: show(progress.pods, progress.total),
            )


@contextmanager
def _as_files(workload: WorkloadInput, sides: Sequence[_Side]) -> Iterator[WorkloadInput]:
    """The input as files if another installation reads it too: a live cluster is saved, so that both see the same.

    Saved are the custom resources that the plugins of this installation read.
    """
    if not workload.is_live or all(side.installation.is_this_one for side in sides):
        yield workload
        return
    from kubestow.cli.commands.live import snapshot_document
    from kubestow.cli.input.cluster import fetch_objects
    from kubestow.files import write_private

    workload.require_source()
    here = [side.scheduler for side in sides if side.installation.is_this_one]
    paths = {path: names for scheduler in here for path, names in scheduler.custom_paths().items()}
    with tempfile.TemporaryDirectory(prefix="kubestow-") as folder:
        file = Path(folder) / "cluster.json"
        write_private(file, snapshot_document(fetch_objects(workload, paths))[0])
        yield replace(workload, kubeconfig="", context="", master="", clusters=(str(file),))


def _compare_installations(
    sides: Sequence[_Side],
    workload: WorkloadInput,
    simulation: SimulationInput,
    queues: QueueInput,
    cluster: ClusterObjects,
    arrivals: Arrivals,
) -> SimulationComparison:
    """Simulate each side in its installation, and compare the results."""
    from kubestow_lab.comparison.comparison import Side, SimulationComparison
    from kubestow_lab.simulation.simulation import Simulation

    found = []
    for side in sides:
        if side.installation.is_this_one:
            setup = side.scheduler.read().decoded()
            simulated = Simulation(
                workload.with_running_pods(cluster, setup),
                arrivals,
                configuration=setup.configuration,
                plugins=setup.plugins,
                gates=setup.gates,
                options=simulation.options(),
                admission=queues.admission(cluster, arrivals),
            )
            found.append(Side(side.name, simulated.run()))
        else:
            arguments = [*workload.arguments(), *simulation.arguments(), *queues.arguments(), *side.arguments()]
            found.append(Side(side.name, side.installation.simulate(arguments, cluster)))
    return SimulationComparison.of(*found)


# -- records ---------------------------------------------------------------------------------------------------------


def _compare_record(
    record: Path, sides: Sequence[_Side], has_default_baseline: bool
) -> SimulationComparison | ConfigurationProblems:
    """Decide a record again under both schedulers. Without a baseline, it is the configuration of the record if any."""
    from kubestow import config
    from kubestow.flight_record.exact_replay import recorded_gates, recorded_minor
    from kubestow.flight_record.segment import Segment
    from kubestow_lab.comparison.comparison import Side, SimulationComparison
    from kubestow_lab.comparison.recorded_runs import run_record

    segment = Segment(record)
    header = segment.header
    versions = [side.scheduler.emulated_version for side in sides]
    minors = [parse_minor(version) if version else recorded_minor(header) for version in versions]
    problems = _problems(sides, minors)
    if problems is not None:
        return problems
    options = []
    for side, minor in zip(sides, minors, strict=True):
        read = replace(side.scheduler, emulated_version=str(minor)).read()
        given = side.scheduler.feature_gates
        gates = config.FeatureGates.parse(given, minor=minor) if given else recorded_gates(header).emulating(minor)
        options.append(structs.replace(read, gates=gates, emulated_version=""))
    names = [side.name for side in sides]
    if has_default_baseline and header.configuration:
        options[0], names[0] = structs.replace(options[0], configuration=header.configuration), "recorded configuration"
    elif has_default_baseline:
        options = _with_default_baseline(options)
    runs = [Side(name, run_record(segment, each)) for name, each in zip(names, options, strict=True)]
    return SimulationComparison.of(*runs)


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


def _write(
    form: str, target: str, found: SimulationComparison, checked: Sequence[CheckedThreshold], changed_file: str
) -> None:
    from kubestow_lab import ci_reports

    match form:
        case "table":
            from kubestow.reports.text import View

            print_result(dict, View([*found.blocks(checked)]), form, target)
        case "markdown":
            emit(ci_reports.comparison_markdown(found, checked), target)
        case "junit":
            emit(ci_reports.comparison_junit(found, checked), target)
        case "sarif":
            emit(ci_reports.comparison_sarif(found, checked, file=changed_file), target)
        case "html":
            from kubestow_lab.reports import comparison_report

            emit(comparison_report(found, checked), target)
        case _:
            print_result(lambda: found.as_json(checked), found, form, target)


def _write_problems(form: str, target: str, found: ConfigurationProblems) -> None:
    from kubestow_lab import ci_reports

    match form:
        case "markdown":
            emit(ci_reports.problems_markdown(found), target)
        case "junit":
            emit(ci_reports.problems_junit(found), target)
        case "sarif":
            emit(ci_reports.problems_sarif(found), target)
        case "html":
            pass  # there is no cluster to show
        case _:
            print_result(found.as_json, found, form, target)
