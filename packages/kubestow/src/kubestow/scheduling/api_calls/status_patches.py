"""Merging status patches of a pod, and reducing them to what the API server does not have yet.

A condition is identified by its type and replaced as a whole. A different lastTransitionTime alone is no reason to
write.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubestow.api.core import PodCondition, PodStatus
from kubestow.scheduling.interfaces import PodStatusPatch

__all__ = ["merge", "remaining_changes"]


def merge(older: PodStatusPatch, newer: PodStatusPatch) -> PodStatusPatch:
    """One patch in place of two: the newest condition of each type and the newest nomination."""
    replaced = {condition.type for condition in newer.conditions}
    kept = tuple(condition for condition in older.conditions if condition.type not in replaced)
    nomination = older.nominated_node_name if newer.nominated_node_name is None else newer.nominated_node_name
    return PodStatusPatch((*kept, *newer.conditions), nomination)


def remaining_changes(patch: PodStatusPatch, status: PodStatus, sent: PodStatusPatch | None) -> PodStatusPatch | None:
    """The part of a patch that changes a status; None if nothing does.

    ``status`` may be older than the patches ``sent`` last; what contradicts those is part of the result, too.
    """
    sent = sent or PodStatusPatch()
    conditions = tuple(
        wanted
        for wanted in patch.conditions
        if not _contains(status.conditions, wanted) or _contradicts(sent.conditions, wanted)
    )
    nomination = patch.nominated_node_name
    if nomination == status.nominated_node_name and sent.nominated_node_name in (None, nomination):
        nomination = None
    return PodStatusPatch(conditions, nomination) if conditions or nomination is not None else None


def _contains(conditions: Sequence[PodCondition], wanted: PodCondition) -> bool:
    return any(_are_equal(condition, wanted) for condition in conditions)


def _contradicts(conditions: Sequence[PodCondition], wanted: PodCondition) -> bool:
    return any(condition.type == wanted.type and not _are_equal(condition, wanted) for condition in conditions)


def _are_equal(one: PodCondition, other: PodCondition) -> bool:
    return msgspec.structs.replace(one, last_transition_time=other.last_transition_time) == other
