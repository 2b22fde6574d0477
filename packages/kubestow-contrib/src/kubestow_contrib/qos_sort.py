"""QOSSort orders the active queue by priority, then by QoS class, then by the time of queueing."""

from __future__ import annotations

from kubestow.framework.interface import Queued, QueueSortPlugin
from kubestow.rules.pods import QOSClass, qos_class

_ORDER = {QOSClass.GUARANTEED: 0, QOSClass.BURSTABLE: 1, QOSClass.BEST_EFFORT: 2}


class QOSSort(QueueSortPlugin):
    """Guaranteed pods before Burstable ones, these before BestEffort ones, within a priority."""

    name = "QOSSort"
    events_to_register = ()

    def sort_key(self, queued: Queued) -> tuple[int, int, float]:
        """Negative priority, the rank of the class, and the time of queueing in seconds."""
        return -queued.info.priority, _ORDER[qos_class(queued.info.spec)], queued.timestamp
