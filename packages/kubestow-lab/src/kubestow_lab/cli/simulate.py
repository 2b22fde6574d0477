"""``kubestow simulate``: which pods land where, which stay pending and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.ending import bad_input_is_status_1
from kubestow.cli.inputs import SchedulerInput, scheduler_options
from kubestow.cli.output import OutputForms, emit, print_result, progress_bar, report_written
from kubestow_lab.cli.simulation_inputs import SimulationInput, WorkloadInput, simulation_options, workload_options

if TYPE_CHECKING:
    from kubestow_lab.simulation.simulation import Simulation
    from kubestow_lab.simulation.simulation_result import SimulationResult


@click.command()
@workload_options
@scheduler_options
@simulation_options()
@click.option("--optimal", is_flag=True, help="Compare with the optimal placement; needs kubestow-lab[flow].")
@click.option(
    "--cost-model", type=click.Choice(["cpu-mem", "octopus", "quincy"]), help="Costs of the optimal placement."
)
@click.option("--optimal-limit", type=click.FloatRange(min=0.1), help="Limit of its search, in solver seconds.")
@click.option("--max-pending", type=click.IntRange(min=0), help="Exit with status 1 if more pods stay pending.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputForms("table", "json", "yaml", files=("html",), folders=("csv", "parquet")),
    default=["table"],
    help="table, json or yaml (the resulting cluster), to a file with FORM=FILE; html=FILE, csv=FOLDER or"
    " parquet=FOLDER. Can be repeated.",
)
@bad_input_is_status_1
def simulate(
    workload: WorkloadInput,
    scheduler: SchedulerInput,
    simulation: SimulationInput,
    optimal: bool,
    cost_model: str | None,
    optimal_limit: float | None,
    max_pending: int | None,
    outputs: tuple[tuple[str, str], ...],
) -> int:
    """Run the scheduler on a cluster in virtual time, and report where pods land.

    The cluster is what `kubectl get nodes,pods -A -o json` prints; add pvc,pv,sc and other kinds that matter. Its
    pending pods are scheduled first, then those of the workload: pods, and controllers, which create their pods.
    """
    from kubestow_lab.flow.solvers import require_solvers
    from kubestow_lab.simulation.outcomes import OutcomeState
    from kubestow_lab.simulation.simulation import Simulation

    if not optimal and (cost_model or optimal_limit):
        raise click.UsageError("--cost-model and --optimal-limit need --optimal")
    if optimal:
        require_solvers("--optimal")
    cluster, arrivals = workload.read()
    setup = scheduler.read()
    simulated = Simulation(
        cluster,
        arrivals,
        configuration=setup.configuration,
        plugins=setup.plugins,
        gates=setup.gates,
        options=simulation.options(),
    )
    with progress_bar("simulating", "pods") as show:
        result = simulated.run(lambda progress: show(progress.pods, progress.total))
    if optimal:
        result = _with_gap(simulated, result, cost_model or "cpu-mem", optimal_limit or 5.0)
    for remark in result.remarks:
        click.echo(f"remark: {remark}", err=True)
    for form, target in outputs:
        _WRITERS[form](result, simulated, target)
    pending = result.count(OutcomeState.PENDING)
    if max_pending is not None and pending > max_pending:
        click.echo(f"kubestow: {pending} pods are pending, more than --max-pending={max_pending}", err=True)
        return 1
    return 0


def _with_gap(simulation: Simulation, result: SimulationResult, cost_model: str, limit: float) -> SimulationResult:
    """The result with the gap to the optimal placement. Raises InputError without OR-Tools, and PluginError."""
    import dataclasses

    from kubestow_lab.optimum.optimum_search import OptimumOptions, find_optimum

    options = OptimumOptions(cost_model=cost_model, limit=limit, seed=simulation.options.seed)
    return dataclasses.replace(result, gap=find_optimum(simulation, result, options))


# -- forms of output -----------------------------------------------------------------------------------------------


def _write_table(result: SimulationResult, simulation: Simulation, target: str) -> None:
    print_result(result.as_json, result, "table", target)


def _write_json(result: SimulationResult, simulation: Simulation, target: str) -> None:
    print_result(result.as_json, result, "json", target)


def _write_yaml(result: SimulationResult, simulation: Simulation, target: str) -> None:
    import yaml

    from kubestow_lab.simulation.manifests import resulting_objects

    objects = list(resulting_objects(result.api, simulation.cluster, simulation.arrivals))
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    text = yaml.dump(document, Dumper=dumper, sort_keys=False)
    if result.gap is not None:
        gap = {"kind": "OptimalPlacement", **result.gap.as_json()}
        text += yaml.dump(gap, Dumper=dumper, sort_keys=False, explicit_start=True)
    emit(text, target)


def _write_csv(result: SimulationResult, simulation: Simulation, target: str) -> None:
    from kubestow_lab.simulation.simulation_result import write_csv

    report_written(write_csv(result, Path(target)))


def _write_parquet(result: SimulationResult, simulation: Simulation, target: str) -> None:
    from kubestow_lab.simulation.simulation_result import write_parquet

    report_written(write_parquet(result, Path(target)))


def _write_html(result: SimulationResult, simulation: Simulation, target: str) -> None:
    from kubestow_lab.reports import simulation_report

    emit(simulation_report(result, simulation), target)


_WRITERS: dict[str, Callable[[SimulationResult, Simulation, str], None]] = {
    "table": _write_table,
    "json": _write_json,
    "yaml": _write_yaml,
    "html": _write_html,
    "csv": _write_csv,
    "parquet": _write_parquet,
}
