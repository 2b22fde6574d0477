"""The order in which the pods of a node are evicted: by priority, then quality of service, then preference.

Pods without a priority go first, then those of lower priority; of equal priority BestEffort goes before Burstable and
Guaranteed; at last go those that prefer not to be evicted.
"""

from __future__ import annotations

from kubestow.api.core import Container
from kubestow.api.formats import quantity
from kubestow.cluster.pods.shapes import Shape
from kubestow.descheduling.cluster_state import AssignedPod
from kubestow.rules.requests import CPU, MEMORY

__all__ = ["PREFER_NO_EVICTION", "eviction_order", "quality_of_service"]

PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The annotation of pods that should rather not be evicted, whatever its value."""

_BEST_EFFORT, _BURSTABLE, _GUARANTEED = "BestEffort", "Burstable", "Guaranteed"
_RANKS = {_BEST_EFFORT: 0, _BURSTABLE: 1, _GUARANTEED: 2}
_COMPUTE = (CPU, MEMORY)


def eviction_order(pod: AssignedPod) -> tuple[bool, int, int, bool]:
    """The sort key of a pod; the smallest goes first."""
    priority = pod.priority
    rank = _RANKS.get(quality_of_service(pod), 0)
    return priority is not None, priority or 0, rank, PREFER_NO_EVICTION in pod.annotations


def quality_of_service(pod: AssignedPod) -> str:
    """``status.qosClass``, computed from the spec if it is not set."""
    return pod.status.qos_class or _by_spec(pod.shape)


def _by_spec(shape: Shape) -> str:
    containers = (*shape.spec.containers, *shape.spec.init_containers)
    requests, limits = _sums(containers, "requests"), _sums(containers, "limits")
    if not requests and not limits:
        return _BEST_EFFORT
    limited = all(_positive(container.resources.limits, name) for container in containers for name in _COMPUTE)
    return _GUARANTEED if limited and requests == limits else _BURSTABLE


def _sums(containers: tuple[Container, ...], kind: str) -> dict[str, int]:
    """The sum of the positive amounts of CPU and memory, in nano units."""
    sums: dict[str, int] = {}
    for container in containers:
        amounts = getattr(container.resources, kind)
        for name in _COMPUTE:
            if amount := _positive(amounts, name):
                sums[name] = sums.get(name, 0) + amount
    return sums


def _positive(amounts: dict[str, quantity.Quantity], name: str) -> int:
    return max(0, quantity.nanos(amounts[name])) if name in amounts else 0
