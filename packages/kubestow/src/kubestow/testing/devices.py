"""Builders of devices, device classes, resource slices and resource claims.

slice_of("gpu-0", "gpu-1", node="n")
claim("train", exactly(2))
pod_with("train")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kubestow.testing.builders import pod

DRIVER = "gpu.example.com"

Object = Mapping[str, Any]


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
