"""Which events can change a plugin's mind: declared once, read by two.

The scheduling queue reads it to decide whom to wake (queueing hints, reference 6.8 and 6.10); the evaluation cache
reads it to decide which remembered answers to ask for again. The two differ in one point: a pod that *arrives* on a
node spoils the answer about that node but never makes a refused pod schedulable, so it is declared with ``wakes``
False.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kubestow.api.custom import CustomObject
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods import PodInfo

__all__ = ["EVERYTHING", "Glance", "Hint", "Interest", "Spoils", "on"]

#: Decides for one pending pod and one event whether it is worth another try: (pod, old object, new object) -> bool.
Hint = Callable[[PodInfo, Any, Any], bool]

#: Decides for one event whether it is worth asking about each pending pod: (old object, new object) -> bool.
Glance = Callable[[Any, Any], bool]


class Spoils(Enum):
    """Which of a plugin's answers an event makes stale."""

    NOTHING = "nothing"
    ROW = "row"
    ALL = "all"


@dataclass(frozen=True)
class Interest:
    """One event (or set of actions on one resource), what it spoils, and whether it can help a refused pod."""

    event: ClusterEvent
    spoils: Spoils = Spoils.ROW
    hint: Hint | None = None
    wakes: bool = True
    #: The struct of a kind that a plugin brings along.
    kind: type[CustomObject] | None = None
    #: Asked once for an event that would be a question about very many pods.
    glance: Glance | None = None


def on(
    resource: EventResource | type[CustomObject],
    action: Action,
    *,
    spoils: Spoils = Spoils.ROW,
    hint: Hint | None = None,
    wakes: bool = True,
    glance: Glance | None = None,
) -> Interest:
    """An interest in some actions on a resource. Without a hint every such event is worth a try.

    A kind of the plugin's own (:class:`kubestow.api.custom.CustomObject`) is watched because of it.
    """
    if isinstance(resource, EventResource):
        return Interest(ClusterEvent(resource, action), spoils, hint, wakes, glance=glance)
    return Interest(ClusterEvent(resource.resource, action), spoils, hint, wakes, resource, glance)


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

#: What a plugin is taken to care about when it does not say: everything (reference 4.9).
EVERYTHING: Sequence[Interest] = tuple(
    on(resource, Action.ALL, spoils=Spoils.ALL) for resource in _WATCHED_WITHOUT_DECLARATION
)
