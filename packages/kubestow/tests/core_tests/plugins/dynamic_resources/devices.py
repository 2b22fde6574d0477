"""Builders of devices and claims, and a simulated scheduler with devices in its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResourcesWithoutScore
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import PluginHarness, node, pod

DRIVER = "gpu.example.com"

Object = Mapping[str, Any]
DeviceObject = ResourceSlice | DeviceClass | DeviceTaintRule | ResourceClaim
T = TypeVar("T")


def device(name: str, *, memory: str | None = None, taints: Sequence[Object] = (), **fields: Any) -> Object:
    """A device; ``attributes={"model": "a100"}`` become attributes of the corresponding types."""
    attributes = {
        key: {{bool: "bool", int: "int", str: "string"}[type(value)]: value}
        for key, value in fields.pop("attributes", {}).items()
    }
    capacity = fields.pop("capacity", {"memory": {"value": memory}} if memory else {})
    return {"name": name, "attributes": attributes, "capacity": capacity, "taints": list(taints), **fields}


def slice_of(
    *devices: Object | str,
    node: str = "",
    pool: str = "",
    name: str = "",
    generation: int = 1,
    of: int = 1,
    **spec: Any,
) -> ResourceSlice:
    """A slice for one node, or with the node selection in ``spec``; ``of`` is the slice count of its pool."""
    pool = pool or node or "pool"
    if node:
        spec["nodeName"] = node
    elif not spec.keys() & {"nodeSelector", "perDeviceNodeSelection", "allNodes"}:
        spec["allNodes"] = True
    spec_fields = {
        "driver": spec.pop("driver", DRIVER),
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
        "devices": [device(d) if isinstance(d, str) else d for d in devices],
        **spec,
    }
    return convert(ResourceSlice, {"metadata": {"name": name or f"{pool}-slice"}, "spec": spec_fields})


def device_class(name: str = "gpu", *selectors: str, **spec: Any) -> DeviceClass:
    """A device class with CEL selectors."""
    spec_fields = {"selectors": [{"cel": {"expression": selector}} for selector in selectors], **spec}
    return convert(DeviceClass, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec_fields})


def exactly(count: int = 1, *selectors: str, name: str = "r", **fields: Any) -> Object:
    """A request for a number of devices; 0 is allocation mode All."""
    return {"name": name, "exactly": _selection(count, selectors, fields)}


def subrequests(*counts: int, name: str = "r", **fields: Any) -> Object:
    """A request with subrequests a0, a1, ... for these numbers of devices."""
    return {
        "name": name,
        "firstAvailable": [
            {"name": f"a{number}", **_selection(count, (), dict(fields))} for number, count in enumerate(counts)
        ],
    }


def _selection(count: int, selectors: Iterable[str], fields: dict[str, Any]) -> dict[str, Any]:
    mode = {"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"}
    conditions = [{"cel": {"expression": selector}} for selector in selectors]
    return {"deviceClassName": fields.pop("of", "gpu"), "selectors": conditions, **mode, **fields}


def taint_rule(name: str = "rule", *, effect: str = "NoSchedule", **selector: Any) -> DeviceTaintRule:
    """A rule that taints the devices of a selector, ``driver``, ``pool`` and ``device``, with its name as key."""
    spec = {"deviceSelector": selector, "taint": {"key": name, "effect": effect}}
    return convert(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})


def claim(name: str = "c", *requests: Object, constraints: Sequence[Object] = (), **fields: Any) -> ResourceClaim:
    """A claim, for one device by default. ``config`` is part of ``spec.devices``, other fields of the claim."""
    devices = {
        "requests": list(requests) or [exactly()],
        "constraints": list(constraints),
        "config": fields.pop("config", []),
    }
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", **fields.pop("metadata", {})}
    return convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": devices}, **fields})


def allocation(*devices: str, at: str | None = None, when: str | None = None, **result: Any) -> dict[str, Any]:
    """``status.allocation`` of a claim, available on one node or on all nodes."""
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": d, **result} for d in devices]
    found: dict[str, Any] = {"devices": {"results": results}, "allocationTimestamp": when}
    if at is not None:
        fields = [{"key": "metadata.name", "operator": "In", "values": [at]}]
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return found


def reserved_for(*uids: str) -> list[dict[str, str]]:
    """``status.reservedFor`` of a claim."""
    return [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]


def pod_with(*claims: str, name: str = "p", **fields: Any) -> Pod:
    """A pod that names claims."""
    named = [{"name": f"claim-{number}", "resourceClaimName": of} for number, of in enumerate(claims)]
    return pod(name, spec={"resourceClaims": named, **fields.pop("spec", {})}, **fields)


class DeviceHarness(PluginHarness):
    """A simulated scheduler with devices, claims and the class ``gpu``, which selects all devices."""

    def __init__(self, *objects: DeviceObject | Node, **fields: Any) -> None:
        nodes = [obj for obj in objects if isinstance(obj, Node)]
        super().__init__(nodes, **fields)
        self.put(device_class(), *(obj for obj in objects if not isinstance(obj, Node)))

    def put(self, *objects: DeviceObject | Node) -> None:
        """Add or update objects."""
        for obj in objects:
            self.cluster.catalog(type(obj)).put(obj)

    @property
    def plugin(self) -> DynamicResourcesWithoutScore:
        """The DynamicResources plugin of the default profile."""
        plugins = self.profiles["default-scheduler"].plugins
        (found,) = (plugin for plugin in plugins if isinstance(plugin, DynamicResourcesWithoutScore))
        return found

    def claim(self, name: str = "c") -> ResourceClaim:
        """A claim in the ledger."""
        found = self.cluster.resource_claims.get("default", name)
        assert found is not None
        return found

    def devices(self, name: str = "c") -> list[str]:
        """The allocated devices of a claim, as request=device."""
        allocation = self.claim(name).status.allocation
        return [] if allocation is None else [f"{r.request}={r.device}" for r in allocation.devices.results]

    def place(self, incoming: Pod) -> Decision:
        """Schedule a pod; if a node is found, run Reserve."""
        decision = self.schedule(incoming)
        if decision.node_name is not None:
            assert self.plugin.reserve(decision.state, decision.pod, decision.node_name) is None
        return decision

    def prepare(self, decision: Decision) -> Status:
        """Run PreBind."""
        assert decision.node_name is not None
        work = self.plugin.pre_bind(decision.state, decision.pod, decision.node_name)
        return run_synchronously(work) or SUCCESS

    def run(self, incoming: Pod) -> Decision:
        """Schedule a pod; if a node is found, run Reserve and PreBind."""
        decision = self.place(incoming)
        if decision.node_name is not None:
            status = self.prepare(decision)
            assert status.ok, status
        return decision

    def reason(self, incoming: Pod) -> str:
        """The message of a decision without a node."""
        decision = self.decide(incoming)
        assert decision.node_name is None
        return decision.message


#: A node, and a slice with one device for it.
NODE = node("n")
GPU = slice_of("d0", node="n")


def single_node(*objects: DeviceObject, **fields: Any) -> DeviceHarness:
    """A harness with one node, ``n``."""
    return DeviceHarness(NODE, *objects, **fields)


def condition(kind: str, *, reason: str = "", of: str = "d0") -> dict[str, Any]:
    """A true condition of a device, as a driver reports it."""
    report = {"type": kind, "status": "True", "reason": reason, "message": "see log"}
    return {"driver": DRIVER, "pool": "n", "device": of, "conditions": [report]}


def report(harness: DeviceHarness, *conditions: dict[str, Any]) -> None:
    """The driver reports conditions of the claim ``c``."""
    status = claim("c", status={"devices": list(conditions)}).status.devices
    current = harness.claim()
    harness.put(msgspec.structs.replace(current, status=msgspec.structs.replace(current.status, devices=status)))


def report_while_waiting(harness: DeviceHarness, *conditions: dict[str, Any]) -> None:
    """The driver reports conditions while PreBind waits."""

    async def wait_for(condition: Callable[[], T | None], seconds: float) -> T | None:
        assert condition() is None
        report(harness, *conditions)
        return condition()

    harness.wait_for = wait_for  # type: ignore[method-assign]
