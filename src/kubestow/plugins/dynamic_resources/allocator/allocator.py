"""Finds devices for claims, on one node after another.

A search is not repeated without need: nodes that reach the same devices have the same answer, and so have claims that
ask for the same. An answer holds until somebody takes a device of the pools concerned, or gives one back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kubestow.api.resource import AllocationResult, DeviceClass, ResourceClaim
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.devices.claims import ClaimLedger
from kubestow.plugins.dynamic_resources.allocator.allocation import allocation
from kubestow.plugins.dynamic_resources.allocator.requests import ClaimDemand, demanded
from kubestow.plugins.dynamic_resources.allocator.search import Chosen, Search, Supplies
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.cel import Selectors
from kubestow.plugins.dynamic_resources.inventory.pools import ReachableDevices

__all__ = ["Allocator", "Found", "Wanted"]

#: So many answers are remembered, about 1.5 kB each; the wishes that were not repeated for longest go first.
_MOST_REMEMBERED = 50_000

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Found:
    """Devices for claims, in the order of the claims that were asked for first; others like them are served alike."""

    demands: Sequence[ClaimDemand]
    chosen: Sequence[Sequence[Chosen]]

    @property
    def requests(self) -> list[set[str]]:
        """For each claim the requests, or the alternatives of requests, that got devices."""
        return [{choice.demand.name for choice in chosen} for chosen in self.chosen]

    def allocations(
        self, claims: Sequence[ResourceClaim], node_name: str, features: Features
    ) -> list[AllocationResult]:
        """What to write into each claim if the pod goes to this node. Raises AllocationError."""
        return [
            allocation(claim, demand, chosen, node_name, features=features)
            for claim, demand, chosen in zip(claims, self.demands, self.chosen, strict=True)
        ]


_Answers = dict[ReachableDevices, tuple[int, Found | None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Claims that want devices, all of them or none, and what is known of claims like them."""

    claims: Sequence[ResourceClaim]
    answers: _Answers


class Allocator:
    """``steps`` bounds each search, None does not."""

    def __init__(
        self,
        ledger: ClaimLedger,
        classes: Catalog[DeviceClass],
        features: Features,
        *,
        steps: int | None,
    ) -> None:
        self._ledger = ledger
        self._supplies = Supplies(ledger)
        self._classes = classes
        self._selectors = Selectors()
        self._features = features
        self._steps = steps
        self._published = (-1, -1)
        self._remembered: OrderedDict[bytes, _Answers] = OrderedDict()

    def wanted(self, claims: Sequence[ResourceClaim], *, slices_version: int) -> Wanted:
        """Claims to find devices for, among slices as they are published now."""
        if self._published != (slices_version, self._classes.version):
            self._remembered.clear()
            self._supplies.forget()
            self._published = (slices_version, self._classes.version)
        key = _encode([claim.spec for claim in claims])
        answers = self._remembered.pop(key, None)
        self._remembered[key] = answers = {} if answers is None else answers
        while len(self._remembered) > 1 and sum(map(len, self._remembered.values())) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return Wanted(claims, answers)

    def find(self, wanted: Wanted, reached: ReachableDevices) -> Found | None:
        """Devices for all claims, None when there are not enough. Raises AllocationError or SelectorError."""
        moment = sum(self._ledger.changes(*pool.id) for pool in reached.pools)
        known = wanted.answers.get(reached)
        if known is None or known[0] != moment:
            known = wanted.answers[reached] = (moment, self._search(wanted.claims, reached))
        return known[1]

    def _search(self, claims: Sequence[ResourceClaim], reached: ReachableDevices) -> Found | None:
        search = Search(
            reached.candidates,
            self._supplies,
            selectors=self._selectors,
            features=self._features,
            steps=self._steps,
        )
        demands = [
            demanded(claim, reached, self._class, features=self._features, wanted=search.selects) for claim in claims
        ]
        chosen = search.run(demands)
        return None if chosen is None else Found(demands, chosen)

    def _class(self, name: str) -> DeviceClass | None:
        return self._classes.get("", name)
