"""The plugins that an evaluation calls, by extension point, and what follows from them alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubestow.framework.evaluation.result_cache import BoundPlugin
from kubestow.framework.interface import Plugin
from kubestow.framework.invalidation import InvalidationMask

__all__ = ["Plan"]


class Plan:
    """The plugins that apply to a pod, in order. Scores have weights; PreScore plugins that do not score are apart."""

    __slots__ = (
        "filter_mask",
        "filters",
        "normalizing",
        "normalizing_mask",
        "plugins",
        "pre_filters",
        "pre_scores_alone",
        "ranking_mask",
        "ranks",
        "request_readers",
        "row_wise",
        "row_wise_mask",
        "scores",
    )

    def __init__(
        self,
        bound: Mapping[Plugin, BoundPlugin],
        *,
        pre_filters: Sequence[Plugin],
        filters: Sequence[Plugin],
        scores: Sequence[tuple[Plugin, int]],
        pre_scores_alone: Sequence[Plugin],
    ) -> None:
        self.pre_filters, self.filters, self.scores = pre_filters, filters, scores
        self.pre_scores_alone = pre_scores_alone
        scoring = [plugin for plugin, _ in scores]
        #: All of them, each once.
        self.plugins = tuple(dict.fromkeys((*pre_filters, *filters, *pre_scores_alone, *scoring)))
        #: Those whose results depend on the pod's requests.
        self.request_readers = [plugin for plugin in self.plugins if plugin.reads_requests]
        #: The scores that depend on their row alone, and those that are normalized.
        self.row_wise = [(plugin, weight) for plugin, weight in scores if not bound[plugin].normalizes]
        self.normalizing = [(plugin, weight) for plugin, weight in scores if bound[plugin].normalizes]
        #: What invalidates any result of the filters, any raw score of either kind, and totals of single rows.
        self.filter_mask = _joined(bound[plugin] for plugin in filters)
        self.row_wise_mask = _joined(bound[plugin] for plugin, _ in self.row_wise)
        self.normalizing_mask = _joined(bound[plugin] for plugin, _ in self.normalizing)
        self.ranking_mask = self.filter_mask | self.row_wise_mask
        #: Whether totals can be kept from cycle to cycle, as far as the results are cached.
        self.ranks = not pre_scores_alone and not any(bound[plugin].scores_feasible_set for plugin in scoring)


def _joined(bound_plugins: Iterable[BoundPlugin]) -> InvalidationMask:
    """What invalidates the results of any of some plugins."""
    joined = InvalidationMask()
    for bound in bound_plugins:
        joined |= bound.invalidation_mask
    return joined
