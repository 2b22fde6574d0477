"""The requests of pods and the allocatable resources of nodes.

:func:`whole_pod` is the rule (semantics 7.5, KEP-753, KEP-2837, KEP-688): init containers run one after another,
sidecars beside everything that follows them, pod-level requests replace the sum of the containers, and the overhead is
added. It serves two forms of quantities: the API server adds quantities in their notation
(:mod:`kubestow.rules.resource_lists`), and the functions here add integers, as kube-scheduler does. During an in-place
resize a running pod counts for the larger of what it requests and what the kubelet has allocated (KEP-1287).

An :data:`Amounts` maps resource names to int: ``cpu`` in millicores, everything else in units (bytes, counts), rounded
up after all containers are added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kubestow.api.core import Container, ContainerStatus, Pod, ResourceRequirements
from kubestow.api.formats.quantity import NANOS, Quantity, millis, nanos, units, whole
from kubestow.errors import InvalidQuantity
from kubestow.rules.minors import NEWEST, Minor

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"

#: The requests that scoring assumes for a container without any: 100m of CPU, 200Mi of memory.
_DEFAULT_NANOS = {CPU: NANOS // 10, MEMORY: 200 * 2**20 * NANOS}
_NATIVE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})

Amounts = dict[str, int]
_Exact = dict[str, int]  # nano units, before rounding
Q = TypeVar("Q")


def is_scalar(name: str) -> bool:
    """Whether a resource is a scalar: extended, huge pages, ``kubernetes.io/…`` or attachable volumes."""
    return name.startswith(("hugepages-", "attachable-volumes-")) or ("/" in name and not name.startswith("requests."))


def is_counted(name: str) -> bool:
    """Whether scheduling counts a resource: native and scalar ones."""
    return name in _NATIVE or is_scalar(name)


def is_pod_level(name: str) -> bool:
    """Whether requests and limits of a resource can be set for the pod as a whole (KEP-2837)."""
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def whole_pod(
    containers: Iterable[Mapping[str, Q]],
    init_containers: Collection[tuple[bool, Mapping[str, Q]]],
    pod_level: Mapping[str, Q],
    overhead: Mapping[str, Q],
    *,
    added: Callable[..., dict[str, Q]],
    greatest: Callable[..., dict[str, Q]],
) -> dict[str, Q]:
    """The requests of a pod by resource, of those of its parts (semantics 7.5).

    ``init_containers`` say of each whether it is a sidecar; ``pod_level`` replaces the sum of containers. ``added`` and
    ``greatest`` take any number of mappings and return the sum and the maximum of each resource.
    """
    total = added(*containers)
    if init_containers:
        # Only what a container requests is updated, so that many with resources of their own take linear time.
        sidecars, peak = added(), added()
        for is_sidecar, request in init_containers:
            running = added(_those_of(sidecars, request), request)
            if is_sidecar:
                sidecars.update(running)
            peak.update(greatest(_those_of(peak, running), running))
        total = greatest(added(total, sidecars), peak)
    total |= pod_level
    return added(total, overhead) if overhead else total


def _those_of(amounts: Mapping[str, Q], names: Iterable[str]) -> dict[str, Q]:
    return {name: amounts[name] for name in names if name in amounts}


def _amounts(exact: Mapping[str, int]) -> Amounts:
    """Round nano units up to millicores, bytes and counts, and leave out resources that are not counted."""
    return {
        name: whole(value, NANOS // 1000 if name == CPU else NANOS) for name, value in exact.items() if is_counted(name)
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


def _added(*parts: Mapping[str, int]) -> _Exact:
    total: _Exact = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _greatest(*parts: Mapping[str, int]) -> _Exact:
    greatest: _Exact = {}
    for part in parts:
        for name, value in part.items():
            if name not in greatest or value > greatest[name]:
                greatest[name] = value
    return greatest


@dataclass(frozen=True, slots=True)
class _RequestSum:
    """One way of summing a pod's requests.

    ``statuses`` are the container statuses that report resources, by container name; ``defaults`` stand in for missing
    requests of containers; ``pod_level`` are the pod-level requests.
    """

    pod: Pod
    statuses: Mapping[str, ContainerStatus]
    defaults: Mapping[str, int]
    pod_level: Mapping[str, int]

    def total(self) -> _Exact:
        spec = self.pod.spec
        containers = [self._container(one, f"spec.containers[{n}]") for n, one in enumerate(spec.containers)]
        init_containers = []
        for position, container in enumerate(spec.init_containers):
            path, is_sidecar = f"spec.initContainers[{position}]", container.restart_policy == "Always"
            by_spec = {**self.defaults, **_spec_request(container, path)}
            init_containers.append((is_sidecar, self._container(container, path) if is_sidecar else by_spec))
        overhead = _exact(spec.overhead, "spec.overhead")
        return whole_pod(containers, init_containers, self.pod_level, overhead, added=_added, greatest=_greatest)

    def _container(self, container: Container, path: str) -> _Exact:
        request = _spec_request(container, path)
        status = self.statuses.get(container.name)
        if status is not None and status.resources is not None:  # a resize may be in progress
            if _resize_is_infeasible(self.pod):
                request = {}
            reported = _exact(status.resources.requests, f"{path}.status.resources.requests")
            allocated = _exact(status.allocated_resources, f"{path}.status.allocatedResources")
            request = _greatest(request, reported, allocated)
        return {**self.defaults, **request} if self.defaults else request


def _spec_request(container: Container, path: str) -> _Exact:
    return _exact(container.resources.requests, f"{path}.resources.requests")


def _resize_is_infeasible(pod: Pod) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)


def _pod_level_requests(pod: Pod, *, running: bool) -> _Exact:
    """The pod-level requests, which replace the sum of the containers, for the resources that the spec names."""
    if pod.spec.resources is None or not pod.spec.resources.requests:
        return {}
    pod_level = _exact(pod.spec.resources.requests, "spec.resources.requests")
    named = [name for name in pod_level if is_pod_level(name)]
    if running and pod.status.resources is not None:
        if _resize_is_infeasible(pod):
            pod_level = {}
        reported = _exact(pod.status.resources.requests, "status.resources.requests")
        pod_level = _greatest(pod_level, reported, _exact(pod.status.allocated_resources, "status.allocatedResources"))
    return {name: pod_level[name] for name in named if name in pod_level}


def requests_by_spec(pod: Pod) -> Amounts:
    """A pod's requests. Raises InvalidQuantity with the path of the container."""
    return _amounts(_RequestSum(pod, {}, {}, _pod_level_requests(pod, running=False)).total())


def limits_by_spec(pod: Pod) -> Amounts:
    """A pod's limits, summed like requests; the overhead counts only for resources with a limit.

    Raises InvalidQuantity with the path of the container.
    """
    limited = [_limited(container) for container in pod.spec.containers]
    init = [_limited(container) for container in pod.spec.init_containers]
    whole = None if pod.spec.resources is None else ResourceRequirements(requests=pod.spec.resources.limits)
    limits: dict[str, Any] = {"containers": limited, "init_containers": init, "resources": whole, "overhead": {}}
    without_overhead = Pod(metadata=pod.metadata, spec=msgspec.structs.replace(pod.spec, **limits))
    try:
        amounts = requests_by_spec(without_overhead)
    except InvalidQuantity as error:  # of limits that stand in place of requests
        raise InvalidQuantity(error.problem, path=error.path.replace("requests", "limits")) from None
    overhead = _amounts(_exact(pod.spec.overhead, "spec.overhead"))
    return {name: amount + overhead.get(name, 0) for name, amount in amounts.items() if amount}


def _limited(container: Container) -> Container:
    """The container with its limits as its requests."""
    return msgspec.structs.replace(container, resources=ResourceRequirements(requests=container.resources.limits))


def without_invalid_quantities(pod: Pod) -> Pod:
    """The pod without the requests and limits that do not parse; what it has on its node can then be counted."""
    spec, status = pod.spec, pod.status
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=[_with_valid_resources(one) for one in spec.containers],
            init_containers=[_with_valid_resources(one) for one in spec.init_containers],
            overhead=_valid(spec.overhead),
            resources=_valid_resources(spec.resources),
        ),
        status=msgspec.structs.replace(
            status,
            container_statuses=[_with_valid_resources(one) for one in status.container_statuses],
            init_container_statuses=[_with_valid_resources(one) for one in status.init_container_statuses],
            resources=_valid_resources(status.resources),
            allocated_resources=_valid(status.allocated_resources),
        ),
    )


_C = TypeVar("_C", Container, ContainerStatus)


def _with_valid_resources(container: _C) -> _C:
    changes: dict[str, Any] = {"resources": _valid_resources(container.resources)}
    if isinstance(container, ContainerStatus):
        changes["allocated_resources"] = _valid(container.allocated_resources)
    return msgspec.structs.replace(container, **changes)


def _valid_resources(resources: ResourceRequirements | None) -> ResourceRequirements | None:
    if resources is None:
        return None
    return ResourceRequirements(requests=_valid(resources.requests), limits=_valid(resources.limits))


def _valid(quantities: Mapping[str, Quantity]) -> dict[str, Quantity]:
    return {name: quantity for name, quantity in quantities.items() if _is_valid(quantity)}


def _is_valid(quantity: Quantity) -> bool:
    try:
        nanos(quantity)
    except InvalidQuantity:
        return False
    return True


def scored_requests(pod: Pod) -> Amounts:
    """The requests by which NodeResourcesFit scores a pending pod: CPU and memory with defaults per container.

    QUIRK (semantics 8.8): pod-level requests do not count here, although they do in :func:`placed_requests`.
    """
    return _amounts(_RequestSum(pod, {}, _DEFAULT_NANOS, {}).total())


def placed_requests(pod: Pod, minor: Minor = NEWEST) -> tuple[Amounts, tuple[int, int]]:
    """What a placed pod counts for: its requests, and the CPU (millicores) and memory (bytes) for scoring.

    Unlike :func:`requests_by_spec` this includes the resources that the kubelet reports during an in-place resize.
    """
    reported = [*pod.status.container_statuses, *pod.status.init_container_statuses]
    statuses = {status.name: status for status in reported if status.resources is not None}
    pod_level = _pod_level_requests(pod, running=True)
    total = _RequestSum(pod, statuses, {}, pod_level).total()
    # With pod-level requests, only resources without any request have defaults.
    defaults = {name: value for name, value in _DEFAULT_NANOS.items() if not pod_level or name not in total}
    scored = _amounts(_RequestSum(pod, statuses, defaults, pod_level).total())
    return _amounts(total), (scored.get(CPU, 0), scored.get(MEMORY, 0))
