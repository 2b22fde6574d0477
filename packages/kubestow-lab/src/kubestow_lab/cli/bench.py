"""``kubestow bench``: run benchmark workloads, and compare two results."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.input.scheduler import parse_minor
from kubestow.cli.output import print_data, print_result
from kubestow.errors import InputError, KubestowError
from kubestow.rules.minors import NOT_COMPARED

if TYPE_CHECKING:
    from rich.progress import Progress

    from kubestow_lab.scheduler_perf.benchmark_result import BenchmarkResult
    from kubestow_lab.scheduler_perf.test_cases import WorkloadPlan
    from kubestow_lab.scheduler_perf.workload_run import RunOptions

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%?")


def _percentage(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """A percentage such as ``10%``, as a fraction."""
    if text is None:
        return None
    found = _PERCENT.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"expected a percentage such as 10%, got {text!r}")
    return float(found[1]) / 100


@click.command()
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD|FILE]...")
@click.option("--list", "lists", is_flag=True, help="Print the selected workloads with their labels and parameters.")
@click.option(
    "--filter", "name_filter", default="", metavar="TEXT", help="Only workloads with this text in their name."
)
@click.option(
    "--labels",
    "label_filter",
    default="",
    metavar="LABELS",
    help="Only workloads with these labels, as performance,-short (a minus excludes).",
)
@click.option(
    "--param", "overrides", multiple=True, metavar="NAME=VALUE", help="Set a parameter, as nodes=500; can be repeated."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Run on this cluster instead of an embedded API server. It should serve nothing else.",
)
@click.option(
    "--emulated-version",
    default="",
    metavar="MINOR",
    help=f"Kubernetes minor that kubestow decides as, such as 1.33. Default: that of the API server. {NOT_COMPARED}.",
)
@click.option("--core", is_flag=True, help="Run the engine alone: objects in memory, no API server, no HTTP.")
@click.option("--external-scheduler", is_flag=True, help="Measure the scheduler that runs on the cluster already.")
@click.option(
    "--scheduler-pid",
    type=click.IntRange(1),
    help="The process of the external scheduler on this machine, for CPU time and memory.",
)
@click.option("--metrics-url", default="", metavar="URL", help="The secure port of the external scheduler.")
@click.option("--keep", is_flag=True, help="With --kubeconfig: do not delete the created objects.")
@click.option("--seed", default=1, show_default=True, help="Seed of the driver and of the scheduler with --core.")
@click.option(
    "--timeout", default=600.0, show_default=True, type=click.FloatRange(1), help="Seconds to wait for pods at once."
)
@click.option(
    "--output",
    "-o",
    default="table",
    show_default=True,
    metavar="FORMAT",
    help="table, json or yaml; or html=FILE for a table and a page with plots.",
)
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="A.JSON B.JSON",
    help="Compare two results instead of running workloads.",
)
@click.option(
    "--fail-above", callback=_percentage, metavar="PERCENT", help="With --compare: fail if B is worse by more."
)
def bench(
    workloads: tuple[str, ...],
    lists: bool,
    name_filter: str,
    label_filter: str,
    overrides: tuple[str, ...],
    output: str,
    compare: tuple[Path, Path] | None,
    fail_above: float | None,
    **options: Any,
) -> int:
    """Run benchmark workloads in scheduler_perf's format.

    WORKLOAD is an installed test case (SchedulingBasic) or workload (SchedulingBasic/500Nodes); FILE a workload file or
    a folder of them. Without either, --filter and --labels select installed workloads. The exit status is 1 if a
    workload fails.
    """
    from kubestow_lab.scheduler_perf.test_cases import Selection, plans

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    write_html = _html_file(output)
    if compare is not None:
        if workloads or lists:
            raise click.UsageError("--compare takes two results, and no workloads")
        return _compare(*compare, fail_above, output)
    if fail_above is not None:
        raise click.UsageError("--fail-above requires --compare")
    if not (workloads or lists or name_filter or label_filter):
        raise click.UsageError("expected a workload, such as SchedulingBasic/500Nodes; --list prints all of them")
    run_options = _run_options(options)
    selected = plans(Selection(workloads, name_filter, label_filter, overrides))
    if lists:
        _list(selected, output)
        return 0
    result = asyncio.run(_run_all(selected, run_options))
    _print(result, output)
    if write_html is not None:
        from kubestow_lab.scheduler_perf.benchmark_result import html_page

        try:
            write_html.write_text(html_page(result), encoding="utf-8")
        except OSError as error:
            raise InputError(str(write_html), f"cannot be written: {error.strerror or error}") from None
    return int(bool(result.failures))


def _html_file(output: str) -> Path | None:
    if output in ("table", "json", "yaml"):
        return None
    form, _, file = output.partition("=")
    if form != "html" or not file:
        raise InputError("--output", f"expected table, json, yaml or html=FILE, got {output!r}")
    return Path(file)


def _run_options(options: Mapping[str, Any]) -> RunOptions:
    from kubestow_lab.scheduler_perf.session import ExecutionOptions
    from kubestow_lab.scheduler_perf.workload_run import ExternalScheduler, RunOptions

    kubeconfig, core, external = options["kubeconfig"], options["core"], options["external_scheduler"]
    if core and (kubeconfig or external):
        raise click.UsageError("--core cannot be used together with --kubeconfig or --external-scheduler")
    if external and not kubeconfig:
        raise click.UsageError("--external-scheduler requires --kubeconfig")
    if not external and (options["scheduler_pid"] or options["metrics_url"]):
        raise click.UsageError("--scheduler-pid and --metrics-url require --external-scheduler")
    if external and options["emulated_version"]:
        raise click.UsageError("--emulated-version cannot be used together with --external-scheduler")
    minor = parse_minor(options["emulated_version"]) if options["emulated_version"] else None
    return RunOptions(
        minor=minor,
        kubeconfig=str(kubeconfig.resolve()) if kubeconfig is not None else "",
        core=core,
        external=ExternalScheduler(options["scheduler_pid"] or 0, options["metrics_url"]) if external else None,
        keep=options["keep"],
        seed=options["seed"],
        execution=ExecutionOptions(timeout=options["timeout"]),
    )


async def _run_all(selected: list[WorkloadPlan], options: RunOptions) -> BenchmarkResult:
    """Check all workloads, then run them in turn; one that fails does not stop the others. Raises InputError."""
    from kubestow_lab.scheduler_perf.benchmark_result import BenchmarkResult, this_machine
    from kubestow_lab.scheduler_perf.workload_run import check, run_workload

    for plan in selected:
        check(plan)
    machine, results, failures = this_machine(), [], {}
    with _progress_bar() as bar:
        progress = _WorkloadProgress(bar, len(selected))
        for plan in selected:
            progress.workload(plan.name)
            try:
                results.append(await run_workload(plan, options, progress))
            except KubestowError as error:
                failures[plan.name] = str(error)
    return BenchmarkResult(machine, results, failures)


def _progress_bar() -> Progress:
    """A bar on standard error, which shows nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class _WorkloadProgress:
    """One line per workload, with the operation that is executed.

    Implements :class:`kubestow_lab.scheduler_perf.session.RunProgress`.
    """

    def __init__(self, bar: Progress, workloads: int) -> None:
        self._bar, self._task = bar, bar.add_task("", total=None)
        self._workloads, self._number, self._name = workloads, 0, ""

    def workload(self, name: str) -> None:
        """The next workload begins."""
        self._number, self._name = self._number + 1, name
        self._bar.update(self._task, description=f"[{self._number}/{self._workloads}] {name}: starting")

    def operation(self, number: int, total: int, name: str) -> None:
        self._bar.reset(self._task, description=f"[{self._number}/{self._workloads}] {self._name}: {name}")

    def advanced(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)


def _list(selected: Iterable[WorkloadPlan], output: str) -> None:
    if output in ("json", "yaml"):
        listed = [
            {"name": plan.name, "labels": sorted(plan.labels), "parameters": dict(plan.parameters)} for plan in selected
        ]
        print_data(listed, output)
        return
    for plan in selected:
        parameters = " ".join(f"{name}={value}" for name, value in plan.parameters.items())
        click.echo(f"{plan.name}  [{', '.join(sorted(plan.labels))}]  {parameters}")


def _print(result: BenchmarkResult, output: str) -> None:
    from kubestow.reports.text import View
    from kubestow_lab.scheduler_perf.benchmark_result import result_blocks, write_result

    print_result(lambda: json.loads(write_result(result)), View([*result_blocks(result)]), output)
    if output in ("json", "yaml"):
        for name, error in result.failures.items():
            click.echo(f"kubestow: {name}: {error}", err=True)


def _compare(first: Path, second: Path, fail_above: float | None, output: str) -> int:
    from kubestow_lab.scheduler_perf.benchmark_result import compare_results, read_result

    comparison = compare_results(read_result(first), read_result(second), fail_above=fail_above)
    if not comparison.rows:
        raise InputError(str(second), f"has no workload in common with {first}")
    print_result(comparison.document, comparison, output)
    return int(bool(comparison.regressions))
