"""``kubestow demo``: schedule a GPU workload on a simulated cluster."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from kubestow.cli.output import OUTPUTS, output_option, print_result

#: Far more than the default workload takes, so that it is placed on a slow and busy machine, too.
_LIMIT = 600.0
#: The line width without a terminal.
_LOG_WIDTH = 130


@click.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of Alibaba's openb trace; submit its pods instead of a generated workload.",
)
@click.option("--nodes", type=click.IntRange(1, 20_000), help="Number of generated nodes. Default: as in openb.")
@click.option("--pods", type=click.IntRange(0, 500_000), help="Number of generated pods. Default: as in openb.")
@click.option(
    "--seed",
    default=42,
    show_default=True,
    help="Seed for the workload and for the choice between nodes with equal scores.",
)
@click.option("--limit", default=_LIMIT, show_default=True, help="Time limit in seconds.")
@output_option(*OUTPUTS)
def demo(trace: Path | None, nodes: int | None, pods: int | None, seed: int, limit: float, output: str) -> int:
    """Schedule a GPU workload on a simulated cluster and print a report.

    Starts the embedded API server with 1,213 simulated nodes and a scheduler that connects to it over HTTP, and submits
    8,152 pods. The exit status is 0 only if no pending pod has a feasible node. With -o json or yaml, the progress is
    on standard error.
    """
    from rich.console import Console

    from kubestow_lab.demo.demo_run import run_demo
    from kubestow_lab.demo.display import Display
    from kubestow_lab.traces import openb
    from kubestow_lab.workloads import synthetic

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    if trace is not None and (nodes is not None or pods is not None):
        raise click.UsageError("--trace cannot be used together with --nodes or --pods")
    if trace is not None:
        workload = openb.read(trace)
    else:
        workload = synthetic.generate(
            nodes=synthetic.NODES if nodes is None else nodes,
            pods=synthetic.PODS if pods is None else pods,
            seed=seed,
            spread=True,
            pod_affinity=True,
        )
    console = Console(highlight=False, stderr=output != "table")
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    display = Display(console, workload)
    with display.running():
        result = asyncio.run(run_demo(workload, show=display.show, limit=limit, seed=seed))
    if output == "table":
        display.print_report(result)
    else:
        print_result(result.document, "", output)
    return int(not result.completed or bool(result.summary.feasible_pending))
