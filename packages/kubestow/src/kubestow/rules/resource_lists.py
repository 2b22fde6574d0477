"""Arithmetic with resource lists of manifests (``cpu: 500m``), and the requests and limits of whole pods.

Sums keep the notation of what is added, as kube-apiserver's do: 512Mi and 1Gi make 1536Mi.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from kubestow.api.formats.canonical_quantity import total
from kubestow.api.formats.quantity import nanos
from kubestow.rules.requests import is_pod_level, whole_pod

ResourceList = dict[str, str]


def added(*lists: ResourceList) -> ResourceList:
    """The sum of each resource."""
    return {name: total(quantities) for name, quantities in _by_resource(lists).items()}


def _by_resource(lists: Iterable[ResourceList]) -> dict[str, list[str]]:
    """The quantities of each resource, in the order of the lists."""
    found: dict[str, list[str]] = {}
    for one in lists:
        for name, quantity in one.items():
            found.setdefault(name, []).append(quantity)
    return found


def subtracted(minuend: ResourceList, subtrahend: ResourceList) -> ResourceList:
    """The difference of each resource of either list."""
    negated = {name: one[1:] if one.startswith("-") else f"-{one}" for name, one in subtrahend.items()}
    return added(minuend, negated)


def greatest(*lists: ResourceList) -> ResourceList:
    """The greatest quantity of each resource."""
    return {name: max(quantities, key=nanos) for name, quantities in _by_resource(lists).items()}


def exceeding(amounts: ResourceList, bounds: ResourceList) -> list[str]:
    """The resources, sorted, of which there is more than their bound."""
    return sorted(
        name for name, quantity in amounts.items() if name in bounds and nanos(quantity) > nanos(bounds[name])
    )


def formatted(amounts: ResourceList, names: list[str]) -> str:
    """Some of the resources as in messages: ``cpu=2,memory=1Gi``."""
    return ",".join(f"{name}={amounts[name]}" for name in names)


def pod_resources(
    spec: Mapping[str, Any], field: Literal["requests", "limits"], *, with_overhead: bool = True
) -> ResourceList:
    """The requests or limits of the pods of a manifest's spec (:func:`~kubestow.rules.requests.whole_pod`).

    The overhead counts towards limits only of resources that have one.
    """

    def of(owner: Mapping[str, Any]) -> ResourceList:
        return (owner.get("resources") or {}).get(field) or {}

    containers = [of(container) for container in spec.get("containers") or ()]
    init = [(one.get("restartPolicy") == "Always", of(one)) for one in spec.get("initContainers") or ()]
    pod_level = {name: amount for name, amount in of(spec).items() if is_pod_level(name)}
    resources = whole_pod(containers, init, pod_level, {}, added=added, greatest=greatest)
    overhead: ResourceList = (spec.get("overhead") or {}) if with_overhead else {}
    if field == "limits":
        overhead = {name: quantity for name, quantity in overhead.items() if name in resources}
    return added(resources, overhead)
