"""What the API server and its admission plugins add to a pod when it is created, as far as scheduling depends on it.

Manifests lack it, objects from a dump have it already. Applied are, in the API server's order: defaults of the pod
(:mod:`kubestow.rules.defaults`), the admission plugins LimitRanger, Priority, DefaultTolerationSeconds and RuntimeClass
(:mod:`kubestow.rules.admission`), and the label keys of pod affinity terms. LimitRanges and ResourceQuotas refuse new
pods (:class:`Refusals`); pod security is not enforced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow.api.core import Pod
from kubestow.api.formats.quantity import nanos
from kubestow.api.meta import convert
from kubestow.errors import InvalidObject, InvalidQuantity
from kubestow.rules.admission import (
    SYSTEM_PRIORITIES,
    apply_runtime_class,
    default_priority_class,
    joined_violations,
    pod_violations,
    set_container_defaults,
    tolerate_unreachable_nodes,
)
from kubestow.rules.defaults import (
    default_limit_range_item,
    default_pod_level_requests,
    default_pod_spec,
    merge_label_keys,
)
from kubestow.rules.resource_lists import ResourceList, added
from kubestow.rules.resource_quotas import (
    charged,
    has_scope,
    limited,
    missing_requirements,
    pod_usage,
    scope_requirements,
)

Object = dict[str, Any]


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


class _QuotaSpec(msgspec.Struct, rename="camel", frozen=True):
    hard: dict[str, Any] = {}
    scopes: list[str] = []


class _QuotaStatus(msgspec.Struct, frozen=True):
    used: dict[str, Any] = {}


class _ResourceQuota(msgspec.Struct, frozen=True):
    """The structure of a ResourceQuota, as far as admission reads it."""

    spec: _QuotaSpec = _QuotaSpec()
    status: _QuotaStatus = _QuotaStatus()


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

    #: Priority classes by name.
    _priority_classes: dict[str, Object] = field(
        default_factory=lambda: {name: {"value": value} for name, value in SYSTEM_PRIORITIES.items()}
    )
    #: By namespace, as the API server has completed them.
    _limit_ranges: dict[str, list[Object]] = field(default_factory=dict)
    _runtime_classes: dict[str, Object] = field(default_factory=dict)
    _quotas: dict[str, list[Object]] = field(default_factory=dict)
    #: The spec of claims by namespace and name of the ResourceClaimTemplate.
    claim_templates: dict[tuple[str, str], Object] = field(default_factory=dict)

    def add(self, kind: str, manifest: Object) -> None:
        """Add an object of one of the kinds that admission reads. Raises InvalidObject."""
        metadata = manifest.get("metadata") or {}
        name, namespace = metadata.get("name") or "", metadata.get("namespace") or "default"
        match kind:
            case "PriorityClass":
                if not isinstance(manifest.get("value", 0), int):
                    raise InvalidObject("expected an integer", path="value")
                self._priority_classes[name] = manifest
            case "LimitRange":
                convert(_LimitRange, manifest)
                limits = (manifest.get("spec") or {}).get("limits") or ()
                for index, limit in enumerate(limits):
                    for part in ("min", "max", "default", "defaultRequest"):
                        _check_amounts(limit.get(part), f"spec.limits[{index}].{part}")
                    default_limit_range_item(limit)
                self._limit_ranges.setdefault(namespace, []).append(manifest)
            case "ResourceQuota":
                quota = convert(_ResourceQuota, manifest)
                _check_amounts(quota.spec.hard, "spec.hard")
                _check_amounts(quota.status.used, "status.used")
                self._quotas.setdefault(namespace, []).append(manifest)
            case "RuntimeClass":
                _check_amounts(convert(_RuntimeClass, manifest).overhead.pod_fixed, "overhead.podFixed")
                self._runtime_classes[name] = manifest
            case "ResourceClaimTemplate":
                self.claim_templates[namespace, name] = manifest.get("spec") or {}

    def learn_priority(self, class_name: str, priority: int | None, policy: str | None) -> None:
        """Learn the value of a priority class, which a dump may lack, from a pod that uses it."""
        if class_name and priority is not None:
            self._priority_classes.setdefault(class_name, {"value": priority, "preemptionPolicy": policy})

    def admit(self, pod: Object, namespace: str) -> None:
        """Complete the manifest of a new pod in place. Raises InvalidObject for one that would be refused."""
        spec = pod.setdefault("spec", {})
        if not spec.get("containers"):
            raise InvalidObject("required value", path="spec.containers")
        _check_requests(spec)
        default_pod_spec(spec)
        default_pod_level_requests(spec)
        for limit_range in self._limit_ranges.get(namespace, ()):
            set_container_defaults(spec, limit_range)
        self.set_priority(spec)
        tolerate_unreachable_nodes(spec)
        runtime_class = self._runtime_classes.get(spec.get("runtimeClassName"))
        if runtime_class is not None:
            apply_runtime_class(spec, runtime_class)
        merge_label_keys(spec, (pod.get("metadata") or {}).get("labels") or {})

    def limit_range_refusal(self, spec: Object, namespace: str) -> str:
        """Why the LimitRanges of a namespace refuse a complete pod spec, "" if they do not."""
        refusals = (joined_violations(pod_violations(spec, each)) for each in self._limit_ranges.get(namespace, ()))
        return next(filter(None, refusals), "")

    def quotas(self, namespace: str) -> Sequence[Object]:
        """The ResourceQuotas of a namespace."""
        return self._quotas.get(namespace, ())

    def set_priority(self, spec: Object) -> None:
        """Set priority and preemption policy of a pod spec by its priority class. Raises InvalidObject."""
        name, classes = spec.get("priorityClassName"), self._priority_classes
        if name and name not in classes:
            problem = f'no PriorityClass with name "{name}" in the input, and no pod that uses it'
            raise InvalidObject(problem, path="spec.priorityClassName")
        priority_class = classes[name] if name else default_priority_class(classes.values())
        if priority_class is None:
            spec.setdefault("priority", 0)
            return
        spec["priorityClassName"] = name or priority_class["metadata"].get("name", "")
        spec["priority"] = priority_class.get("value", 0)
        policy = priority_class.get("preemptionPolicy") or "PreemptLowerPriority"
        spec["preemptionPolicy"] = spec.get("preemptionPolicy") or policy


class Refusals:
    """Which new pods the LimitRanges and ResourceQuotas of a cluster refuse, in the words of kube-apiserver.

    Quotas are charged with each pod that is not refused. What the ``existing`` pods use is what the status of a quota
    says, or else the sum of their own usage.
    """

    def __init__(self, admission: Admission, existing: Iterable[Pod]) -> None:
        self._admission, self._existing = admission, existing
        #: What is used of each quota, by namespace and name.
        self._used: dict[tuple[str, str], ResourceList] = {}

    def refusal(self, pod: Object, namespace: str) -> str:
        """Why a complete new pod is refused, "" if it is not."""
        spec = pod["spec"]
        if refusal := self._admission.limit_range_refusal(spec, namespace):
            return refusal
        charges: dict[tuple[str, str], ResourceList] = {}
        usage = {"count/pods": "1", **pod_usage(pod)}
        for quota in self._admission.quotas(namespace):
            if not all(has_scope(each, spec) for each in scope_requirements(quota)):
                continue
            name, hard = quota["metadata"]["name"], _hard(quota)
            if missing := missing_requirements(spec, hard):
                return f"failed quota: {name}: must specify {missing}"
            requested = limited(usage, hard)
            after, problem = charged(name, hard, self._use(quota, namespace), requested)
            if problem:
                return problem
            charges[namespace, name] = after
        self._used |= charges
        return ""

    def _use(self, quota: Object, namespace: str) -> ResourceList:
        key = namespace, quota["metadata"]["name"]
        if key not in self._used:
            scopes = scope_requirements(quota)
            manifests = (
                {"spec": msgspec.to_builtins(pod.spec), "status": {"phase": pod.status.phase}}
                for pod in self._existing
                if pod.metadata.namespace == namespace
            )
            lists = [
                {"count/pods": "1", **pod_usage(manifest)}
                for manifest in manifests
                if all(has_scope(each, manifest["spec"]) for each in scopes)
            ]
            reported = (quota.get("status") or {}).get("used") or {}
            self._used[key] = dict.fromkeys(_hard(quota), "0") | added(*lists) | reported
        return self._used[key]


def _hard(quota: Object) -> ResourceList:
    hard: ResourceList = (quota.get("spec") or {}).get("hard") or {}
    return hard


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
