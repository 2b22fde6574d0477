"""The API groups of which API servers serve several versions, and the conversion of objects to the one that is read.

Structs are those of the hub version of each group (:class:`ConvertedGroup`).

resource.k8s.io, hub v1: v1beta2 has the same fields. In v1beta1 and v1alpha3 a device has its fields in ``basic``, and
a request has those of ``exactly`` itself; in v1alpha3 the value of a capacity is a quantity, not an object. Device
taint rules came to v1 later than the other kinds, and have the same fields in all versions.

scheduling.k8s.io, pod groups and workloads, hub v1beta1: v1alpha3 has the same fields. In v1alpha2 ``disruptionMode``
is ``Pod`` or ``PodGroup``, not ``single`` or ``all``, and the reference to a workload is in ``podGroupTemplateRef``.

What a version does not have is left out by its server and not by the conversion. The other API groups that scheduling
reads have one version in all supported minor versions of Kubernetes.

Objects are plain data, complete ones or patches. What has not the type that is expected stays as it is, for the decoder
to report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConvertedGroup:
    """An API group, its hub version, its former versions (the newest first), and the kinds that are converted.

    ``spec_to_hub`` and ``spec_from_hub`` convert the ``spec`` of an object, given the former version.
    """

    name: str
    hub: str
    former: tuple[str, ...]
    kinds: frozenset[str]
    spec_to_hub: Callable[[str, Object], Object]
    spec_from_hub: Callable[[str, Object], Object]
    #: Whether there are API servers that serve the hub version without these kinds.
    came_later: bool = False

    @property
    def hub_api_version(self) -> str:
        """The ``apiVersion`` of the hub version."""
        return f"{self.name}/{self.hub}"

    def to_hub(self, version: str, obj: Mapping[str, Any]) -> Object:
        """An object of one of the ``former`` versions (or a patch of one) in the hub version."""
        return self._converted(obj, self.hub, lambda spec: self.spec_to_hub(version, spec))

    def from_hub(self, version: str, obj: Mapping[str, Any]) -> Object:
        """An object of the hub version (or a patch of one) in one of the ``former`` ones: undoes :meth:`to_hub`."""
        return self._converted(obj, version, lambda spec: self.spec_from_hub(version, spec))

    def _converted(self, obj: Mapping[str, Any], target: str, convert: Callable[[Object], Object]) -> Object:
        """A copy with ``apiVersion`` of the target, if it has one, and with a converted ``spec``."""
        converted = dict(obj)
        if "apiVersion" in converted:
            converted["apiVersion"] = f"{self.name}/{target}"
        spec = converted.get("spec")
        if isinstance(spec, dict):
            converted["spec"] = convert(spec)
        return converted


def conversion_of(api_version: str, kind: str) -> ConvertedGroup | None:
    """The group that converts objects of a type to its hub version; None for types that are read as they are."""
    name, _, version = api_version.partition("/")
    return next((g for g in GROUPS if g.name == name and kind in g.kinds and version in g.former), None)


# -- resource.k8s.io -------------------------------------------------------------------------------------------------

#: The versions whose fields are not those of the hub version.
_NESTED = frozenset({"v1beta1", "v1alpha3"})
_PLAIN_CAPACITIES = "v1alpha3"

#: The fields of ``exactly`` that make a request one for exactly one kind of devices, if any of them is set.
_EXACT = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def _device_spec_to_hub(version: str, spec: Object) -> Object:
    return _device_spec(spec, version, _request_to_hub, _device_to_hub)


def _device_spec_from_hub(version: str, spec: Object) -> Object:
    return _device_spec(spec, version, _request_from_hub, _device_from_hub)


def _device_spec(
    spec: Object, version: str, request: Callable[[Object], Object], device: Callable[[Object, str], Object]
) -> Object:
    """A spec with converted requests or devices."""
    if version not in _NESTED:
        return spec
    if isinstance(spec.get("spec"), dict):  # of a ResourceClaimTemplate
        return spec | {"spec": _claim_spec(spec["spec"], request)}
    if isinstance(spec.get("devices"), dict):  # of a ResourceClaim
        return _claim_spec(spec, request)
    if isinstance(spec.get("devices"), list):  # of a ResourceSlice
        return spec | {"devices": [device(one, version) if isinstance(one, dict) else one for one in spec["devices"]]}
    return spec


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


# -- scheduling.k8s.io -----------------------------------------------------------------------------------------------

#: The version whose fields are not those of the hub version, and its names of the disruption modes.
_NAMED_MODES = "v1alpha2"
_MODES = {"Pod": "single", "PodGroup": "all"}
#: The names of the references' fields in v1alpha2 and v1beta1.
_REFERENCE = {"workloadName": "workloadName", "podGroupTemplateName": "templateName"}


def _group_spec_to_hub(version: str, spec: Object) -> Object:
    return _group_spec(version, spec, _group_to_hub)


def _group_spec_from_hub(version: str, spec: Object) -> Object:
    return _group_spec(version, spec, _group_from_hub)


def _group_spec(version: str, spec: Object, convert: Callable[[Object], Object]) -> Object:
    """The converted spec of a group, or of a workload with converted templates."""
    if version != _NAMED_MODES:
        return spec
    templates = spec.get("podGroupTemplates")
    if isinstance(templates, list):
        return spec | {"podGroupTemplates": [convert(one) if isinstance(one, dict) else one for one in templates]}
    return convert(spec)


def _group_to_hub(group: Object) -> Object:
    converted = dict(group)
    mode = converted.get("disruptionMode")
    if isinstance(mode, str) and mode in _MODES:
        converted["disruptionMode"] = {_MODES[mode]: {}}
    reference = converted.get("podGroupTemplateRef")
    workload = reference.get("workload") if isinstance(reference, dict) else None
    if isinstance(workload, dict):
        del converted["podGroupTemplateRef"]
        converted["workloadRef"] = {_REFERENCE.get(name, name): value for name, value in workload.items()}
    return converted


def _group_from_hub(group: Object) -> Object:
    converted = dict(group)
    mode = converted.get("disruptionMode")
    for name, field in _MODES.items():
        if mode == {field: {}}:
            converted["disruptionMode"] = name
    workload = converted.get("workloadRef")
    if isinstance(workload, dict):
        del converted["workloadRef"]
        former = {field: name for name, field in _REFERENCE.items()}
        renamed = {former.get(name, name): value for name, value in workload.items()}
        converted["podGroupTemplateRef"] = {"workload": renamed}
    return converted


DEVICES = ConvertedGroup(
    "resource.k8s.io",
    "v1",
    ("v1beta2", "v1beta1", "v1alpha3"),
    frozenset({"ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"}),
    _device_spec_to_hub,
    _device_spec_from_hub,
)
DEVICE_TAINT_RULES = ConvertedGroup(
    "resource.k8s.io",
    "v1",
    ("v1beta2", "v1alpha3"),
    frozenset({"DeviceTaintRule"}),
    lambda version, spec: spec,
    lambda version, spec: spec,
    came_later=True,
)
POD_GROUPS = ConvertedGroup(
    "scheduling.k8s.io",
    "v1beta1",
    ("v1alpha3", "v1alpha2"),
    frozenset({"PodGroup", "Workload"}),
    _group_spec_to_hub,
    _group_spec_from_hub,
)
GROUPS = (DEVICES, DEVICE_TAINT_RULES, POD_GROUPS)
"""The groups that are converted."""
