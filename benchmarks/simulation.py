"""Simulations: what they cost, and whether both drivers have the same result."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from benchmarks.harness import Rows
from benchmarks.measurement import measured, peak_mb
from benchmarks.random_workloads import RandomWorkload, assert_same
from kubestow.api.core import Pod
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.testing import builders
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions, SimulationProgress

_SHAPES = 10
#: Arrivals in a second, and the mean duration in seconds: about 40,000 pods run at the same time.
_RATE, _MEAN_DURATION = 10.0, 4000.0


def simulation(
    workload: Literal["at-once", "flow"] = "at-once",
    pods: int = 100_000,
    nodes: int = 5000,
    driver: Literal["auto", "scheduler"] = "auto",
    seed: int = 1,
    progress: int = 0,
) -> Rows:
    """What a simulation costs: the run alone, without its input and its report.

    Pods have ten shapes. They arrive all at once and stay (``at-once``), or ten in a second, and end after 4,000 s on
    average (``flow``). With ``--progress``, the CPU time and memory so far are printed every so many pods.
    """
    cluster = ClusterObjects.of(
        [
            builders.node(f"node-{number:05}", zone=f"zone-{number % 3}", cpu="32", memory="128Gi", max_pods=110)
            for number in range(nodes)
        ],
        [],
    )
    arrivals = Arrivals(list(_arrivals(workload, pods, Random(seed))))
    printed, began = 0, time.process_time()

    def show(done: SimulationProgress) -> None:
        nonlocal printed
        if progress and done.pods >= printed + progress:
            printed = done.pods
            print(f"{done.pods:,} pods: {time.process_time() - began:.1f} s of CPU, {peak_mb():.0f} MB", flush=True)

    with measured() as spent:
        result = Simulation(cluster, arrivals, options=SimulationOptions(driver=driver)).run(show)
    states = Counter(outcome.state for outcome in result.outcomes)
    yield (
        f"{pods:,} pods, {workload}, on {nodes:,} nodes",
        {
            "s of CPU": spent.cpu,
            "µs of CPU per pod": spent.cpu / pods * 1e6,
            "MB": peak_mb(),
            "pending": states[OutcomeState.PENDING],
            "": result.run["driver"],
        },
    )


def _arrivals(workload: str, pods: int, random: Random) -> Iterator[Arrival]:
    shapes = [
        builders.pod(
            "shape",
            cpu=f"{250 * (1 + number % 4)}m",
            memory=f"{256 * (1 + number % 5)}Mi",
            labels={"app": f"app-{number}"},
        )
        for number in range(_SHAPES)
    ]
    for number in range(pods):
        if workload == "at-once":
            yield Arrival(_named(shapes[number % _SHAPES], f"pod-{number}"), 0.0, None, {})
        else:
            pod = _named(random.choice(shapes), f"pod-{number}")
            yield Arrival(pod, number / _RATE, random.expovariate(1 / _MEAN_DURATION), {})


def _named(shape: Pod, name: str) -> Pod:
    return msgspec.structs.replace(shape, metadata=msgspec.structs.replace(shape.metadata, name=name, uid=name))


def drivers(workloads: int = 1000, first: int = 0, traces: Path | None = None) -> Rows:
    """Whether the engine has the results of the whole scheduler: placements, order, messages, and objects.

    Random workloads (the first has the seed ``--first``) with preemption, spread, affinity, ports, gates, several minor
    versions and limits of time; and with ``--traces`` every pod list of openb in that folder. The engine runs the
    random ones twice, the second time on a cluster that another scheduler has listed. Fails at the first difference.
    """
    for seed in range(first, first + workloads):
        workload = RandomWorkload(seed)
        found = workload.run("auto")
        try:
            assert found.run["driver"] == "engine", found.run
            assert_same(found, workload.run("scheduler"))
            assert_same(workload.run_on_loaded(), found)
        except AssertionError as error:
            sys.exit(f"the random workload with seed {seed}: {error}")
    yield "random workloads with equal results", {"": workloads}
    for name in [] if traces is None else _pod_lists(traces):
        yield f"openb {name}", _compare_trace(traces, name)


def _pod_lists(folder: Path) -> list[str]:
    return [path.stem.removeprefix("openb_pod_list_") for path in sorted(folder.glob("openb_pod_list_*.csv"))]


def _compare_trace(folder: Path | None, pods: str) -> dict[str, object]:
    from kubestow_lab.traces.loading import load_trace

    assert folder is not None
    cluster, arrivals = load_trace(folder, pods=pods, nodes="gpu_node")
    figures: dict[str, object] = {"pods": len(arrivals.pods)}
    results = {}
    for driver in ("auto", "scheduler"):
        with measured() as spent:
            results[driver] = Simulation(cluster, arrivals, options=SimulationOptions(driver=driver)).run()
        figures[f"s of CPU, {results[driver].run['driver']}"] = spent.cpu
    try:
        assert_same(results["auto"], results["scheduler"])
    except AssertionError as error:
        sys.exit(f"openb {pods}: {error}")
    return figures
