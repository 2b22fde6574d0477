"""Which events can change a plugin's mind: declared once, read by two.

The scheduling queue reads it to decide whom to wake (queueing hints, semantics 6.8 and 6.10); the evaluation cache
reads it to decide which remembered answers to ask for again. The two differ in one point: a pod that *arrives* on a
node spoils the answer about that node but never makes a refused pod schedulable, so it is declared with ``requeues``
False.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kubestow.api.custom import CustomObject
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["EVERYTHING", "EventFilter", "EventRegistration", "Hint", "Invalidation", "on"]

#: Decides for one pending pod and one event whether it is worth another try: (pod, old object, new object) -> bool.
Hint = Callable[[PodInfo, Any, Any], bool]

#: Decides for one event whether it is worth asking about each pending pod: (old object, new object) -> bool.
EventFilter = Callable[[Any, Any], bool]


class Invalidation(Enum):
    """Which of a plugin's answers an event makes stale."""

    NOTHING = "nothing"
    ROW = "row"
    ALL = "all"


@dataclass(frozen=True)
class EventRegistration:
    """One event (or set of actions on one resource), what it spoils, and whether it can help a refused pod."""

    event: ClusterEvent
    invalidates: Invalidation = Invalidation.ROW
    hint: Hint | None = None
    requeues: bool = True
    #: The struct of a kind that a plugin brings along.
    kind: type[CustomObject] | None = None
    #: Asked once for an event that would be a question about very many pods.
    event_filter: EventFilter | None = None


def on(
    resource: EventResource | type[CustomObject],
    action: Action,
    *,
    invalidates: Invalidation = Invalidation.ROW,
    hint: Hint | None = None,
    requeues: bool = True,
    event_filter: EventFilter | None = None,
) -> EventRegistration:
    """An interest in some actions on a resource. Without a hint every such event is worth a try.

    A kind of the plugin's own (:class:`kubestow.api.custom.CustomObject`) is watched because of it.
    """
    if isinstance(resource, EventResource):
        return EventRegistration(ClusterEvent(resource, action), invalidates, hint, requeues, event_filter=event_filter)
    return EventRegistration(
        ClusterEvent(resource.resource, action), invalidates, hint, requeues, resource, event_filter
    )


_WATCHED_WITHOUT_DECLARATION = (
    EventResource.POD,
    EventResource.NODE,
    EventResource.PERSISTENT_VOLUME,
    EventResource.PERSISTENT_VOLUME_CLAIM,
    EventResource.CSI_NODE,
    EventResource.CSI_DRIVER,
    EventResource.CSI_STORAGE_CAPACITY,
    EventResource.STORAGE_CLASS,
    EventResource.RESOURCE_CLAIM,
    EventResource.DEVICE_CLASS,
)

#: What a plugin is taken to care about when it does not say: everything (semantics 4.9).
EVERYTHING: Sequence[EventRegistration] = tuple(
    on(resource, Action.ALL, invalidates=Invalidation.ALL) for resource in _WATCHED_WITHOUT_DECLARATION
)
