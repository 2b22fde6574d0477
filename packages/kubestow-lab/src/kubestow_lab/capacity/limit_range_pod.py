"""The largest pod that a namespace allows, as genpod makes it: requests and limits are the least maxima for pods."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from kubestow.api.formats import quantity
from kubestow.api.formats.canonical_quantity import canonical

__all__ = ["limit_range_pod"]

Object = dict[str, Any]

_NAME = "cluster-capacity-stub-container"
_IMAGE = "gcr.io/google_containers/pause:2.0"
_NODE_SELECTOR = "openshift.io/node-selector"
_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


def limit_range_pod(namespace: Object, limit_ranges: Iterable[Object]) -> Object:
    """The pod of a namespace with its LimitRanges. Raises InvalidQuantity."""
    least: dict[str, tuple[Fraction, str]] = {}
    for limit_range in limit_ranges:
        for limit in (limit_range.get("spec") or {}).get("limits") or ():
            if limit.get("type") != "Pod":
                continue
            for name, amount in (limit.get("max") or {}).items():
                value = quantity.parse(amount)
                if name in _RESOURCES and (name not in least or value < least[name][0]):
                    least[name] = value, canonical(str(amount))
    amounts = {name: least[name][1] for name in _RESOURCES if name in least}
    container: Object = {
        "name": _NAME,
        "image": _IMAGE,
        "imagePullPolicy": "Always",
        "resources": {"limits": amounts, "requests": dict(amounts)} if amounts else {},
    }
    metadata = namespace.get("metadata") or {}
    spec: Object = {"containers": [container], "dnsPolicy": "Default", "restartPolicy": "OnFailure"}
    selector = (metadata.get("annotations") or {}).get(_NODE_SELECTOR, "")
    if selector:
        pairs = (part.partition("=") for part in selector.split(","))
        spec["nodeSelector"] = {key.strip(): value.strip() for key, _, value in pairs}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME, "namespace": metadata.get("name", "")},
        "spec": spec,
    }
