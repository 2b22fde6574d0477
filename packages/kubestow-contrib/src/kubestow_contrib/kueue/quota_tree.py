"""The quotas of ClusterQueues and cohorts, and what is used of them.

ClusterQueues are the leaves of a tree of cohorts. A node has quotas for some pairs of flavor and resource: a nominal
amount, a limit of what it lends to the rest of its cohort, and a limit of what it borrows.

- The *subtree quota* of a ClusterQueue is its nominal amount; that of a cohort is its own nominal amount and what its
  children lend to it.
- What a node does not lend is its *local quota*. Usage fills the local quota first; the rest counts as usage of the
  parent.
- *Available* to a node is what is left of its local quota, and what is available to its parent within its borrowing
  limit. It is negative where quotas were reduced below usage.

Amounts are integers: millicores for CPU, units for everything else. Amounts beyond 64 bits count as 2^63 - 1, which is
what Kueue calls unlimited. (Source: Kueue ``pkg/cache/scheduler/resource_node.go``.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kubestow.errors import InvalidQuantity
from kubestow_contrib.kueue.objects import ResourceGroup, amount


class FlavorResource(NamedTuple):
    """A resource of the nodes of a flavor."""

    flavor: str
    resource: str


Quantities = dict[FlavorResource, int]
Amounts = dict[str, int]
"""Amounts by resource."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of one node for a resource in a flavor; a limit of None does not limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


NO_QUOTA = Quota()


def quotas_of(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, Quota]:
    """The quotas of resource groups. Raises InvalidQuantity with the path of the field."""
    quotas = {}
    for group_index, group in enumerate(groups):
        for flavor_index, flavor in enumerate(group.flavors):
            for index, one in enumerate(flavor.resources):
                place = f"spec.resourceGroups[{group_index}].flavors[{flavor_index}].resources[{index}]"
                fields = ("nominalQuota", one.nominal_quota), ("borrowingLimit", one.borrowing_limit)
                amounts = []
                for field, quantity in (*fields, ("lendingLimit", one.lending_limit)):
                    try:
                        amounts.append(None if quantity is None else amount(one.name, quantity))
                    except InvalidQuantity as error:
                        raise InvalidQuantity(error.problem, path=f"{place}.{field}") from None
                quotas[FlavorResource(flavor.name, one.name)] = Quota(amounts[0] or 0, amounts[1], amounts[2])
    return quotas


class QuotaNode:
    """A ClusterQueue or a cohort in the tree; ``weight`` is its weight among its siblings in fair sharing."""

    def __init__(self, name: str, quotas: Mapping[FlavorResource, Quota], weight: float = 1.0) -> None:
        self.name, self.quotas, self.weight = name, dict(quotas), weight
        self.parent: CohortNode | None = None
        self.subtree_quota: Quantities = {}
        self.usage: Quantities = {}

    def __repr__(self) -> str:
        """Kind and name."""
        return f"<{type(self).__name__} {self.name}>"

    def quota(self, fr: FlavorResource) -> Quota:
        """The quota of the node itself."""
        return self.quotas.get(fr, NO_QUOTA)

    def local_quota(self, fr: FlavorResource) -> int:
        """The part of the subtree quota that is not lent."""
        limit = self.quota(fr).lending_limit
        return 0 if limit is None else max(0, self.subtree_quota.get(fr, 0) - limit)

    def local_available(self, fr: FlavorResource) -> int:
        """What is left of the local quota."""
        return max(0, self.local_quota(fr) - self.usage.get(fr, 0))

    def available(self, fr: FlavorResource) -> int:
        """What can be used in addition; negative where usage exceeds the quotas."""
        quota, used = self.subtree_quota.get(fr, 0), self.usage.get(fr, 0)
        if self.parent is None:
            return quota - used
        of_parent = self.parent.available(fr)
        limit = self.quota(fr).borrowing_limit
        if limit is not None:
            local = self.local_quota(fr)
            of_parent = min(of_parent, quota - local - max(0, used - local) + limit)
        return self.local_available(fr) + of_parent

    def potential_available(self, fr: FlavorResource) -> int:
        """What could be used if nothing were."""
        quota = self.subtree_quota.get(fr, 0)
        if self.parent is None:
            return quota
        most = self.local_quota(fr) + self.parent.potential_available(fr)
        limit = self.quota(fr).borrowing_limit
        return most if limit is None else min(most, quota + limit)

    def add_usage(self, fr: FlavorResource, added: int) -> None:
        """Use an amount; what exceeds the local quota is used of the parent."""
        local = self.local_available(fr)
        self.usage[fr] = self.usage.get(fr, 0) + added
        if self.parent is not None and added > local:
            self.parent.add_usage(fr, added - local)

    def remove_usage(self, fr: FlavorResource, removed: int) -> None:
        """Free an amount, first what is used of the parent."""
        of_parent = self.usage.get(fr, 0) - self.local_quota(fr)
        self.usage[fr] = self.usage.get(fr, 0) - removed
        if self.parent is not None and of_parent > 0:
            self.parent.remove_usage(fr, min(removed, of_parent))

    def exceeds_quota_with(self, fr: FlavorResource, added: int = 0) -> bool:
        """Whether usage, and an amount in addition, exceeds the subtree quota, so that the node borrows."""
        return self.subtree_quota.get(fr, 0) < self.usage.get(fr, 0) + added

    def is_within_quota(self, frs: Iterable[FlavorResource]) -> bool:
        """Whether usage is within the subtree quota for all of some resources."""
        return not any(self.exceeds_quota_with(fr) for fr in frs)

    def ancestors(self) -> Iterator[CohortNode]:
        """The parent, its parent, and so on to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def path(self) -> str:
        """The names from the root to this node, as ``/company/team/queue``."""
        return "".join(f"/{node.name}" for node in reversed((self, *self.ancestors())))


class CohortNode(QuotaNode):
    """A cohort: one that is declared, or that only others name."""

    def __init__(self, name: str, quotas: Mapping[FlavorResource, Quota] | None = None, weight: float = 1.0) -> None:
        super().__init__(name, quotas or {}, weight)
        self.cohorts: list[CohortNode] = []
        self.queues: list[QuotaNode] = []

    @property
    def height(self) -> int:
        """The number of edges to its deepest descendant."""
        return max((one.height + 1 for one in self.cohorts), default=1 if self.queues else 0)

    def subtree_queues(self) -> Iterator[QuotaNode]:
        """All ClusterQueues below it."""
        yield from self.queues
        for cohort in self.cohorts:
            yield from cohort.subtree_queues()

    def accumulate(self) -> None:
        """Compute the subtree quotas and the usage of this cohort and all below it from those of ClusterQueues."""
        self.subtree_quota = {fr: quota.nominal for fr, quota in self.quotas.items()}
        self.usage = {}
        for cohort in self.cohorts:
            cohort.accumulate()
        for queue in self.queues:
            queue.subtree_quota = {fr: quota.nominal for fr, quota in queue.quotas.items()}
        for child in (*self.cohorts, *self.queues):
            for fr, quota in child.subtree_quota.items():
                self.subtree_quota[fr] = self.subtree_quota.get(fr, 0) + quota - child.local_quota(fr)
            for fr, used in child.usage.items():
                self.usage[fr] = self.usage.get(fr, 0) + max(0, used - child.local_quota(fr))


def root_of(node: QuotaNode) -> QuotaNode:
    """The root of a node's tree."""
    while node.parent is not None:
        node = node.parent
    return node


def lowest_fitting_height(queue: QuotaNode, fr: FlavorResource, wanted: int) -> tuple[int, bool]:
    """How far a ClusterQueue has to borrow for an amount: the height of the lowest cohort whose quota has room for it.

    0 if it does not borrow. Also whether the amount fits the quota of a subtree that has a parent, so that Workloads of
    the rest of the tree may be reclaimed for it. (Source: Kueue ``pkg/scheduler/preemption/classical``.)
    """
    if queue.parent is None or not queue.exceeds_quota_with(fr, wanted):
        return 0, queue.parent is not None
    left = wanted - queue.local_available(fr)
    for cohort in queue.ancestors():
        if not cohort.exceeds_quota_with(fr, left):
            return cohort.height, cohort.parent is not None
        left -= cohort.local_available(fr)
    root = root_of(queue)
    assert isinstance(root, CohortNode)
    return root.height, False
