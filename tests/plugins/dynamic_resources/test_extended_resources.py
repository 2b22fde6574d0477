"""Extended resources that devices stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.api.resource import FINALIZER, ResourceClaim
from kubestow.cluster.events import EventResource
from kubestow.errors import APIError
from kubestow.framework.status import Status
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow.testing import node, pod
from tests.decisions import post_filter_actions
from tests.plugins.dynamic_resources.devices import DeviceWorld, claim, device_class, exactly, pod_with, slice_of

GPU = "example.com/gpu"
CLASS = device_class("gpu", extendedResourceName=GPU)
DEVICES = slice_of("d0", "d1", "d2", node="n")


def world(*objects: Any, **fields: Any) -> DeviceWorld:
    return DeviceWorld(node("n"), CLASS, DEVICES, *objects, **fields)


def wanting(count: int, resource: str = GPU, **fields: Any) -> Pod:
    return pod("p", requests={resource: str(count)}, **fields)


def made(cluster: DeviceWorld) -> ResourceClaim:
    (found,) = cluster.cluster.catalog(ResourceClaim)
    return found


@pytest.mark.parametrize("resource", [GPU, "deviceclass.resource.kubernetes.io/gpu"])
def test_devices_stand_for_the_resource_of_their_class(resource: str) -> None:
    cluster = world()
    assert cluster.run(wanting(2, resource)).node_name == "n"
    assert cluster.devices(made(cluster).metadata.name) == ["container-0-request-0=d0", "container-0-request-0=d1"]


def test_the_claim_belongs_to_its_pod_and_is_reported_in_it() -> None:
    cluster = world()
    cluster.run(wanting(1))
    claimed = made(cluster)
    assert claimed.metadata.name.startswith("p-extended-resources-")
    assert claimed.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claimed.metadata.controller is not None and claimed.metadata.controller.uid == "uid-default-p"
    assert claimed.metadata.finalizers == [FINALIZER] and claimed.is_reserved_for("uid-default-p")
    reported = cluster.resource_claims.extended["uid-default-p"]
    assert reported.resource_claim_name == claimed.metadata.name
    assert [(m.container_name, m.resource_name, m.request_name) for m in reported.request_mappings] == [
        ("main", GPU, "container-0-request-0")
    ]


def test_more_devices_than_there_are_cannot_be_had() -> None:
    assert "1 cannot allocate all claims. still not schedulable" in world().reason(wanting(4))


def test_a_node_that_offers_the_resource_itself_needs_no_claim() -> None:
    cluster = DeviceWorld(node("n", allocatable={GPU: "2"}), CLASS)
    assert cluster.run(wanting(2)).node_name == "n"
    assert len(cluster.cluster.catalog(ResourceClaim)) == 0


def test_a_node_that_offers_too_little_itself_is_not_helped_out() -> None:
    cluster = DeviceWorld(node("n", allocatable={GPU: "1"}), CLASS, DEVICES)
    assert cluster.refusals(wanting(2))["n"] == ("NodeResourcesFit", (f"Insufficient {GPU}",))


def test_a_resource_that_no_class_stands_for_is_not_had() -> None:
    assert world().refusals(wanting(1, "example.com/fpga"))["n"][0] == "NodeResourcesFit"


def test_where_nobody_else_checks_a_resource_that_is_nowhere_cannot_fit() -> None:
    profile = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}}
    both = pod("p", requests={GPU: "1", "example.com/fpga": "1"})
    assert world(profile=profile).refusals(both)["n"] == ("DynamicResources", ("cannot fit resource",))


def test_claims_and_extended_resources_go_together() -> None:
    cluster = world(claim("own", exactly(2)))
    both = pod_with("own", requests={GPU: "1"})
    cluster.run(both)
    assert cluster.devices("own") == ["r=d0", "r=d1"]
    (extended,) = (c for c in cluster.cluster.catalog(ResourceClaim) if c.metadata.name != "own")
    assert cluster.devices(extended.metadata.name) == ["container-0-request-0=d2"]


def test_claims_on_a_node_that_offers_the_resource_itself_are_allocated_alone() -> None:
    cluster = DeviceWorld(node("n", allocatable={GPU: "2"}), CLASS, DEVICES, claim("own"))
    assert cluster.run(pod_with("own", requests={GPU: "1"})).node_name == "n"
    assert made(cluster).metadata.name == "own"


def test_a_claim_left_over_from_an_earlier_attempt_is_deleted() -> None:
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    owner = {"kind": "Pod", "name": "p", "uid": "uid-default-p", "controller": True}
    stale = claim("stale", metadata={"annotations": annotations, "ownerReferences": [owner], "finalizers": [FINALIZER]})
    cluster = world(stale)
    decision = cluster.decide(wanting(1))
    assert "1 cannot schedule extended resource claim. deletion of ResourceClaim completed" in decision.message
    (action,) = post_filter_actions(decision)
    cluster.spawn(action())
    assert len(cluster.cluster.catalog(ResourceClaim)) == 0
    assert cluster.decide(wanting(1)).node_name == "n"


def test_a_claim_that_was_created_is_deleted_when_the_pod_is_given_up() -> None:
    cluster = world()
    decision = cluster.run(wanting(3))
    cluster.plugin.unreserve(decision.state, decision.pod, "n")
    assert len(cluster.cluster.catalog(ResourceClaim)) == 0
    assert cluster.decide(wanting(3)).node_name == "n"


def test_before_it_is_created_there_is_nothing_to_delete() -> None:
    cluster = world()
    decision = cluster.place(wanting(3))
    cluster.plugin.unreserve(decision.state, decision.pod, "n")
    assert cluster.decide(wanting(3)).node_name == "n"


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("create", "create claim for extended resources default/<extended-resources>: no"),
        ("report_extended", "update pod default/p ExtendedResourceClaimStatus: no"),
    ],
)
def test_a_refusal_of_the_server_fails_the_pod(method: str, problem: str) -> None:
    cluster = world()
    decision = cluster.place(wanting(1))

    async def refuse(*_: Any, **__: Any) -> Any:
        raise APIError(403, "Forbidden", "no")

    setattr(cluster.resource_claims, method, refuse)
    assert cluster.prepare(decision) == Status.error(problem)


def test_without_the_gate_devices_stand_for_nothing() -> None:
    assert world(gates={"DRAExtendedResource": False}).refusals(wanting(1))["n"][0] == "NodeResourcesFit"


# -- which class -----------------------------------------------------------------------------------------------------


def named(name: str, created: str) -> Any:
    kind = device_class(name, extendedResourceName=GPU)
    return type(kind)(metadata=type(kind.metadata)(name=name, creation_timestamp=created), spec=kind.spec)


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "b"), ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "a")],
)
def test_of_two_classes_the_newest_stands_for_the_resource_then_the_first(first: str, second: str, chosen: str) -> None:
    cluster = DeviceWorld(node("n"), DEVICES, named("a", first), named("b", second))
    cluster.run(wanting(1))
    request = made(cluster).spec.devices.requests[0]
    assert request.exactly is not None and request.exactly.device_class_name == chosen


# -- containers ------------------------------------------------------------------------------------------------------


def container(name: str, count: int, **fields: Any) -> Mapping[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": "1m", GPU: str(count)} if count else {}}, **fields}


def requests_of(init: list[Mapping[str, Any]], regular: list[Mapping[str, Any]]) -> dict[str, int]:
    cluster = world()
    assert cluster.run(pod("p", spec={"initContainers": init, "containers": regular})).node_name == "n"
    requests = made(cluster).spec.devices.requests
    return {request.name: request.exactly.count for request in requests if request.exactly is not None}


def test_every_container_has_a_request_of_its_own() -> None:
    assert requests_of([], [container("a", 1), container("b", 2)]) == {
        "container-0-request-1": 1,
        "container-1-request-1": 2,
    }


def test_init_containers_use_what_containers_after_them_have() -> None:
    assert requests_of([container("i", 1)], [container("a", 2)]) == {"container-1-request-1": 2}


def test_an_init_container_asks_only_for_what_is_missing() -> None:
    assert requests_of([container("i", 3)], [container("a", 2)]) == {
        "container-0-request-1": 1,
        "container-1-request-1": 2,
    }


def test_of_several_init_containers_the_largest_decides() -> None:
    init = [container("i", 2), container("j", 3), container("k", 1)]
    assert requests_of(init, [container("a", 0)]) == {"container-1-request-1": 3}


def test_sidecars_keep_their_devices() -> None:
    sidecar = container("side", 1, restartPolicy="Always")
    assert requests_of([sidecar, container("i", 2)], [container("a", 1)]) == {
        "container-0-request-1": 1,
        "container-1-request-1": 1,
        "container-2-request-1": 1,
    }


# -- resource scoring ------------------------------------------------------------------------------------------------

SCORED = {"resources": [{"name": GPU, "weight": 1}]}
BY_GPU = {
    "pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated", **SCORED}}},
        {"name": "NodeResourcesBalancedAllocation", "args": SCORED},
    ]
}


def two_nodes(*objects: Any) -> DeviceWorld:
    slices = slice_of("d0", "d1", node="a"), slice_of("d0", "d1", "d2", "d3", node="b")
    return DeviceWorld(node("a"), node("b"), CLASS, *slices, *objects, profile=BY_GPU)


def test_devices_are_scored_like_any_resource() -> None:
    assert two_nodes().scores(wanting(1), "NodeResourcesFit") == {"a": 50, "b": 25}


def test_devices_that_are_taken_count_as_used() -> None:
    cluster = two_nodes(claim("c", exactly(2)))
    cluster.run(pod_with("c", name="first", node_selector={"kubernetes.io/hostname": "b"}))
    assert cluster.scores(wanting(1), "NodeResourcesFit") == {"a": 50, "b": 75}


def test_devices_on_offer_to_several_nodes_count_on_each() -> None:
    per_device = slice_of({"name": "x", "nodeName": "a"}, "y", perDeviceNodeSelection=True, pool="shared")
    everywhere = slice_of("z", pool="all")
    assert two_nodes(per_device, everywhere).scores(wanting(1), "NodeResourcesFit") == {"a": 25, "b": 20}


def test_a_class_whose_selector_fails_has_no_devices() -> None:
    broken = device_class("gpu", "device.nonsense", extendedResourceName=GPU)
    cluster = DeviceWorld(node("a", allocatable={GPU: "2"}), node("b", allocatable={GPU: "4"}), broken, DEVICES)
    assert cluster.scores(wanting(1), "NodeResourcesFit").keys() == {"a", "b"}
    other = two_nodes(broken)
    assert "CEL compile error" in other.decide(wanting(1)).message


def test_balance_counts_devices_too() -> None:
    assert two_nodes().scores(wanting(1), "NodeResourcesBalancedAllocation") == {"a": 75, "b": 75}


# -- queueing hints --------------------------------------------------------------------------------------------------


def fit(cluster: DeviceWorld) -> NodeResourcesFit:
    (found,) = (p for p in cluster.profiles["default-scheduler"].plugins if isinstance(p, NodeResourcesFit))
    return found


def test_a_class_that_newly_stands_for_a_resource_may_help() -> None:
    (hint,) = (i.hint for i in fit(world()).events_to_register if i.event.resource is EventResource.DEVICE_CLASS)
    assert hint is not None
    info, plain = world().info(wanting(1)), device_class("gpu")
    assert hint(info, None, CLASS)
    assert hint(info, plain, CLASS)
    assert not hint(info, CLASS, CLASS)
    assert not hint(info, None, plain)
    assert hint(world().info(wanting(1, "deviceclass.resource.kubernetes.io/gpu")), None, plain)


def test_a_node_without_the_resource_may_help_when_devices_stand_for_it() -> None:
    cluster = world()
    plugin, info = fit(cluster), cluster.info(wanting(1))
    assert plugin._is_schedulable_after_node_change(info, node("n"), node("n"))
    assert not plugin._is_schedulable_after_node_change(info, node("n"), node("n", allocatable={GPU: "0"}, max_pods=0))
    assert not fit(DeviceWorld(node("n")))._is_schedulable_after_node_change(info, None, node("n"))
