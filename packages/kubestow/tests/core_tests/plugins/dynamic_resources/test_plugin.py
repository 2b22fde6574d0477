"""The extension points and queueing hints of DynamicResources (semantics 8.16)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.decisions import post_filter_actions
from core_tests.plugins.dynamic_resources.devices import GPU, DeviceHarness, single_node
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import PreFilterPlugin
from kubestow.framework.status import Code, Status
from kubestow.rules.minors import Minor
from kubestow.testing import nodes, pod
from kubestow.testing.devices import DRIVER, allocation, claim, exactly, pod_with, reserved_for, slice_of, subrequests

# -- PreFilter -----------------------------------------------------------------------------------------------------


def test_a_pod_whose_claim_was_deleted_after_pre_enqueue_is_rejected() -> None:
    harness = single_node(GPU)
    assert 'could not find ResourceClaim "default/c"' in harness.reason(pod_with("c"))


def test_a_missing_device_class_rejects_the_pod() -> None:
    harness = single_node(GPU, claim("c", exactly(of="tpu")), claim("d", subrequests(1, of="tpu")))
    assert "request r: device class tpu does not exist" in harness.reason(pod_with("c"))
    assert "request r/a0: device class tpu does not exist" in harness.reason(pod_with("d"))


def test_a_request_without_a_class_is_an_error() -> None:
    assert "request r: unsupported request type" in single_node(GPU, claim("c", exactly(of=""))).reason(pod_with("c"))


def test_a_request_of_unknown_type_rejects_the_pod() -> None:
    unknown = "resource claim default/c, request r: unknown request type"
    assert unknown in single_node(GPU, claim("c", {"name": "r"})).reason(pod_with("c"))


def test_a_claim_with_a_pending_allocation_rejects_the_pod() -> None:
    harness = single_node(GPU, claim())
    harness.place(pod_with("c", name="first"))
    assert "resource claim default/c is in the process of being allocated" in harness.reason(pod_with("c"))


def test_an_invalid_node_selector_of_an_allocation_is_an_error() -> None:
    invalid = allocation("d0")
    invalid["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Like"}]}]}
    harness = single_node(GPU, claim("c", status={"allocation": invalid}))
    assert 'running PreFilter plugin "DynamicResources"' in harness.reason(pod_with("c"))


def test_a_pod_without_claims_skips_the_plugin() -> None:
    harness = single_node(GPU)
    state, info = CycleState(), harness.info(pod("p"))
    status = harness.plugin.pre_filter(state, info, harness.cluster.all_nodes())
    assert status is not None and status.code is Code.SKIP
    assert harness.plugin.claims_of(info) is None
    assert harness.plugin.filter(state, info, harness.cluster.all_nodes()) is None


def test_without_the_gate_the_plugin_is_skipped_whatever_the_claims() -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "DynamicResources"}]}}}
    harness = single_node(GPU, claim(), minor=Minor(33), profile=profile)
    info = harness.info(pod_with("c"))
    status = harness.plugin.pre_filter(CycleState(), info, harness.cluster.all_nodes())
    assert status is not None and status.code is Code.SKIP
    assert harness.plugin.claims_of(info) is None


# -- allocated claims ----------------------------------------------------------------------------------------------


def test_an_allocated_claim_restricts_its_pod_to_the_node_selector() -> None:
    harness = DeviceHarness(*nodes(3), claim("c", status={"allocation": allocation("d0", at="node-1")}))
    assert harness.feasible(pod_with("c")) == {"node-1"}


def test_a_claim_can_be_reserved_for_several_pods() -> None:
    harness = single_node(GPU, claim())
    assert harness.run(pod_with("c", name="p1")).node_name == "n"
    assert harness.run(pod_with("c", name="p2")).node_name == "n"
    # A strategic merge patch puts what it adds first.
    assert [user.name for user in harness.claim().status.reserved_for] == ["p2", "p1"]


UNAVAILABLE = {"allocation": allocation("d0", at="gone")}


@pytest.mark.parametrize("reserved_for_uids", [(), ("uid-default-p",)])
def test_an_unavailable_claim_is_deallocated(reserved_for_uids: tuple[str, ...]) -> None:
    harness = single_node(claim("c", status={**UNAVAILABLE, "reservedFor": reserved_for(*reserved_for_uids)}))
    decision = harness.decide(pod_with("c"))
    assert "1 resourceclaim not available on the node. deallocation of ResourceClaim completed" in decision.message
    (action,) = post_filter_actions(decision)
    harness.spawn(action())
    assert harness.claim().status.allocation is None
    assert harness.claim().status.reserved_for == []


@pytest.mark.parametrize("minor", [Minor(34), Minor(37)], ids=str)
def test_a_deallocated_claim_has_no_status_of_its_devices(minor: Minor) -> None:
    reported = {"driver": DRIVER, "pool": "n", "device": "d0", "conditions": []}
    harness = single_node(claim("c", status={**UNAVAILABLE, "devices": [reported]}), minor=minor)
    (action,) = post_filter_actions(harness.decide(pod_with("c")))
    harness.spawn(action())
    status = harness.claim().status
    assert (status.allocation, status.reserved_for, status.devices) == (None, [], [])


def test_a_claim_reserved_for_other_pods_is_not_deallocated() -> None:
    harness = single_node(claim("c", status={**UNAVAILABLE, "reservedFor": reserved_for("uid-default-p", "other")}))
    decision = harness.decide(pod_with("c"))
    assert "still not schedulable" in decision.message
    assert not post_filter_actions(decision)


def test_a_decision_alone_does_not_deallocate() -> None:
    harness = single_node(claim("c", status=UNAVAILABLE))
    harness.decide(pod_with("c"))
    assert harness.claim().status.allocation is not None


# -- PostFilter ----------------------------------------------------------------------------------------------------


def test_post_filter_has_nothing_to_deallocate_for_a_pod_without_claims() -> None:
    message = single_node().decide(pod("p", cpu="99")).message
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate")


class _RejectingPlugin(PreFilterPlugin):
    """Rejects a pod in PreFilter, before DynamicResources runs."""

    name = "Rejecting"

    def pre_filter(self, state: CycleState, info: PodInfo, nodes: Nodes) -> Status | None:
        return Status.unresolvable("not this one") if info.name == "bad" else None


def test_post_filter_fails_if_an_earlier_plugin_rejected_the_pod_in_pre_filter() -> None:
    order = ("Rejecting", "PrioritySort", "NodeResourcesFit", "DynamicResources", "DefaultPreemption", "DefaultBinder")
    profile = {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in order]}}}
    harness = single_node(plugins=[_RejectingPlugin], profile=profile)
    assert harness.decide(pod("good")).node_name == "n"
    assert harness.decide(pod("bad")).message == "0/1 nodes are available: not this one. not found"


@pytest.mark.parametrize(
    ("point", "problem"),
    [("preFilter", "not found"), ("postFilter", "")],
)
def test_disabled_extension_points(point: str, problem: str) -> None:
    profile = {"plugins": {point: {"disabled": [{"name": "DynamicResources"}]}}}
    decision = single_node(profile=profile).decide(pod("p", cpu="99" if point == "postFilter" else "1"))
    assert problem in decision.message
    assert "no new claims" not in decision.message


def test_without_state_the_extension_points_fail() -> None:
    plugin, state, info = single_node().plugin, CycleState(), single_node().info(pod("p"))
    state_not_found = Status.error("not found")
    assert plugin.reserve(state, info, "n") == state_not_found
    assert plugin.pre_bind_pre_flight(state, info, "n") == state_not_found
    plugin.unreserve(state, info, "n")
    harness = single_node(profile={"plugins": {"preFilter": {"disabled": [{"name": "DynamicResources"}]}}})
    assert harness.decide(pod("p")).status.code is Code.ERROR


# -- Score ---------------------------------------------------------------------------------------------------------


def test_all_nodes_score_0_for_a_pod_without_claims() -> None:
    assert DeviceHarness(*nodes(2)).scores(pod(), "DynamicResources") == {"node-0": 0, "node-1": 0}


def test_nodes_with_preferred_subrequests_score_higher() -> None:
    slices = slice_of("d0", "d1", node="node-0"), slice_of("d0", node="node-1")
    harness = DeviceHarness(*nodes(2), *slices, claim("c", subrequests(2, 1)))
    assert harness.scores(pod_with("c"), "DynamicResources") == {"node-0": 200, "node-1": 2 * (100 * 7 // 8)}


def test_allocated_claims_score_the_same_on_all_nodes() -> None:
    old = claim("old", subrequests(2, 1), status={"allocation": allocation("x", request="r/a1")})
    slices = slice_of("d0", "d1", node="node-0"), slice_of("d0", node="node-1")
    harness = DeviceHarness(*nodes(2), *slices, old, claim("c", subrequests(2, 1)))
    scores = harness.scores(pod_with("old", "c"), "DynamicResources")
    assert scores == {"node-0": 200, "node-1": 2 * (100 * 14 // 15)}


def test_all_nodes_score_0_without_subrequests() -> None:
    slices = slice_of("d0", node="node-0"), slice_of("d0", node="node-1")
    harness = DeviceHarness(*nodes(2), *slices, claim())
    assert harness.scores(pod_with("c"), "DynamicResources") == {"node-0": 0, "node-1": 0}


# -- queueing hints ------------------------------------------------------------------------------------------------


def test_the_deallocation_of_any_claim_requeues() -> None:
    harness = single_node(claim())
    info = harness.info(pod_with("c"))
    allocated_claim = claim("other", status={"allocation": allocation("d0")})
    assert harness.plugin._is_schedulable_after_claim_change(info, allocated_claim, claim("other"))


@pytest.mark.parametrize(
    ("old", "new", "requeues"),
    [
        (None, claim("c"), True),
        (None, claim("other"), False),
        (claim("c"), claim("c"), False),
        (claim("c"), claim("c", status={"allocation": allocation("d0")}), True),
    ],
)
def test_a_status_change_of_the_pods_claim_requeues(old: Any, new: Any, requeues: bool) -> None:
    harness = single_node(claim())
    assert harness.plugin._is_schedulable_after_claim_change(harness.info(pod_with("c")), old, new) is requeues


def test_no_claim_event_requeues_while_a_claim_is_missing() -> None:
    harness = single_node()
    assert not harness.plugin._is_schedulable_after_claim_change(harness.info(pod_with("c")), None, claim("c"))


def test_a_pod_update_requeues_when_all_claims_of_the_pod_exist() -> None:
    harness = single_node()
    info, other = harness.info(pod_with("c")), harness.info(pod_with("c", name="other"))
    assert not harness.plugin._is_schedulable_after_pod_change(info, info, info)
    harness.put(claim())
    assert harness.plugin._is_schedulable_after_pod_change(info, info, info)
    assert not harness.plugin._is_schedulable_after_pod_change(info, other, other)
