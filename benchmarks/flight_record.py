"""What a flight record costs: the scheduler on a cluster in memory, with and without, in turn.

    .venv/bin/python benchmarks/flight_record.py [--nodes 500] [--pods 2000] [--rounds 5]

Prints the CPU time per bound pod, of all threads, as the least of the rounds: the machine only ever adds to it. There
is no HTTP, whose cost is several times that of the rest, so the difference is what counts; compare it with the CPU time
per bound pod of benchmarks/end_to_end.py. Results: docs/replay.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from kubestow import config, gc_tuning
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.config import FeatureGates
from kubestow.flight_record.journal import new_recorded_loop
from kubestow.flight_record.recording import FlightRecorder
from kubestow.flight_record.writer import DEFAULT_SIZE, SegmentWriter
from kubestow.observability.observability import Observability
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock, new_event_loop
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing.memory_cluster import MemoryCluster


def node(number: int) -> Node:
    """A node of scheduler_perf's default size."""
    name = f"node-{number:05}"
    allocatable = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return convert(Node, {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})


def pod(number: int) -> Pod:
    """A pod of scheduler_perf's default template."""
    resources = {"requests": {"cpu": "100m", "memory": "500Mi"}}
    containers = [{"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": resources}]
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}"}
    return convert(
        Pod, {"metadata": metadata, "spec": {"schedulerName": "default-scheduler", "containers": containers}}
    )


async def measure(nodes: int, pods: int, folder: Path | None) -> float:
    """CPU seconds per bound pod; with a flight record in ``folder`` if that is given."""
    cluster, gates = MemoryCluster(), FeatureGates()
    for number in range(nodes):
        cluster.put(node(number))
    writer = None if folder is None else SegmentWriter.in_folder(folder, DEFAULT_SIZE)
    recorder = None if writer is None else FlightRecorder(writer)
    observability = Observability(WallClock(), gates, also=recorder)
    create = Scheduler if recorder is None else recorder.create_scheduler
    scheduler = create(
        config.default_configuration(gates),
        registry=in_tree_registry(),
        environment=Environment(cluster, WallClock(), Random(1), observability.observer),
        gates=gates,
    )
    running = asyncio.create_task(scheduler.run() if recorder is None else recorder.run(scheduler))
    await scheduler.started()
    new = [pod(number) for number in range(pods)]
    gc.collect()
    began = time.process_time()
    for number, arriving in enumerate(new):
        cluster.put(arriving)
        if number % 20 == 19:
            await asyncio.sleep(0)
    while len(cluster.bindings) < pods:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if writer is not None:
        writer.close()
    return (time.process_time() - began) / pods


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=500)
    arguments.add_argument("--pods", type=int, default=2000)
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    gc_tuning.raise_thresholds()  # as kubestow run does
    without, recorded, sizes = [], [], []
    for _ in range(options.rounds):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            without.append(runner.run(measure(options.nodes, options.pods, None)))
        with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=new_recorded_loop) as runner:
            recorded.append(runner.run(measure(options.nodes, options.pods, Path(folder))))
            sizes.append(sum(path.stat().st_size for path in Path(folder).iterdir()) / options.pods)
    least, least_recorded = min(without) * 1e6, min(recorded) * 1e6
    print(f"{least:.0f} µs of CPU per bound pod without a flight record, {least_recorded:.0f} µs with one:")
    print(f"  {least_recorded - least:.0f} µs more, {min(sizes):.0f} bytes per pod")


if __name__ == "__main__":
    main()
