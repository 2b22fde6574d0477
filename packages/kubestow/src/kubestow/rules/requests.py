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

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import msgspec

from kubestow.api.core import Container, ContainerStatus, Pod, PodStatus, ResourceRequirements
from kubestow.api.formats.quantity import NANOS, Quantity, millis, nanos, units, whole
from kubestow.errors import InvalidQuantity
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor

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


class Gates(Protocol):
    """The feature gates of a minor version."""

    @property
    def minor(self) -> Minor:
        """The minor version."""

    def enabled(self, name: str) -> bool:
        """Whether a gate is enabled; False for one that the minor version does not have."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """What of a pod counts as its requests, in a ``minor`` version with some of its feature gates enabled.

    ``pod_level`` is the gate PodLevelResources, ``in_place_resize`` the gate InPlacePodVerticalScaling, and
    ``pod_level_resize`` the gate InPlacePodLevelResourcesVerticalScaling.
    """

    minor: Minor = DEFAULT_MINOR
    pod_level: bool = True
    in_place_resize: bool = True
    pod_level_resize: bool = True

    @classmethod
    def of(cls, gates: Gates) -> RequestRules:
        """Those of a minor version with its feature gates."""
        return cls(
            gates.minor,
            gates.enabled("PodLevelResources"),
            gates.enabled("InPlacePodVerticalScaling"),
            gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        )

    def reads(self, status: PodStatus) -> bool:
        """Whether a pod with this status may count for something else than the requests of its spec."""
        if not self.in_place_resize:
            return False
        if not (status.container_statuses or status.init_container_statuses or status.resources or status.resize):
            return self.minor.has(Behaviour.RESIZED_PODS_COUNT_BY_TOTALS) and _is_infeasible(status)
        statuses = (*status.container_statuses, *status.init_container_statuses)
        if not self.minor.has(Behaviour.RESIZED_CONTAINERS_COUNT_AS_REPORTED):
            return bool(status.resize) or any(reported.allocated_resources for reported in statuses)
        if status.resources is not None or any(reported.resources is not None for reported in statuses):
            return True
        return self.minor.has(Behaviour.RESIZED_PODS_COUNT_BY_TOTALS) and (
            _is_infeasible(status) or any(reported.allocated_resources for reported in statuses)
        )

    def counts_for_pod(self, name: str) -> bool:
        """Whether a request of a resource counts when it is set for the pod as a whole."""
        return is_pod_level(name) and (
            name in (CPU, MEMORY) or self.minor.has(Behaviour.HUGE_PAGES_COUNT_FOR_THE_WHOLE_POD)
        )


#: The rules of the default minor version, with its default gates.
CURRENT_RULES = RequestRules()


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

    ``resized`` is what containers count for whose status reports resources; None leaves the statuses out. ``defaults``
    stand in for missing requests of containers; ``pod_level`` are the pod-level requests.
    """

    pod: Pod
    resized: _ResizedRequests | None
    defaults: Mapping[str, int]
    pod_level: Mapping[str, int]

    def total(self) -> _Exact:
        overhead = _exact(self.pod.spec.overhead, "spec.overhead")
        return self._whole(self.pod_level, overhead)

    def of_containers(self) -> _Exact:
        """The sum without pod-level requests and overhead."""
        return self._whole({}, {})

    def _whole(self, pod_level: Mapping[str, int], overhead: Mapping[str, int]) -> _Exact:
        init_containers = [(is_sidecar, self._with_defaults(request)) for is_sidecar, request in self.init_containers()]
        containers = map(self._with_defaults, self.containers())
        return whole_pod(containers, init_containers, pod_level, overhead, added=_added, greatest=_greatest)

    def containers(self) -> list[_Exact]:
        """What each container counts for, without defaults."""
        found = []
        for position, container in enumerate(self.pod.spec.containers):
            path = f"spec.containers[{position}]"
            request = _spec_request(container, path)
            found.append(request if self.resized is None else self.resized.of_container(container, request, path))
        return found

    def init_containers(self) -> list[tuple[bool, _Exact]]:
        """Whether each init container is a sidecar, and what it counts for, without defaults."""
        found = []
        for position, container in enumerate(self.pod.spec.init_containers):
            path, is_sidecar = f"spec.initContainers[{position}]", container.restart_policy == "Always"
            request = _spec_request(container, path)
            if self.resized is not None:
                request = self.resized.of_init_container(container, request, path)
            found.append((is_sidecar, request))
        return found

    def _with_defaults(self, request: _Exact) -> _Exact:
        return {**self.defaults, **request} if self.defaults else request


class _ResizedRequests:
    """What the containers of a running pod count for: during an in-place resize more than their spec says."""

    def __init__(self, pod: Pod) -> None:
        reported = [*pod.status.container_statuses, *pod.status.init_container_statuses]
        self._statuses = {status.name: status for status in reported}
        self._is_infeasible = self._resize_is_infeasible(pod)

    def of_container(self, container: Container, request: _Exact, path: str) -> _Exact:
        """What a container counts for that requests so much in the spec at a path."""
        status = self._statuses.get(container.name)
        if status is None:
            return request
        parts = self._actual(status, path)
        return request if parts is None else _greatest({} if self._is_infeasible else request, *parts)

    def of_init_container(self, container: Container, request: _Exact, path: str) -> _Exact:
        """The same of an init container; only one that keeps running counts for something else than its spec."""
        return self.of_container(container, request, path) if container.restart_policy == "Always" else request

    def _resize_is_infeasible(self, pod: Pod) -> bool:
        return _is_infeasible(pod.status)

    def _actual(self, status: ContainerStatus, path: str) -> Sequence[_Exact] | None:
        """What the kubelet reports and what it has allocated; None where it reports nothing."""
        if status.resources is None:
            return None
        return _reported(status, path), _allocated(status, path)


class _RequestsResizedByReport(_ResizedRequests):
    """The rule before :attr:`Behaviour.RESIZED_CONTAINERS_COUNT_AS_ALLOCATED`."""

    def of_init_container(self, container: Container, request: _Exact, path: str) -> _Exact:
        return request

    def _resize_is_infeasible(self, pod: Pod) -> bool:
        return pod.status.resize == "Infeasible"

    def _actual(self, status: ContainerStatus, path: str) -> Sequence[_Exact] | None:
        return None if status.resources is None else [_reported(status, path)]


class _RequestsResizedByAllocation(_RequestsResizedByReport):
    """The rule before :attr:`Behaviour.RESIZED_CONTAINERS_COUNT_AS_REPORTED`."""

    def _actual(self, status: ContainerStatus, path: str) -> Sequence[_Exact] | None:
        return [_allocated(status, path)]


class _RequestsAllocated(_ResizedRequests):
    """What the kubelet has allocated to the containers; the requests of those to which it has allocated nothing yet."""

    def of_container(self, container: Container, request: _Exact, path: str) -> _Exact:
        status = self._statuses.get(container.name)
        if status is not None and status.allocated_resources:
            return _allocated(status, path)
        return {} if self._is_infeasible else request

    def of_init_container(self, container: Container, request: _Exact, path: str) -> _Exact:
        return self.of_container(container, request, path)


class _RequestsInEffect(_RequestsAllocated):
    """What is in effect of the requests of the containers; of those where nothing is reported, what is allocated."""

    def of_container(self, container: Container, request: _Exact, path: str) -> _Exact:
        status = self._statuses.get(container.name)
        reported = {} if status is None else _reported(status, path)
        return reported or super().of_container(container, request, path)


def _largest_total(pod: Pod, pod_level: _Exact, rules: RequestRules, defaults: Mapping[str, int]) -> _Exact:
    """The rule since :attr:`Behaviour.RESIZED_PODS_COUNT_BY_TOTALS`."""
    by_spec, in_effect, allocated = (
        _RequestSum(pod, resized, defaults, {}).of_containers()
        for resized in (None, _RequestsInEffect(pod), _RequestsAllocated(pod))
    )
    status = pod.status
    reported = None if status.resources is None else status.resources.requests
    if rules.pod_level_resize and reported and status.allocated_resources:
        in_effect = _exact(reported, "status.resources.requests")
        allocated = _exact(status.allocated_resources, "status.allocatedResources")
    total = _greatest({} if _is_infeasible(pod.status) else by_spec, in_effect, allocated) | pod_level
    return _added(total, _exact(pod.spec.overhead, "spec.overhead"))


def _resized_requests(pod: Pod, rules: RequestRules) -> _ResizedRequests | None:
    if not rules.in_place_resize:
        return None
    if rules.minor.has(Behaviour.RESIZED_CONTAINERS_COUNT_AS_ALLOCATED):
        return _ResizedRequests(pod)
    if rules.minor.has(Behaviour.RESIZED_CONTAINERS_COUNT_AS_REPORTED):
        return _RequestsResizedByReport(pod)
    return _RequestsResizedByAllocation(pod)


def _reported(status: ContainerStatus, path: str) -> _Exact:
    requests = {} if status.resources is None else status.resources.requests
    return _exact(requests, f"{path}.status.resources.requests")


def _allocated(status: ContainerStatus, path: str) -> _Exact:
    return _exact(status.allocated_resources, f"{path}.status.allocatedResources")


def _spec_request(container: Container, path: str) -> _Exact:
    return _exact(container.resources.requests, f"{path}.resources.requests")


def _is_infeasible(status: PodStatus) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions)


def _pod_level_requests(pod: Pod, rules: RequestRules, *, running: bool) -> _Exact:
    """The pod-level requests, which replace the sum of the containers, for the resources that the spec names.

    Since :attr:`Behaviour.RESIZED_PODS_COUNT_BY_TOTALS` those of a running pod are for all resources that count.
    """
    if not rules.pod_level or pod.spec.resources is None or not pod.spec.resources.requests:
        return {}
    pod_level = _exact(pod.spec.resources.requests, "spec.resources.requests")
    named = [name for name in pod_level if rules.counts_for_pod(name)]
    if running and rules.in_place_resize and rules.pod_level_resize and pod.status.resources is not None:
        if _is_infeasible(pod.status):
            pod_level = {}
        reported = _exact(pod.status.resources.requests, "status.resources.requests")
        pod_level = _greatest(pod_level, reported, _exact(pod.status.allocated_resources, "status.allocatedResources"))
        if rules.minor.has(Behaviour.RESIZED_PODS_COUNT_BY_TOTALS):
            named = [name for name in pod_level if rules.counts_for_pod(name)]
    return {name: pod_level.get(name, 0) for name in named}


def requests_by_spec(pod: Pod, rules: RequestRules = CURRENT_RULES) -> Amounts:
    """A pod's requests. Raises InvalidQuantity with the path of the container."""
    return _amounts(_RequestSum(pod, None, {}, _pod_level_requests(pod, rules, running=False)).total())


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


def scored_requests(pod: Pod, rules: RequestRules = CURRENT_RULES) -> Amounts:
    """The requests by which NodeResourcesFit scores a pending pod: CPU and memory with defaults per container.

    QUIRK (semantics 8.8): pod-level requests do not count here, although they do in :func:`placed_requests`.
    """
    pod_level: _Exact = {}
    if not rules.minor.has(Behaviour.FIT_SCORES_WITHOUT_POD_LEVEL_REQUESTS):
        pod_level = _pod_level_requests(pod, rules, running=False)
    return _amounts(_RequestSum(pod, None, _DEFAULT_NANOS, pod_level).total())


def placed_requests(pod: Pod, rules: RequestRules = CURRENT_RULES) -> tuple[Amounts, tuple[int, int]]:
    """What a placed pod counts for: its requests, and the CPU (millicores) and memory (bytes) for scoring.

    Unlike :func:`requests_by_spec` this includes the resources that the kubelet reports during an in-place resize.
    """
    pod_level = _pod_level_requests(pod, rules, running=True)
    by_containers = _RequestSum(pod, _resized_requests(pod, rules), {}, pod_level)
    counts_totals = rules.in_place_resize and rules.minor.has(Behaviour.RESIZED_PODS_COUNT_BY_TOTALS)
    total = _largest_total(pod, pod_level, rules, {}) if counts_totals else by_containers.total()
    if not rules.minor.has(Behaviour.DEFAULT_REQUESTS_OF_SIDECARS_ADD_UP):
        return _amounts(total), (
            _former_scored_amount(by_containers, CPU),
            _former_scored_amount(by_containers, MEMORY),
        )
    # With pod-level requests, only resources without any request have defaults.
    defaults = {name: value for name, value in _DEFAULT_NANOS.items() if not pod_level or name not in total}
    if counts_totals:
        scored = _amounts(_largest_total(pod, pod_level, rules, defaults))
    else:
        scored = _amounts(replace(by_containers, defaults=defaults).total())
    return _amounts(total), (scored.get(CPU, 0), scored.get(MEMORY, 0))


def _former_scored_amount(requests: _RequestSum, name: str) -> int:
    """What a pod counted for in scores (millicores or bytes): :attr:`Behaviour.DEFAULT_REQUESTS_OF_SIDECARS_ADD_UP`."""
    unit = NANOS // 1000 if name == CPU else NANOS

    def amount(request: Mapping[str, int]) -> int:
        return whole(request.get(name, _DEFAULT_NANOS[name]), unit)

    peak, sidecars = 0, _added()
    for is_sidecar, request in requests.init_containers():
        running = _added(sidecars, request)
        if is_sidecar:
            sidecars = running
        peak = max(peak, amount(running))
    overhead = _exact(requests.pod.spec.overhead, "spec.overhead")
    return max(sum(map(amount, requests.containers())), peak) + whole(overhead.get(name, 0), unit)
