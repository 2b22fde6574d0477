"""``kubestow simulate``: which pods land where, which stay pending and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OutputForms, emit, print_result, progress_bar, report_written
from kubestow.reports.model import counted
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
    from kubestow_lab.simulation.simulation import Simulation
    from kubestow_lab.simulation.simulation_result import SimulationResult


@click.command()
@workload_options
@scheduler_options
@simulation_options()
@click.option("--optimal", is_flag=True, help="Compare with the optimal placement; needs kubestow-lab[flow].")
@click.option(
    "--cost-model",
    type=click.Choice(["cpu-mem", "octopus", "quincy", "network-aware"]),
    help="Costs of the optimal placement.",
)
@click.option("--optimal-limit", type=click.FloatRange(min=0.1), help="Limit of its search, in solver seconds.")
@queue_options
@click.option("--max-pending", type=click.IntRange(min=0), help="Exit with status 1 if more pods stay pending.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputForms("table", "json", "yaml", "markdown", "junit", files=("html",), folders=("csv", "parquet")),
    default=["table"],
    help="table, json, yaml (the resulting cluster), markdown or junit, to a file with FORM=FILE; html=FILE, csv=FOLDER"
    " or parquet=FOLDER. Can be repeated.",
)
def simulate(
    workload: WorkloadInput,
    scheduler: SchedulerInput,
    simulation: SimulationInput,
    optimal: bool,
    cost_model: str | None,
    optimal_limit: float | None,
    queues: QueueInput,
    max_pending: int | None,
    outputs: tuple[tuple[str, str], ...],
) -> int:
    """Run the scheduler on a cluster in virtual time, and report where pods land.

    The cluster is what `kubectl get nodes,pods -A -o json` prints; add pvc,pv,sc and other kinds that matter. Its
    pending pods are scheduled first, then those of the workload: pods, and controllers, which create their pods.
    """
    from kubestow.engine.placement.solvers import require_solvers
    from kubestow_lab.simulation.outcomes import OutcomeState
    from kubestow_lab.simulation.simulation import Simulation

    if not optimal and (cost_model or optimal_limit):
        raise click.UsageError("--cost-model and --optimal-limit need --optimal")
    if optimal:
        require_solvers("--optimal")
    cluster, arrivals = workload.read(scheduler, queued=queues.queued(workload.clusters))
    setup = scheduler.read(cluster).decoded()
    cluster = workload.with_running_pods(cluster, setup)
    simulated = Simulation(
        cluster,
        arrivals,
        configuration=setup.configuration,
        plugins=setup.plugins,
        gates=setup.gates,
        options=simulation.options(),
        admission=queues.admission(cluster, arrivals),
    )
    with progress_bar("simulating", "pods") as show:
        result = simulated.run(lambda progress: show(progress.pods, progress.total))
    if optimal:
        from kubestow_lab.optimum import OptimumOptions, find_optimum

        options = OptimumOptions(cost_model or "cpu-mem", optimal_limit or 5.0, simulated.options.seed)
        result = replace(result, gap=find_optimum(simulated, result, options))
    print_remarks(result.remarks)
    for form, target in outputs:
        _write(form, target, result, simulated)
    failed = report_plugin_failures(result.plugin_failures)
    pending, refused = result.count(OutcomeState.PENDING) + result.waiting_pods, result.refused_count
    if max_pending is not None and pending + refused > max_pending:
        also = f" and {refused:,} refused" if refused else ""
        click.echo(
            f"kubestow: {counted(pending, 'pod is', 'pods are')} pending{also}, more than --max-pending={max_pending}",
            err=True,
        )
        return 1
    return int(failed)


def _write(form: str, target: str, result: SimulationResult, simulation: Simulation) -> None:
    from kubestow_lab.simulation.simulation_result import write_csv, write_parquet

    match form:
        case "yaml":
            emit(_resulting_cluster(result, simulation), target)
        case "html":
            from kubestow_lab.reports import simulation_report

            emit(simulation_report(result, simulation), target)
        case "markdown":
            from kubestow_lab.ci_reports import fit_markdown

            emit(fit_markdown(result), target)
        case "junit":
            from kubestow_lab.ci_reports import fit_junit

            emit(fit_junit(result), target)
        case "csv":
            report_written(write_csv(result, Path(target)))
        case "parquet":
            report_written(write_parquet(result, Path(target)))
        case _:
            print_result(result.as_json, result, form, target)


def _resulting_cluster(result: SimulationResult, simulation: Simulation) -> str:
    """The objects of the resulting cluster in YAML, and the gap to the optimal placement if it was searched for."""
    import yaml

    from kubestow_lab.simulation.manifests import resulting_objects

    objects = list(resulting_objects(result.api, simulation.cluster, simulation.arrivals))
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False)
    if result.gap is not None:
        gap = {"kind": "OptimalPlacement", **result.gap.as_json()}
        text += yaml.dump(gap, Dumper=dumper, sort_keys=False, explicit_start=True)
    return text
