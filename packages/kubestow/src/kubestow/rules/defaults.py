"""What the API server fills in when an object lacks it, as far as decisions depend on it; in manifests, in place.

Admission plugins (:mod:`kubestow.rules.admission`) come after it. The defaults that only show in the API are left to
the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.rules.resource_lists import pod_resources

Object = dict[str, Any]

DEFAULT_SCHEDULER = "default-scheduler"
#: The resources whose pod-level requests are those of the containers.
_SUMMED = ("cpu", "memory")


# -- pods ------------------------------------------------------------------------------------------------------------


def default_pod_spec(spec: Object) -> None:
    """Set the scheduler, the host ports of pods in the host network, and requests that equal limits.

    It applies to pods and to templates (SetDefaults_PodSpec, SetDefaults_Pod of the API reference).
    """
    spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for port in container.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"
            if spec.get("hostNetwork") and not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]
        resources = container.get("resources") or {}
        if limits := resources.get("limits"):
            container["resources"] = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}


def default_pod_level_requests(spec: Object) -> None:
    """With pod-level limits, set missing pod-level requests to those of the containers, else to the limits (KEP-2837).

    Raises InvalidQuantity for requests of a container that are none.
    """
    resources: Mapping[str, Any] = spec.get("resources") or {}
    if not resources.get("limits"):
        return
    amounts = pod_resources({part: spec.get(part) for part in ("containers", "initContainers")}, "requests")
    requested = {name: amounts[name] for name in _SUMMED if name in amounts}
    requests = {**resources["limits"], **requested, **(resources.get("requests") or {})}
    spec["resources"] = {**resources, "requests": requests}


def merge_label_keys(spec: Object, labels: Mapping[str, str]) -> None:
    """Add the pod's values of the label keys of affinity terms to their selectors (KEP-3633).

    These are ``matchLabelKeys`` and ``mismatchLabelKeys``; of topology spread constraints, the scheduler reads them.
    """
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(weighted.get("podAffinityTerm") or {} for weighted in preferred)):
            added = [
                {"key": key, "operator": operator, "values": [labels[key]]}
                for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
                for key in term.get(keys) or ()
                if key in labels
            ]
            selector = term.get("labelSelector")
            if added and selector is not None:  # without a selector, the term matches no pod
                expressions = [*(selector.get("matchExpressions") or ()), *added]
                term["labelSelector"] = {**selector, "matchExpressions": expressions}


# -- other kinds -----------------------------------------------------------------------------------------------------


def default_allocatable(status: Object) -> None:
    """What of a node is allocatable is its capacity unless the status has ``allocatable`` (SetDefaults_NodeStatus)."""
    if status.get("allocatable") is None and status.get("capacity") is not None:
        status["allocatable"] = dict(status["capacity"])


def default_limit_range_item(item: Object) -> None:
    """Complete an entry of a LimitRange for containers (SetDefaults_LimitRangeItem).

    Limits that it lacks are its maxima, and requests its limits or else its minima.
    """
    if item.get("type") != "Container":
        return
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    for field, amounts in (("default", limits), ("defaultRequest", requests)):
        if amounts:
            item[field] = amounts


def default_resource_claim_spec(spec: Object) -> None:
    """A request of a resource claim is for exactly one device unless it says otherwise (KEP-4381, KEP-4816)."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for device in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if device is not None and device.setdefault("allocationMode", "ExactCount") == "ExactCount":
                device.setdefault("count", 1)
