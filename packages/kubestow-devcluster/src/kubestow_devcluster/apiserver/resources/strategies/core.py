"""The strategies of nodes, volumes, events, leases, roles, the small kinds of core/v1 and those of storage.k8s.io.

Events of events.k8s.io/v1 are stored as core/v1 events with other field names.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import ClassVar

from kubestow.api.formats.names import (
    NameErrors,
    dns1035_label_errors,
    dns1123_label_errors,
    label_value_errors,
    path_segment_name_errors,
    qualified_name_errors,
)
from kubestow.rules.defaults import default_allocatable, default_limit_range_item
from kubestow_devcluster.apiserver.kinds.kind import ALL_CLIENT_METADATA, RESTStrategy
from kubestow_devcluster.apiserver.resources.strategies.pods import TAINT_EFFECTS
from kubestow_devcluster.apiserver.schema.types import Object, struct_of
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    required_value,
    unsupported_value,
    validate_name,
)

_UNDELETABLE_NAMESPACES = ("default", "kube-public", "kube-system")
_MAX_KEY = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_INVALID_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',"
    "  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
#: Service fields that the server allocates, and keeps when an update omits them.
_ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


class NamespaceStrategy(RESTStrategy):
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
        labels = new["metadata"].setdefault("labels", {})
        if new["metadata"].get("name"):
            labels["kubernetes.io/metadata.name"] = new["metadata"]["name"]

    def prepare_for_create(self, new: Object, now: str) -> None:
        new["spec"]["finalizers"] = ["kubernetes"]
        new["status"] = {"phase": "Active"}

    def validate_name(self, name: str) -> NameErrors:
        return dns1123_label_errors(name)

    def validate_delete(self, name: str) -> str:
        return "this namespace may not be deleted" if name in _UNDELETABLE_NAMESPACES else ""


class LimitRangeStrategy(RESTStrategy):
    def set_defaults(self, new: Object) -> None:
        for item in (new.get("spec") or {}).get("limits") or ():
            default_limit_range_item(item)


class ResourceQuotaStrategy(RESTStrategy):
    initial_status: ClassVar = {}


class SecretStrategy(RESTStrategy):
    defaults: ClassVar = {"type": "Opaque"}
    validates_updates_as_new = True

    def set_defaults(self, new: Object) -> None:
        """Merge the write-only field stringData into data, as the conversion of kube-apiserver does."""
        super().set_defaults(new)
        if texts := new.pop("stringData", None):
            encoded = {key: b64encode(text.encode()).decode() for key, text in texts.items()}
            new["data"] = {**(new.get("data") or {}), **encoded}

    def validate(self, new: Object) -> list[FieldError]:
        return [error for key in new.get("data") or () for error in _key_errors("data", key)]


class ConfigMapStrategy(RESTStrategy):
    validates_updates_as_new = True

    def validate(self, new: Object) -> list[FieldError]:
        fields = ("data", "binaryData")
        return [error for field in fields for key in new.get(field) or () for error in _key_errors(field, key)]


class ServiceStrategy(RESTStrategy):
    returns_deleted_object = True
    defaults: ClassVar = {"spec.type": "ClusterIP", "spec.sessionAffinity": "None"}
    initial_status: ClassVar = {"loadBalancer": {}}

    def set_defaults(self, new: Object) -> None:
        super().set_defaults(new)
        spec = new["spec"]
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        if spec["type"] == "ExternalName":
            return
        spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] in ("NodePort", "LoadBalancer"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_for_create(self, new: Object, now: str) -> None:
        super().prepare_for_create(new, now)
        spec = new["spec"]
        if spec["type"] != "ExternalName":
            # An address in 10.96.0.0/12 derived from the uid, which makes an allocator unnecessary.
            number = int(new["metadata"]["uid"][:8], 16) % (2**20 - 1024) + 512
            spec.setdefault("clusterIP", f"10.{96 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}")
            spec["clusterIPs"] = [spec["clusterIP"]]
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        if new["spec"]["type"] != "ExternalName":
            for field in _ALLOCATED:
                if field in old["spec"]:
                    new["spec"].setdefault(field, old["spec"][field])

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        if spec.get("ports") or spec.get("clusterIP") == "None" or spec["type"] == "ExternalName":
            return []
        return [required_value("spec.ports")]

    def validate_name(self, name: str) -> NameErrors:
        return dns1035_label_errors(name)


def _key_errors(field: str, key: str) -> list[FieldError]:
    path = f"{field}[{key}]"
    if len(key) > _MAX_KEY:
        return [invalid_value(path, key, f"must be no more than {_MAX_KEY} characters")]
    if not _KEY.fullmatch(key):
        return [invalid_value(path, key, _INVALID_KEY)]
    if key in (".", "..") or key.startswith(".."):
        problem = f"must not be '{key}'" if key in (".", "..") else "must not start with '..'"
        return [invalid_value(path, key, problem)]
    return []


#: The taint of every new node, which is removed when the node becomes Ready.
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeStrategy(RESTStrategy):
    def set_defaults(self, new: Object) -> None:
        default_allocatable(new["status"])

    def prepare_for_create(self, new: Object, now: str) -> None:
        taints = new["spec"].get("taints") or []
        if not any(taint.get("key") == _NOT_READY["key"] and taint.get("effect") == "NoSchedule" for taint in taints):
            new["spec"]["taints"] = [*taints, dict(_NOT_READY)]

    def validate(self, new: Object) -> list[FieldError]:
        errors = _taint_errors(new)
        for field in ("capacity", "allocatable"):
            for name, amount in (new["status"].get(field) or {}).items():
                if amount.startswith("-"):
                    problem = "must be greater than or equal to 0"
                    errors.append(invalid_value(f"status.{field}.{name}", amount, problem))
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return _taint_errors(new)


def _taint_errors(node: Object) -> list[FieldError]:
    """The errors in the taints of a node, under the path that kube-apiserver gives them, which is not theirs."""
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node["spec"].get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(field, "") for field in ("key", "value", "effect"))
        errors += validate_name(f"{path}.key", key, qualified_name_errors)
        errors += validate_name(f"{path}.value", value, label_value_errors)
        if not effect:
            errors.append(required_value(f"{path}.effect"))
        elif effect not in TAINT_EFFECTS:
            errors.append(unsupported_value(f"{path}.effect", effect, TAINT_EFFECTS))
        if (key, effect) in seen:
            errors.append(duplicate_value(path, taint))
        seen.add((key, effect))
    return errors


#: core/v1 field -> events.k8s.io/v1 field, in the order of the latter.
_FIELDS = {
    "metadata": "metadata",
    "eventTime": "eventTime",
    "series": "series",
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
    "action": "action",
    "reason": "reason",
    "involvedObject": "regarding",
    "related": "related",
    "message": "note",
    "type": "type",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_FIELDS = {events: core for core, events in _FIELDS.items()}
#: Fields that core/v1 writes when empty and events.k8s.io/v1 omits.
_OMIT_EMPTY = ("reportingComponent", "reportingInstance")


class EventsV1Strategy(RESTStrategy):
    needs_conversion = True

    def from_storage(self, stored: Object) -> Object:
        return {
            events: stored[core]
            for core, events in _FIELDS.items()
            if core in stored and (stored[core] or core not in _OMIT_EMPTY)
        }

    def to_storage(self, served: Object) -> Object:
        return struct_of("CoreV1Event").read(
            {_CORE_FIELDS.get(name, name): value for name, value in served.items()}, []
        )

    def validate(self, new: Object) -> list[FieldError]:
        if new.get("eventTime") is None:
            return [required_value("eventTime")]
        required = ("reportingController", "reportingInstance", "action", "reason")
        return [required_value(name) for name in required if not new.get(name)]


class LeaseStrategy(RESTStrategy):
    allow_create_on_update = True
    allow_unconditional_update = False
    validates_updates_as_new = True

    def validate(self, new: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for name, minimum in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
            value = new["spec"].get(name)
            if value is not None and value < minimum:
                bound = "greater than 0" if minimum else "greater than or equal to 0"
                errors.append(invalid_value(f"spec.{name}", value, f"must be {bound}"))
        return errors


_API_GROUP = "rbac.authorization.k8s.io"


class RoleStrategy(RESTStrategy):
    def validate_name(self, name: str) -> NameErrors:
        return path_segment_name_errors(name)


class RoleBindingStrategy(RoleStrategy):
    def set_defaults(self, new: Object) -> None:
        if "roleRef" in new:
            new["roleRef"].setdefault("apiGroup", _API_GROUP)
        for subject in new.get("subjects") or ():
            subject.setdefault("apiGroup", "" if subject.get("kind") == "ServiceAccount" else _API_GROUP)


class PersistentVolumeStrategy(RESTStrategy):
    returns_deleted_object = True
    defaults: ClassVar = {"spec.persistentVolumeReclaimPolicy": "Retain", "spec.volumeMode": "Filesystem"}

    def set_defaults(self, new: Object) -> None:
        super().set_defaults(new)
        if "hostPath" in new["spec"]:
            new["spec"]["hostPath"].setdefault("type", "")

    def prepare_for_create(self, new: Object, now: str) -> None:
        _add_finalizer(new, "kubernetes.io/pv-protection")
        new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}

    def validate(self, new: Object) -> list[FieldError]:
        return [required_value(f"spec.{name}") for name in ("accessModes", "capacity") if not new["spec"].get(name)]


class PersistentVolumeClaimStrategy(RESTStrategy):
    returns_deleted_object = True
    defaults: ClassVar = {"spec.volumeMode": "Filesystem"}
    initial_status: ClassVar = {"phase": "Pending"}

    def prepare_for_create(self, new: Object, now: str) -> None:
        super().prepare_for_create(new, now)
        _add_finalizer(new, "kubernetes.io/pvc-protection")

    def validate(self, new: Object) -> list[FieldError]:
        spec, errors = new["spec"], []
        if not spec.get("accessModes"):
            errors.append(required_value("spec.accessModes", "at least 1 access mode is required"))
        if not (spec["resources"].get("requests") or {}).get("storage"):
            errors.append(required_value("spec.resources[storage]"))
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        mutable = {"resources", "volumeAttributesClassName"}
        if not old["spec"].get("volumeName"):
            mutable.add("volumeName")

        def immutable(spec: Object) -> Object:
            return {key: value for key, value in spec.items() if key not in mutable}

        if immutable(new["spec"]) == immutable(old["spec"]):
            return []
        problem = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [forbidden_value("spec", problem)]


def _add_finalizer(new: Object, finalizer: str) -> None:
    finalizers = new["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


class StorageObjectStrategy(RESTStrategy):
    """The kinds of storage.k8s.io whose DELETE returns the object; of these, volume attachments have a status."""

    returns_deleted_object = True
    kept_by_status_writes = ALL_CLIENT_METADATA


class StorageClassStrategy(StorageObjectStrategy):
    defaults: ClassVar = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}

    def validate(self, new: Object) -> list[FieldError]:
        return [] if new.get("provisioner") else [required_value("provisioner")]


class CSIDriverStrategy(StorageObjectStrategy):
    defaults: ClassVar = {
        "spec.attachRequired": True,
        "spec.podInfoOnMount": False,
        "spec.storageCapacity": False,
        "spec.requiresRepublish": False,
        "spec.seLinuxMount": False,
        "spec.fsGroupPolicy": "ReadWriteOnceWithFSType",
        "spec.volumeLifecycleModes": ["Persistent"],
    }
