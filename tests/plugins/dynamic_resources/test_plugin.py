"""DynamicResources: what it refuses, gives back, scores, and waits for."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import PreFilterPlugin
from kubestow.framework.status import Code, Status
from kubestow.testing import nodes, pod
from tests.plugins.dynamic_resources.devices import (
    GPU,
    DeviceWorld,
    allocation,
    alternatives,
    claim,
    exactly,
    pod_with,
    reserved_for,
    slice_of,
    world,
)

# -- PreFilter -------------------------------------------------------------------------------------------------------


def test_a_pod_whose_claim_went_after_the_gate_is_refused() -> None:
    cluster = world(GPU)
    assert 'could not find ResourceClaim "default/c"' in cluster.reason(pod_with("c"))


def test_a_class_that_does_not_exist_refuses_the_pod() -> None:
    cluster = world(GPU, claim("c", exactly(of="tpu")), claim("d", alternatives(1, of="tpu")))
    assert "request r: device class tpu does not exist" in cluster.reason(pod_with("c"))
    assert "request r/a0: device class tpu does not exist" in cluster.reason(pod_with("d"))


def test_a_request_without_a_class_is_an_error() -> None:
    assert "request r: unsupported request type" in world(GPU, claim("c", exactly(of=""))).reason(pod_with("c"))


def test_a_request_of_an_unknown_kind_refuses_the_pod() -> None:
    unknown = "resource claim default/c, request r: unknown request type"
    assert unknown in world(GPU, claim("c", {"name": "r"})).reason(pod_with("c"))


def test_a_claim_that_is_being_allocated_is_waited_for() -> None:
    cluster = world(GPU, claim())
    cluster.place(pod_with("c", name="first"))
    assert "resource claim default/c is in the process of being allocated" in cluster.reason(pod_with("c"))


def test_an_allocation_for_nodes_that_cannot_be_told_is_an_error() -> None:
    unreadable = allocation("d0")
    unreadable["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Like"}]}]}
    cluster = world(GPU, claim("c", status={"allocation": unreadable}))
    assert 'running PreFilter plugin "DynamicResources"' in cluster.reason(pod_with("c"))


# -- allocated claims ------------------------------------------------------------------------------------------------


def test_a_claim_with_devices_pins_its_pod_to_them() -> None:
    cluster = DeviceWorld(*nodes(3), claim("c", status={"allocation": allocation("d0", at="node-1")}))
    assert cluster.feasible(pod_with("c")) == {"node-1"}


def test_a_claim_may_serve_several_pods() -> None:
    cluster = world(GPU, claim())
    assert cluster.run(pod_with("c", name="p1")).node_name == "n"
    assert cluster.run(pod_with("c", name="p2")).node_name == "n"
    assert [user.name for user in cluster.claim().status.reserved_for] == ["p1", "p2"]


ELSEWHERE = {"allocation": allocation("d0", at="gone")}


@pytest.mark.parametrize("users", [(), ("uid-default-p",)])
def test_devices_in_the_wrong_place_are_taken_back(users: tuple[str, ...]) -> None:
    cluster = world(claim("c", status={**ELSEWHERE, "reservedFor": reserved_for(*users)}))
    decision = cluster.decide(pod_with("c"))
    assert "1 resourceclaim not available on the node. deallocation of ResourceClaim completed" in decision.message
    (action,) = decision.actions
    cluster.spawn(action())
    assert cluster.claim().status.allocation is None
    assert cluster.claim().status.reserved_for == []


def test_devices_that_others_use_stay_theirs() -> None:
    cluster = world(claim("c", status={**ELSEWHERE, "reservedFor": reserved_for("uid-default-p", "other")}))
    decision = cluster.decide(pod_with("c"))
    assert "still not schedulable" in decision.message
    assert not decision.actions


def test_only_asking_takes_nothing_back() -> None:
    cluster = world(claim("c", status=ELSEWHERE))
    cluster.decide(pod_with("c"))
    assert cluster.claim().status.allocation is not None


# -- PostFilter without claims ---------------------------------------------------------------------------------------


def test_a_pod_without_claims_has_none_to_give_back() -> None:
    message = world().decide(pod("p", cpu="99")).message
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate")


class _Refuses(PreFilterPlugin):
    """Refuses some pods before DynamicResources sees them."""

    name = "Refuses"

    def pre_filter(self, state: CycleState, info: PodInfo, nodes: Nodes) -> Status | None:
        return Status.unresolvable("not this one") if info.name == "bad" else None


def test_a_pod_refused_before_its_claims_were_looked_at_is_not_helped_at_all() -> None:
    order = ("Refuses", "PrioritySort", "NodeResourcesFit", "DynamicResources", "DefaultPreemption", "DefaultBinder")
    profile = {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in order]}}}
    cluster = world(plugins=[_Refuses], profile=profile)
    assert cluster.decide(pod("good")).node_name == "n"
    assert cluster.decide(pod("bad")).message == "0/1 nodes are available: not this one. not found"


@pytest.mark.parametrize(
    ("point", "problem"),
    [("preFilter", "not found"), ("postFilter", "")],
)
def test_without_its_prefilter_the_plugin_misses_its_state(point: str, problem: str) -> None:
    profile = {"plugins": {point: {"disabled": [{"name": "DynamicResources"}]}}}
    decision = world(profile=profile).decide(pod("p", cpu="99" if point == "postFilter" else "1"))
    assert problem in decision.message
    assert "no new claims" not in decision.message


def test_every_point_but_prefilter_says_so_when_there_is_no_state() -> None:
    plugin, state, info = world().plugin, CycleState(), world().info(pod("p"))
    lost = Status.error("not found")
    assert plugin.reserve(state, info, "n") == lost
    assert plugin.pre_bind_pre_flight(state, info, "n") == lost
    plugin.unreserve(state, info, "n")
    cluster = world(profile={"plugins": {"preFilter": {"disabled": [{"name": "DynamicResources"}]}}})
    assert cluster.decide(pod("p")).status.code is Code.ERROR


# -- score -----------------------------------------------------------------------------------------------------------


def test_pods_without_claims_score_nothing() -> None:
    assert DeviceWorld(*nodes(2)).scores(pod(), "DynamicResources") == {"node-0": 0, "node-1": 0}


def test_nodes_with_better_alternatives_score_higher() -> None:
    slices = slice_of("d0", "d1", node="node-0"), slice_of("d0", node="node-1")
    cluster = DeviceWorld(*nodes(2), *slices, claim("c", alternatives(2, 1)))
    assert cluster.scores(pod_with("c"), "DynamicResources") == {"node-0": 200, "node-1": 2 * (100 * 7 // 8)}


def test_what_was_allocated_before_scores_the_same_everywhere() -> None:
    old = claim("old", alternatives(2, 1), status={"allocation": allocation("x", request="r/a1")})
    slices = slice_of("d0", "d1", node="node-0"), slice_of("d0", node="node-1")
    cluster = DeviceWorld(*nodes(2), *slices, old, claim("c", alternatives(2, 1)))
    scores = cluster.scores(pod_with("old", "c"), "DynamicResources")
    assert scores == {"node-0": 200, "node-1": 2 * (100 * 14 // 15)}


def test_without_alternatives_all_nodes_score_alike() -> None:
    slices = slice_of("d0", node="node-0"), slice_of("d0", node="node-1")
    cluster = DeviceWorld(*nodes(2), *slices, claim())
    assert cluster.scores(pod_with("c"), "DynamicResources") == {"node-0": 0, "node-1": 0}


# -- queueing hints --------------------------------------------------------------------------------------------------


def test_any_claim_that_loses_its_devices_may_help() -> None:
    cluster = world(claim())
    info = cluster.info(pod_with("c"))
    held = claim("other", status={"allocation": allocation("d0")})
    assert cluster.plugin._is_schedulable_after_claim_change(info, held, claim("other"))


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        (None, claim("c"), True),
        (None, claim("other"), False),
        (claim("c"), claim("c"), False),
        (claim("c"), claim("c", status={"allocation": allocation("d0")}), True),
    ],
)
def test_a_claim_of_the_pod_may_help_when_its_status_changes(old: Any, new: Any, helps: bool) -> None:
    cluster = world(claim())
    assert cluster.plugin._is_schedulable_after_claim_change(cluster.info(pod_with("c")), old, new) is helps


def test_nothing_helps_while_claims_are_missing() -> None:
    cluster = world()
    assert not cluster.plugin._is_schedulable_after_claim_change(cluster.info(pod_with("c")), None, claim("c"))


def test_a_pod_is_worth_a_try_when_all_its_claims_are_there() -> None:
    cluster = world()
    info, other = cluster.info(pod_with("c")), cluster.info(pod_with("c", name="other"))
    assert not cluster.plugin._is_schedulable_after_pod_change(info, info, info)
    cluster.put(claim())
    assert cluster.plugin._is_schedulable_after_pod_change(info, info, info)
    assert not cluster.plugin._is_schedulable_after_pod_change(info, other, other)
