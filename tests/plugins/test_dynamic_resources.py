"""DynamicResources: claims are found, refused, allocated, written, and given back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import pytest

from kubestow.api.resource import FINALIZER
from kubestow.cluster.pods import PodInfo
from kubestow.cluster.views import Nodes
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.plugin import PreFilterPlugin
from kubestow.framework.status import Code, Status
from kubestow.testing import node, nodes, pod
from tests.plugins.dra.devices import (
    DRIVER,
    DeviceWorld,
    alternatives,
    claim,
    device,
    exactly,
    pod_with,
    slice_of,
)

T = TypeVar("T")
NODE = node("n")
GPU = slice_of("d0", node="n")


def world(*objects: Any, **fields: Any) -> DeviceWorld:
    return DeviceWorld(NODE, *objects, **fields)


def allocation(*devices: str, at: str | None = None, when: str | None = None, **result: Any) -> dict[str, Any]:
    """``status.allocation`` of a claim, for use on one node or on all."""
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": d, **result} for d in devices]
    found: dict[str, Any] = {"devices": {"results": results}, "allocationTimestamp": when}
    if at is not None:
        fields = [{"key": "metadata.name", "operator": "In", "values": [at]}]
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return found


def reserved_for(*uids: str) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]


# -- which claims a pod has ------------------------------------------------------------------------------------------

FROM_TEMPLATE = {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}


def gate(cluster: DeviceWorld, spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Status:
    return cluster.plugin.pre_enqueue(cluster.info(pod("p", spec=spec, status=status)))


def test_a_pod_whose_claim_is_missing_waits_at_the_gate() -> None:
    status = gate(world(), {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]})
    assert status == Status.unresolvable('could not find ResourceClaim "default/c"')


def test_a_pod_whose_claim_is_being_deleted_waits_at_the_gate() -> None:
    going = claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    status = gate(world(going), {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]})
    assert status == Status.unresolvable('resourceclaim "c" is being deleted')


def test_a_pod_waits_until_its_template_has_been_used() -> None:
    assert gate(world(), FROM_TEMPLATE) == Status.unresolvable('pod "default/p": ResourceClaim not created yet')


def test_a_template_that_made_no_claim_asks_for_none() -> None:
    assert gate(world(), FROM_TEMPLATE, {"resourceClaimStatuses": [{"name": "x"}]}).ok


@pytest.mark.parametrize(("owner", "admitted"), [("uid-default-p", True), ("somebody", False)])
def test_a_claim_from_a_template_belongs_to_its_pod(owner: str, admitted: bool) -> None:
    owned = claim("made", metadata={"ownerReferences": [{"kind": "Pod", "uid": owner, "controller": True}]})
    statuses = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]}
    status = gate(world(owned), FROM_TEMPLATE, statuses)
    assert status.ok is admitted
    assert admitted or status.reasons == (
        "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
    )


def test_a_claim_of_neither_kind_is_refused() -> None:
    assert "none of the supported fields are set" in gate(world(), {"resourceClaims": [{"name": "x"}]}).message


# -- PreFilter -------------------------------------------------------------------------------------------------------


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


# -- reserve, unreserve ----------------------------------------------------------------------------------------------


def test_promised_devices_are_nobody_elses() -> None:
    cluster = world(GPU, claim("a"), claim("b"))
    cluster.place(pod_with("a", name="p1"))
    assert "cannot allocate all claims" in cluster.reason(pod_with("b"))


def test_a_promise_that_is_taken_back_frees_the_devices() -> None:
    cluster = world(GPU, claim("a"), claim("b"))
    decision = cluster.place(pod_with("a", name="p1"))
    cluster.plugin.unreserve(decision.state, decision.pod, "n")
    assert cluster.feasible(pod_with("b")) == {"n"}
    cluster.plugin.unreserve(decision.state, decision.pod, "n")  # again is no harm


def test_a_pod_that_is_given_up_after_writing_leaves_its_claim() -> None:
    cluster = world(GPU, claim())
    decision = cluster.run(pod_with("c"))
    cluster.plugin.unreserve(decision.state, decision.pod, "n")
    assert cluster.claim().status.reserved_for == []
    assert cluster.claim().status.allocation is not None


def test_a_pod_without_claims_reserves_nothing() -> None:
    cluster = world()
    decision = cluster.place(pod())
    assert cluster.plugin.pre_bind_pre_flight(decision.state, decision.pod, "n").code is Code.SKIP
    assert cluster.prepare(decision).ok


def test_a_node_that_was_never_searched_cannot_be_reserved() -> None:
    cluster = world(GPU, claim())
    decision = cluster.schedule(pod_with("c"))
    status = cluster.plugin.reserve(decision.state, decision.pod, "elsewhere")
    assert status == Status.error("claim allocation not found for node")


# -- writing ---------------------------------------------------------------------------------------------------------


def test_devices_reservation_and_finalizer_are_written_before_the_pod_is_bound() -> None:
    cluster = world(GPU, claim())
    decision = cluster.place(pod_with("c"))
    assert cluster.plugin.pre_bind_pre_flight(decision.state, decision.pod, "n").ok
    assert cluster.prepare(decision).ok
    written = cluster.claim()
    assert cluster.devices() == ["r=d0"]
    assert written.metadata.finalizers == [FINALIZER]
    assert [(u.resource, u.name, u.uid) for u in written.status.reserved_for] == [("pods", "p", "uid-default-p")]
    assert written.status.allocation is not None
    assert written.status.allocation.allocation_timestamp == "2026-01-01T00:00:00Z"
    assert not cluster.cluster.claims.is_promised("uid-c")


def test_without_the_gate_for_binding_conditions_no_time_is_written() -> None:
    cluster = world(GPU, claim(), gates={"DRADeviceBindingConditions": False})
    cluster.run(pod_with("c"))
    found = cluster.claim().status.allocation
    assert found is not None and found.allocation_timestamp is None


def meanwhile(cluster: DeviceWorld, **changes: Any) -> Status:
    """Somebody changes the claim between placing a pod and writing."""
    decision = cluster.place(pod_with("c"))
    failures = [APIError(409, "Conflict", "changed")]
    plain = cluster.resource_claims.patch

    async def patch(*args: Any, **kwargs: Any) -> Any:
        if failures:
            cluster.put(msgspec.structs.replace(cluster.claim(), **changes))
            raise failures.pop()
        return await plain(*args, **kwargs)

    cluster.resource_claims.patch = patch  # type: ignore[method-assign]
    return cluster.prepare(decision)


def test_a_change_that_does_not_matter_is_worked_around() -> None:
    cluster = world(GPU, claim())
    assert meanwhile(cluster).ok
    assert cluster.devices() == ["r=d0"]


def test_a_claim_that_got_deleted_meanwhile_fails_the_pod() -> None:
    cluster = world(GPU, claim())
    going = msgspec.structs.replace(claim().metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    status = meanwhile(cluster, metadata=going)
    assert status == Status.error("claim default/c got deleted in the meantime")
    assert not cluster.cluster.claims.is_promised("uid-c")


def test_a_claim_that_got_allocated_meanwhile_fails_the_pod() -> None:
    taken = claim("c", status={"allocation": allocation("other")}).status
    status = meanwhile(world(GPU, claim()), status=taken)
    assert status == Status.error("claim default/c got allocated elsewhere in the meantime")


def test_a_claim_that_lost_its_devices_meanwhile_fails_the_pod() -> None:
    status = meanwhile(world(claim("c", status={"allocation": allocation("d0")})), status=claim().status)
    assert status == Status.error("claim default/c got deallocated elsewhere in the meantime")


@pytest.mark.parametrize(
    ("code", "held", "problem"),
    [
        (403, {}, "add finalizer to claim default/c: no"),
        (403, {"finalizers": [FINALIZER]}, "add allocation and reservation to claim default/c: no"),
        (409, {}, "add finalizer to claim default/c: no"),
    ],
)
def test_a_refusal_of_the_server_fails_the_pod(code: int, held: Mapping[str, Any], problem: str) -> None:
    cluster = world(GPU, claim("c", metadata=held))
    decision = cluster.place(pod_with("c"))

    async def refuse(*_: Any, **__: Any) -> Any:
        raise APIError(code, "", "no")

    cluster.resource_claims.patch = refuse  # type: ignore[method-assign]
    assert cluster.prepare(decision) == Status.error(problem)


# -- binding conditions ----------------------------------------------------------------------------------------------

SLOW = slice_of(device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]), node="n")


def condition(kind: str, *, reason: str = "") -> dict[str, Any]:
    reported = {"type": kind, "status": "True", "reason": reason, "message": "see log"}
    return {"driver": DRIVER, "pool": "n", "device": "d0", "conditions": [reported]}


def reported(cluster: DeviceWorld, *conditions: dict[str, Any]) -> None:
    status = claim("c", status={"devices": list(conditions)}).status.devices
    current = cluster.claim()
    cluster.put(msgspec.structs.replace(current, status=msgspec.structs.replace(current.status, devices=status)))


def after_a_while(cluster: DeviceWorld, *conditions: dict[str, Any]) -> None:
    """The driver reports while the pod waits."""

    async def wait_for(answer: Callable[[], T | None], seconds: float) -> T | None:
        assert answer() is None
        reported(cluster, *conditions)
        return answer()

    cluster.wait_for = wait_for  # type: ignore[method-assign]


def test_a_pod_waits_until_its_devices_are_ready() -> None:
    cluster = world(SLOW, claim())
    after_a_while(cluster, condition("Attached"))
    assert cluster.prepare(cluster.place(pod_with("c"))).ok
    assert cluster.events == [("default/p", "BindingConditionsPending")]


def test_a_device_that_fails_fails_the_pod() -> None:
    cluster = world(SLOW, claim())
    after_a_while(cluster, condition("Broken", reason="Fire"))
    status = cluster.prepare(cluster.place(pod_with("c")))
    assert status == Status.error('device binding failed: claim=c, reason=Fire, message="see log"')


def test_a_device_that_is_never_ready_fails_the_pod() -> None:
    cluster = world(SLOW, claim())
    status = cluster.prepare(cluster.place(pod_with("c")))
    assert status.message.startswith("device binding timeout")


HELD: dict[str, Any] = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}


def test_devices_that_failed_are_taken_back_on_the_next_attempt() -> None:
    held = {"allocation": allocation("d0", at="n", **HELD), "devices": [condition("Broken")]}
    cluster = world(SLOW, claim("c", status=held))
    assert "deallocation of ResourceClaim completed" in cluster.reason(pod_with("c"))


@pytest.mark.parametrize(("since", "available"), [("2025-12-31T23:55:00Z", True), ("2025-12-31T00:00:00Z", False)])
def test_devices_are_waited_for_only_so_long(since: str, available: bool) -> None:
    held = {"allocation": allocation("d0", at="n", when=since, **HELD)}
    cluster = world(SLOW, claim("c", status=held))
    assert (cluster.decide(pod_with("c")).node_name is not None) is available


def test_devices_that_another_pod_waits_for_are_waited_for_no_longer_than_that() -> None:
    held = {"allocation": allocation("d0", at="n", when="2025-12-31T23:55:00Z", **HELD)}
    cluster = world(SLOW, claim("c", status=held))
    patience = []

    async def wait_for(answer: Callable[[], T | None], seconds: float) -> T | None:
        patience.append(seconds)
        return None

    cluster.wait_for = wait_for  # type: ignore[method-assign]
    status = cluster.prepare(cluster.place(pod_with("c")))
    assert status == Status.error("device binding timeout")
    assert patience == [300]


def test_a_claim_whose_devices_are_ready_needs_no_waiting() -> None:
    held = {"allocation": allocation("d0", at="n", **HELD), "devices": [condition("Attached")]}
    cluster = world(SLOW, claim("c", status=held))
    assert cluster.run(pod_with("c")).node_name == "n"


# -- queueing hints --------------------------------------------------------------------------------------------------


def test_any_claim_that_loses_its_devices_may_help() -> None:
    cluster = world(claim())
    info = cluster.info(pod_with("c"))
    held = claim("other", status={"allocation": allocation("d0")})
    assert cluster.plugin._claim_may_help(info, held, claim("other"))


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
    assert cluster.plugin._claim_may_help(cluster.info(pod_with("c")), old, new) is helps


def test_nothing_helps_while_claims_are_missing() -> None:
    cluster = world()
    assert not cluster.plugin._claim_may_help(cluster.info(pod_with("c")), None, claim("c"))


def test_a_pod_is_worth_a_try_when_all_its_claims_are_there() -> None:
    cluster = world()
    info, other = cluster.info(pod_with("c")), cluster.info(pod_with("c", name="other"))
    assert not cluster.plugin._has_its_claims(info, info, info)
    cluster.put(claim())
    assert cluster.plugin._has_its_claims(info, info, info)
    assert not cluster.plugin._has_its_claims(info, other, other)
