"""The plugins of a profile by extension point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubestow.framework.gang import GangPreemptionPlugin, GangSource
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.placement import PlacementGeneratePlugin, PlacementScorePlugin

__all__ = ["ProfilePlugins"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfilePlugins:
    """Each sequence is in the order in which its plugins are called; scores come with their weights."""

    queue_sort: QueueSortPlugin
    pre_enqueue: Sequence[PreEnqueuePlugin]
    pre_filter: Sequence[PreFilterPlugin]
    filter: Sequence[FilterPlugin]
    post_filter: Sequence[PostFilterPlugin]
    pre_score: Sequence[PreScorePlugin]
    score: Sequence[tuple[ScorePlugin, int]]
    reserve: Sequence[ReservePlugin]
    permit: Sequence[PermitPlugin]
    pre_bind: Sequence[PreBindPlugin]
    bind: Sequence[BindPlugin]
    post_bind: Sequence[PostBindPlugin]
    #: The plugin that lists the placements of a gang; without one a gang may use the whole cluster.
    placement_generate: PlacementGeneratePlugin | None
    placement_score: Sequence[tuple[PlacementScorePlugin, int]]
    #: The plugin that defines which pods are a gang; without one every pod is scheduled by itself.
    gang_source: GangSource | None
    #: The plugin that lists the pods which may be evicted for a gang as a whole.
    gang_preemption: GangPreemptionPlugin | None
