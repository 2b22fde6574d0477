"""The moments at which a scheduler may have made a decision, the most likely ones first.

What is known for certain limits them. A pod that was bound before another one was created has been decided about first.
Nothing that happened to a pod after the binding of the decision was known to it, because pods are watched in order. All
else depends on delays: events of other kinds may have reached the scheduler earlier or later than this watch, events of
pods earlier; and of pods that were pending at the same time each may have been decided about first, whatever the order
of their bindings. The order of the queue is tried before others. The API server numbers the changes of all kinds, so
watches of the scheduler that were late together are aligned by resourceVersions, whatever this one has delivered first.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.shadow.history import Change, Moment, ObjectID

MOST_MOMENTS = 600
"""At most so many moments are tried for a decision."""

#: Of the scheduler's own changes that are nearest to the decision, so many are tried in pairs.
_PAIRED = 12
T = TypeVar("T")
U = TypeVar("U")
Cut = tuple[int, tuple[tuple[str, int], ...]]


class Moments:
    """The moments of one decision.

    ``changes`` are those around the decision in order, the ``decision`` among them, ``created`` the number of the
    change that created each object, as far as it is known, and ``effects`` the numbers of changes that follow from it.
    A decision that was made before arrives at most so many seconds (``latest``) after it.
    """

    def __init__(
        self,
        decision: Change,
        changes: Sequence[Change],
        created: Mapping[ObjectID, int],
        effects: Collection[int],
        latest: float,
    ) -> None:
        self._decision, self.changes = decision, changes
        self._effects = frozenset(effects)
        self._arrival = created.get(decision.object_id, -1)
        certain: set[int] = set()
        #: The scheduler's own changes that it may have decided on before or after.
        self.free: list[Change] = []
        for change in changes:
            if not change.is_own or change.number in self._effects:
                continue
            if change.number < self._arrival:
                certain.add(change.number)
            elif created.get(change.object_id, -1) < decision.number and change.time <= decision.time + latest:
                self.free.append(change)
        self._certain = frozenset(certain)
        self._created = created
        #: The creations and deletions of nodes.
        self._node_changes = [each for each in changes if each.resource == NODES and (each.is_deletion or not each.old)]
        self.plain = self._moment((decision.number, ()), self._before(decision.number))
        """The state that this watch had delivered before the decision."""

    def all(self, nodes: Collection[str]) -> Iterator[Moment]:
        """Combinations of what was known of other changes and of own ones.

        Changes on some ``nodes`` come before those on others, and then the nearest first.
        """
        seen: set[Moment] = set()
        cuts = list(itertools.islice(self._cuts(nodes), MOST_MOMENTS))
        own_sets = list(dict.fromkeys(itertools.islice(self._own_sets(nodes), MOST_MOMENTS)))
        late = ((cut, own) for cut in cuts for own in dict.fromkeys((self._before(_of_pods(cut)), own_sets[0])))
        alone = ((cuts[0], own) for own in own_sets)
        likely = itertools.islice(_alternating(late, alone), MOST_MOMENTS * 2 // 3)
        for cut, own in itertools.chain(likely, _diagonally(cuts, own_sets)):
            if len(seen) >= MOST_MOMENTS:
                return
            moment = self._moment(cut, own)
            if moment not in seen:
                seen.add(moment)
                yield moment

    def without(self, moment: Moment, nodes: Collection[str], chosen: str) -> Moment:
        """A moment at which fewer ``nodes`` were better than the chosen one.

        Of the scheduler's own changes those on the nodes had been decided, and those on the chosen one had not.
        """
        own = set(moment.own)
        own |= {change.number for change in self.free if change.node_name in nodes}
        own -= {change.number for change in self.free if change.node_name == chosen}
        return replace(moment, own=frozenset(own))

    @property
    def gone(self) -> list[Change]:
        """The deletions of pods before their bindings, the latest first: they may have been assumed on any node."""
        return [
            change
            for change in reversed(self.changes)
            if change.resource == PODS and change.is_deletion and not change.old.spec.node_name
            if change.old.spec.scheduler_name == self._decision.old.spec.scheduler_name
            if self._created.get(change.object_id, -1) < self._decision.number
        ]

    def in_queue_order(self) -> Moment:
        """The state in which exactly the pods before this one in the queue had been decided about."""
        return self._moment((self._decision.number, ()), self._queue_order())

    def more_nodes(self, moment: Moment) -> int:
        """How many more nodes there are at a moment than in the plain state; negative for fewer."""
        return sum(
            (moment.has(change) - self.plain.has(change)) * (-1 if change.is_deletion else 1)
            for change in self._node_changes
        )

    def differences(self, moment: Moment) -> list[str]:
        """In what a moment differs from the plain state, in words."""
        found = []
        for change in self.changes:
            if moment.has(change) != self.plain.has(change):
                known = "known" if moment.has(change) else "not known yet"
                found.append(f"{change.text} was {known}")
        for (_, _, (namespace, name)), node_name in moment.assumed:
            found.append(f"Pod {namespace}/{name}, which was deleted, was assumed on {node_name}")
        return found

    # -- own changes -------------------------------------------------------------------------------------------------

    def _before(self, number: int) -> frozenset[int]:
        return self._certain | {change.number for change in self.free if change.number < number}

    def _queue_order(self) -> frozenset[int]:
        own_rank = _rank(self._decision, self._arrival)
        ranks = ((change, _rank(change, self._created.get(change.object_id, -1))) for change in self.free)
        return self._certain | {change.number for change, rank in ranks if rank < own_rank}

    def _own_sets(self, nodes: Collection[str]) -> Iterator[frozenset[int]]:
        plain = self._before(self._decision.number)
        queue_order = self._queue_order()
        yield from (plain, queue_order)
        number = self._decision.number
        nearest = sorted(self.free, key=lambda change: (change.node_name not in nodes, abs(change.number - number)))
        numbers = [change.number for change in nearest]
        for number in numbers:  # the decisions in the order of their bindings, some of which arrive late
            yield self._before(number if number < self._decision.number else number + 1)
        for number in numbers:
            yield plain ^ {number}
            yield queue_order ^ {number}
        for pair in itertools.combinations(numbers[:_PAIRED], 2):
            yield plain ^ set(pair)
            yield queue_order ^ set(pair)

    # -- changes by others ---------------------------------------------------------------------------------------------

    def _cuts(self, nodes: Collection[str]) -> Iterator[Cut]:
        """How far the watches of the scheduler may have been: all of them, one of them, and two of them apart."""
        here = self._decision.number
        points: dict[str, list[Change]] = {}
        for change in self.changes:
            if change.is_own or change.number in self._effects or change is self._decision:
                continue
            if change.resource != PODS or change.node_name or change.key == self._decision.key:
                points.setdefault(change.resource.plural, []).append(change)
        ordered = [self._nearest(changes, nodes) for changes in points.values()]
        timeline = _Timeline(self.changes)
        yield here, ()
        yield here, timeline.points(self._decision.version)
        for change in _alternating(*ordered):
            is_earlier = change.number < here
            yield here, timeline.points(change.version if is_earlier else change.version + 1)
            yield here, ((change.resource.plural, _beyond(change, here)),)
        bounds = [[(change.resource.plural, _beyond(change, here)) for change in changes] for changes in ordered]
        for one, other in itertools.combinations(bounds, 2):
            for pair in _diagonally(one, other):
                yield here, pair

    def _nearest(self, changes: Iterable[Change], nodes: Collection[str]) -> list[Change]:
        """Those on some nodes first, the nearest first; of the others also some from the whole time."""
        nearest = sorted(changes, key=lambda change: abs(change.number - self._decision.number))
        there = [change for change in nearest if change.node_name in nodes]
        elsewhere = [change for change in nearest if change.node_name not in nodes]
        return list(dict.fromkeys((*there, *_alternating(elsewhere, _coarsely(elsewhere)))))

    def _moment(self, cut: Cut, own: frozenset[int]) -> Moment:
        """The moment of a cut, in which pods are between their bounds: the pod existed, and was not decided about."""
        number, upto = cut
        bounded = min(max(_of_pods(cut), self._arrival + 1), self._decision.number)
        others = tuple(entry for entry in upto if entry[0] != PODS.plural)
        return Moment(number, own, (*others, (PODS.plural, bounded)), self._effects | {self._decision.number})


class _Timeline:
    """The changes of each kind in the order of their versions, which is the same in all watches of a kind."""

    def __init__(self, changes: Sequence[Change]) -> None:
        by_kind: dict[str, list[Change]] = {}
        for change in changes:
            by_kind.setdefault(change.resource.plural, []).append(change)
        #: The numbers of the changes of each kind, and their versions; of changes without one that of those before.
        self._kinds = {
            plural: ([c.number for c in of_kind], list(itertools.accumulate((c.version for c in of_kind), max)))
            for plural, of_kind in by_kind.items()
        }

    def points(self, version: int) -> tuple[tuple[str, int], ...]:
        """How far the watch of each kind was when the API server was at a version, the changes below it included.

        This watch may have delivered one kind much later than another one.
        """
        return tuple(
            (
                plural,
                numbers[position] if (position := bisect_left(versions, version)) < len(numbers) else numbers[-1] + 1,
            )
            for plural, (numbers, versions) in self._kinds.items()
        )


def _of_pods(cut: Cut) -> int:
    """How far the watch of pods was."""
    number, upto = cut
    return dict(upto).get(PODS.plural, number)


def _beyond(change: Change, here: int) -> int:
    """The point before an earlier change, or behind a later one."""
    return change.number if change.number < here else change.number + 1


def _rank(change: Change, arrival: int) -> tuple[int, int]:
    """The place of a pod in the queue: by priority, then by arrival."""
    return -(change.old.spec.priority or 0), arrival


def _coarsely(items: Sequence[T]) -> Iterator[T]:
    """All items: the one in the middle, then those in the middle of the halves, and so on."""
    step = 1 << len(items).bit_length()
    while step > 1:
        yield from items[step // 2 - 1 :: step]
        step //= 2


def _alternating(*series: Iterable[T]) -> Iterator[T]:
    """The first of each series, then the second of each, and so on."""
    for together in itertools.zip_longest(*series):
        yield from (each for each in together if each is not None)


def _diagonally(first: Sequence[T], second: Sequence[U]) -> Iterator[tuple[T, U]]:
    """All pairs, those of which both are near the beginning first."""
    for total in range(len(first) + len(second) - 1):
        for place in range(max(0, total - len(second) + 1), min(total, len(first) - 1) + 1):
            yield first[place], second[total - place]
