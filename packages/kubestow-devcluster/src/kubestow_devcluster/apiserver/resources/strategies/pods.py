"""The strategies of pods and pod templates: the initial status of a pod, and the few fields that updates can change."""

from __future__ import annotations

from typing import Any

from kubestow.rules.defaults import default_pod_level_requests, merge_label_keys
from kubestow.rules.pods import is_terminal, qos_class_of
from kubestow_devcluster.apiserver.field_errors import FieldError, forbidden_value, invalid_value
from kubestow_devcluster.apiserver.kinds.kind import RESTStrategy
from kubestow_devcluster.apiserver.resources.strategies.pod_specs import (
    complete_pod_spec,
    default_pod_template,
    validate_pod_spec,
)
from kubestow_devcluster.apiserver.schema.types import Object

_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ONLY_RESOURCES = "only cpu and memory resources are mutable"
_ONLY_EPHEMERAL_CONTAINERS = "only ephemeral containers may be added through this subresource"
_QOS_CLASS = "Pod QOS Class may not change as a result of resizing"


class PodStrategy(RESTStrategy):
    has_generation = True
    kept_by_status_writes = ("ownerReferences",)
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
        spec = new["spec"]
        complete_pod_spec(spec)
        default_pod_level_requests(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_for_create(self, new: Object, now: str) -> None:
        spec = new["spec"]
        merge_label_keys(spec, new["metadata"].get("labels") or {})
        status: dict[str, Any] = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": now,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        status["qosClass"] = qos_class_of(spec)
        new["status"] = status

    def validate(self, new: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        if new["spec"].get("ephemeralContainers"):
            errors.append(forbidden_value("spec.ephemeralContainers", "cannot be set on create"))
        return errors + validate_pod_spec(new["spec"], "spec")

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        if new["spec"] == old["spec"]:
            return []
        if _immutable_fields(new["spec"], old["spec"]) != _immutable_fields(old["spec"], old["spec"]):
            return [forbidden_value("spec", _IMMUTABLE)]
        return validate_pod_spec(new["spec"], "spec")

    def validate_subresource_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        match subresource:
            case "resize":
                return _validate_resize(new["spec"], old["spec"])
            case "ephemeralcontainers":
                return _validate_ephemeral_containers(new["spec"], old["spec"])
        return self.validate_update(new, old)

    def graceful_deletion_period(self, old: Object, requested: int | None) -> int | None:
        spec, phase = old["spec"], old.get("status", {}).get("phase")
        period = int(spec.get("terminationGracePeriodSeconds", 30)) if requested is None else requested
        if not spec.get("nodeName") or is_terminal(phase):
            return 0
        return max(period, 1) if period < 0 else period


class PodTemplateStrategy(RESTStrategy):
    def set_defaults(self, new: Object) -> None:
        default_pod_template(new.setdefault("template", {}))


def _validate_resize(new: Object, old: Object) -> list[FieldError]:
    """Only CPU and memory of containers and sidecars can change, and only within the QoS class."""
    if _without_cpu_and_memory(new) != _without_cpu_and_memory(old):
        return [forbidden_value("spec", _ONLY_RESOURCES)]
    if qos_class_of(new) != qos_class_of(old):
        return [invalid_value("spec", qos_class_of(new), _QOS_CLASS)]
    return validate_pod_spec(new, "spec")


def _validate_ephemeral_containers(new: Object, old: Object) -> list[FieldError]:
    """Ephemeral containers can be added; existing ones and all other fields cannot change."""
    before, after = ({**spec, "ephemeralContainers": None} for spec in (old, new))
    if before != after:
        return [forbidden_value("spec", _ONLY_EPHEMERAL_CONTAINERS)]
    path = "spec.ephemeralContainers"
    by_name = {container["name"]: container for container in new.get("ephemeralContainers") or ()}
    errors: list[FieldError] = []
    for index, container in enumerate(old.get("ephemeralContainers") or ()):
        name = container["name"]
        if name not in by_name:
            errors.append(forbidden_value(path, f'existing ephemeral containers "{name}" may not be removed'))
        elif by_name[name] != container:
            problem = f'existing ephemeral containers "{name}" may not be changed'
            errors.append(forbidden_value(f"{path}[{index}]", problem))
    return errors + validate_pod_spec(new, "spec")


def _without_cpu_and_memory(spec: Object) -> Object:
    """The spec without requests and limits for CPU and memory of its containers and sidecars."""
    rest = dict(spec)
    rest["containers"] = [_without_resizable(one) for one in spec["containers"]]
    if "initContainers" in spec:
        rest["initContainers"] = [
            _without_resizable(one) if one.get("restartPolicy") == "Always" else one for one in spec["initContainers"]
        ]
    return rest


def _without_resizable(container: Object) -> Object:
    resources = container.get("resources") or {}
    others = {
        part: {name: amount for name, amount in (resources.get(part) or {}).items() if name not in ("cpu", "memory")}
        for part in ("limits", "requests")
    }
    return container | {"resources": {**resources, **others}}


def _immutable_fields(spec: Object, old: Object) -> Object:
    """The part of ``spec`` that an update of ``old`` cannot change.

    Mutable are images, the deadline, additional tolerations and the removal of scheduling gates.
    """
    rest = {key: value for key, value in spec.items() if key != "activeDeadlineSeconds"}
    for field in ("containers", "initContainers"):
        if field in rest:
            rest[field] = [{key: value for key, value in one.items() if key != "image"} for one in rest[field]]
    tolerations = rest.pop("tolerations", None) or []
    rest["keeps tolerations"] = all(toleration in tolerations for toleration in old.get("tolerations") or ())
    if old.get("terminationGracePeriodSeconds", 0) < 0 and rest.get("terminationGracePeriodSeconds") == 1:
        rest["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    gates = rest.pop("schedulingGates", None) or []
    rest["adds gates"] = any(gate not in (old.get("schedulingGates") or []) for gate in gates)
    if old.get("schedulingGates"):
        # The node selector and affinity of a gated pod can be narrowed.
        rest.pop("nodeSelector", None)
        rest.pop("affinity", None)
    return rest
