"""What admission plugins of the API server set in new pods, in manifests, in place, and what they refuse.

The plugins are, in their order, LimitRanger, Priority, DefaultTolerationSeconds and RuntimeClass. Which objects a
cluster has of the kinds that they read is up to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubestow.api.formats.quantity import nanos
from kubestow.errors import InvalidObject
from kubestow.rules.resource_lists import ResourceList, pod_resources

Object = dict[str, Any]


# -- LimitRanger -----------------------------------------------------------------------------------------------------


def set_container_defaults(spec: Object, limit_range: Mapping[str, Any]) -> list[str]:
    """Set the requests and limits that containers lack to the defaults of a LimitRange ("Limit Ranges").

    Its entries are complete (:func:`~kubestow.rules.defaults.default_limit_range_item`). Returns what was set, as the
    annotation ``kubernetes.io/limit-ranger`` lists it.
    """
    requests: ResourceList = {}
    limits: ResourceList = {}
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            requests |= item.get("defaultRequest") or {}
            limits |= item.get("default") or {}
    notes: list[str] = []
    for field, prefix in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(field) or ():
            resources = container.get("resources") or {}
            for part, noun, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
                own = resources.get(part) or {}
                missing = sorted(defaults.keys() - own.keys())
                if missing:
                    resources = {**resources, part: {**own, **{name: defaults[name] for name in missing}}}
                    notes.append(f"{', '.join(missing)} {noun} for {prefix} {container.get('name', '')}")
            container["resources"] = resources
    return notes


def pod_violations(spec: Object, limit_range: Mapping[str, Any]) -> Iterator[str]:
    """The bounds of a LimitRange that a pod spec violates, in the words of kube-apiserver; one can occur twice."""
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            for container in (*spec["containers"], *(spec.get("initContainers") or ())):
                resources = container.get("resources") or {}
                yield from violations(item, resources.get("requests") or {}, resources.get("limits") or {})
        elif item.get("type") == "Pod":
            requests = pod_resources(spec, "requests", with_overhead=False)
            limits = pod_resources(spec, "limits", with_overhead=False)
            yield from violations(item, requests, limits)


def joined_violations(problems: Iterable[str]) -> str:
    """The message of several violations, "" if there are none."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


def violations(item: Object, requests: ResourceList, limits: ResourceList | None) -> Iterator[str]:
    """The bounds that requests and limits violate. Claims have no limits (None), so their requests are bounded."""
    for name, bound in sorted((item.get("min") or {}).items()):
        subject = f"minimum {name} usage per {item['type']} is {bound}"
        if name not in requests:
            yield f"{subject}.  No request is specified"
        elif nanos(requests[name]) < nanos(bound):
            yield f"{subject}, but request is {requests[name]}"
        elif limits is not None and name in limits and nanos(limits[name]) < nanos(bound):
            yield f"{subject}, but limit is {limits[name]}"
    for name, bound in sorted((item.get("max") or {}).items()):
        subject = f"maximum {name} usage per {item['type']} is {bound}"
        bounded, noun = (requests, "request") if limits is None else (limits, "limit")
        if name not in bounded:
            yield f"{subject}.  No {noun} is specified"
        elif nanos(bounded[name]) > nanos(bound):
            yield f"{subject}, but {noun} is {bounded[name]}"
        elif name in requests and nanos(requests[name]) > nanos(bound):
            yield f"{subject}, but request is {requests[name]}"
    for name, bound in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        subject = f"{name} max limit to request ratio per {item['type']} is {bound}"
        request, limit = nanos(requests.get(name, "0")), nanos((limits or {}).get(name, "0"))
        if not request:
            yield f"{subject}, but no request is specified or request is 0"
        elif not limit:
            yield f"{subject}, but no limit is specified or limit is 0"
        elif limit * 10**9 > nanos(bound) * request:
            yield f"{subject}, but provided ratio is {limit / request:f}"


# -- Priority --------------------------------------------------------------------------------------------------------

#: The values of the two priority classes that every cluster has.
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def default_priority_class(classes: Iterable[Object]) -> Object | None:
    """The class of pods without one, None without a global default ("Pod Priority and Preemption").

    Of several, which only a race can create, it is the one with the lowest value.
    """
    defaults = (each for each in classes if each.get("globalDefault"))
    return min(defaults, key=lambda each: int(each.get("value") or 0), default=None)


# -- DefaultTolerationSeconds ----------------------------------------------------------------------------------------

_UNREACHABLE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS = 300


def tolerate_unreachable_nodes(spec: Object) -> None:
    """Let a pod without an opinion tolerate nodes that are not ready or unreachable for five minutes.

    The rule is that of "Taint based Evictions".
    """
    tolerations: list[Object] = list(spec.get("tolerations") or ())
    opinions = {one.get("key") for one in tolerations if (one.get("effect") or "NoExecute") == "NoExecute"}
    for key in _UNREACHABLE_TAINTS:
        if not opinions & {key, "", None}:
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append(toleration | {"tolerationSeconds": _TOLERATION_SECONDS})
    spec["tolerations"] = tolerations


# -- RuntimeClass ----------------------------------------------------------------------------------------------------


def apply_runtime_class(spec: Object, runtime_class: Mapping[str, Any]) -> None:
    """Give a pod the overhead, node selector and tolerations of its runtime class (KEP-688, "Runtime Class").

    Raises InvalidObject, in the words of kube-apiserver, for a pod that contradicts its class.
    """
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if spec.get("overhead") and overhead is None:
        raise InvalidObject("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if (spec.get("overhead") or overhead) != overhead:
        raise InvalidObject("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = dict(overhead)
    scheduling = runtime_class.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            raise InvalidObject(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value};"
                f" pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    if selector:
        spec["nodeSelector"] = selector
    if scheduling.get("tolerations"):
        spec["tolerations"] = merged_tolerations(spec, scheduling["tolerations"])


def merged_tolerations(spec: Mapping[str, Any], added: Iterable[Object]) -> list[Object]:
    """The tolerations of a pod spec and further ones, without duplicates."""
    tolerations: list[Object] = list(spec.get("tolerations") or ())
    return [*tolerations, *(dict(toleration) for toleration in added if toleration not in tolerations)]
