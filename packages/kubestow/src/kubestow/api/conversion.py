"""The versions of resource.k8s.io, and the conversion of objects between them and v1.

Structs are those of v1, the hub version. v1beta2 has the same fields. In v1beta1 and v1alpha3 a device has its fields
in ``basic``, and a request has those of ``exactly`` itself; in v1alpha3 the value of a capacity is a quantity, not an
object. What a version does not have is left out by its server and not by the conversion. The other API groups that
scheduling reads have one version in all supported minor versions of Kubernetes.

Objects are plain data, complete ones or patches. What has not the type that is expected stays as it is, for the decoder
to report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]

GROUP = "resource.k8s.io"
HUB = "v1"
#: The other versions, the newest first.
FORMER_VERSIONS = ("v1beta2", "v1beta1", "v1alpha3")

KINDS = frozenset({"ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"})
"""The kinds that are converted."""

#: The versions whose fields are not those of the hub version.
_NESTED = frozenset({"v1beta1", "v1alpha3"})
_PLAIN_CAPACITIES = "v1alpha3"

#: The fields of ``exactly`` that make a request one for exactly one kind of devices, if any of them is set.
_EXACT = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def is_former(api_version: str, kind: str) -> bool:
    """Whether objects of this type are converted to the hub version when they are read."""
    if kind not in KINDS:
        return False
    group, _, version = api_version.partition("/")
    return group == GROUP and version in FORMER_VERSIONS


def to_hub(version: str, obj: Mapping[str, Any]) -> Object:
    """An object of one of the ``FORMER_VERSIONS`` (or a patch of one) in the hub version."""
    return _converted(obj, version, HUB, _request_to_hub, _device_to_hub)


def from_hub(version: str, obj: Mapping[str, Any]) -> Object:
    """An object of the hub version (or a patch of one) in one of the ``FORMER_VERSIONS``: undoes :func:`to_hub`."""
    return _converted(obj, version, version, _request_from_hub, _device_from_hub)


def _converted(
    obj: Mapping[str, Any],
    version: str,
    target: str,
    request: Callable[[Object], Object],
    device: Callable[[Object, str], Object],
) -> Object:
    """A copy with ``apiVersion`` of the target, if it has one, and with converted requests and devices."""
    converted = dict(obj)
    if "apiVersion" in converted:
        converted["apiVersion"] = f"{GROUP}/{target}"
    spec = converted.get("spec")
    if version not in _NESTED or not isinstance(spec, dict):
        return converted
    if isinstance(spec.get("spec"), dict):  # of a ResourceClaimTemplate
        converted["spec"] = spec | {"spec": _claim_spec(spec["spec"], request)}
    elif isinstance(spec.get("devices"), dict):  # of a ResourceClaim
        converted["spec"] = _claim_spec(spec, request)
    elif isinstance(spec.get("devices"), list):  # of a ResourceSlice
        devices = [device(one, version) if isinstance(one, dict) else one for one in spec["devices"]]
        converted["spec"] = spec | {"devices": devices}
    return converted


def _claim_spec(spec: Object, convert: Callable[[Object], Object]) -> Object:
    devices = spec.get("devices")
    if not isinstance(devices, dict) or not isinstance(devices.get("requests"), list):
        return spec
    requests = [convert(one) if isinstance(one, dict) else one for one in devices["requests"]]
    return spec | {"devices": devices | {"requests": requests}}


def _request_to_hub(request: Object) -> Object:
    if "exactly" in request:
        return request
    exactly = {name: request[name] for name in _EXACT if name in request}
    kept = {name: value for name, value in request.items() if name not in _EXACT}
    return kept | {"exactly": exactly} if any(exactly.values()) else kept


def _request_from_hub(request: Object) -> Object:
    exactly = request.get("exactly")
    if not isinstance(exactly, dict):
        return request
    return {name: value for name, value in request.items() if name != "exactly"} | exactly


def _device_to_hub(device: Object, version: str) -> Object:
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return {name: value for name, value in device.items() if name != "basic" or value is not None}
    converted = {name: value for name, value in device.items() if name != "basic"} | basic
    capacities = converted.get("capacity")
    if version == _PLAIN_CAPACITIES and isinstance(capacities, dict):
        converted["capacity"] = {name: {"value": value} for name, value in capacities.items()}
    return converted


def _device_from_hub(device: Object, version: str) -> Object:
    basic = {name: value for name, value in device.items() if name != "name"}
    capacities = basic.get("capacity")
    if version == _PLAIN_CAPACITIES and isinstance(capacities, dict):
        basic["capacity"] = {
            name: value["value"] if isinstance(value, dict) and "value" in value else value
            for name, value in capacities.items()
        }
    return {name: device[name] for name in ("name",) if name in device} | {"basic": basic}
