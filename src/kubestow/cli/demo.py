"""``kubestow demo``: watch the scheduler fill a simulated GPU cluster."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

__all__ = ["demo"]

#: The whole command has to be over within 90 seconds; the rest is for starting, summing up and stopping.
_LIMIT = 75.0
#: How wide to print where there is no terminal to ask.
_LOG_WIDTH = 130


@click.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path, file_okay=False),
    help="Play Alibaba's openb trace from this folder, as it is, instead of drawing a workload like it.",
)
@click.option("--nodes", type=click.IntRange(1, 20_000), help="How many nodes to draw. Default: as many as openb.")
@click.option("--pods", type=click.IntRange(0, 500_000), help="How many pods to draw. Default: as many as openb.")
@click.option("--seed", default=42, show_default=True, help="Seed of the drawing, and of ties between nodes.")
@click.option("--limit", default=_LIMIT, show_default=True, help="Seconds after which to sum up in any case.")
def demo(trace: Path | None, nodes: int | None, pods: int | None, seed: int, limit: float) -> int:
    """Fill a simulated GPU cluster with a real workload, live, and sum up what came of it.

    Starts the embedded API server with simulated nodes, the scheduler against it over HTTP, and submits 8,152 pods to
    1,213 nodes. The exit status is 0 only if no pod is left pending that some node could take.
    """
    from rich.console import Console

    from kubestow.demo.display import Display
    from kubestow.demo.play import play
    from kubestow.workloads import openb, synthetic

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    if trace is not None and (nodes is not None or pods is not None):
        raise click.UsageError("--trace plays the trace as it is: it goes with neither --nodes nor --pods")
    if trace is not None:
        workload = openb.read(trace)
    else:
        workload = synthetic.draw(
            nodes=synthetic.NODES if nodes is None else nodes,
            pods=synthetic.PODS if pods is None else pods,
            seed=seed,
            spread=True,
            pod_affinity=True,
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    display = Display(console, workload)
    with display.running():
        outcome = asyncio.run(play(workload, show=display.show, limit=limit, seed=seed))
    display.summarise(outcome)
    return int(not outcome.settled or bool(outcome.summary.missed))
