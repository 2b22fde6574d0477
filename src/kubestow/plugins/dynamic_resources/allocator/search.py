"""The search for devices: depth first, claim by claim, request by request, device by device; the first fit wins.

Devices are tried in the order in which their pools publish them (semantics 8.16). Within one request only combinations
are tried, not permutations. What was chosen on the way is kept in the search and taken back when it leads nowhere.

QUIRK: a device that is refused after its counters were drawn upon (because of a taint, a constraint or its capacity)
keeps them for the rest of the search, and so does a shareable one that is taken back. It is the reference's behaviour,
and decides which devices are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kubestow.api.quantity import Quantity, nanos
from kubestow.api.resource import DeviceTaint, DeviceToleration
from kubestow.cluster.devices.claims import ClaimLedger, DeviceID
from kubestow.cluster.nodes.taints import tolerates
from kubestow.plugins.dynamic_resources.allocator.consumable_capacity import consumption, fits
from kubestow.plugins.dynamic_resources.allocator.requests import (
    MOST_DEVICES,
    AllocationError,
    ClaimDemand,
    Demand,
    TimedOut,
)
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.cel import Selectors
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice
from kubestow.plugins.dynamic_resources.inventory.pools import Candidate, Pool
from kubestow.plugins.dynamic_resources.inventory.slices import PoolID

__all__ = ["Chosen", "Search", "Supplies"]

_PREVENTING = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device for a demand; ``consumed`` are the shares of its capacities, None when it is not shared."""

    demand: Demand
    device: PooledDevice
    consumed: Mapping[str, Quantity] | None


class Supplies:
    """What the claims that have devices leave for others."""

    def __init__(self, ledger: ClaimLedger) -> None:
        self.ledger = ledger
        self._left: dict[Pool, tuple[int, dict[str, dict[str, int]]]] = {}

    def forget(self) -> None:
        """Pools have been published anew."""
        self._left.clear()

    def counters(self, pool: Pool) -> Mapping[str, Mapping[str, int]]:
        """What allocated devices leave of a pool's counters, in nano units; may be negative."""
        moment = self.ledger.changes(*pool.id)
        known = self._left.get(pool)
        if known is None or known[0] != moment:
            known = self._left[pool] = (moment, self._count(pool))
        return known[1]

    def _count(self, pool: Pool) -> dict[str, dict[str, int]]:
        left = {name: dict(counters) for name, counters in pool.counters.items()}
        for device in pool.devices():
            if self.ledger.is_taken(device.id) or self.ledger.is_shared(device.id):
                _draw(left, device, -1)
        return left


class _TooManyDevices(Exception):
    """The claim could not hold the devices of this combination; fewer may do."""


class Search:
    """One search. ``steps`` bounds how many combinations are tried, None does not."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        supplies: Supplies,
        *,
        selectors: Selectors,
        features: Features,
        steps: int | None,
    ) -> None:
        self._claims: Sequence[ClaimDemand] = ()
        self._candidates = candidates
        self._supplies = supplies
        self._selectors = selectors
        self._features = features
        self._steps = steps
        self._chosen: list[list[Chosen]] = []
        #: Devices chosen so far, with the claims that have them for themselves.
        self._taken: dict[DeviceID, set[int]] = {}
        self._consumed: dict[DeviceID, Counter[str]] = {}
        self._drawn: dict[PoolID, dict[str, dict[str, int]]] = {}

    def run(self, claims: Sequence[ClaimDemand]) -> list[list[Chosen]] | None:
        """The devices for each claim, None when there is no solution. Raises AllocationError or SelectorError."""
        self._claims, self._chosen = claims, [[] for _ in claims]
        try:
            return self._chosen if self._from_request(0, 0) else None
        except RecursionError:
            raise AllocationError("the claims ask for too many devices at once") from None

    def selects(self, demand: Demand, candidate: Candidate) -> bool:
        """Whether a demand wants a device, as far as that does not depend on other choices."""
        return demand.selects(candidate, self._selectors, self._features) and self._has_capacity(demand, candidate)

    # -- walking -------------------------------------------------------------------------------------------------

    def _from_request(self, claim: int, request: int) -> bool:
        """Find devices for a request and everything after it."""
        if claim >= len(self._claims):
            return True
        requests = self._claims[claim].requests
        if request >= len(requests):
            try:
                return self._from_request(claim + 1, 0)
            except _TooManyDevices:
                return False
        alternatives = requests[request]
        if not alternatives[0].alternative:
            return self._from_device(claim, request, alternatives[0], 0, 0)
        return self._first_available(claim, request, alternatives)

    def _first_available(self, claim: int, request: int, alternatives: Sequence[Demand]) -> bool:
        exceeded = 0
        for demand in alternatives:
            try:
                if self._from_device(claim, request, demand, 0, 0):
                    return True
            except _TooManyDevices:
                exceeded += 1
        if exceeded == len(alternatives):
            raise _TooManyDevices
        return False

    def _from_device(self, claim: int, request: int, demand: Demand, number: int, start: int) -> bool:
        """Find the ``number``-th device of a demand among the candidates from ``start`` on, and everything after it."""
        self._step()
        if demand.everything is not None and not demand.everything:
            return False
        if number >= demand.count:
            return self._from_request(claim, request + 1)
        if len(self._chosen[claim]) + demand.count - number > MOST_DEVICES:
            raise _TooManyDevices
        if demand.everything is not None:
            return self._with(claim, request, demand, number, 0, demand.everything[number])
        for position in range(start, len(self._candidates)):
            candidate = self._candidates[position]
            if self._is_in_use(claim, demand, candidate.device.id) or not self.selects(demand, candidate):
                continue
            if self._with(claim, request, demand, number, position + 1, candidate):
                return True
        return False

    def _with(self, claim: int, request: int, demand: Demand, number: int, start: int, candidate: Candidate) -> bool:
        """Choose a device and go on; take it back when that leads nowhere."""
        give_back = self._choose(claim, demand, candidate)
        if give_back is None:
            return False
        found = False
        try:
            found = self._from_device(claim, request, demand, number + 1, start)
        finally:
            if not found:
                give_back()
        return found

    def _step(self) -> None:
        if self._steps is None:
            return
        if not self._steps:
            raise TimedOut("timed out trying to allocate devices")
        self._steps -= 1

    # -- choosing ------------------------------------------------------------------------------------------------

    def _is_in_use(self, claim: int, demand: Demand, device: DeviceID) -> bool:
        taken = self._taken.get(device, set())
        if demand.has_admin_access:
            return claim in taken
        return bool(taken) or self._supplies.ledger.is_taken(device)

    def _choose(self, claim: int, demand: Demand, candidate: Candidate) -> Callable[[], None] | None:
        """Mark a device as chosen; how to take that back, None when it cannot be chosen. Raises AllocationError."""
        device = candidate.device
        is_shared = device.device.allow_multiple_allocations and self._features.consumable_capacity
        if not (is_shared and demand.has_admin_access) and self._is_in_use(claim, demand, device.id):
            return None
        if not self._draws_on_counters(device, candidate.pool, is_shared=is_shared):
            return None
        if self._features.taints and not _tolerates(demand.selection.tolerations, device.device.taints):
            return None
        if not self._meets_constraints(claim, demand, device):
            return None
        if not self._has_capacity(demand, candidate):
            return None
        return self._mark(claim, demand, candidate, is_shared=is_shared)

    def _mark(self, claim: int, demand: Demand, candidate: Candidate, *, is_shared: bool) -> Callable[[], None]:
        device, chosen = candidate.device, self._chosen[claim]
        consumed = consumption(device, demand.selection.capacity) if is_shared else None
        if consumed is None:
            self._taken.setdefault(device.id, set()).add(claim)
        else:
            self._consume(device.id, consumed, +1)
        chosen.append(Chosen(demand, device, consumed))

        def give_back() -> None:
            chosen.pop()
            for constraint in self._claims[claim].constraints:
                constraint.remove(demand.request, demand.alternative, device)
            if consumed is not None:
                self._consume(device.id, consumed, -1)
                return
            self._taken[device.id].discard(claim)
            if device.counters:
                _draw(self._drawn.setdefault(candidate.pool.id, {}), device, -1)

        return give_back

    def _meets_constraints(self, claim: int, demand: Demand, device: PooledDevice) -> bool:
        constraints = self._claims[claim].constraints
        for number, constraint in enumerate(constraints):
            if constraint.add(demand.request, demand.alternative, device):
                continue
            if demand.everything is not None:
                raise AllocationError(
                    f"{demand.subject}: cannot add device {device.id} because a claim constraint would not be satisfied"
                )
            for earlier in constraints[:number]:
                earlier.remove(demand.request, demand.alternative, device)
            return False
        return True

    # -- what is left --------------------------------------------------------------------------------------------

    def _has_capacity(self, demand: Demand, candidate: Candidate) -> bool:
        if not self._features.consumable_capacity:
            return True
        device = candidate.device
        used = self._supplies.ledger.consumed(device.id), self._consumed.get(device.id)
        return fits(device, demand.selection.capacity, *used)

    def _consume(self, device: DeviceID, consumed: Mapping[str, Quantity], sign: int) -> None:
        amounts = self._consumed.setdefault(device, Counter())
        for name, quantity in consumed.items():
            amounts[name] += sign * nanos(quantity)
        if not any(amounts.values()):
            del self._consumed[device]

    def _draws_on_counters(self, device: PooledDevice, pool: Pool, *, is_shared: bool) -> bool:
        """Draw on the pool's counters for a device; shares of one device draw once."""
        if not device.counters:
            return True
        if not self._features.partitionable:
            return False
        if is_shared and (self._supplies.ledger.consumed(device.id) or device.id in self._consumed):
            return True
        drawn = self._drawn.setdefault(pool.id, {})
        _draw(drawn, device, +1)
        for name, counters in self._supplies.counters(pool).items():
            if any(left < drawn.get(name, {}).get(counter, 0) for counter, left in counters.items()):
                _draw(drawn, device, -1)
                return False
        return True


def _draw(counters: dict[str, dict[str, int]], device: PooledDevice, sign: int) -> None:
    for name, amounts in device.counters.items():
        counter_set = counters.setdefault(name, {})
        for counter, amount in amounts.items():
            counter_set[counter] = counter_set.get(counter, 0) + sign * amount


def _tolerates(tolerations: Sequence[DeviceToleration], taints: Sequence[DeviceTaint]) -> bool:
    """Whether every taint that prevents allocation is put up with."""
    return all(
        any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in _PREVENTING
    )
