"""Pods: what the server decides about them, and which few fields of a pod may still change once it exists."""

from __future__ import annotations

from typing import Any

from kubestow.devcluster.apiserver.field_errors import Cause, forbidden_value, invalid_value
from kubestow.devcluster.apiserver.resources import pod_spec
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy

__all__ = ["PodStrategy", "PodTemplateStrategy", "update_pod_condition"]

_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

_NOT_RESOURCES = "only cpu and memory resources are mutable"
_NOT_EPHEMERAL_CONTAINERS = "only ephemeral containers may be added through this subresource"
_OTHER_CLASS = "Pod QOS Class may not change as a result of resizing"


def update_pod_condition(status: Object, condition: Object, now: str) -> bool:
    """Add or replace the condition of this type; its transition time moves only with its status. Whether it changed."""
    conditions: list[Object] = status.get("conditions") or []
    made: Object = {"type": condition["type"], "status": condition["status"], "lastProbeTime": None}
    made["lastTransitionTime"] = now
    made |= {key: value for key, value in condition.items() if key not in made}
    for index, old in enumerate(conditions):
        if old["type"] == condition["type"]:
            if old["status"] == condition["status"]:
                made["lastTransitionTime"] = old.get("lastTransitionTime")
            if made == old:
                return False
            status["conditions"] = [*conditions[:index], made, *conditions[index + 1 :]]
            return True
    status["conditions"] = [*conditions, made]
    return True


class PodStrategy(Strategy):
    has_generation = True
    delete_returns_object = True

    def default(self, new: Object) -> None:
        spec = new["spec"]
        pod_spec.default_spec(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_create(self, new: Object, now: str) -> None:
        spec = new["spec"]
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
        status["qosClass"] = pod_spec.qos_class(spec)
        new["status"] = status

    def validate(self, new: Object) -> list[Cause]:
        early = new["spec"].get("ephemeralContainers")
        causes = [forbidden_value("spec.ephemeralContainers", "cannot be set on create")] if early else []
        return causes + pod_spec.validate_spec(new["spec"], "spec")

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        if new["spec"] == old["spec"]:
            return []
        if _without_mutable(new["spec"], old["spec"]) != _without_mutable(old["spec"], old["spec"]):
            return [forbidden_value("spec", _IMMUTABLE)]
        return pod_spec.validate_spec(new["spec"], "spec")

    def validate_subresource(self, new: Object, old: Object, subresource: str) -> list[Cause]:
        match subresource:
            case "resize":
                return _validate_resize(new["spec"], old["spec"])
            case "ephemeralcontainers":
                return _validate_ephemeral_containers(new["spec"], old["spec"])
        return self.validate_update(new, old)

    def grace_period(self, old: Object, asked: int | None) -> int | None:
        spec, phase = old["spec"], old.get("status", {}).get("phase")
        period = int(spec.get("terminationGracePeriodSeconds", 30)) if asked is None else asked
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        return max(period, 1) if period < 0 else period


class PodTemplateStrategy(Strategy):
    """The stored kind PodTemplate: a template and nothing else."""

    def default(self, new: Object) -> None:
        pod_spec.default_template(new.setdefault("template", {}))


def _validate_resize(new: Object, old: Object) -> list[Cause]:
    """Requests and limits of containers and sidecars may be others, as long as the class of service stays."""
    if _without_sizes(new) != _without_sizes(old):
        return [forbidden_value("spec", _NOT_RESOURCES)]
    if pod_spec.qos_class(new) != pod_spec.qos_class(old):
        return [invalid_value("spec", pod_spec.qos_class(new), _OTHER_CLASS)]
    return pod_spec.validate_spec(new, "spec")


def _validate_ephemeral_containers(new: Object, old: Object) -> list[Cause]:
    """More of them may come; those that are there stay, and so does everything else."""
    before, after = ({**spec, "ephemeralContainers": None} for spec in (old, new))
    if before != after:
        return [forbidden_value("spec", _NOT_EPHEMERAL_CONTAINERS)]
    path, added = "spec.ephemeralContainers", {one["name"]: one for one in new.get("ephemeralContainers") or ()}
    causes: list[Cause] = []
    for index, one in enumerate(old.get("ephemeralContainers") or ()):
        if one["name"] not in added:
            causes.append(forbidden_value(path, f'existing ephemeral containers "{one["name"]}" may not be removed'))
        elif added[one["name"]] != one:
            text = f'existing ephemeral containers "{one["name"]}" may not be changed'
            causes.append(forbidden_value(f"{path}[{index}]", text))
    return causes + pod_spec.validate_spec(new, "spec")


def _without_sizes(spec: Object) -> Object:
    """The spec less how much CPU and memory its containers and sidecars get."""
    rest = dict(spec)
    rest["containers"] = [_without_size(one) for one in spec["containers"]]
    if "initContainers" in spec:
        rest["initContainers"] = [
            _without_size(one) if one.get("restartPolicy") == "Always" else one for one in spec["initContainers"]
        ]
    return rest


def _without_size(container: Object) -> Object:
    resources = container.get("resources") or {}
    others = {
        part: {name: amount for name, amount in (resources.get(part) or {}).items() if name not in ("cpu", "memory")}
        for part in ("limits", "requests")
    }
    return container | {"resources": {**resources, **others}}


def _without_mutable(spec: Object, old: Object) -> Object:
    """The spec less what an update may change: images, deadline, added tolerations, gates taken away."""
    rest = {key: value for key, value in spec.items() if key != "activeDeadlineSeconds"}
    for field in ("containers", "initContainers"):
        if field in rest:
            rest[field] = [{key: value for key, value in one.items() if key != "image"} for one in rest[field]]
    before = old.get("tolerations") or []
    now = rest.pop("tolerations", None) or []
    rest["tolerations kept"] = all(toleration in now for toleration in before)
    if old.get("terminationGracePeriodSeconds", 0) < 0 and rest.get("terminationGracePeriodSeconds") == 1:
        rest["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    gates = rest.pop("schedulingGates", None) or []
    rest["gates added"] = any(gate not in (old.get("schedulingGates") or []) for gate in gates)
    if old.get("schedulingGates"):
        # A gated pod may be narrowed to fewer nodes: its node selector and affinity are open until the gates are gone.
        rest.pop("nodeSelector", None)
        rest.pop("affinity", None)
    return rest
