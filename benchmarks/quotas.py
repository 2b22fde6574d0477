"""What elastic quotas cost: the core alone, with CapacityScheduling and with the default profile, batches in turn.

    .venv/bin/python benchmarks/quotas.py [--nodes 5000] [--pods 10000] [--quotas 100] [--scenario room]

The pods of all namespaces take turns, and all nodes together have room for them. In the scenario ``room`` so have the
quotas. In the others the last fifth of the pods is above them, as long as each namespace gets a multiple of five pods:

- ``max``: above the maximum of their namespace, whose pods all have the same priority, so that there are no victims;
- ``min``: beyond what all namespaces are guaranteed together, likewise without victims;
- ``own-victims``: as ``max``, but these pods have a higher priority, and preempt pods of their namespace;
- ``borrowed``: half of the namespaces use more than they are guaranteed, and the others preempt their pods.

In the last two, the default profile has no room for the last fifth either and preempts by priority, so that both
profiles do the same. A pod that preempts is scheduled twice, as in preemption.py: its victims are removed, then it is
placed. Prints the CPU time of both profiles, the ratio, and the CPU time of a pod that is rejected or preempts.
``--profile`` prints where the time with CapacityScheduling goes instead.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from msgspec import structs

from core import node
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Unschedulable
from kubestow.testing import PluginHarness
from kubestow_contrib.capacity_scheduling import CapacityScheduling, ElasticQuota

SCENARIOS = ("room", "max", "min", "own-victims", "borrowed")
PREEMPTING = ("own-victims", "borrowed")
PROFILE = {
    "plugins": {
        "preFilter": {"enabled": [{"name": "CapacityScheduling"}]},
        "postFilter": {"enabled": [{"name": "CapacityScheduling"}], "disabled": [{"name": "*"}]},
        "reserve": {"enabled": [{"name": "CapacityScheduling"}]},
    }
}
#: What a pod requests, in millicores and MiB.
CPU, MEMORY = 100, 500
BATCH = 100


def quota(namespace: str, minimum: int, maximum: int) -> ElasticQuota:
    """A quota for so many pods."""
    amounts = [{"cpu": f"{CPU * pods}m", "memory": f"{MEMORY * pods}Mi"} for pods in (minimum, maximum)]
    spec = dict(zip(("min", "max"), amounts, strict=True))
    return convert(ElasticQuota, {"metadata": {"name": "quota", "namespace": namespace}, "spec": spec})


def quotas(scenario: str, namespaces: int, pods: int) -> list[ElasticQuota]:
    """The quotas of all namespaces, each of which gets ``pods`` pods."""
    guaranteed = [pods if scenario == "room" else within_quotas(pods)] * namespaces
    if scenario == "borrowed":
        guaranteed = [pods * 3 // 5 if borrows(number, namespaces) else pods for number in range(namespaces)]
    limited = scenario in ("max", "own-victims")
    return [quota(f"team-{number}", minimum, minimum if limited else pods) for number, minimum in enumerate(guaranteed)]


def borrows(namespace: int, namespaces: int) -> bool:
    """Whether a namespace uses more than it is guaranteed in ``borrowed``."""
    return namespace < namespaces // 2


def pods(scenario: str, namespaces: int, count: int) -> Iterator[Pod]:
    """The pods in their order."""
    numbers = range(count)
    if scenario == "borrowed":
        # Those that borrow come first.
        numbers = sorted(numbers, key=lambda number: not borrows(number % namespaces, namespaces))
    for position, number in enumerate(numbers):
        preempts = scenario in PREEMPTING and position >= within_quotas(count)
        yield pod(number, number % namespaces, priority=10 if preempts else 0)


def within_quotas(count: int) -> int:
    """How many of so many pods come before those above the quotas."""
    return count * 4 // 5


def pod(number: int, namespace: int, *, priority: int) -> Pod:
    """A pod with small requests."""
    requests = {"cpu": f"{CPU}m", "memory": f"{MEMORY}Mi"}
    spec = {
        "schedulerName": "default-scheduler",
        "priority": priority,
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": requests}}],
    }
    metadata = {"name": f"pod-{number}", "namespace": f"team-{namespace}", "uid": f"uid-{number}"}
    return convert(Pod, {"metadata": metadata | {"labels": {"app": "a"}}, "spec": spec})


def with_room_for(nodes: Sequence[Node], pods: int) -> Iterator[Node]:
    """The nodes with room for so many pods together."""
    for number, each in enumerate(nodes):
        allowed = str(pods // len(nodes) + (number < pods % len(nodes)))
        status = structs.replace(each.status, allocatable={**each.status.allocatable, "pods": allowed})
        yield structs.replace(each, status=status)


class CoreScheduler:
    """A cluster and a profile, and what was decided."""

    def __init__(self, nodes: Iterable[Node], *, with_quotas: bool) -> None:
        harness = PluginHarness(
            nodes,
            profile=PROFILE if with_quotas else None,
            plugins=[CapacityScheduling],
        )
        self.cluster = harness.cluster
        self._pipeline = DecisionPipeline(self.cluster, harness.profiles, RandomTie(Random(0)))
        #: CPU seconds: of all pods, and of those that were rejected at first.
        self.seconds, self.seconds_of_rejected = 0.0, 0.0
        self.rejected, self.preempted = 0, 0

    def schedule(self, created: list[Pod]) -> None:
        """Schedule pods one after another."""
        for info in map(self.cluster.shapes.info, created):
            began, rejected = time.process_time(), self.rejected
            self._schedule(info)
            seconds = time.process_time() - began
            self.seconds += seconds
            if self.rejected > rejected:
                self.seconds_of_rejected += seconds

    def _schedule(self, info: PodInfo) -> None:
        decision = self._pipeline.decide(info)
        if isinstance(decision, Unschedulable):
            self.rejected += 1
            nomination = decision.post_filter.nomination
            if nomination is None or not nomination.nominated_node_name:
                return
            self.preempted += 1
            self.cluster.nominate(info, nomination.nominated_node_name)
            for victim in nomination.victims:
                self.cluster.remove_pod(victim.uid)
            decision = self._pipeline.decide(info)
        assert decision.node_name is not None, decision.message
        self.cluster.assume(info, decision.node_name)


def compare(scenario: str, options: argparse.Namespace) -> None:
    """Measure one scenario."""
    nodes = [node(number) for number in range(options.nodes)]
    limited = CoreScheduler(nodes, with_quotas=True)
    if scenario in PREEMPTING:
        nodes = list(with_room_for(nodes, within_quotas(options.pods)))
    plain = CoreScheduler(nodes, with_quotas=False)
    for each in quotas(scenario, options.quotas, options.pods // options.quotas):
        limited.cluster.catalog(ElasticQuota).put(each)
    created = list(pods(scenario, options.quotas, options.pods))
    profiler = cProfile.Profile()
    for first in range(0, len(created), BATCH):
        plain.schedule(created[first : first + BATCH])
        if options.profile:
            profiler.enable()
        limited.schedule(created[first : first + BATCH])
        profiler.disable()
    if options.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
        return
    assert plain.preempted == limited.preempted
    each_rejected = limited.seconds_of_rejected / max(limited.rejected, 1)
    print(
        f"{scenario}: {plain.seconds:.2f} s without, {limited.seconds:.2f} s with quotas, "
        f"{limited.seconds / plain.seconds:.2f} times; {limited.rejected} rejected, {limited.preempted} of them "
        f"preempted, {each_rejected * 1e3:.2f} ms each",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=10000)
    arguments.add_argument("--quotas", type=int, default=100)
    arguments.add_argument("--profile", action="store_true")
    arguments.add_argument("--scenario", action="append", choices=SCENARIOS, help="may be repeated; default: all")
    options = arguments.parse_args()
    for scenario in options.scenario or SCENARIOS:
        compare(scenario, options)


if __name__ == "__main__":
    main()
