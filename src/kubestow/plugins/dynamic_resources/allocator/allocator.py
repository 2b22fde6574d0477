"""Allocates devices for the claims of a pod, on one node after another, and caches the results.

Nodes that can access the same devices share a result, and so do claims with the same spec. A result is valid until a
device of an accessible pool is allocated or deallocated, and until slices or device classes change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kubestow.api.resource import AllocationResult, DeviceClass, ResourceClaim
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.devices.claims import ResourceClaimTracker
from kubestow.plugins.dynamic_resources.allocator.allocation_result import allocation_result
from kubestow.plugins.dynamic_resources.allocator.requests import ResolvedClaim, resolve_claim
from kubestow.plugins.dynamic_resources.allocator.search import AllocationSearch, DeviceResult
from kubestow.plugins.dynamic_resources.allocator.shared_counters import AvailableCounters
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.cel import SelectorCache
from kubestow.plugins.dynamic_resources.inventory.pools import AccessibleDevices

__all__ = ["Allocator", "ClaimsToAllocate", "Solution"]

#: About 1.5 kB each; those of the least recently used claim specs are evicted first.
_MAX_CACHED_SOLUTIONS = 50_000

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Solution:
    """Devices for a list of claims, valid for any list of claims with the same specs."""

    claims: Sequence[ResolvedClaim]
    results: Sequence[Sequence[DeviceResult]]

    @property
    def allocated_requests(self) -> list[set[str]]:
        """For each claim the names of its requests or chosen subrequests (``request/subrequest``)."""
        return [{result.request.result_name for result in results} for results in self.results]

    def allocation_results(
        self, claims: Sequence[ResourceClaim], node_name: str, features: Features
    ) -> list[AllocationResult]:
        """``status.allocation`` of each claim if the pod is placed on this node. Raises AllocationError."""
        return [
            allocation_result(claim, resolved, results, node_name, features=features)
            for claim, resolved, results in zip(claims, self.claims, self.results, strict=True)
        ]


#: By accessible devices: the number of allocation changes in their pools at the time of the search, and its result.
_Solutions = dict[AccessibleDevices, tuple[int, Solution | None]]


@dataclass(frozen=True, slots=True)
class ClaimsToAllocate:
    """Claims that are allocated together or not at all, with the cached solutions for their specs."""

    claims: Sequence[ResourceClaim]
    solutions: _Solutions


class Allocator:
    """Allocates claims. ``max_steps`` bounds each search; None for no bound."""

    def __init__(
        self,
        tracker: ResourceClaimTracker,
        classes: Catalog[DeviceClass],
        features: Features,
        *,
        max_steps: int | None,
    ) -> None:
        self._tracker = tracker
        self._available_counters = AvailableCounters(tracker)
        self._classes = classes
        self._selectors = SelectorCache()
        self._features = features
        self._max_steps = max_steps
        self._versions = (-1, -1)
        self._solutions: OrderedDict[bytes, _Solutions] = OrderedDict()

    def prepare(self, claims: Sequence[ResourceClaim], *, slices_version: int) -> ClaimsToAllocate:
        """Claims to allocate from the slices of a version of their catalog."""
        if self._versions != (slices_version, self._classes.version):
            self._solutions.clear()
            self._available_counters.clear()
            self._versions = (slices_version, self._classes.version)
        key = _encode([claim.spec for claim in claims])
        solutions = self._solutions.pop(key, None)
        self._solutions[key] = solutions = {} if solutions is None else solutions
        while len(self._solutions) > 1 and sum(map(len, self._solutions.values())) > _MAX_CACHED_SOLUTIONS:
            self._solutions.popitem(last=False)
        return ClaimsToAllocate(claims, solutions)

    def allocate(self, to_allocate: ClaimsToAllocate, devices: AccessibleDevices) -> Solution | None:
        """Devices for all claims, None if there is no solution. Raises AllocationError or SelectorError."""
        changes = sum(self._tracker.pool_version(*pool.id) for pool in devices.pools)
        cached = to_allocate.solutions.get(devices)
        if cached is None or cached[0] != changes:
            cached = to_allocate.solutions[devices] = (changes, self._search(to_allocate.claims, devices))
        return cached[1]

    def _search(self, claims: Sequence[ResourceClaim], devices: AccessibleDevices) -> Solution | None:
        search = AllocationSearch(
            devices.candidates,
            self._tracker,
            self._available_counters,
            selectors=self._selectors,
            features=self._features,
            max_steps=self._max_steps,
        )
        resolved = [
            resolve_claim(claim, devices, self._device_class, features=self._features, matches=search.matches)
            for claim in claims
        ]
        results = search.run(resolved)
        return None if results is None else Solution(resolved, results)

    def _device_class(self, name: str) -> DeviceClass | None:
        return self._classes.get("", name)
