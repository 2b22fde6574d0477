"""What the API server and its admission plugins add to a pod when it is created, as far as scheduling depends on it.

Manifests lack it, objects from a dump have it already. Applied are, in the API server's order: defaults of the pod
(scheduler name, host ports, requests equal to limits, pod-level requests), then the admission plugins LimitRanger,
Priority, RuntimeClass and DefaultTolerationSeconds, and the label keys of pod affinity terms. Quotas and pod security
are not enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow.api.formats.quantity import nanos
from kubestow.api.meta import convert
from kubestow.errors import InvalidObject, InvalidQuantity
from kubestow.rules.pod_defaults import default_pod_level_requests, merge_label_keys

__all__ = ["Admission"]

Object = dict[str, Any]

DEFAULT_SCHEDULER = "default-scheduler"
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS = 300


class _ContainerLimits(msgspec.Struct, rename="camel", frozen=True):
    max: dict[str, Any] = {}
    min: dict[str, Any] = {}
    default: dict[str, Any] = {}
    default_request: dict[str, Any] = {}


class _LimitRangeSpec(msgspec.Struct, frozen=True):
    limits: list[_ContainerLimits] = []


class _LimitRange(msgspec.Struct, frozen=True):
    """The structure of a LimitRange, as far as admission reads it."""

    spec: _LimitRangeSpec = _LimitRangeSpec()


class _Overhead(msgspec.Struct, rename="camel", frozen=True):
    pod_fixed: dict[str, Any] = {}


class _RuntimeClassScheduling(msgspec.Struct, rename="camel", frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []


class _RuntimeClass(msgspec.Struct, frozen=True):
    """The structure of a RuntimeClass, as far as admission reads it."""

    overhead: _Overhead = _Overhead()
    scheduling: _RuntimeClassScheduling = _RuntimeClassScheduling()


@dataclass(slots=True)
class Admission:
    """The objects that admission depends on, and the admission of pods."""

    #: Value and preemption policy by the name of the PriorityClass.
    _priorities: dict[str, tuple[int, str]] = field(
        default_factory=lambda: {name: (value, "PreemptLowerPriority") for name, value in _SYSTEM_CLASSES.items()}
    )
    _default_class: str = ""
    #: The defaults of containers by namespace, as the API server has completed them.
    _container_limits: dict[str, list[Object]] = field(default_factory=dict)
    _runtime_classes: dict[str, Object] = field(default_factory=dict)
    #: The spec of claims by namespace and name of the ResourceClaimTemplate.
    claim_templates: dict[tuple[str, str], Object] = field(default_factory=dict)

    def add(self, kind: str, manifest: Object) -> None:
        """Add an object of one of the kinds that admission reads. Raises InvalidObject."""
        metadata = manifest.get("metadata") or {}
        name, namespace = metadata.get("name") or "", metadata.get("namespace") or "default"
        match kind:
            case "PriorityClass":
                self._add_priority_class(name, manifest)
            case "LimitRange":
                convert(_LimitRange, manifest)
                limits = (manifest.get("spec") or {}).get("limits") or ()
                for index, limit in enumerate(limits):
                    for part in ("min", "max", "default", "defaultRequest"):
                        _check_amounts(limit.get(part), f"spec.limits[{index}].{part}")
                found = [_completed(limit) for limit in limits if limit.get("type") == "Container"]
                self._container_limits.setdefault(namespace, []).extend(found)
            case "RuntimeClass":
                _check_amounts(convert(_RuntimeClass, manifest).overhead.pod_fixed, "overhead.podFixed")
                self._runtime_classes[name] = manifest
            case "ResourceClaimTemplate":
                self.claim_templates[namespace, name] = manifest.get("spec") or {}

    def _add_priority_class(self, name: str, manifest: Object) -> None:
        value = manifest.get("value", 0)
        if not isinstance(value, int):
            raise InvalidObject("expected an integer", path="value")
        self._priorities[name] = value, manifest.get("preemptionPolicy") or "PreemptLowerPriority"
        if manifest.get("globalDefault"):
            self._default_class = name

    def learn_priority(self, class_name: str, priority: int | None, policy: str | None) -> None:
        """Learn the value of a priority class, which a dump may lack, from a pod that uses it."""
        if class_name and priority is not None:
            self._priorities.setdefault(class_name, (priority, policy or "PreemptLowerPriority"))

    def admit(self, pod: Object, namespace: str) -> None:
        """Complete the manifest of a new pod in place. Raises InvalidObject for one that would be refused."""
        spec = pod.setdefault("spec", {})
        spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
        containers = [c for part in ("initContainers", "containers") for c in spec.get(part) or ()]
        if not spec.get("containers"):
            raise InvalidObject("required value", path="spec.containers")
        _check_requests(spec)
        for container in containers:
            if spec.get("hostNetwork"):
                _use_container_ports(container)
            _default_requests(container)
        default_pod_level_requests(spec)
        for container in containers:
            self._apply_limit_ranges(container, namespace)
        self.set_priority(spec)
        self._apply_runtime_class(spec)
        _tolerate_unreachable_nodes(spec)
        merge_label_keys(spec, (pod.get("metadata") or {}).get("labels") or {})

    def _apply_limit_ranges(self, container: Object, namespace: str) -> None:
        for limit in self._container_limits.get(namespace, ()):
            resources = container.setdefault("resources", {})
            for part, defaults in (("limits", "default"), ("requests", "defaultRequest")):
                if limit[defaults]:
                    resources[part] = {**limit[defaults], **(resources.get(part) or {})}

    def set_priority(self, spec: Object) -> None:
        """Set priority and preemption policy of a pod spec by its priority class. Raises InvalidObject."""
        name = spec.get("priorityClassName") or self._default_class
        if not name:
            spec.setdefault("priority", 0)
            return
        if name not in self._priorities:
            raise InvalidObject(
                f'no PriorityClass with name "{name}" in the input, and no pod that uses it',
                path="spec.priorityClassName",
            )
        value, policy = self._priorities[name]
        spec |= {"priorityClassName": name, "priority": value}
        spec["preemptionPolicy"] = spec.get("preemptionPolicy") or policy

    def _apply_runtime_class(self, spec: Object) -> None:
        runtime_class = self._runtime_classes.get(spec.get("runtimeClassName") or "")
        if runtime_class is None:
            return
        if overhead := (runtime_class.get("overhead") or {}).get("podFixed"):
            spec["overhead"] = overhead
        scheduling = runtime_class.get("scheduling") or {}
        if scheduling.get("nodeSelector"):
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling["nodeSelector"]}
        if scheduling.get("tolerations"):
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *scheduling["tolerations"]]


def _check_requests(spec: Object) -> None:
    """Raises InvalidObject for a request or limit of a pod spec that the API server would refuse."""
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            _check_resources(container, f"spec.{part}[{index}].resources")
    _check_resources(spec, "spec.resources")
    _check_amounts(spec.get("overhead"), "spec.overhead")


def _check_resources(owner: Object, path: str) -> None:
    resources = owner.get("resources") or {}
    for part in ("requests", "limits"):
        _check_amounts(resources.get(part), f"{path}.{part}")


def _check_amounts(amounts: Mapping[str, Any] | None, path: str) -> None:
    for name, amount in (amounts or {}).items():
        try:
            value = nanos(amount)
        except InvalidQuantity as error:
            raise InvalidQuantity(error.problem, path=f"{path}[{name}]") from None
        if value < 0:
            raise InvalidObject(f"expected an amount that is not negative, got {amount!r}", path=f"{path}[{name}]")


def _use_container_ports(container: Object) -> None:
    for port in container.get("ports") or ():
        port["hostPort"] = port.get("hostPort") or port.get("containerPort") or 0


def _completed(limit: Object) -> Object:
    """The defaults of a LimitRange's entry: limits that it lacks are its maxima, requests its limits or minima."""
    limits = {**(limit.get("max") or {}), **(limit.get("default") or {})}
    requests = {**(limit.get("min") or {}), **limits, **(limit.get("defaultRequest") or {})}
    return {"default": limits, "defaultRequest": requests}


def _default_requests(owner: Object) -> None:
    """Set missing requests to the limits, as the API server does."""
    resources: Mapping[str, Any] = owner.get("resources") or {}
    if resources.get("limits"):
        requests = {**resources["limits"], **(resources.get("requests") or {})}
        owner["resources"] = {**resources, "requests": requests}


def _tolerate_unreachable_nodes(spec: Object) -> None:
    tolerations: list[Object] = list(spec.get("tolerations") or ())
    for taint in _UNREACHABLE_TAINTS:
        if not any(_tolerates_no_execute(toleration, taint) for toleration in tolerations):
            toleration = {"key": taint, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append(toleration | {"tolerationSeconds": _TOLERATION_SECONDS})
    spec["tolerations"] = tolerations


def _tolerates_no_execute(toleration: Object, taint: str) -> bool:
    return toleration.get("key") in (taint, "", None) and toleration.get("effect") in ("NoExecute", "", None)
