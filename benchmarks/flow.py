"""What a round of placement by min-cost flow costs.

    .venv/bin/python benchmarks/flow.py [--nodes 5000] [--pods 10000] [--shapes 50] [--cost-model cpu-mem]

Rounds run until all pods are placed or nothing changes. Each line is one round: the CPU time and the elapsed time in
seconds, from the pending pods to their places in the scheduler cache, accepted by the engine. Needs kubestow[flow].
"""

from __future__ import annotations

import argparse
import time
from random import Random

from kubestow import gc_tuning
from kubestow.cluster.cache import Cluster
from kubestow.engine.input.cluster import Cluster as ClusterInput
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.testing import builders
from kubestow_lab.flow.cost_models import COST_MODELS
from kubestow_lab.flow.rounds import FlowRounds


def main() -> None:
    """Run the rounds and print their times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--shapes", type=int, default=50)
    parser.add_argument("--cost-model", choices=list(COST_MODELS), default="cpu-mem")
    options = parser.parse_args()
    scheduler = offline_scheduler(options.nodes)
    cluster: Cluster = scheduler.cache
    random = Random(2)
    requests = [(random.randint(1, 16) * 250, random.randint(1, 32) * 256) for _ in range(options.shapes)]
    pods = [
        cluster.shapes.info(
            builders.pod(f"pod-{i}", cpu=f"{cpu}m", memory=f"{memory}Mi", labels={"app": f"app-{shape}"})
        )
        for i in range(options.pods)
        for shape, (cpu, memory) in [(i % options.shapes, requests[i % options.shapes])]
    ]
    rounds = FlowRounds(cluster, scheduler.profiles, COST_MODELS[options.cost_model]())
    number = 0
    with gc_tuning.paused():
        while pods:
            number += 1
            cpu, elapsed = time.process_time(), time.perf_counter()
            done = rounds.run(pods)
            cpu, elapsed = time.process_time() - cpu, time.perf_counter() - elapsed
            print(
                f"round {number}: {cpu:.2f} s CPU, {elapsed:.2f} s elapsed; {len(done.placed):,} placed, "
                f"{len(done.refused):,} refused, {len(done.waiting):,} wait"
            )
            pods = done.waiting
            if not done.placed:
                break


def offline_scheduler(nodes: int) -> OfflineScheduler:
    """A scheduler with nodes of two sizes, of which some are cordoned or tainted, each with a pod."""
    random = Random(1)
    inventory = [
        builders.node(
            f"node-{number:05}",
            cpu=random.choice(["16", "32"]),
            memory="64Gi",
            zone=f"zone-{number % 3}",
            taints=["dedicated=gpu:NoSchedule"] if number % 10 == 0 else [],
            unschedulable=number % 97 == 0,
        )
        for number in range(nodes)
    ]
    running = [
        builders.pod(f"running-{number}", node=f"node-{number:05}", cpu=f"{random.randint(1, 40) * 250}m", memory="2Gi")
        for number in range(nodes)
    ]
    return OfflineScheduler(ClusterInput.of(inventory, running), SchedulerOptions(), without=builders.pod("none"))


if __name__ == "__main__":
    main()
