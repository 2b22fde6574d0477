"""Allocation results: devices, configuration, node selector (semantics 8.16)."""

from __future__ import annotations

from typing import Any

import msgspec

from core_tests.plugins.dynamic_resources.devices import DeviceHarness
from kubestow.api.meta import decode
from kubestow.api.resource import AllocationResult, ResourceClaim
from kubestow.testing import node
from kubestow.testing.devices import DRIVER, claim, device, device_class, exactly, pod_with, slice_of, subrequests

NODE = node("n", labels={"side": "north", "floor": "1"})


def allocation_of(*objects: Any) -> AllocationResult:
    harness = DeviceHarness(NODE, *objects)
    harness.run(pod_with("c"))
    allocation = harness.claim().status.allocation
    assert allocation is not None
    return allocation


def selector(**labels: str) -> dict[str, Any]:
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"nodeSelectorTerms": [{"matchExpressions": requirements}]}


def test_a_node_local_device_restricts_the_claim_to_its_node() -> None:
    found = allocation_of(slice_of("d0", node="n"), claim())
    assert msgspec.to_builtins(found.node_selector) == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    }


def test_devices_for_all_nodes_give_no_node_selector() -> None:
    assert allocation_of(slice_of("d0"), claim()).node_selector is None


def test_a_device_with_binds_to_node_restricts_the_claim_to_its_node() -> None:
    found = allocation_of(slice_of(device("d0", bindsToNode=True)), claim())
    assert found.node_selector is not None
    assert found.node_selector.node_selector_terms[0].match_fields[0].values == ["n"]


def test_the_node_selectors_of_several_devices_are_merged() -> None:
    slices = [
        slice_of("d0", pool="p0", nodeSelector=selector(side="north")),
        slice_of("d1", pool="p1", nodeSelector=selector(side="north", floor="1")),
    ]
    found = allocation_of(*slices, claim("c", exactly(2)))
    assert msgspec.to_builtins(found.node_selector) == selector(side="north", floor="1")


def test_the_node_selector_of_a_device_is_used_with_per_device_node_selection() -> None:
    found = allocation_of(
        slice_of(device("d0", nodeSelector=selector(side="north")), perDeviceNodeSelection=True), claim()
    )
    assert msgspec.to_builtins(found.node_selector) == selector(side="north")


def test_a_node_selector_with_several_terms_is_an_error() -> None:
    several = {"nodeSelectorTerms": selector(side="north")["nodeSelectorTerms"] * 2}
    harness = DeviceHarness(NODE, slice_of("d0", nodeSelector=several), claim())
    decision = harness.schedule(pod_with("c"))
    status = harness.plugin.reserve(decision.state, decision.pod, "n")
    assert status is not None
    assert status.message == ("create NodeSelector for claim c: unsupported ResourceSlice.NodeSelector with 2 terms")


def test_a_result_has_admin_access_tolerations_and_conditions() -> None:
    tolerations = [{"key": "sick", "operator": "Exists"}]
    with_conditions = device("d0", bindingConditions=["Ready"], bindingFailureConditions=["Broken"], bindsToNode=True)
    request = exactly(tolerations=tolerations, adminAccess=True)
    harness = DeviceHarness(NODE, slice_of(with_conditions), claim("c", request))
    harness.place(pod_with("c"))
    (pending,) = (each.claim for each in harness.cluster.resource_claims._pending.values())
    assert pending.status.allocation is not None
    assert msgspec.to_builtins(pending.status.allocation.devices.results) == [
        {
            "request": "r",
            "driver": DRIVER,
            "pool": "pool",
            "device": "d0",
            "adminAccess": True,
            "tolerations": tolerations,
            "bindingConditions": ["Ready"],
            "bindingFailureConditions": ["Broken"],
        }
    ]


def config(name: str, *requests: str) -> dict[str, Any]:
    return {"opaque": {"driver": DRIVER, "parameters": {"name": name}}, "requests": list(requests)}


def config_of(found: AllocationResult) -> list[tuple[str, list[str], Any]]:
    return [(c.source, c.requests, (c.opaque or {})["parameters"]["name"]) for c in found.devices.config]


def test_parameters_that_are_not_read_as_a_whole_are_not_passed_on() -> None:
    deep = b"[" * 900 + b"]" * 900
    text = msgspec.json.encode(claim("c", config=[config("deep")])).replace(b'"deep"', deep)
    harness = DeviceHarness(NODE, slice_of("d0"), decode(ResourceClaim, text))
    decision = harness.schedule(pod_with("c"))
    status = harness.plugin.reserve(decision.state, decision.pod, "n")
    assert status is not None
    assert status.message == (
        "create configuration for claim c: opaque parameters of more than 200 levels are not supported"
    )


def test_the_configuration_of_a_class_is_added_once_for_all_its_requests() -> None:
    with_config = device_class("gpu", config=[config("class")])
    without_config = device_class("other")
    requests = exactly(name="x"), exactly(name="y"), exactly(name="z", of="other")
    found = allocation_of(with_config, without_config, slice_of("d0", "d1", "d2", node="n"), claim("c", *requests))
    assert config_of(found) == [("FromClass", ["x", "y"], "class")]


def test_configuration_for_all_requests_names_no_request() -> None:
    with_config = device_class("gpu", config=[config("class")])
    requests = exactly(name="x"), exactly(name="y")
    of_claim = [config("all"), config("both", "x", "y")]
    found = allocation_of(with_config, slice_of("d0", "d1", node="n"), claim("c", *requests, config=of_claim))
    assert config_of(found)[:2] == [("FromClass", [], "class"), ("FromClaim", [], "all")]
    assert set(map(str, config_of(found)[2:])) == {"('FromClaim', [], 'both')"}


def test_configuration_for_a_subrequest_is_added_if_it_is_chosen() -> None:
    of_claim = [config("first", "x/a0"), config("second", "x/a1"), config("any", "x")]
    requests = subrequests(5, 1, name="x"), exactly(name="y")
    found = allocation_of(slice_of("d0", "d1", node="n"), claim("c", *requests, config=of_claim))
    assert config_of(found) == [("FromClaim", ["x/a1"], "second"), ("FromClaim", ["x"], "any")]
