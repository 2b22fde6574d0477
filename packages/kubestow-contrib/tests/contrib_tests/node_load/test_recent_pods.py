"""Recent pods, compared with a count of all pods after random changes."""

from __future__ import annotations

import math
from datetime import timedelta
from random import Random

import pytest

from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.testing import PluginHarness, node, pod
from kubestow_contrib.node_load.recent_pods import RecentPods


def cpu_of(shape: Shape) -> tuple[int, ...]:
    return (shape.requests.get("cpu", 0), 1)


@pytest.mark.parametrize("seed", range(10))
def test_the_sums_are_those_over_pods_placed_after_the_metrics(seed: int) -> None:
    random, names = Random(seed), ["a", "b", "c"]
    harness = PluginHarness([node(name, cpu="100") for name in names])
    shown: dict[str, float] = {}
    recent = RecentPods(harness, cpu_of, 2, lambda name: shown.get(name, -math.inf))
    placed: dict[str, tuple[PodInfo, str, float]] = {}
    for number in range(300):
        harness.time += timedelta(seconds=random.choice([0, 0, 10, 40]))
        now = harness.time.timestamp()
        match random.randrange(6):
            case 0 | 1 | 2:
                info = harness.info(pod(f"p{number}", cpu=random.choice(["1", "2"])))
                name = random.choice(names)
                harness.cluster.assume(info, name)
                placed[info.uid] = info, name, now
            case 3 if placed:
                uid = random.choice(list(placed))
                del placed[uid]
                harness.cluster.remove_pod(uid)
            case 4:
                shown[random.choice(names)] = now - random.choice([0, 30, 60])
                recent.refresh()
            case 5 if placed:
                with harness.cluster.simulate() as simulation:
                    simulation.remove_pod(random.choice(list(placed)))
                    harness.cluster.assume(harness.info(pod("trial", cpu="5")), random.choice(names))
        recent.refresh()
        counted = [
            (name, info) for info, name, at in placed.values() if at > shown.get(name, -math.inf) and at >= now - 600
        ]
        nodes = harness.cluster.all_nodes()
        cpu, count = recent.sums(nodes)
        for position, node_name in enumerate(nodes.names):
            there = [info for name, info in counted if name == node_name]
            assert count[position] == len(there)
            assert cpu[position] == sum(info.requests["cpu"] for info in there)


def test_pods_that_have_run_for_long_are_not_recent() -> None:
    running = [
        pod("old", cpu="1", node="a", status={"startTime": "2025-12-31T23:00:00Z"}),
        pod("new", cpu="2", node="a", status={"startTime": "2025-12-31T23:59:30Z"}),
        pod("starting", cpu="4", node="a"),
    ]
    harness = PluginHarness([node("a")], running)
    recent = RecentPods(harness, cpu_of, 2, lambda name: -math.inf)
    cpu, count = recent.sums(harness.cluster.all_nodes())
    assert (cpu.tolist(), count.tolist()) == ([6000], [2])
    harness.time += timedelta(seconds=700)
    assert recent.refresh()
    assert recent.sums(harness.cluster.all_nodes())[1].tolist() == [0]
    assert not recent.refresh()
