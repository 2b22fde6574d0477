"""The cost of a decision in passes over one column, which says more than pods per second on a shared machine.

    .venv/bin/python benchmarks/passes.py [--nodes 5000] [--pods 2000]

A pass is ``np.add`` of two int64 arrays with an entry per node, timed between the decisions. Pods of a *seen shape*
follow copies of themselves, each of which has changed its node; each pod of a *new shape* requests something else.
Every node is scored. CPU time, lower quartile of all decisions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core import CoreBenchmark, pod
from kubestow.api.core import Pod

PASSES = 50
WARM_UP = 50

KINDS: dict[str, Callable[[int], Pod]] = {
    "seen shape": pod,
    "seen shape, labels of their own": lambda number: pod(number, indexed=True),
    "ten shapes in turn": lambda number: pod(number, cpu=f"{100 + number % 10}m"),
    "new shapes": lambda number: pod(number, cpu=f"{100 + number % 50}m", memory=f"{500 * 1024 + number}Ki"),
}


def pass_over(left: NDArray[np.int64], right: NDArray[np.int64]) -> None:
    """Several passes."""
    for _ in range(PASSES):
        np.add(left, right)


def seconds_of(call: Callable[[], Any]) -> tuple[float, Any]:
    """The CPU seconds of a call, and its result."""
    began = time.thread_time()
    result = call()
    return time.thread_time() - began, result


def measure(kind: str, nodes: int, pods: int) -> None:
    """Schedule pods of a kind, and print what a decision and the placement after it cost."""
    benchmark = CoreBenchmark(nodes)
    infos = [benchmark.cluster.shapes.info(KINDS[kind](number)) for number in range(WARM_UP + pods)]
    benchmark.schedule(infos[:WARM_UP])
    left, right = np.arange(nodes), np.arange(nodes)
    passes, decisions, placements = [], [], []
    for number, info in enumerate(infos[WARM_UP:]):
        if number % 10 == 0:
            passes.append(seconds_of(lambda: pass_over(left, right))[0] / PASSES)
        seconds, decision = seconds_of(lambda info=info: benchmark.pipeline.decide(info))
        decisions.append(seconds)
        placements.append(
            seconds_of(lambda info=info, name=decision.node_name: benchmark.cluster.assume(info, name))[0]
        )
    one_pass, decision, placement = (float(np.quantile(each, 0.25)) for each in (passes, decisions, placements))
    print(
        f"{kind}, {nodes} nodes: decision {decision * 1e6:.0f} us = {decision / one_pass:.0f} passes, "
        f"placement {placement * 1e6:.0f} us, {1 / (decision + placement):,.0f} pods/s"
    )


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=2000)
    options = arguments.parse_args()
    for kind in KINDS:
        measure(kind, options.nodes, options.pods)


if __name__ == "__main__":
    main()
