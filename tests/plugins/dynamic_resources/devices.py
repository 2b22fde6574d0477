"""Builders for devices and claims, and a world that has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.dynamic_resources.plugin import DynamicResources
from kubestow.scheduling.decision.result import Decision
from kubestow.simulation.resource_claims import finished_at_once
from kubestow.testing import World, node, pod

__all__ = [
    "DRIVER",
    "GPU",
    "NODE",
    "DeviceWorld",
    "allocation",
    "alternatives",
    "claim",
    "device",
    "device_class",
    "exactly",
    "pod_with",
    "reserved_for",
    "slice_of",
    "world",
]

DRIVER = "gpu.example.com"

Object = Mapping[str, Any]


def device(name: str, *, memory: str | None = None, taints: Sequence[Object] = (), **fields: Any) -> Object:
    """A device; attributes are given as ``attributes={"model": "a100"}``, of their Python types."""
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
    """A slice for one node, or for those that ``spec`` says; ``of`` is how many slices its pool has."""
    pool = pool or node or "pool"
    if node:
        spec["nodeName"] = node
    elif not spec.keys() & {"nodeSelector", "perDeviceNodeSelection", "allNodes"}:
        spec["allNodes"] = True
    described = {
        "driver": spec.pop("driver", DRIVER),
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
        "devices": [device(d) if isinstance(d, str) else d for d in devices],
        **spec,
    }
    return convert(ResourceSlice, {"metadata": {"name": name or f"{pool}-slice"}, "spec": described})


def device_class(name: str = "gpu", *selectors: str, **spec: Any) -> DeviceClass:
    """A class whose devices meet some expressions."""
    described = {"selectors": [{"cel": {"expression": selector}} for selector in selectors], **spec}
    return convert(DeviceClass, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": described})


def exactly(count: int = 1, *selectors: str, name: str = "r", **fields: Any) -> Object:
    """A request for a number of devices; 0 is for all of them."""
    return {"name": name, "exactly": _selection(count, selectors, fields)}


def alternatives(*counts: int, name: str = "r", **fields: Any) -> Object:
    """A request for the first of some numbers of devices; alternatives are called a0, a1, …"""
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


def claim(name: str = "c", *requests: Object, constraints: Sequence[Object] = (), **fields: Any) -> ResourceClaim:
    """A claim, for one device if nothing is said. ``config`` goes with the requests, other fields with the claim."""
    devices = {
        "requests": list(requests) or [exactly()],
        "constraints": list(constraints),
        "config": fields.pop("config", []),
    }
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", **fields.pop("metadata", {})}
    return convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": devices}, **fields})


def allocation(*devices: str, at: str | None = None, when: str | None = None, **result: Any) -> dict[str, Any]:
    """``status.allocation`` of a claim, for use on one node or on all."""
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": d, **result} for d in devices]
    found: dict[str, Any] = {"devices": {"results": results}, "allocationTimestamp": when}
    if at is not None:
        fields = [{"key": "metadata.name", "operator": "In", "values": [at]}]
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return found


def reserved_for(*uids: str) -> list[dict[str, str]]:
    """``status.reservedFor`` of a claim that some pods use."""
    return [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]


def pod_with(*claims: str, name: str = "p", **fields: Any) -> Pod:
    """A pod that names claims."""
    named = [{"name": f"claim-{number}", "resourceClaimName": of} for number, of in enumerate(claims)]
    return pod(name, spec={"resourceClaims": named, **fields.pop("spec", {})}, **fields)


class DeviceWorld(World):
    """A world with devices, a class ``gpu`` that is any device, and claims."""

    def __init__(self, *objects: ResourceSlice | DeviceClass | ResourceClaim | Node, **fields: Any) -> None:
        nodes = [obj for obj in objects if isinstance(obj, Node)]
        super().__init__(nodes, **fields)
        self.put(device_class(), *(obj for obj in objects if not isinstance(obj, Node)))

    def put(self, *objects: ResourceSlice | DeviceClass | ResourceClaim | Node) -> None:
        """Things appear or change."""
        for obj in objects:
            self.cluster.catalog(type(obj)).put(obj)

    @property
    def plugin(self) -> DynamicResources:
        """The plugin itself."""
        (found,) = (p for p in self.profiles["default-scheduler"].plugins if isinstance(p, DynamicResources))
        return found

    def claim(self, name: str = "c") -> ResourceClaim:
        """A claim as the scheduler knows it."""
        found = self.cluster.claims.get("default", name)
        assert found is not None
        return found

    def devices(self, name: str = "c") -> list[str]:
        """The devices of a claim, as request=device."""
        allocation = self.claim(name).status.allocation
        return [] if allocation is None else [f"{r.request}={r.device}" for r in allocation.devices.results]

    def place(self, wanted: Pod) -> Decision:
        """Decide about a pod, and reserve what it needs where it goes."""
        decision = self.schedule(wanted)
        if decision.node_name is not None:
            assert self.plugin.reserve(decision.state, decision.pod, decision.node_name) is None
        return decision

    def prepare(self, decision: Decision) -> Status:
        """The work before binding."""
        assert decision.node_name is not None
        work = self.plugin.pre_bind(decision.state, decision.pod, decision.node_name)
        return finished_at_once(work) or SUCCESS

    def run(self, wanted: Pod) -> Decision:
        """Take a pod all the way to its node; one that fits nowhere stays where it is."""
        decision = self.place(wanted)
        if decision.node_name is not None:
            status = self.prepare(decision)
            assert status.ok, status
        return decision

    def reason(self, wanted: Pod) -> str:
        """The first reason why a pod fits nowhere, or the error that ended its cycle."""
        decision = self.decide(wanted)
        assert decision.node_name is None
        return decision.message


#: A node, and a device of it.
NODE = node("n")
GPU = slice_of("d0", node="n")


def world(*objects: ResourceSlice | DeviceClass | ResourceClaim, **fields: Any) -> DeviceWorld:
    """A world of one node, ``n``."""
    return DeviceWorld(NODE, *objects, **fields)
