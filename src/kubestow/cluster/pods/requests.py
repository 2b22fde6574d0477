"""How much a pod asks for, and how much a node has, in the whole numbers that scheduling counts with.

An :data:`Amounts` maps resource names to int: ``cpu`` in millicores, everything else in units (bytes, counts), rounded
up after all containers are added. The rules are the reference's (7.4, 7.5): init containers run one after another,
sidecars beside everything that follows them, pod-level requests replace what the containers add up to, and a running
pod counts what its kubelet has actually given it while a resize is under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from kubestow.api.core import Container, ContainerStatus, Pod, ResourceRequirements
from kubestow.api.quantity import NANOS, Quantity, millis, nanos, round_up, units
from kubestow.errors import InvalidQuantity

__all__ = [
    "CPU",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "PODS",
    "Amounts",
    "allocatable_amounts",
    "is_counted",
    "is_scalar",
    "limits_by_spec",
    "occupied",
    "requests_by_spec",
    "scored_requests",
]

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"

#: What a container is taken to use when it does not say (scoring only): 100m of CPU, 200Mi of memory.
_DEFAULT_NANOS = {CPU: NANOS // 10, MEMORY: 200 * 2**20 * NANOS}
_NATIVE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_MAX = 2**63 - 1

Amounts = dict[str, int]
_Exact = dict[str, int]  # in nano units, before anything is rounded


def is_scalar(name: str) -> bool:
    """Whether a resource is counted by name alone: extended, huge pages, ``kubernetes.io/…``, attachable volumes."""
    return name.startswith(("hugepages-", "attachable-volumes-")) or ("/" in name and not name.startswith("requests."))


def is_counted(name: str) -> bool:
    """Whether nodes keep account of a resource at all."""
    return name in _NATIVE or is_scalar(name)


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _amounts(exact: Mapping[str, int]) -> Amounts:
    """Nano units to what scheduling counts in, without the resources that nobody counts."""
    return {
        name: min(_MAX, round_up(Fraction(value, NANOS // 1000 if name == CPU else NANOS)))
        for name, value in exact.items()
        if is_counted(name)
    }


def allocatable_amounts(allocatable: Mapping[str, Quantity]) -> Amounts:
    """A node's allocatable resources, ``pods`` included. Raises InvalidQuantity with the path of the resource."""
    amounts: Amounts = {}
    for name, quantity in allocatable.items():
        if name != PODS and not is_counted(name):
            continue
        try:
            amounts[name] = millis(quantity) if name == CPU else units(quantity)
        except InvalidQuantity as error:
            raise InvalidQuantity(error.problem, path=f"status.allocatable[{name}]") from None
    return amounts


def _exact(quantities: Mapping[str, Quantity], path: str) -> _Exact:
    try:
        return {name: nanos(quantity) for name, quantity in quantities.items()}
    except InvalidQuantity as error:
        raise InvalidQuantity(error.problem, path=path) from None


def _add(total: _Exact, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: _Exact, other: Mapping[str, int]) -> None:
    for name, value in other.items():
        if name not in total or value > total[name]:
            total[name] = value


@dataclass(frozen=True, slots=True)
class _Account:
    """One way of adding up a pod: what each container counts for, and what stands in for the pod as a whole."""

    pod: Pod
    statuses: Mapping[str, ContainerStatus]
    defaults: Mapping[str, int]
    levels: Mapping[str, int]

    def total(self) -> _Exact:
        """Semantics 7.5: containers, init containers in order with the sidecars before them, pod level, overhead."""
        spec = self.pod.spec
        total: _Exact = {}
        for position, container in enumerate(spec.containers):
            _add(total, self._container(container, f"spec.containers[{position}]"))
        sidecars: _Exact = {}
        peak: _Exact = {}
        for position, container in enumerate(spec.init_containers):
            path = f"spec.initContainers[{position}]"
            if container.restart_policy == "Always":
                request = self._container(container, path)
                _add(total, request)
                _add(sidecars, request)
                _raise_to(peak, sidecars)
            else:
                request = dict(self.defaults) | _spec_request(container, path)
                _add(request, sidecars)
                _raise_to(peak, request)
        _raise_to(total, peak)
        total |= self.levels
        _add(total, _exact(spec.overhead, "spec.overhead"))
        return total

    def _container(self, container: Container, path: str) -> _Exact:
        request = _spec_request(container, path)
        status = self.statuses.get(container.name)
        if status is not None and status.resources is not None:  # a resize may be under way
            if _resize_is_infeasible(self.pod):
                request = {}
            _raise_to(request, _exact(status.resources.requests, f"{path}.status.resources.requests"))
            _raise_to(request, _exact(status.allocated_resources, f"{path}.status.allocatedResources"))
        return dict(self.defaults) | request


def _spec_request(container: Container, path: str) -> _Exact:
    return _exact(container.resources.requests, f"{path}.resources.requests")


def _resize_is_infeasible(pod: Pod) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)


def _levels(pod: Pod, *, running: bool) -> _Exact:
    """The pod-level requests that replace what the containers add up to, for the resources that the spec names."""
    if pod.spec.resources is None or not pod.spec.resources.requests:
        return {}
    levels = _exact(pod.spec.resources.requests, "spec.resources.requests")
    named = [name for name in levels if _is_pod_level(name)]
    if running and pod.status.resources is not None:
        if _resize_is_infeasible(pod):
            levels = {}
        _raise_to(levels, _exact(pod.status.resources.requests, "status.resources.requests"))
        _raise_to(levels, _exact(pod.status.allocated_resources, "status.allocatedResources"))
    return {name: levels[name] for name in named if name in levels}


def _missing(levels: Mapping[str, int], total: Mapping[str, int]) -> _Exact:
    """Defaults for containers: all of them, or with pod-level requests those of resources that nobody asks for."""
    return {name: value for name, value in _DEFAULT_NANOS.items() if not levels or name not in total}


def _cpu_and_memory(total: _Exact) -> tuple[int, int]:
    amounts = _amounts(total)
    return amounts.get(CPU, 0), amounts.get(MEMORY, 0)


def requests_by_spec(pod: Pod) -> Amounts:
    """What a pod asks for. Raises InvalidQuantity with the path of the container."""
    return _amounts(_Account(pod, {}, {}, _levels(pod, running=False)).total())


def limits_by_spec(pod: Pod) -> Amounts:
    """What a pod may use at most, added up like its requests; the overhead counts where there is a limit at all."""
    limited = [_limited(container) for container in pod.spec.containers]
    init = [_limited(container) for container in pod.spec.init_containers]
    whole = pod.spec.resources
    spec = msgspec.structs.replace(
        pod.spec,
        containers=limited,
        init_containers=init,
        resources=None if whole is None else ResourceRequirements(requests=whole.limits),
    )
    without_overhead = Pod(metadata=pod.metadata, spec=msgspec.structs.replace(spec, overhead={}))
    amounts = requests_by_spec(without_overhead)
    overhead = _amounts(_exact(pod.spec.overhead, "spec.overhead"))
    return {name: amount + overhead.get(name, 0) for name, amount in amounts.items() if amount}


def _limited(container: Container) -> Container:
    """The container with its limits in the place of its requests."""
    return msgspec.structs.replace(container, resources=ResourceRequirements(requests=container.resources.limits))


def scored_requests(pod: Pod) -> tuple[int, int]:
    """CPU (millicores) and memory (bytes) an incoming pod is scored by: containers with defaults for what they lack.

    QUIRK (semantics 8.8): pod-level requests are left out here, though :func:`occupied` has them.
    """
    return _cpu_and_memory(_Account(pod, {}, _DEFAULT_NANOS, {}).total())


def occupied(pod: Pod) -> tuple[Amounts, tuple[int, int]]:
    """What a pod on a node takes: its requests, and the (CPU, memory) that scoring counts it for.

    Unlike :func:`requests_by_spec` it looks at the resources a kubelet reports during an in-place resize.
    """
    reported = [*pod.status.container_statuses, *pod.status.init_container_statuses]
    statuses = {status.name: status for status in reported if status.resources is not None}
    levels = _levels(pod, running=True)
    total = _Account(pod, statuses, {}, levels).total()
    return _amounts(total), _cpu_and_memory(_Account(pod, statuses, _missing(levels, total), levels).total())
