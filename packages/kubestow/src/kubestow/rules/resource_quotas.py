"""What pods count for in a ResourceQuota, and when one refuses a pod ("Resource Quotas")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubestow.api.formats.quantity import nanos
from kubestow.rules.pods import QOSClass, is_terminal, qos_class_of
from kubestow.rules.resource_lists import ResourceList, added, exceeding, formatted, pod_resources

Object = dict[str, Any]

#: What a quota can require every container of a pod to specify.
_REQUIRED = ("cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory")


def charged(name: str, hard: ResourceList, used: ResourceList, requested: ResourceList) -> tuple[ResourceList, str]:
    """What is used of a quota with ``requested`` more, all of which it limits, and why it refuses that, "" if not."""
    after = used | {resource: added(used, requested)[resource] for resource in requested}
    exceeded = exceeding({resource: after[resource] for resource in requested}, hard)
    if not exceeded:
        return after, ""
    return after, (
        f"exceeded quota: {name}, requested: {formatted(requested, exceeded)}, used: {formatted(used, exceeded)},"
        f" limited: {formatted(hard, exceeded)}"
    )


def limited(usage: ResourceList, hard: ResourceList) -> ResourceList:
    """The part of a usage that a quota limits."""
    return {resource: amount for resource, amount in usage.items() if resource in hard and nanos(amount) > 0}


def scope_requirements(quota: Mapping[str, Any]) -> list[Object]:
    """The scopes of a quota, in the form of its scopeSelector."""
    spec = quota.get("spec") or {}
    requirements = [*((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]
    return [*requirements, *({"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ())]


def missing_requirements(spec: Object, hard: Iterable[str]) -> str:
    """What containers of a pod must specify because of the resources of a quota: ``cpu for: a,b; memory for: a``."""
    containers = (*spec["containers"], *(spec.get("initContainers") or ()))
    missing: dict[str, list[str]] = {}
    for name in sorted(set(hard).intersection(_REQUIRED)):
        lacking = sorted(one["name"] for one in containers if name not in resources_usage(one.get("resources") or {}))
        if lacking:
            missing[name] = lacking
    return "; ".join(f"{name} for: {','.join(containers)}" for name, containers in missing.items())


def pod_usage(pod: Object) -> ResourceList:
    """What a pod counts for: nothing once it has finished."""
    if is_terminal((pod.get("status") or {}).get("phase")):
        return {}
    spec = pod["spec"]
    resources = {"requests": pod_resources(spec, "requests"), "limits": pod_resources(spec, "limits")}
    return {"pods": "1", **resources_usage(resources)}


def resources_usage(resources: Object) -> ResourceList:
    """Requests and limits under the names that quotas have for them."""
    usage: ResourceList = {}
    for name, quantity in (resources.get("requests") or {}).items():
        usage[f"requests.{name}"] = quantity
        if "/" not in name:
            usage[name] = quantity
    for name, quantity in (resources.get("limits") or {}).items():
        if name in ("cpu", "memory", "ephemeral-storage"):
            usage[f"limits.{name}"] = quantity
    return usage


def has_scope(requirement: Object, spec: Object) -> bool:
    """Whether a pod spec has a scope."""
    match requirement["scopeName"]:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return qos_class_of(spec) is QOSClass.BEST_EFFORT
        case "NotBestEffort":
            return qos_class_of(spec) is not QOSClass.BEST_EFFORT
        case "CrossNamespacePodAffinity":
            terms = _affinity_terms(spec.get("affinity") or {})
            return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)
        case "PriorityClass":
            return matches(requirement, spec.get("priorityClassName") or "")
    return False


def matches(requirement: Object, value: str) -> bool:
    """Whether a value is one that a scope requirement selects."""
    match requirement["operator"]:
        case "In":
            return bool(value) and value in (requirement.get("values") or ())
        case "NotIn":
            return value not in (requirement.get("values") or ())
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
    return False


def _affinity_terms(affinity: Object) -> Iterator[Object]:
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        yield from part.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in part.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted["podAffinityTerm"]
