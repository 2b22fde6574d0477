"""What an API server of a minor version serves of the built-in kinds: API versions, and fields by feature gate.

Objects are stored as those of the newest minor version. A kind of resource.k8s.io/v1 that is not served has
one kind for each former version that is, which shares its storage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kubestow.api.conversion import DEVICES
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow_devcluster.apiserver.group_version import GroupVersion
from kubestow_devcluster.apiserver.kinds.kind import Kind, RESTStrategy
from kubestow_devcluster.apiserver.resources.built_in import BUILT_IN_KINDS
from kubestow_devcluster.apiserver.schema.types import Object, Struct, struct_of
from kubestow_devcluster.apiserver.statuses import FieldError

if TYPE_CHECKING:
    from kubestow.config.feature_gates import FeatureGates

#: Resource -> field -> the feature gate that it belongs to: the fields that decide scheduling.
_FIELDS_OF_GATES = {
    "pods": {"spec.resources": "PodLevelResources"},
    "nodes": {"status.declaredFeatures": "NodeDeclaredFeatures"},
}
#: Resource -> field -> the API versions without any of which it does not exist.
_FIELDS_OF_APIS = {
    "pods": {
        "spec.schedulingGroup": ("scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1"),
        "spec.workloadRef": ("scheduling.k8s.io/v1alpha1",),
    }
}


def kinds_of_minor(minor: Minor, gates: FeatureGates | None = None) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """The built-in kinds that a minor version serves, and those that only store its objects.

    The fields and kinds of a gate that is off are disabled. Without ``gates`` they are the defaults of the version.
    """
    served: list[Kind] = []
    hub_kinds: list[Kind] = []
    for kind in BUILT_IN_KINDS:
        if minor.serves(kind.api_version, kind.name) and _is_enabled(kind, minor, gates):
            disabled = _disabled_fields(kind.resource, minor, gates)
            served.append(replace(kind, rest=replace(kind.rest, disabled_fields=disabled)) if disabled else kind)
        elif kind.group == DEVICES.name:
            hub_kinds.append(kind)
    for version in DEVICES.former:
        api_version = f"{DEVICES.name}/{version}"
        enabled = (kind for kind in hub_kinds if minor.serves(api_version, kind.name))
        served += [_former(kind, version) for kind in enabled if _is_enabled(kind, minor, gates)]
    return tuple(served), tuple(hub_kinds)


def _is_enabled(kind: Kind, minor: Minor, gates: FeatureGates | None) -> bool:
    """Whether the gate of a kind is on, if it has one: before a kind is stable, its API is off by default."""
    if kind.name != "DeviceTaintRule":
        return True
    if minor == DEFAULT_MINOR and gates is None:
        return False
    from kubestow.config.feature_gates import FeatureGates

    has_gate = minor.has(Behaviour.DEVICE_TAINT_RULES_HAVE_A_GATE)
    return (gates or FeatureGates(minor=minor)).enabled("DRADeviceTaintRules" if has_gate else "DRADeviceTaints")


def _disabled_fields(resource: str, minor: Minor, gates: FeatureGates | None) -> tuple[str, ...]:
    disabled = [field for field, apis in _FIELDS_OF_APIS.get(resource, {}).items() if not any(map(minor.serves, apis))]
    if minor == DEFAULT_MINOR and gates is None:  # all gates are on; configurations are not imported for that
        return tuple(disabled)
    from kubestow.config.feature_gates import FeatureGates

    gates = gates or FeatureGates(minor=minor)
    disabled += [field for field, gate in _FIELDS_OF_GATES.get(resource, {}).items() if not gates.enabled(gate)]
    return tuple(disabled)


def _former(kind: Kind, version: str) -> Kind:
    """A kind of resource.k8s.io/v1 in a former version."""
    model = f"V{version[1:]}{kind.name}"
    strategy = _FormerVersionStrategy(version, model, kind)
    rest = replace(kind.rest, strategy=strategy, stored_in=kind.resource)
    return replace(kind, group_version=GroupVersion(DEVICES.name, version), model=model, rest=rest)


class _FormerVersionStrategy(RESTStrategy):
    """The strategy of a kind of resource.k8s.io/v1, for the objects of a former version."""

    needs_conversion = True

    def __init__(self, version: str, model: str, hub: Kind) -> None:
        self._version, self._model, self._hub = version, model, hub
        self._strategy = hub.strategy
        self.has_generation = hub.strategy.has_generation
        self.kept_by_status_writes = hub.strategy.kept_by_status_writes  # type: ignore[misc]

    def from_storage(self, stored: Object) -> Object:
        return _read(struct_of(self._model), DEVICES.from_hub(self._version, stored))

    def to_storage(self, served: Object) -> Object:
        return _read(self._hub.struct, DEVICES.to_hub(self._version, served))

    def set_defaults(self, new: Object) -> None:
        converted = self.to_storage(new)
        self._strategy.set_defaults(converted)
        new.update(self.from_storage(converted))

    def prepare_for_create(self, new: Object, now: str) -> None:
        self._strategy.prepare_for_create(new, now)

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        self._strategy.prepare_for_update(new, old, now)

    def validate(self, new: Object) -> list[FieldError]:
        return self._strategy.validate(self.to_storage(new))

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self._strategy.validate_update(self.to_storage(new), self.to_storage(old))


def _read(struct: Struct, obj: Object) -> Object:
    """The canonical form of an object, without the fields that its version does not have."""
    read: Object = struct.read(obj, [])
    return read
