"""Composite pod groups of 1.37: trees of groups that are scheduled, and preempt, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import composite, group, member, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message, remaining
from kubestow.api.core import Pod
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.pod_groups import Members
from kubestow.framework.gang import Gang
from kubestow.rules.minors import Minor
from kubestow.scheduling.gangs.pod_groups import PodGroupAttempt
from kubestow.testing import node, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

GATES = {"GenericWorkload": True, "CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True}
COMPOSITE: dict[str, Any] = {"minor": Minor(37), "gates": GATES}


def leaf(name: str, minimum: int, parent: str, **spec: Any) -> PodGroup:
    made = group(name, minimum, parentCompositePodGroupName=parent, **spec)
    assert isinstance(made, PodGroup)
    return made


def check(created: Sequence[Any], condition: Callable[[SchedulerHarness], None], *objects: Any) -> None:
    """Create the pods, and check the harness half a minute later."""

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, list(created))
        await harness.advance(30)
        condition(harness)

    in_virtual_time(scenario, *objects, **COMPOSITE)


def conditions(harness: SchedulerHarness, name: str) -> tuple[str, str, str]:
    (only,) = harness.cluster.objects(PodGroup)["default", name].status.conditions
    return only.type, only.status, only.message


A, B = members(2, "a", cpu="1"), members(2, "b", cpu="1")
GROUPS = leaf("a", 2, "all"), leaf("b", 2, "all")


def test_all_groups_of_a_composite_gang_are_scheduled_together() -> None:
    def condition(harness: SchedulerHarness) -> None:
        assert bound_count(harness, [*A, *B]) == 4
        for name in ("a", "b"):
            assert conditions(harness, name) == ("PodGroupInitiallyScheduled", "True", "")

    check([*A, *B], condition, node("n", cpu="4"), composite("all", 2), *GROUPS)


def test_no_pod_is_bound_if_too_few_groups_fit() -> None:
    def condition(harness: SchedulerHarness) -> None:
        assert bound_count(harness, [*A, *B]) == 0
        of_root = "pod group is unschedulable, minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        assert conditions(harness, "a")[2].startswith(of_root)
        assert pending_message(harness, "a-0").startswith(of_root)
        messages = {pending_message(harness, name) for name in ("b-0", "b-1")}
        assert "0/1 nodes are available: 1 Insufficient cpu." in messages
        assert any(m.startswith("pod group is unschedulable, minCount (2) cannot be satisfied: 1 s") for m in messages)

    check([*A, *B], condition, node("n", cpu="3"), composite("all", 2), *GROUPS)


@pytest.mark.parametrize("minimum", [0, 1])
def test_a_group_beyond_the_minimum_waits(minimum: int) -> None:
    def condition(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, A), bound_count(harness, B)) == (2, 0)
        assert (conditions(harness, "a")[1], conditions(harness, "b")[1]) == ("True", "False")

    check([*A, *B], condition, node("n", cpu="3"), composite("all", minimum), *GROUPS)


def test_a_tree_waits_until_enough_of_its_groups_have_their_pods() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [*A, B[0]])
        await harness.advance(5)
        assert bound_count(harness, A) == 0
        assert pending_message(harness, "a-0") == 'waiting for composite pod group "all" tree to meet quorum'
        create_pods(harness, [B[1]])
        await harness.advance(5)
        assert bound_count(harness, [*A, *B]) == 4

    in_virtual_time(scenario, node("n", cpu="4"), composite("all", 2), *GROUPS, **COMPOSITE)


def test_a_tree_waits_for_its_composite_group() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [*A, *B])
        await harness.advance(5)
        assert bound_count(harness, [*A, *B]) == 0
        harness.cluster.put(composite("all", 2))
        await harness.advance(5)
        assert bound_count(harness, [*A, *B]) == 4

    in_virtual_time(scenario, node("n", cpu="4"), *GROUPS, **COMPOSITE)


def test_trees_have_at_most_four_levels() -> None:
    def condition(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, A), bound_count(harness, B)) == (2, 0)

    chain = [composite("c1", 1), *(composite(f"c{n}", 1, parent=f"c{n - 1}") for n in (2, 3, 4))]
    check([*A, *B], condition, node("n", cpu="4"), *chain, leaf("a", 2, "c3"), leaf("b", 2, "c4"))


def test_composite_groups_far_below_a_tree_cost_nothing() -> None:
    def condition(harness: SchedulerHarness) -> None:
        assert bound_count(harness, A) == 2

    deep = [composite(f"d{n}", 1, parent=f"d{n - 1}" if n else "all") for n in range(2000)]
    circle = [composite("left", 1, parent="right"), composite("right", 1, parent="left")]
    check(A, condition, node("n", cpu="4"), composite("all", 1), *deep, *circle, leaf("a", 2, "all"))


def test_a_tree_under_a_topology_constraint_stays_in_one_domain() -> None:
    nodes = [node(f"{rack}{n}", cpu="2", labels={"rack": rack}) for rack in "xy" for n in range(2)]
    nodes[0] = node("x0", cpu="1", labels={"rack": "x"})
    constraint: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}

    def condition(harness: SchedulerHarness) -> None:
        assert {harness.node_of(each.metadata.name) for each in [*A, *B]} == {"y0", "y1"}

    check([*A, *B], condition, *nodes, composite("all", 2, **constraint), *GROUPS)


def test_each_group_of_a_tree_may_have_a_domain_of_its_own() -> None:
    nodes = [node(rack, cpu="2", labels={"rack": rack}) for rack in ("x", "y")]
    constraint = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}

    def condition(harness: SchedulerHarness) -> None:
        racks = [{harness.node_of(each.metadata.name) for each in group_pods} for group_pods in (A, B)]
        assert sorted(map(len, racks)) == [1, 1] and racks[0] != racks[1]

    groups = leaf("a", 2, "all", **constraint), leaf("b", 2, "all", **constraint)
    check([*A, *B], condition, *nodes, composite("all", 2), *groups)


def test_the_domains_of_the_groups_of_a_tree_are_within_its_own() -> None:
    """One zone has room for a single group, and each rack too."""
    racks = {"x": "1", "y": "2", "z": "2"}
    nodes = [node(rack, cpu="2", labels={"rack": rack, "zone": zone}) for rack, zone in racks.items()]

    def condition(harness: SchedulerHarness) -> None:
        placed = [{harness.node_of(each.metadata.name) for each in group_pods} for group_pods in (A, B)]
        assert sorted(placed, key=min) == [{"y"}, {"z"}]

    of_rack, of_zone = (dict[str, Any](schedulingConstraints={"topology": [{"key": key}]}) for key in ("rack", "zone"))
    groups = leaf("a", 2, "all", **of_rack), leaf("b", 2, "all", **of_rack)
    check([*A, *B], condition, *nodes, composite("all", 2, **of_zone), *groups)


def test_a_group_of_a_tree_is_tried_in_each_of_its_domains() -> None:
    nodes = [node(rack, cpu=cpu, labels={"rack": rack}) for rack, cpu in (("x", "1"), ("y", "4"))]
    large = [member("a-0", "a", cpu="3")]

    def condition(harness: SchedulerHarness) -> None:
        assert harness.node_of("a-0") == "y"

    constraint = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    check(large, condition, *nodes, composite("all", 1), leaf("a", 1, "all", **constraint))


def test_the_reason_of_a_group_that_fits_in_another_domain_is_that_of_its_tree() -> None:
    nodes = [node(rack, cpu=cpu, labels={"rack": rack}) for rack, cpu in (("x", "500m"), ("y", "2"))]
    large = members(2, "b", cpu="8")

    def condition(harness: SchedulerHarness) -> None:
        assert bound_count(harness, [*A, *large]) == 0
        of_tree = "pod group is unschedulable, minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        messages = sorted(pending_message(harness, each.metadata.name) for each in A)
        assert messages[0] == "0/1 nodes are available: 1 Insufficient cpu."  # in the first domain
        assert messages[1].startswith(of_tree)

    constraint = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    groups = leaf("a", 2, "all", **constraint), leaf("b", 2, "all")
    check([*A, *large], condition, *nodes, composite("all", 2), *groups)


def test_a_tree_preempts_as_one() -> None:
    low = pods(4, prefix="low", cpu="1", priority=10, node="n")
    gang = [member(f"{name}-{n}", name, cpu="1", priority=100) for name in "ab" for n in range(2)]

    def condition(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, gang), len(remaining(harness, low))) == (4, 0)

    check(gang, condition, node("n", cpu="4"), composite("all", 2, priority=100), *GROUPS, *low)


@pytest.mark.parametrize(("mode", "left"), [("all", 0), ("single", 1)])
def test_a_tree_with_disruption_mode_all_is_evicted_as_a_whole(mode: str, left: int) -> None:
    placed: list[Pod] = [member(f"{name}-0", name, cpu="1", priority=10, node=name) for name in ("a", "b")]
    objects = composite("all", 1, priority=10, disruptionMode={mode: {}}), leaf("a", 1, "all"), leaf("b", 1, "all")
    high = members(1, "high", cpu="1", priority=100)

    def condition(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, high), len(remaining(harness, placed))) == (1, left)

    check(high, condition, node("a", cpu="1"), node("b", cpu="1"), *objects, group("high", 1, priority=100), *placed)


def test_a_pod_that_has_left_its_tree_gets_the_reason_of_the_whole_tree() -> None:
    def gang(name: str, *children: Gang) -> Gang:
        return Gang(name, name, 0, 0.0, Members({}.keys()), children=children, min_groups=len(children))

    profile: Any = None
    attempt = PodGroupAttempt(gang("tree", gang("a"), gang("b")), profile, [], 0.0, reasons={"tree": "too few"})
    assert attempt.reason_of("deleted").endswith("too few")
