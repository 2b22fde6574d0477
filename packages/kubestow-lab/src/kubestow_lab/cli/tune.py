"""``kubestow tune``: search plugin weights and arguments for the configurations that suit a workload best."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

import click

from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, emit, output_option, print_result, progress_bar, with_versions
from kubestow.errors import InputError
from kubestow_lab.cli.simulation_inputs import SimulationInput, WorkloadInput, simulation_options, workload_options

#: The names are checked by :mod:`kubestow_lab.tuning.objectives`, which takes a while to import.
_OBJECTIVES = "pending, fragmentation, spread, nodes, cost, preemptions"


@click.command()
@click.option("--space", required=True, type=click.Path(), help="File with the search space.")
@workload_options
@scheduler_options
@simulation_options(departures=False)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    default=("pending", "fragmentation"),
    help=f"What to minimize; can be repeated: {_OBJECTIVES}.",
)
@click.option("--trials", default=64, show_default=True, type=click.IntRange(min=1), help="Configurations to try.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(min=1), help="Simulations of each.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes; by default one for each core.")
@click.option(
    "--dask", metavar="ADDRESS", help="Simulate on the workers of this Dask scheduler; needs kubestow-lab[dask]."
)
@click.option(
    "--write-config", type=click.Path(path_type=Path, dir_okay=False), help="Write the best configuration to a file."
)
@output_option(*OUTPUTS)
def tune(
    space: str,
    workload: WorkloadInput,
    scheduler: SchedulerInput,
    objectives: tuple[str, ...],
    trials: int,
    runs: int,
    processes: int | None,
    dask: str | None,
    simulation: SimulationInput,
    write_config: Path | None,
    output: str,
) -> int:
    """Search plugin weights and arguments for the configurations that suit a workload best.

    Each configuration of the search is simulated. Those that no other one beats in all objectives are printed, beside
    the base configuration (--config). The best in the first objective is written with --write-config.
    """
    from kubestow_lab.tuning.search_space import SearchSpace
    from kubestow_lab.tuning.tuning_search import TuningOptions
    from kubestow_lab.tuning.tuning_search import tune as tuned

    if dask is not None and processes is not None:
        raise click.UsageError("--dask and --processes exclude each other")
    searched = SearchSpace.load(space)
    cluster, arrivals = workload.read(scheduler)
    setup = scheduler.read(cluster)
    cluster = workload.with_running_pods(cluster, setup)
    with _workers(dask) as executor, progress_bar("tuning", "trials") as progress:
        result = tuned(
            cluster,
            arrivals,
            searched,
            setup.configuration,
            objectives=objectives,
            plugins=setup.plugins,
            gates=setup.gates,
            options=TuningOptions(trials=trials, runs=runs, seed=simulation.seed, simulation=simulation.options()),
            processes=processes,
            executor=executor,
            progress=progress,
        )
    print_result(with_versions(result.document, setup.gates.minor, cluster.server_version), result, output)
    if write_config is not None:
        import yaml

        emit(yaml.safe_dump(result.configuration(result.best), sort_keys=False), str(write_config))
    return 0


@contextmanager
def _workers(address: str | None) -> Iterator[Executor | None]:
    """The workers of a Dask scheduler, None without an address. Raises InputError if there is no connection."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise InputError("--dask", "needs Dask, install kubestow-lab[dask]") from None
    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        raise InputError("--dask", f"cannot connect to {address}: {error}") from None
    with client, client.get_executor() as executor:
        yield executor
