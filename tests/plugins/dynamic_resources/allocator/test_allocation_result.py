"""What is written into a claim: devices, their nodes, configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.api.resource import AllocationResult
from kubestow.testing import node
from tests.plugins.dynamic_resources.devices import (
    DRIVER,
    DeviceWorld,
    alternatives,
    claim,
    device,
    device_class,
    exactly,
    pod_with,
    slice_of,
)

NODE = node("n", labels={"side": "north", "floor": "1"})


def allocated(*objects: Any) -> AllocationResult:
    cluster = DeviceWorld(NODE, *objects)
    cluster.run(pod_with("c"))
    allocation = cluster.claim().status.allocation
    assert allocation is not None
    return allocation


def selector(**labels: str) -> dict[str, Any]:
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"nodeSelectorTerms": [{"matchExpressions": requirements}]}


def test_devices_of_a_node_tie_the_claim_to_it() -> None:
    found = allocated(slice_of("d0", node="n"), claim())
    assert msgspec.to_builtins(found.node_selector) == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    }


def test_devices_of_all_nodes_tie_the_claim_to_none() -> None:
    assert allocated(slice_of("d0"), claim()).node_selector is None


def test_a_device_that_binds_to_its_node_ties_the_claim_to_it() -> None:
    found = allocated(slice_of(device("d0", bindsToNode=True)), claim())
    assert found.node_selector is not None
    assert found.node_selector.node_selector_terms[0].match_fields[0].values == ["n"]


def test_selectors_of_several_devices_are_merged() -> None:
    slices = [
        slice_of("d0", pool="p0", nodeSelector=selector(side="north")),
        slice_of("d1", pool="p1", nodeSelector=selector(side="north", floor="1")),
    ]
    found = allocated(*slices, claim("c", exactly(2)))
    assert msgspec.to_builtins(found.node_selector) == selector(side="north", floor="1")


def test_a_device_with_a_selector_of_its_own_brings_that() -> None:
    found = allocated(slice_of(device("d0", nodeSelector=selector(side="north")), perDeviceNodeSelection=True), claim())
    assert msgspec.to_builtins(found.node_selector) == selector(side="north")


def test_a_selector_with_several_terms_cannot_be_kept() -> None:
    several = {"nodeSelectorTerms": selector(side="north")["nodeSelectorTerms"] * 2}
    cluster = DeviceWorld(NODE, slice_of("d0", nodeSelector=several), claim())
    decision = cluster.schedule(pod_with("c"))
    status = cluster.plugin.reserve(decision.state, decision.pod, "n")
    assert status is not None
    assert status.message == ("create NodeSelector for claim c: unsupported ResourceSlice.NodeSelector with 2 terms")


def test_a_result_tells_how_its_device_was_had() -> None:
    tolerations = [{"key": "sick", "operator": "Exists"}]
    slow = device("d0", bindingConditions=["Ready"], bindingFailureConditions=["Broken"], bindsToNode=True)
    request = exactly(tolerations=tolerations, adminAccess=True)
    cluster = DeviceWorld(NODE, slice_of(slow), claim("c", request))
    cluster.place(pod_with("c"))
    (promised,) = cluster.cluster.claims._promised.values()
    assert promised.status.allocation is not None
    assert msgspec.to_builtins(promised.status.allocation.devices.results) == [
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


def configured(name: str, *requests: str) -> dict[str, Any]:
    return {"opaque": {"driver": DRIVER, "parameters": {"name": name}}, "requests": list(requests)}


def config_of(found: AllocationResult) -> list[tuple[str, list[str], Any]]:
    return [(c.source, c.requests, (c.opaque or {})["parameters"]["name"]) for c in found.devices.config]


def test_a_class_brings_its_configuration_once() -> None:
    kind = device_class("gpu", config=[configured("class")])
    other = device_class("other")
    requests = exactly(name="x"), exactly(name="y"), exactly(name="z", of="other")
    found = allocated(kind, other, slice_of("d0", "d1", "d2", node="n"), claim("c", *requests))
    assert config_of(found) == [("FromClass", ["x", "y"], "class")]


def test_configuration_for_all_requests_names_none() -> None:
    kind = device_class("gpu", config=[configured("class")])
    requests = exactly(name="x"), exactly(name="y")
    own = [configured("all"), configured("both", "x", "y")]
    found = allocated(kind, slice_of("d0", "d1", node="n"), claim("c", *requests, config=own))
    assert config_of(found)[:2] == [("FromClass", [], "class"), ("FromClaim", [], "all")]
    assert set(map(str, config_of(found)[2:])) == {"('FromClaim', [], 'both')"}


def test_configuration_for_an_alternative_comes_with_it() -> None:
    own = [configured("first", "x/a0"), configured("second", "x/a1"), configured("any", "x")]
    requests = alternatives(5, 1, name="x"), exactly(name="y")
    found = allocated(slice_of("d0", "d1", node="n"), claim("c", *requests, config=own))
    assert config_of(found) == [("FromClaim", ["x/a1"], "second"), ("FromClaim", ["x"], "any")]
