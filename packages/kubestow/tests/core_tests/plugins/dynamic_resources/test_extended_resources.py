"""Extended resources backed by devices (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.decisions import post_filter_actions
from core_tests.plugins.dynamic_resources.devices import DeviceHarness
from kubestow.api.core import Node, Pod
from kubestow.api.resource import FINALIZER, DeviceClass, ResourceClaim
from kubestow.cluster.changes.events import EventResource
from kubestow.errors import APIError
from kubestow.framework.status import Status
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import node, pod
from kubestow.testing.devices import allocation, claim, device_class, exactly, pod_with, slice_of

GPU = "example.com/gpu"
CLASS = device_class("gpu", extendedResourceName=GPU)
DEVICES = slice_of("d0", "d1", "d2", node="n")


def harness_with_devices(*objects: Any, **fields: Any) -> DeviceHarness:
    return DeviceHarness(node("n"), CLASS, DEVICES, *objects, **fields)


def requesting(count: int, resource: str = GPU, **fields: Any) -> Pod:
    return pod("p", requests={resource: str(count)}, **fields)


def extended_claim(harness: DeviceHarness) -> ResourceClaim:
    (found,) = harness.cluster.catalog(ResourceClaim)
    return found


@pytest.mark.parametrize("resource", [GPU, "deviceclass.resource.kubernetes.io/gpu"])
def test_devices_back_the_extended_resource_of_their_class(resource: str) -> None:
    harness = harness_with_devices()
    assert harness.run(requesting(2, resource)).node_name == "n"
    assert harness.devices(extended_claim(harness).metadata.name) == [
        "container-0-request-0=d0",
        "container-0-request-0=d1",
    ]


def test_the_claim_is_owned_by_its_pod_and_reported_in_the_pod_status() -> None:
    harness = harness_with_devices()
    harness.run(requesting(1))
    claimed = extended_claim(harness)
    assert claimed.metadata.name.startswith("p-extended-resources-")
    assert claimed.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claimed.metadata.controller is not None and claimed.metadata.controller.uid == "uid-default-p"
    assert claimed.metadata.finalizers == [FINALIZER] and claimed.is_reserved_for("uid-default-p")
    reported = harness.resource_claims.extended["uid-default-p"]
    assert reported.resource_claim_name == claimed.metadata.name
    assert [(m.container_name, m.resource_name, m.request_name) for m in reported.request_mappings] == [
        ("main", GPU, "container-0-request-0")
    ]


def test_copies_of_a_pod_need_devices_as_soon_as_their_resource_has_a_class_and_no_longer() -> None:
    """Without a class the plugin's results are shared by all copies, so they must not outlive that."""
    harness = DeviceHarness(node("n"), DEVICES)
    unmapped = device_class("gpu")
    rejected_by = []
    for current in (unmapped, CLASS, None, CLASS, unmapped):
        if current is None:
            harness.cluster.catalog(DeviceClass).remove("", "gpu")
        else:
            harness.put(current)
        rejected_by.append(harness.rejections(requesting(4))["n"][0])
    fit, devices = "NodeResourcesFit", "DynamicResources"
    assert rejected_by == [fit, devices, fit, devices, fit]


def test_a_request_for_more_devices_than_exist_is_unschedulable() -> None:
    assert "1 cannot allocate all claims. still not schedulable" in harness_with_devices().reason(requesting(4))


def test_a_node_that_offers_the_resource_itself_needs_no_claim() -> None:
    harness = DeviceHarness(node("n", allocatable={GPU: "2"}), CLASS)
    assert harness.run(requesting(2)).node_name == "n"
    assert len(harness.cluster.catalog(ResourceClaim)) == 0


def test_devices_do_not_supplement_a_resource_that_the_node_offers() -> None:
    harness = DeviceHarness(node("n", allocatable={GPU: "1"}), CLASS, DEVICES)
    assert harness.rejections(requesting(2))["n"] == ("NodeResourcesFit", (f"Insufficient {GPU}",))


def test_a_resource_without_a_class_is_left_to_node_resources_fit() -> None:
    assert harness_with_devices().rejections(requesting(1, "example.com/fpga"))["n"][0] == "NodeResourcesFit"


def test_without_node_resources_fit_a_missing_resource_cannot_fit() -> None:
    profile = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}}
    incoming = pod("p", requests={GPU: "1", "example.com/fpga": "1"})
    assert harness_with_devices(profile=profile).rejections(incoming)["n"] == (
        "DynamicResources",
        ("cannot fit resource",),
    )


def test_what_a_node_lists_as_zero_is_offered_and_what_it_does_not_list_is_not() -> None:
    profile = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}}
    lists_none, lists_zero = node("n"), node("z", allocatable={"example.com/fpga": "0"})
    harness = DeviceHarness(lists_none, lists_zero, CLASS, profile=profile)
    assert harness.feasible(pod("p", requests={"example.com/fpga": "1", GPU: "0"})) == {"n", "z"}
    mapped = DeviceHarness(
        lists_none, lists_zero, CLASS, slice_of("d0", node="n"), slice_of("d0", node="z"), profile=profile
    )
    assert mapped.feasible(pod("p", requests={"example.com/fpga": "1", GPU: "1"})) == {"z"}


def test_a_pod_can_have_claims_and_extended_resources() -> None:
    harness = harness_with_devices(claim("own", exactly(2)))
    incoming = pod_with("own", requests={GPU: "1"})
    harness.run(incoming)
    assert harness.devices("own") == ["r=d0", "r=d1"]
    (extended,) = (c for c in harness.cluster.catalog(ResourceClaim) if c.metadata.name != "own")
    assert harness.devices(extended.metadata.name) == ["container-0-request-0=d2"]


@pytest.mark.parametrize("allocated", [False, True])
def test_a_pod_with_a_claim_fails_on_a_node_that_offers_the_resource_itself(allocated: bool) -> None:
    own = claim("own", status={"allocation": allocation("d0")}) if allocated else claim("own")
    harness = DeviceHarness(node("n", allocatable={GPU: "2"}), CLASS, DEVICES, own)
    decision = harness.place(pod_with("own", requests={GPU: "1"}))
    assert harness.prepare(decision) == Status.error(
        "nil or empty request mappings, no update of pod default/p ExtendedResourceClaimStatus"
    )
    (created,) = (c for c in harness.cluster.catalog(ResourceClaim) if c.metadata.name != "own")
    assert created.metadata.name.startswith("p-extended-resources-") and created.spec.devices.requests == []
    assert created.status.allocation is not None and created.is_reserved_for("uid-default-p")
    assert harness.claim("own").is_reserved_for("uid-default-p")
    harness.plugin.unreserve(decision.state, decision.pod, "n")
    assert [c.metadata.name for c in harness.cluster.catalog(ResourceClaim)] == ["own"]
    assert harness.claim("own").status.reserved_for == [] and harness.devices("own") != []


def test_a_stale_extended_resource_claim_is_deleted() -> None:
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    owner = {"kind": "Pod", "name": "p", "uid": "uid-default-p", "controller": True}
    stale = claim("stale", metadata={"annotations": annotations, "ownerReferences": [owner], "finalizers": [FINALIZER]})
    harness = harness_with_devices(stale)
    decision = harness.decide(requesting(1))
    assert "1 cannot schedule extended resource claim. deletion of ResourceClaim completed" in decision.message
    (action,) = post_filter_actions(decision)
    harness.spawn(action())
    assert len(harness.cluster.catalog(ResourceClaim)) == 0
    assert harness.decide(requesting(1)).node_name == "n"


def test_unreserve_deletes_a_created_claim() -> None:
    harness = harness_with_devices()
    decision = harness.run(requesting(3))
    harness.plugin.unreserve(decision.state, decision.pod, "n")
    assert len(harness.cluster.catalog(ResourceClaim)) == 0
    assert harness.decide(requesting(3)).node_name == "n"


def test_unreserve_before_pre_bind_deletes_nothing() -> None:
    harness = harness_with_devices()
    decision = harness.place(requesting(3))
    harness.plugin.unreserve(decision.state, decision.pod, "n")
    assert harness.decide(requesting(3)).node_name == "n"


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("create", "create claim for extended resources default/<extended-resources>: no"),
        ("report_extended", "update pod default/p ExtendedResourceClaimStatus: no"),
    ],
)
def test_an_api_error_fails_pre_bind(method: str, problem: str) -> None:
    harness = harness_with_devices()
    decision = harness.place(requesting(1))

    async def refuse(*_: Any, **__: Any) -> Any:
        raise APIError(403, "Forbidden", "no")

    setattr(harness.resource_claims, method, refuse)
    assert harness.prepare(decision) == Status.error(problem)


def test_without_the_feature_gate_devices_back_no_resource() -> None:
    assert (
        harness_with_devices(gates={"DRAExtendedResource": False}).rejections(requesting(1))["n"][0]
        == "NodeResourcesFit"
    )


# -- device classes ------------------------------------------------------------------------------------------------


def class_created_at(name: str, created: str) -> Any:
    kind = device_class(name, extendedResourceName=GPU)
    return type(kind)(metadata=type(kind.metadata)(name=name, creation_timestamp=created), spec=kind.spec)


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "b"), ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "a")],
)
def test_of_two_classes_of_a_resource_the_newest_counts_then_the_first_by_name(
    first: str, second: str, chosen: str
) -> None:
    harness = DeviceHarness(node("n"), DEVICES, class_created_at("a", first), class_created_at("b", second))
    harness.run(requesting(1))
    request = extended_claim(harness).spec.devices.requests[0]
    assert request.exactly is not None and request.exactly.device_class_name == chosen


# -- requests of containers ----------------------------------------------------------------------------------------


def container(name: str, count: int, **fields: Any) -> Mapping[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": "1m", GPU: str(count)} if count else {}}, **fields}


def requests_of(init: list[Mapping[str, Any]], regular: list[Mapping[str, Any]]) -> dict[str, int]:
    harness = harness_with_devices()
    assert harness.run(pod("p", spec={"initContainers": init, "containers": regular})).node_name == "n"
    requests = extended_claim(harness).spec.devices.requests
    return {request.name: request.exactly.count for request in requests if request.exactly is not None}


def test_each_container_has_its_own_request() -> None:
    assert requests_of([], [container("a", 1), container("b", 2)]) == {
        "container-0-request-1": 1,
        "container-1-request-1": 2,
    }


def test_init_containers_use_the_requests_of_later_containers() -> None:
    assert requests_of([container("i", 1)], [container("a", 2)]) == {"container-1-request-1": 2}


def test_an_init_container_requests_only_the_missing_devices() -> None:
    assert requests_of([container("i", 3)], [container("a", 2)]) == {
        "container-0-request-1": 1,
        "container-1-request-1": 2,
    }


def test_the_largest_request_of_the_init_containers_is_kept() -> None:
    init = [container("i", 2), container("j", 3), container("k", 1)]
    assert requests_of(init, [container("a", 0)]) == {"container-1-request-1": 3}


def test_of_equally_large_requests_of_init_containers_the_first_is_kept() -> None:
    init = [container("i", 2), container("j", 2)]
    assert requests_of(init, [container("a", 0)]) == {"container-0-request-1": 2}


def test_before_resources_are_shared_by_containers_they_follow_the_classes_too() -> None:
    minor = Minor(Behaviour.EXTENDED_RESOURCES_ARE_SHARED_BY_CONTAINERS.value.since - 1)
    gates = {"DynamicResourceAllocation": True, "DRAExtendedResource": True}
    harness = DeviceHarness(node("n"), CLASS, DEVICES, minor=minor, gates=gates)
    assert harness.decide(requesting(2)).node_name == "n"
    assert harness.decide(requesting(4)).node_name is None
    harness.put(device_class("gpu"))
    assert harness.decide(requesting(2)).node_name is None
    harness.put(CLASS)
    assert harness.run(requesting(2)).node_name == "n"


def test_sidecars_have_their_own_requests() -> None:
    sidecar = container("side", 1, restartPolicy="Always")
    assert requests_of([sidecar, container("i", 2)], [container("a", 1)]) == {
        "container-0-request-1": 1,
        "container-1-request-1": 1,
        "container-2-request-1": 1,
    }


# -- resource scoring ----------------------------------------------------------------------------------------------

SCORED = {"resources": [{"name": GPU, "weight": 1}]}
BY_GPU = {
    "pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated", **SCORED}}},
        {"name": "NodeResourcesBalancedAllocation", "args": SCORED},
    ]
}


def with_two_nodes(*objects: Any) -> DeviceHarness:
    slices = slice_of("d0", "d1", node="a"), slice_of("d0", "d1", "d2", "d3", node="b")
    return DeviceHarness(node("a"), node("b"), CLASS, *slices, *objects, profile=BY_GPU)


def test_devices_are_scored_like_other_resources() -> None:
    assert with_two_nodes().scores(requesting(1), "NodeResourcesFit") == {"a": 50, "b": 25}


def test_allocated_devices_count_as_used() -> None:
    harness = with_two_nodes(claim("c", exactly(2)))
    harness.run(pod_with("c", name="first", node_selector={"kubernetes.io/hostname": "b"}))
    assert harness.scores(requesting(1), "NodeResourcesFit") == {"a": 50, "b": 75}


def test_devices_that_several_nodes_can_access_count_on_each_node() -> None:
    per_device = slice_of({"name": "x", "nodeName": "a"}, "y", perDeviceNodeSelection=True, pool="shared")
    everywhere = slice_of("z", pool="all")
    assert with_two_nodes(per_device, everywhere).scores(requesting(1), "NodeResourcesFit") == {"a": 25, "b": 20}


def test_a_class_whose_selector_fails_has_no_devices() -> None:
    invalid = device_class("gpu", "device.nonsense", extendedResourceName=GPU)
    harness = DeviceHarness(node("a", allocatable={GPU: "2"}), node("b", allocatable={GPU: "4"}), invalid, DEVICES)
    assert harness.scores(requesting(1), "NodeResourcesFit").keys() == {"a", "b"}
    other = with_two_nodes(invalid)
    assert "CEL compile error" in other.decide(requesting(1)).message


def test_balanced_allocation_counts_devices() -> None:
    assert with_two_nodes().scores(requesting(1), "NodeResourcesBalancedAllocation") == {"a": 75, "b": 75}


def test_each_node_lacks_what_it_does_not_offer_itself() -> None:
    harness = DeviceHarness(node("own", allocatable={GPU: "1"}), node("bare"), CLASS)
    assert harness.feasible(pod("p", requests={"cpu": "1", GPU: "1"})) == {"own"}


# -- queueing hints ------------------------------------------------------------------------------------------------


def fit(harness: DeviceHarness) -> NodeResourcesFit:
    (found,) = (p for p in harness.profiles["default-scheduler"].plugins if isinstance(p, NodeResourcesFit))
    return found


def test_a_class_that_starts_to_map_a_resource_requeues() -> None:
    (hint,) = (
        i.hint for i in fit(harness_with_devices()).events_to_register if i.event.resource is EventResource.DEVICE_CLASS
    )
    assert hint is not None
    info, plain = harness_with_devices().info(requesting(1)), device_class("gpu")
    assert hint(info, None, CLASS)
    assert hint(info, plain, CLASS)
    assert not hint(info, CLASS, CLASS)
    assert not hint(harness_with_devices().info(pod("other", cpu="1")), plain, CLASS)
    assert not hint(info, None, plain)
    assert hint(harness_with_devices().info(requesting(1, "deviceclass.resource.kubernetes.io/gpu")), None, plain)


def test_a_node_without_the_resource_requeues_if_devices_back_it() -> None:
    harness = harness_with_devices()
    plugin, info = fit(harness), harness.info(requesting(1))
    assert plugin._is_schedulable_after_node_change(info, node("n"), node("n"))
    assert not plugin._is_schedulable_after_node_change(info, node("n"), node("n", allocatable={GPU: "0"}, max_pods=0))
    assert not fit(DeviceHarness(node("n")))._is_schedulable_after_node_change(info, None, node("n"))


OTHER, UNBACKED = "example.com/other", "example.com/unbacked"
#: What a node offers of a resource itself: nothing, none, or one.
OFFERED = st.sampled_from((None, "0", "1"))


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """Nodes that offer some resources themselves, and devices in a few different numbers."""
    made: list[Any] = [CLASS, device_class("other", extendedResourceName=OTHER)]
    for number in range(draw(st.integers(1, 6))):
        name = f"n{number}"
        offered = {resource: draw(OFFERED) for resource in (GPU, OTHER, UNBACKED)}
        made.append(node(name, allocatable={key: value for key, value in offered.items() if value is not None}))
        devices = [f"d{device}" for device in range(draw(st.integers(0, 2)))]
        made.append(slice_of(*devices, node=name, of=draw(st.sampled_from((1, 1, 1, 2)))))
    return made


@settings(max_examples=60, deadline=None)
@given(
    cluster=clusters(),
    requests=st.dictionaries(st.sampled_from((GPU, OTHER, UNBACKED)), st.sampled_from(("1", "2")), min_size=1),
    has_claim=st.booleans(),
)
def test_nodes_that_share_a_search_get_the_verdict_that_each_gets_alone(
    cluster: list[Any], requests: dict[str, str], has_claim: bool
) -> None:
    claims = [claim("own", exactly())] if has_claim else []
    incoming = pod_with("own", requests=requests) if has_claim else pod("p", requests=requests)
    without_fit = {"plugins": {"filter": {"disabled": [{"name": "NodeResourcesFit"}]}}}
    together = DeviceHarness(*cluster, *claims, profile=without_fit).rejections(incoming)
    alone: dict[str, tuple[str, tuple[str, ...]]] = {}
    for each in cluster:
        others = [one for one in cluster if not isinstance(one, Node) or one is each]
        if isinstance(each, Node):
            alone |= DeviceHarness(*others, *claims, profile=without_fit).rejections(incoming)
    assert alone == together
