"""Arithmetic with resource lists (``cpu: 500m``), and the requests and limits of whole pods.

Sums keep the notation of what is added, as kube-apiserver's do: 512Mi and 1Gi make 1536Mi.
"""

from __future__ import annotations

from typing import Literal

from kubestow.api.formats.canonical_quantity import total
from kubestow.api.formats.quantity import nanos
from kubestow_devcluster.apiserver.schema.types import Object

__all__ = ["ResourceList", "added", "exceeding", "formatted", "greatest", "pod_resources", "subtracted"]

ResourceList = dict[str, str]


def added(*lists: ResourceList) -> ResourceList:
    names = dict.fromkeys(name for one in lists for name in one)
    return {name: total([one[name] for one in lists if name in one]) for name in names}


def subtracted(minuend: ResourceList, subtrahend: ResourceList) -> ResourceList:
    return added(minuend, {name: _negated(quantity) for name, quantity in subtrahend.items()})


def greatest(*lists: ResourceList) -> ResourceList:
    """The greatest quantity of each resource."""
    names = dict.fromkeys(name for one in lists for name in one)
    return {name: max((one[name] for one in lists if name in one), key=nanos) for name in names}


def exceeding(amounts: ResourceList, bounds: ResourceList) -> list[str]:
    """The resources, sorted, of which there is more than their bound."""
    return sorted(
        name for name, quantity in amounts.items() if name in bounds and nanos(quantity) > nanos(bounds[name])
    )


def formatted(amounts: ResourceList, names: list[str]) -> str:
    """Some of the resources as in messages: ``cpu=2,memory=1Gi``."""
    return ",".join(f"{name}={amounts[name]}" for name in names)


def pod_resources(spec: Object, field: Literal["requests", "limits"], *, with_overhead: bool = True) -> ResourceList:
    """The requests or limits of a pod.

    Init containers run one after another, sidecars beside everything after them. What the pod itself requests replaces
    the sum of its containers. The overhead counts towards limits only of resources that have one.
    """

    def of(container: Object) -> ResourceList:
        return (container.get("resources") or {}).get(field) or {}

    containers, sidecars, peak = added(*map(of, spec["containers"])), ResourceList(), ResourceList()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = added(sidecars, of(container))
            peak = greatest(peak, sidecars)
        else:
            peak = greatest(peak, added(sidecars, of(container)))
    resources = greatest(added(containers, sidecars), peak) | of(spec)
    overhead: ResourceList = (spec.get("overhead") or {}) if with_overhead else {}
    if field == "limits":
        overhead = {name: quantity for name, quantity in overhead.items() if name in resources}
    return added(resources, overhead)


def _negated(quantity: str) -> str:
    return quantity.removeprefix("-") if quantity.startswith("-") else f"-{quantity}"
