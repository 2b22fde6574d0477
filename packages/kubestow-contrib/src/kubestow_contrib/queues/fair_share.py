"""Fair shares of queues: usage that decays, and the division of a total among queues by priority and weight.

Usage decays as in Kueue's AdmissionFairSharing (``usageHalfLifeTime``). The division is that of KAI's scheduler: every
queue first gets what it is guaranteed, as far as it requests that. What is left is divided among the queues of the
highest priority in rounds, by weights that past usage lowers, in whole units; what rounding leaves goes to the queues
with the largest remainders. Queues of lower priority get what is left then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubestow_contrib.queues.configuration import Queue
from kubestow_contrib.shares import dominant_share


class DecayedUsage:
    """Amounts by resource in use, averaged over the past with exponentially decreasing weights.

    ``half_life`` is in seconds; 0 forgets at once, so that the usage is what was last observed.
    """

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self.amounts: dict[str, float] = {}
        self._time: float | None = None

    def observe(self, time: float, amounts: Mapping[str, float]) -> None:
        """Take into account that these ``amounts`` have been in use since the last call, until ``time`` (seconds).

        With α = 1 - 0.5^(elapsed / half-life), the usage becomes (1 - α) · usage + α · amounts. Two calls with equal
        amounts are the same as one, so it does not matter how often usage is observed.
        """
        before, self._time = self._time, time
        if self._half_life <= 0:
            self.amounts = dict(amounts)
            return
        elapsed = 0.0 if before is None else max(0.0, time - before)
        alpha = 1.0 - 0.5 ** (elapsed / self._half_life)
        names = self.amounts.keys() | amounts.keys()
        self.amounts = {
            name: (1.0 - alpha) * self.amounts.get(name, 0.0) + alpha * amounts.get(name, 0.0) for name in names
        }


@dataclass(slots=True)
class Claimant:
    """A queue in the division of one resource.

    ``usage`` is the fraction of the whole that it has used (decayed); ``limit`` infinite if there is none. ``share`` is
    the result. Claimants of equal remainders are served in the order in which they are given.
    """

    requested: float
    guaranteed: float = 0.0
    limit: float = math.inf
    weight: float = 1.0
    priority: int = 0
    usage: float = 0.0
    share: float = 0.0

    @property
    def lacking(self) -> float:
        """What it requests, at most its limit, beyond its share."""
        return max(0.0, min(self.requested, self.limit) - self.share)


def divide(total: float, claimants: Iterable[Claimant], *, usage_factor: float = 0.0) -> float:
    """Divide an amount of a resource; returns what is left of it.

    Weights are normalized among the claimants that lack something, and a claimant with weight w and usage u counts with
    max(0, w + k · (w - u)), k being the ``usage_factor``. What is guaranteed is given even beyond the total.
    """
    claimants = list(claimants)
    left = total
    for each in claimants:
        each.share = min(each.guaranteed, each.requested, each.limit)
        left -= each.share
    left = max(0.0, left)
    for priority in sorted({each.priority for each in claimants}, reverse=True):
        left = _divide_by_weight(left, [each for each in claimants if each.priority == priority], usage_factor)
    return left


def _divide_by_weight(total: float, claimants: list[Claimant], usage_factor: float) -> float:
    left = total
    remainders: dict[int, float] = {}
    while left > 0:
        lacking = [(index, each) for index, each in enumerate(claimants) if each.lacking > 0]
        sum_of_weights = sum(each.weight for _, each in lacking)
        if not sum_of_weights:
            break
        effective = {}
        for index, each in lacking:
            normalized = each.weight / sum_of_weights
            effective[index] = max(0.0, normalized + usage_factor * (normalized - each.usage)) if each.weight else 0.0
        whole = sum(effective.values())
        if not whole:
            break
        in_round, is_satisfied = left, False
        for index, each in lacking:
            fair = in_round * effective[index] / whole
            if not fair:
                continue
            wanted = each.lacking
            if wanted <= fair:
                given = wanted
                remainders.pop(index, None)
                is_satisfied = is_satisfied or wanted < fair
            else:
                given = math.floor(fair)
                if fair > given:
                    remainders[index] = fair - given
            each.share += given
            left -= given
        if not is_satisfied:
            break
    for index in sorted(remainders, key=lambda index: (-remainders[index], index)):
        if left <= 0:
            break
        given = min(1.0, left)
        claimants[index].share += given
        left -= given
    return left


class QueueShares:
    """What each queue uses and its fair share, with the queue that is next.

    ``allocated`` and ``waiting`` are what jobs of leaves use and what those that wait request, ``usage`` the fractions
    of ``total`` (by resource) that queues have used, by name. Shares of queues with a parent are parts of its share.
    """

    def __init__(
        self,
        queues: Mapping[str, Queue],
        total: Mapping[str, float],
        *,
        allocated: Mapping[str, Mapping[str, float]],
        waiting: Mapping[str, Mapping[str, float]],
        usage: Mapping[str, Mapping[str, float]],
        flavors: Sequence[str] = (),
        usage_factor: float = 0.0,
    ) -> None:
        self._queues = queues
        self._children: dict[str, list[str]] = {}
        for each in queues.values():
            self._children.setdefault(each.parent, []).append(each.name)
        self.allocated = {name: dict.fromkeys(total, 0.0) for name in queues}
        requested = {name: dict.fromkeys(total, 0.0) for name in queues}
        for amounts_by_leaf, tables in ((allocated, (self.allocated, requested)), (waiting, (requested,))):
            for leaf, amounts in amounts_by_leaf.items():
                for name in queues[leaf].lineage:
                    for table in tables:
                        for resource, amount in amounts.items():
                            table[name][resource] = table[name].get(resource, 0.0) + amount
        self.fair: dict[str, dict[str, float]] = {name: {} for name in queues}
        self._requested = requested
        self._used_before = {
            name: max(usage.get(name, {}).values(), default=0.0) / each.weight for name, each in queues.items()
        }
        self._divide("", total, usage, flavors, usage_factor)

    def next_leaf(self, leaves: Collection[str]) -> str:
        """The one of some leaves whose job is next: at every level the queue that uses the least of its fair share.

        Queues below what they are guaranteed come before the others, those of higher priority before those of lower,
        and of equal ones that which has used less for its weight.
        """
        open_queues = {name for leaf in leaves for name in self._queues[leaf].lineage}
        name = ""
        while children := [child for child in self._children.get(name, ()) if child in open_queues]:
            name = min(children, key=self._place)
        return name

    def saturation(self, name: str) -> float:
        """The largest fraction of its fair share that a queue uses of any resource; 0 if it uses nothing."""
        return dominant_share(self.allocated[name], self.fair[name])

    def add(self, leaf: str, amounts: Mapping[str, float], sign: int = 1) -> None:
        """Count what a job of a leaf uses, or, with the sign -1, used."""
        for name in self._queues[leaf].lineage:
            for resource, amount in amounts.items():
                self.allocated[name][resource] = self.allocated[name].get(resource, 0.0) + sign * amount

    def is_within_guarantee(self, name: str, amounts: Mapping[str, float] | None = None) -> bool:
        """Whether a queue uses no more than it is guaranteed, with further ``amounts``, of any resource of these.

        Without amounts: whether it is guaranteed more of something than it uses.
        """
        guaranteed, allocated = self._queues[name].guaranteed, self.allocated[name]
        if amounts is None:
            return any(allocated.get(resource, 0.0) < least for resource, least in guaranteed.items())
        return all(
            allocated.get(resource, 0.0) + amount <= guaranteed.get(resource, 0)
            for resource, amount in amounts.items()
            if amount
        )

    def siblings(self, leaf: str, other: str) -> tuple[str, str]:
        """The different ancestors of two leaves that have one parent; each may be the leaf itself."""
        one, two = self._queues[leaf].lineage[::-1], self._queues[other].lineage[::-1]
        depth = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
        return one[depth], two[depth]

    def _place(self, name: str) -> tuple[object, ...]:
        queue, fair = self._queues[name], self.fair[name]
        has_no_share = any(amount > 0 and not fair.get(of) for of, amount in self._requested[name].items())
        return (
            not self.is_within_guarantee(name),
            -queue.priority,
            has_no_share,
            self.saturation(name),
            self._used_before[name],
            name,
        )

    def _divide(
        self,
        parent: str,
        total: Mapping[str, float],
        usage: Mapping[str, Mapping[str, float]],
        flavors: Sequence[str],
        usage_factor: float,
    ) -> None:
        children = [self._queues[name] for name in self._children.get(parent, ())]
        if not children:
            return
        for resource, amount in total.items():
            claimants = [
                Claimant(
                    self._requested[each.name].get(resource, 0.0),
                    each.guaranteed.get(resource, 0),
                    each.most(resource, flavors),
                    each.weight,
                    each.priority,
                    usage.get(each.name, {}).get(resource, 0.0),
                )
                for each in children
            ]
            divide(amount, claimants, usage_factor=usage_factor)
            for each, claimant in zip(children, claimants, strict=True):
                self.fair[each.name][resource] = claimant.share
        for each in children:
            self._divide(each.name, self.fair[each.name], usage, flavors, usage_factor)
