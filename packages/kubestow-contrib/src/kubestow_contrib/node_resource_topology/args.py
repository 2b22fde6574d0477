"""The arguments of NodeResourceTopologyMatch."""

from __future__ import annotations

from typing import Literal

import msgspec


class ResourceWeight(msgspec.Struct, frozen=True):
    """The weight of a resource, 1 unless positive."""

    name: str
    weight: int = 1


class ScoringStrategy(msgspec.Struct, frozen=True):
    """``scoringStrategy``; the weights are not used by BalancedAllocation and LeastNUMANodes."""

    type: Literal["MostAllocated", "BalancedAllocation", "LeastAllocated", "LeastNUMANodes"]
    resources: list[ResourceWeight] = []

    def weight(self, resource: str) -> int:
        """The weight of a resource, 1 if it is not listed."""
        return next((max(1, each.weight) for each in self.resources if each.name == resource), 1)


class CacheArgs(msgspec.Struct, frozen=True, rename="camel"):
    """``cache``: which pods the reports of nodes have to account for; ``informer_mode`` has no effect."""

    foreign_pods_detect: Literal["None", "All", "OnlyExclusiveResources"] | None = None
    resync_method: Literal["Autodetect", "All", "OnlyExclusiveResources"] | None = None
    informer_mode: Literal["Shared", "Dedicated"] | None = None
    resync_scope: Literal["All", "OnlyResources"] | None = None


class NodeResourceTopologyMatchArgs(msgspec.Struct, frozen=True, rename="camel"):
    """How nodes are scored, and whether those are rejected on which a pod is being placed."""

    scoring_strategy: ScoringStrategy = ScoringStrategy("LeastAllocated")
    cache_resync_period_seconds: int | None = None
    discard_reserved_nodes: bool = False
    cache: CacheArgs | None = None
    preemption_mode: Literal["Disabled", "Enabled"] | None = None

    @property
    def depends_on_pods(self) -> bool:
        """Whether pods that come and go change the results for their node, before it reports."""
        return self.discard_reserved_nodes or self.resync_period > 0 or self.preemption_mode == "Enabled"

    @property
    def resync_period(self) -> int:
        """The seconds between comparisons of the cache with reports, 0 if reports are used as they are."""
        return 0 if self.discard_reserved_nodes else max(0, self.cache_resync_period_seconds or 0)
