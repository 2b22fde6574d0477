"""What a tenant can cost the scheduler with the objects it may create (docs/security.md).

Cost is counted in calls of functions, which does not depend on the machine. An attack twice as large may cost a little
more than twice as much; a quadratic one would cost four times as much.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from core_tests.observability.test_logs import record
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import PreEnqueuePlugin
from kubestow.framework.status import Status
from kubestow.observability.logs import JSONFormatter, TextFormatter
from kubestow.plugins.dynamic_resources.cel import CELDevice, SelectorCache
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

SIZE = 150
NODES = [node(f"n{number}", zone=f"z{number % 3}") for number in range(12)]


def term(number: int) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {f"k{number}": "v"}}, "topologyKey": "kubernetes.io/hostname"}


def spread(number: int, key: str, when: str) -> dict[str, Any]:
    selector = {"matchLabels": {f"k{number}": "v"}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}


def required_anti_affinity(size: int) -> list[Pod]:
    terms = [term(number) for number in range(size)]
    return [pod("a", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})]


def required_affinity(size: int) -> list[Pod]:
    terms = [term(number) | {"topologyKey": f"key{number}"} for number in range(size)]
    return [pod("a", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})]


def preferred_affinity(size: int) -> list[Pod]:
    terms = [{"weight": 1, "podAffinityTerm": term(number)} for number in range(size)]
    return [pod("a", affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})]


def hard_topology_constraints(size: int) -> list[Pod]:
    keys = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    return [pod("a", spread=[spread(number, keys[number % 2], "DoNotSchedule") for number in range(size)])]


def soft_topology_constraints(size: int) -> list[Pod]:
    return [pod("a", spread=[spread(number, f"key{number}", "ScheduleAnyway") for number in range(size)])]


def labels(size: int) -> list[Pod]:
    return [pod("a", labels={f"k{number}": "v" for number in range(size)})]


def node_selector_terms(size: int) -> list[Pod]:
    expressions = [{"key": f"k{number}", "operator": "In", "values": ["v"]} for number in range(size)]
    terms = [{"matchExpressions": [expression]} for expression in expressions]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return [pod("a", affinity={"nodeAffinity": required})]


def tolerations(size: int) -> list[Pod]:
    return [pod("a", tolerations=[{"key": f"k{number}", "operator": "Exists"} for number in range(size)])]


def host_ports(size: int) -> list[Pod]:
    return [pod("a", host_ports=range(1, size + 1))]


def resource_names(size: int) -> list[Pod]:
    return [pod(f"a{number}", requests={f"example.com/r{number}": "1"}) for number in range(size)]


def resource_names_of_one_pod(size: int) -> list[Pod]:
    return [pod("a", requests={f"example.com/r{number}": "1" for number in range(size)})]


def large_annotations(size: int) -> list[Pod]:
    return [pod("a", metadata={"annotations": {f"k{number}": "v" * 1000 for number in range(size)}})]


def gated_pods(size: int) -> list[Pod]:
    return [pod(f"a{number}", gates=["never"]) for number in range(size)]


ATTACKS = [
    required_affinity,
    required_anti_affinity,
    preferred_affinity,
    hard_topology_constraints,
    soft_topology_constraints,
    labels,
    node_selector_terms,
    tolerations,
    host_ports,
    resource_names,
    resource_names_of_one_pod,
    large_annotations,
    gated_pods,
]


class Calls:
    """Counts the calls of functions in its context."""

    count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event in ("call", "c_call")


def cost(attack: Sequence[Pod]) -> int:
    """The calls for scheduling the pods of an attack and one that is not, and for deleting those of the attack."""
    calls = Calls()

    async def scenario(harness: SchedulerHarness) -> None:
        with calls:
            for one in attack:
                harness.cluster.put(one)
            await harness.advance(5)
            harness.cluster.put(pod("victim", cpu="10m"))
            await harness.advance(5)
            for one in attack:
                harness.cluster.remove(harness.cluster.pod(one.metadata.name))
            await harness.advance(5)
        assert harness.node_of("victim")
        assert len(list(harness.scheduler.queue.pods.values())) == 0

    in_virtual_time(scenario, *NODES)
    return calls.count


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_twice_as_large_costs_about_twice_as_much(attack: Callable[[int], list[Pod]]) -> None:
    cost(attack(1))  # imports and caches of the process
    assert cost(attack(2 * SIZE)) < 2.6 * cost(attack(SIZE))


class CountingGate(PreEnqueuePlugin):
    name = "CountingGate"
    events_to_register = ()
    calls = 0

    def pre_enqueue(self, pod: PodInfo) -> Status:
        type(self).calls += 1
        return Status.unresolvable("gated for ever")


def test_ten_thousand_gated_pods_cost_nothing_when_nodes_change() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(10_000):
            harness.cluster.put(pod(f"gated-{number}"))
        await harness.advance(5)
        before = CountingGate.calls
        for number in range(20):
            harness.cluster.put(node("n0", labels={"changed": str(number)}))
            await harness.settle()
        assert (before, CountingGate.calls) == (10_000, 10_000)

    gate = {"preEnqueue": {"enabled": [{"name": "CountingGate"}]}}
    in_virtual_time(scenario, *NODES, plugins=[CountingGate], profiles=[{"plugins": gate}])


def test_annotations_do_not_multiply_what_is_derived_from_pods() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(50):
            harness.cluster.put(pod(f"a{number}", metadata={"annotations": {"unique": str(number) * 1000}}))
        await harness.settle()
        assert len(harness.scheduler.cluster.shapes) == 1

    in_virtual_time(scenario, *NODES)


HUGE = ["9" * 1_000_000, "1e" + "9" * 1_000_000, "1e1000000000", "0." + "0" * 1_000_000 + "1"]


@pytest.mark.parametrize("text", HUGE, ids=["digits", "digits of the exponent", "exponent", "fraction"])
def test_a_huge_quantity_affects_no_other_pod(text: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("huge", cpu=text))
        harness.cluster.put(pod("victim", cpu="10m"))
        await harness.settle()
        assert harness.node_of("victim") and not harness.node_of("huge")

    in_virtual_time(scenario, *NODES)


def test_a_regular_expression_of_a_claim_takes_linear_time() -> None:
    device = CELDevice(driver="d", attributes={"d": {"name": "a" * 64}}, capacity={}, allow_multiple_allocations=False)
    selector = SelectorCache().compile('(device.attributes["d"].name + "b").matches("^(a+)+$")')
    assert not selector.matches(device)


@pytest.mark.parametrize("hostile", ["a\nI1122 forged", "\x1b[2J", "\x9b2J", "\x7f", "a\u2028b", "a\u202eb", "\r"])
def test_names_cannot_forge_log_lines_or_control_a_terminal(hostile: str) -> None:
    for formatter in (TextFormatter(), JSONFormatter()):
        line = formatter.format(record(20, f"Bound {hostile}", pod=hostile, pods=[hostile], err=ValueError(hostile)))
        assert line.isprintable()
