"""What status patches of a pod amount to: one in place of two, and what is left of one beside what is known.

A condition stands for itself by its type, and is replaced as a whole. When it last changed its status is no difference
that has to be written.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubestow.api.core import PodCondition, PodStatus
from kubestow.scheduling.ports import PodStatusPatch

__all__ = ["beyond", "both"]


def both(older: PodStatusPatch, newer: PodStatusPatch) -> PodStatusPatch:
    """One patch in place of two: the newest condition of each type, the newest nomination."""
    replaced = {condition.type for condition in newer.conditions}
    kept = tuple(condition for condition in older.conditions if condition.type not in replaced)
    nomination = older.nominated_node_name if newer.nominated_node_name is None else newer.nominated_node_name
    return PodStatusPatch((*kept, *newer.conditions), nomination)


def beyond(patch: PodStatusPatch, status: PodStatus, sent: PodStatusPatch | None) -> PodStatusPatch | None:
    """What a patch changes about a status, None for nothing.

    The status may be older than what was ``sent`` last; where that said something else, the patch has to be sent too.
    """
    sent = sent or PodStatusPatch()
    conditions = tuple(
        wanted
        for wanted in patch.conditions
        if not _says(status.conditions, wanted) or _contradicts(sent.conditions, wanted)
    )
    nomination = patch.nominated_node_name
    if nomination == status.nominated_node_name and sent.nominated_node_name in (None, nomination):
        nomination = None
    return PodStatusPatch(conditions, nomination) if conditions or nomination is not None else None


def _says(conditions: Sequence[PodCondition], wanted: PodCondition) -> bool:
    return any(_are_alike(condition, wanted) for condition in conditions)


def _contradicts(conditions: Sequence[PodCondition], wanted: PodCondition) -> bool:
    return any(condition.type == wanted.type and not _are_alike(condition, wanted) for condition in conditions)


def _are_alike(one: PodCondition, other: PodCondition) -> bool:
    return msgspec.structs.replace(one, last_transition_time=other.last_transition_time) == other
