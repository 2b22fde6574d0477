"""Plans of defragmentation on a cluster: what is done, what remains, and whether it still holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kubestow.api.core import Node, Pod
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.resource_claims import DeviceID
from kubestow.descheduling.defragmentation.plan import DefragmentationPlan, FreedDomains, PlannedMove, read_plan
from kubestow.descheduling.defragmentation.progress import PlanProgress, progress_of
from kubestow.descheduling.defragmentation.rehearsal import Rehearsal
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.errors import InputError
from kubestow.testing import node, pod
from kubestow.testing.devices import DRIVER, allocation, claim, device_class, reserved_for, slice_of

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}


def web(name: str, on: str = "", cpu: str = "1", **same: Any) -> Pod:
    """A pod of the ReplicaSet."""
    return pod(name, node=on, cpu=cpu, metadata={"ownerReferences": [OWNER], **same.pop("metadata", {})}, **same)


def move(name: str, source: str, target: str, step: int = 1) -> PlannedMove:
    return PlannedMove(f"default/{name}", source, target, step, f"uid-default-{name}", "ReplicaSet/web")


#: b becomes free, once its two pods have moved one after the other.
PLAN = DefragmentationPlan("train", 1, ("b",), (move("w0", "b", "a"), move("w1", "b", "c", 2)), (("default/g", "b"),))
NODES = [node("a", cpu="2"), node("b", cpu="4"), node("c", cpu="2")]


def progress(
    pods: Sequence[Pod], plan: DefragmentationPlan = PLAN, nodes: Sequence[Node] = NODES, *, cordons: bool = True
) -> PlanProgress:
    cluster = ClusterObjects(nodes=list(nodes), pods=list(pods))
    return progress_of(plan, cluster, SchedulerOptions(), cordons=cordons)


def test_moves_remain_whose_pods_exist() -> None:
    found = progress([web("w0", "b"), web("w1", "b")])

    assert (found.done, found.remaining, found.problem) == ((), PLAN.moves, "")
    assert set(found.predictions.values()) <= {"a", "c"}


def test_a_move_is_done_when_its_pod_is_gone() -> None:
    found = progress([web("new", "a"), web("w1", "b")])

    assert (found.done, found.remaining, found.problem) == (PLAN.moves[:1], PLAN.moves[1:], "")


def test_a_move_is_done_when_a_pod_of_the_same_name_has_come() -> None:
    """As of a StatefulSet."""
    found = progress([web("w0", "a", metadata={"uid": "another"}), web("w1", "b")])

    assert found.done == PLAN.moves[:1]


def test_a_terminating_pod_has_moved() -> None:
    leaving = web("w0", "b", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

    assert progress([leaving, web("w1", "b")]).done == PLAN.moves[:1]


def test_replacements_without_a_node_are_waited_for() -> None:
    found = progress([web("new"), web("w1", "b")])

    assert [each.metadata.name for each in found.waiting] == ["new"]


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ([web("stranger", "b")], "default/stranger is on b, which is to be free"),
        ([pod("g", node="b", cpu="1")], ""),
        ([pod("ds", node="b", cpu="1", metadata={"ownerReferences": [OWNER | {"kind": "DaemonSet"}]})], ""),
        ([web("full-a", "a", "2"), web("full-c", "c", "2")], "no node would take the replacement of default/w0"),
    ],
    ids=["stranger", "gang", "daemon", "no room"],
)
def test_a_plan_holds_while_its_nodes_become_free_and_others_have_room(pods: list[Pod], problem: str) -> None:
    assert progress([web("w0", "b"), web("w1", "b"), *pods]).problem == problem


def test_pods_that_the_plan_leaves_on_a_node_are_no_obstacle() -> None:
    plan = replace(PLAN, staying=(("default/alone", "b"),))

    assert progress([web("w0", "b"), web("w1", "b"), pod("alone", node="b", cpu="1")], plan).problem == ""


def test_a_node_of_the_plan_that_is_gone_is_named() -> None:
    found = progress([], nodes=NODES[::2])

    assert found.problem == "node b does not exist any more"


def test_a_pod_that_is_on_another_node_is_named() -> None:
    plan = replace(PLAN, moves=tuple(replace(each, uid="") for each in PLAN.moves))

    assert progress([web("w0", "a"), web("w1", "b")], plan).problem == "default/w0 is on a, expected b"


def test_without_cordons_the_scheduler_has_to_put_replacements_elsewhere_by_itself() -> None:
    pods = [web("w0", "b"), web("w1", "b")]

    attractive = progress(pods, cordons=False)
    cordoned = progress(pods, nodes=[NODES[0], node("b", cpu="4", unschedulable=True), NODES[2]], cordons=False)

    assert attractive.problem == (
        "the scheduler would put the replacement of default/w0 on b, which is to be free; "
        "use --cordon, or kubectl cordon b"
    )
    assert (cordoned.problem, set(cordoned.predictions.values())) == ("", {"a", "c"})


def test_without_cordons_a_replacement_must_not_come_back() -> None:
    """Nothing but w0 moves, from a node that is not to be free, which has more room than the other."""
    plan = DefragmentationPlan("train", 1, ("b",), (move("w0", "a", "c"),))
    nodes = [node("a", cpu="8"), node("b", cpu="1", unschedulable=True), node("c", cpu="2")]

    assert progress([web("w0", "a")], plan, nodes, cordons=False).problem == (
        "the scheduler would put the replacement of default/w0 on a, which it is to leave; "
        "use --cordon, or kubectl cordon b a"
    )


def test_a_plan_says_what_it_is_for() -> None:
    racks = FreedDomains("example.com/rack", 2, ("x", "y"))

    assert (PLAN.subject, PLAN.reason) == ("train", "makes room for train")
    assert DefragmentationPlan(freed=racks).reason == "frees example.com/rack x, y"
    assert DefragmentationPlan(freed=FreedDomains("example.com/rack", 2)).subject == "example.com/rack 2 domains"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "is no plan of `kubestow what-if defragment -o json`"),
        (b'{"kind": "NodeRemoval"}', "expected a DefragmentationPlan, got kind 'NodeRemoval'"),
        (b'{"kind": "DefragmentationPlan", "problem": "none"}', "has no plan: none"),
        (
            json.dumps(replace(PLAN, moves=PLAN.moves[::-1]).document()).encode(),
            "the steps of its moves are not in order",
        ),
    ],
)
def test_what_is_no_plan_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_plan(content, "plan.json")


@pytest.mark.parametrize("has_device", [True, False])
def test_the_devices_of_a_pod_that_moves_are_released_and_others_allocated(has_device: bool) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "w0", "uid": "uid-default-w0", "controller": True}
    allocated = {"allocation": allocation("d0", at="b", pool="b"), "reservedFor": reserved_for("uid-default-w0")}
    own = claim("w0-own", metadata={"ownerReferences": [owner]}, status=allocated)
    moving = web(
        "w0",
        "b",
        spec={"resourceClaims": [{"name": "own", "resourceClaimTemplateName": "own"}]},
        status={"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "w0-own"}]},
    )
    slices = [slice_of("d0", node=name) for name in ("a", "b", "c") if name == "b" or has_device]
    cluster = ClusterObjects(nodes=NODES, pods=[moving], objects=[device_class(), own, *slices])
    scheduler = OfflineScheduler(cluster, SchedulerOptions())
    devices = scheduler.cache.resource_claims.devices

    with Rehearsal(scheduler.cache, scheduler.profiles) as rehearsal:
        rehearsal.begin_step()
        target = rehearsal.move(moving)
        used = {name for name in "abc" if devices.is_allocated(DeviceID(DRIVER, name, "d0"))}

    assert target in (("a", "c") if has_device else ("",))
    assert used == {target or "b"}
    assert scheduler.cache.catalog(ResourceClaim).get("default", "w0-own") == own
    assert devices.is_allocated(DeviceID(DRIVER, "b", "d0"))
    assert not any(devices.is_allocated(DeviceID(DRIVER, name, "d0")) for name in "ac")
