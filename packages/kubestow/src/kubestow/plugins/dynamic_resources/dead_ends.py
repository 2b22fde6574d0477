"""What a search for devices learns from its dead ends, so that it meets none of them twice.

A search that finds no devices at once may have exponentially many combinations before it. What is learnt here never
changes which devices it finds, or how it fails: it only leaves out combinations that have no solution.

- A state of the search that had no solution is remembered with all that matters to the rest of the search: a state that
  is equal in this has none either. Devices that no later request can use do not matter.
- Devices that are equal for all requests and constraints are interchangeable: after one of them the others are not
  tried in its place, and states differ by how many of them are in use, not by which.
- The devices that the remaining requests need must be there: each has to get one of its own (a bipartite matching).

Only requests that the search has reached count, because those after them had no part in its failures, and because their
selectors must not be evaluated earlier than by the search: they may be invalid.

QUIRK (semantics 8.16): some failures have side effects, charged counters and values that a distinctAttribute constraint
has dropped. They are part of the state, are repeated whenever it is met again, and rule out the other two rules. So do
claim constraints that fail a search with an error. Devices that can be used more than once are not interchangeable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from kubestow.api.resource import DeviceAttribute
from kubestow.plugins.dynamic_resources.pools import CandidateDevice, DevicePool
from kubestow.plugins.dynamic_resources.requests import (
    MAX_DEVICES_PER_CLAIM,
    Constraint,
    DistinctAttribute,
    ResolvedClaim,
    ResolvedRequest,
)

#: A search looks at this many pairs of a request and a device to find out whether the devices suffice, about 0.1 s.
_MAX_PAIRS = 500_000
#: So many states are remembered, of about 1 kB each.
_MAX_STATES = 20_000
#: With more remaining devices than this, those of the next requests count.
_MAX_DEMAND = 128


@dataclass(frozen=True, slots=True)
class SideEffects:
    """What dead ends may change, which backtracking does not undo.

    ``values`` are those of each constraint that applies to the remaining requests of the claim, ``counters`` the
    amounts in nano units, not 0, that are charged to counters: pool, counter set, counter, amount.
    """

    values: tuple[frozenset[tuple[str, DeviceAttribute]], ...]
    counters: frozenset[tuple[DevicePool, str, str, int]]


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """How a state of the search failed: whether it exceeded the claim limit, and the side effects, if any, then."""

    exceeds_limit: bool
    after: SideEffects | None


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the search: the number of a request among all requests of all claims, and what is to be allocated."""

    claim_index: int
    request_number: int
    request: ResolvedRequest
    device_index: int
    start: int

    @property
    def missing(self) -> int:
        """The number of devices that the request still needs."""
        return self.request.device_count - self.device_index


class DeadEnds:
    """The dead ends of one search.

    ``may_match`` says whether the search can give a device to a request, None if that is an error.
    ``has_side_effects`` is whether backtracking may leave something behind, or an error end the search;
    ``are_shared`` is whether a device may be allocated more than once.
    """

    def __init__(
        self,
        candidates: Sequence[CandidateDevice],
        claims: Sequence[ResolvedClaim],
        *,
        may_match: Callable[[ResolvedRequest, CandidateDevice], bool | None],
        has_side_effects: bool,
        are_shared: bool,
    ) -> None:
        self._candidates, self._claims = candidates, claims
        self._may_match = may_match
        self._requests = [(claim, subrequests) for claim in claims for subrequests in claim.requests]
        self._remaining_constraints = [each for claim in claims for each in _remaining_constraints(claim)]
        has_admin_access = any(each.has_admin_access for _, subrequests in self._requests for each in subrequests)
        #: Whether a device that led to no solution rules out all devices of its class.
        self.interchangeable = not (has_side_effects or are_shared or has_admin_access)
        self._may_exceed_limit = any(map(_may_exceed_limit, claims))
        self._looks_ahead = self.interchangeable and not self._may_exceed_limit
        self._pairs_left = _MAX_PAIRS
        self._reached = 0
        #: The positions of the devices that may match, or fail the selector of, each subrequest of reached requests.
        self._positions: dict[ResolvedRequest, list[int]] = {}
        #: The requests without such errors.
        self._certain: set[ResolvedRequest] = set()
        #: By position: the number of the class of equal devices, and the last reached request that may use the device.
        self._classes = [0] * len(candidates)
        self._last_use = [-1] * len(candidates)
        self._numbers: dict[Hashable, int] = {}
        self._by_state: dict[Hashable, DeadEnd] = {}

    @property
    def reached(self) -> int:
        """The number of requests that are taken into account."""
        return self._reached

    def positions(self, request: ResolvedRequest) -> Sequence[int] | None:
        """The positions of the candidates that may match a request, ascending; None if it is not taken into account."""
        return self._positions.get(request)

    def is_certain(self, request: ResolvedRequest) -> bool:
        """Whether all :meth:`positions` of a request match, so that their devices are usable unless in use."""
        return self.interchangeable and request in self._certain

    def class_of(self, position: int) -> int:
        """The class of equal devices that a candidate belongs to, as long as no further request is reached."""
        return self._classes[position]

    def reach(self, count: int) -> None:
        """Take the first requests into account, as many as the search has reached."""
        while self._reached < count:
            claim, subrequests = self._requests[self._reached]
            attributes = () if self._reached and self._requests[self._reached - 1][0] is claim else claim.constraints
            columns = [self._matches(request) for request in subrequests]
            for position, candidate in enumerate(self._candidates):
                matches = tuple(column[position] for column in columns)
                if any(match is not False for match in matches):
                    self._last_use[position] = self._reached
                values = tuple(candidate.device.attribute(constraint.attribute) for constraint in attributes)
                signature = self._reached, self._classes[position], matches, values
                self._classes[position] = self._numbers.setdefault(signature, len(self._numbers))
            self._reached += 1

    def remaining_constraints(self, number: int) -> Sequence[Constraint]:
        """The constraints that apply to a request or to one after it, of the same claim."""
        return self._remaining_constraints[number]

    def _matches(self, request: ResolvedRequest) -> list[bool | None]:
        """Whether each candidate may match a request, None for an error."""
        matches = [self._may_match(request, candidate) for candidate in self._candidates]
        if request.all_devices is not None:
            wanted = {candidate.device.id for candidate in request.all_devices}
            matches = [
                match if candidate.device.id in wanted else False
                for candidate, match in zip(self._candidates, matches, strict=True)
            ]
        if None in matches:
            self._looks_ahead = False
        else:
            self._certain.add(request)
        self._positions[request] = [position for position, match in enumerate(matches) if match is not False]
        return matches

    # -- states that had no solution -------------------------------------------------------------------------------

    def state(
        self, place: Place, in_use: Iterable[tuple[int, Hashable]], results: int, side_effects: SideEffects | None
    ) -> Hashable:
        """What matters to the rest of the search, as long as no further request is reached.

        ``in_use`` are the positions of the devices that the search has allocated, with what is in use of each, and
        ``results`` is how many of them the claim has; ``side_effects`` is None if there are none.
        """
        number, start, last_use = place.request_number, place.start, self._last_use
        relevant = [each for each in in_use if last_use[each[0]] > number or each[0] >= start]
        used: Hashable
        others: Hashable = side_effects
        if self.interchangeable:
            used = tuple(sorted((self._classes[position], position >= start) for position, _ in relevant))
            others = tuple(frozenset(each.values.values()) for each in self.remaining_constraints(number))
        else:
            used = frozenset(relevant)
        of_claim = results if self._may_exceed_limit else 0
        return self._reached, number, place.request, place.device_index, start, used, of_claim, others

    def known(self, state: Hashable) -> DeadEnd | None:
        """How a state failed before; None if it did not."""
        return self._by_state.get(state)

    def add(self, state: Hashable, dead_end: DeadEnd) -> None:
        """Remember how a state failed."""
        if len(self._by_state) >= _MAX_STATES:
            self._by_state.clear()
        self._by_state[state] = dead_end

    # -- devices that do not suffice -------------------------------------------------------------------------------

    def lacks_devices(self, place: Place, in_use: Collection[int]) -> bool:
        """Whether the remaining devices do not suffice for the remaining requests; False if that is not known."""
        if not self._looks_ahead or self._pairs_left < 0:
            return False
        claim = self._claims[place.claim_index]
        constraints = self._remaining_constraints[place.request_number]
        options: list[list[int]] = []
        #: The requests of the same claim, with their devices.
        of_same_claim: list[tuple[ResolvedRequest, list[int]]] = []
        for number in range(place.request_number, self._reached):
            of_claim, subrequests = self._requests[number]
            if number == place.request_number:
                request, start, count = place.request, place.start, place.missing
            elif len(subrequests) > 1 or len(options) > _MAX_DEMAND:
                continue
            else:
                request, start, count = subrequests[0], 0, subrequests[0].device_count
            if request.all_devices is not None:
                if not request.all_devices:
                    return True
                start = 0
            positions = self._positions[request]
            free = [position for position in positions if position >= start and position not in in_use]
            if of_claim is claim:
                for constraint in constraints:
                    if constraint.applies_to(request):
                        self._pairs_left -= len(free)
                        free = [at for at in free if constraint.permits(self._candidates[at].device)]
                of_same_claim.append((request, free))
            self._pairs_left -= len(positions) + count * len(free)
            if len(free) < count:
                return True
            options += [free] * count
        return not _has_matching(options) or any(
            not _has_matching(self._distinct_values(constraint, of_same_claim))
            for constraint in constraints
            if isinstance(constraint, DistinctAttribute)
        )

    def _distinct_values(
        self, constraint: DistinctAttribute, devices: Sequence[tuple[ResolvedRequest, Sequence[int]]]
    ) -> list[list[Hashable]]:
        """The values that a constraint leaves to each request that it applies to, which needs one of its own."""
        return [
            list({self._candidates[position].device.attribute(constraint.attribute) for position in positions})
            for request, positions in devices
            if constraint.applies_to(request) and positions
        ]


def _remaining_constraints(claim: ResolvedClaim) -> list[list[Constraint]]:
    """For each request of a claim the constraints that apply to it or to one after it."""
    remaining: list[list[Constraint]] = []
    for subrequests in reversed(claim.requests):
        known = remaining[-1] if remaining else []
        remaining.append(
            [each for each in claim.constraints if each in known or any(map(each.applies_to, subrequests))]
        )
    return remaining[::-1]


def _may_exceed_limit(claim: ResolvedClaim) -> bool:
    most = (max(request.device_count for request in subrequests) for subrequests in claim.requests)
    return sum(most) > MAX_DEVICES_PER_CLAIM


def _has_matching(options: Sequence[Sequence[Hashable]]) -> bool:
    """Whether each entry can have one of its options that no other has: a maximum matching by augmenting paths."""
    owner: dict[Hashable, int] = {}
    owned: dict[int, Hashable] = {}
    for first in range(len(options)):
        #: By option on a path from ``first``: the entry that would take it.
        taker: dict[Hashable, int] = {}
        entries: deque[int] = deque([first])
        free: list[Hashable] = []
        while entries and not free:
            entry = entries.popleft()
            for option in options[entry]:
                if option not in taker:
                    taker[option] = entry
                    if option not in owner:
                        free.append(option)
                        break
                    entries.append(owner[option])
        if not free:
            return False
        while free:
            option = free.pop()
            entry = taker[option]
            if entry in owned:
                free.append(owned[entry])
            owner[option], owned[entry] = entry, option
    return True
