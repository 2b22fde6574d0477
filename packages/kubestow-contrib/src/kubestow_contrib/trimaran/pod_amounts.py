"""What trimaran takes the requests and limits of a pod to be.

Upstream adds up all containers, raises the sum to the largest init container, and adds the pod's overhead. Sidecars and
pod-level resources are not taken into account, other than by NodeResourcesFit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

from kubestow.api.core import Container
from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.cluster.pods.shapes import Shape, ShapeFamily
from kubestow.errors import InvalidQuantity

__all__ = ["cpu_and_memory", "limits", "requests"]


_requests: WeakKeyDictionary[ShapeFamily, tuple[int, int]] = WeakKeyDictionary()
_limits: WeakKeyDictionary[ShapeFamily, tuple[int, int]] = WeakKeyDictionary()


def requests(shape: Shape) -> tuple[int, int]:
    """CPU (millicores) and memory (bytes) that a pod requests."""
    found = _requests.get(shape.family)
    if found is None:
        found = _requests[shape.family] = _effective(shape, lambda container: container.resources.requests)
    return found


def limits(shape: Shape) -> tuple[int, int]:
    """The limits of a pod, CPU (millicores) and memory (bytes), at least what it requests."""
    found = _limits.get(shape.family)
    if found is None:
        found = _limits[shape.family] = _limits_of(shape)
    return found


def _limits_of(shape: Shape) -> tuple[int, int]:
    cpu, memory = _effective(shape, lambda container: container.resources.limits)
    requested_cpu, requested_memory = requests(shape)
    return max(cpu, requested_cpu), max(memory, requested_memory)


def cpu_and_memory(quantities: Mapping[str, Quantity]) -> tuple[int, int]:
    """CPU (millicores) and memory (bytes) of a list of resources, 0 if absent or malformed."""
    return _amount(quantities, "cpu", millis), _amount(quantities, "memory", units)


def _effective(shape: Shape, resources: Callable[[Container], Mapping[str, Quantity]]) -> tuple[int, int]:
    spec = shape.spec
    cpu = memory = 0
    for container in spec.containers:
        container_cpu, container_memory = cpu_and_memory(resources(container))
        cpu, memory = cpu + container_cpu, memory + container_memory
    for container in spec.init_containers:
        container_cpu, container_memory = cpu_and_memory(resources(container))
        cpu, memory = max(cpu, container_cpu), max(memory, container_memory)
    overhead_cpu, overhead_memory = cpu_and_memory(spec.overhead)
    return cpu + overhead_cpu, memory + overhead_memory


def _amount(quantities: Mapping[str, Quantity], name: str, convert: Callable[[Quantity], int]) -> int:
    try:
        return convert(quantities.get(name, 0))
    except InvalidQuantity:
        return 0
