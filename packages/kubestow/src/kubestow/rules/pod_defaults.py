"""What the API server adds to the spec of a new pod on account of several of its fields, in manifests.

Defaults of a single field are left to the callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.rules.resource_lists import pod_resources

__all__ = ["default_pod_level_requests", "merge_label_keys"]

Object = dict[str, Any]

#: The resources whose pod-level requests are those of the containers.
_SUMMED = ("cpu", "memory")


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
