"""The events that a plugin registers: each may requeue rejected pods, and invalidate cached results.

One declaration serves both. The scheduling queue uses it to requeue pods that the plugin has rejected (queueing hints,
semantics 6.8 and 6.10), the result cache to call the plugin again. Some events do only one of the two: a pod that is
added to a node invalidates results but cannot make a rejected pod schedulable, so it is registered with ``requeues``
False.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kubestow.api.custom import CustomObject
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.changes.journal import InvalidationMask
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.rules.minors import Behaviour

if TYPE_CHECKING:
    from kubestow.framework.handle import Handle

Hint = Callable[[PodInfo, Any, Any], bool]
"""A queueing hint: whether an event, given as (pod, old object, new object), can make one rejected pod schedulable."""

EventFilter = Callable[[Any, Any], bool]
"""Whether an event, given as (old object, new object), can make any pod schedulable; called before the hints."""

HintKeys = Iterable[Hashable] | Mapping[Hashable, Sequence[int]]
"""What a rejected pod waits for, or what an event offers: keys, or keys with amounts.

A hint can say Queue only for a pod and an event that have a key in common. Where both have amounts for it, and as many
of them, none of the pod's may exceed that of the event.
"""

KeysOfEvent = Callable[[Any, Any], HintKeys | None]
"""The keys of an event, given as (old object, new object); None if it can help any pod.

Without any key the event can help only pods that have None as their keys.
"""


class Invalidation(Enum):
    """Which of a plugin's results an event invalidates."""

    NOTHING = "nothing"
    ROW = "row"
    ALL = "all"


@dataclass(frozen=True)
class EventRegistration:
    """One event (or several actions on one resource), what it invalidates, and whether it requeues pods."""

    event: ClusterEvent
    invalidates: Invalidation = Invalidation.ROW
    hint: Hint | None = None
    requeues: bool = True
    #: The struct of a custom kind.
    kind: type[CustomObject] | None = None
    #: Spares a call of the hint for every rejected pod.
    event_filter: EventFilter | None = None
    #: Spares calls of the hint for pods without such keys (:meth:`kubestow.framework.interface.Plugin.hint_keys`).
    hint_keys: KeysOfEvent | None = None


def invalidation_mask(registrations: Iterable[EventRegistration]) -> InvalidationMask:
    """What invalidates the results of a plugin that registers these events."""
    row_bits = all_bits = 0
    for registration in registrations:
        if registration.invalidates is Invalidation.ROW:
            row_bits |= registration.event.bits
        elif registration.invalidates is Invalidation.ALL:
            all_bits |= registration.event.bits
    return InvalidationMask(row_bits, all_bits)


def on(
    resource: str | type[CustomObject],
    action: Action,
    *,
    invalidates: Invalidation = Invalidation.ROW,
    hint: Hint | None = None,
    requeues: bool = True,
    event_filter: EventFilter | None = None,
    hint_keys: KeysOfEvent | None = None,
) -> EventRegistration:
    """Register actions on a resource. Without a hint every such event requeues the pods that the plugin has rejected.

    ``resource`` is an :class:`EventResource`, or the name of an event that plugins report themselves
    (:meth:`kubestow.framework.interface.Handle.report_change`). A custom kind
    (:class:`kubestow.api.custom.CustomObject`) is watched because it is registered.
    """
    if isinstance(resource, str):
        event, kind = ClusterEvent(resource, action), None
    else:
        event, kind = ClusterEvent(resource.resource, action), resource
    return EventRegistration(event, invalidates, hint, requeues, kind, event_filter, hint_keys)


def for_every_pod(condition: EventFilter) -> Hint:
    """The hint of events that help every rejected pod, or none: those for which a condition holds help every pod."""
    return lambda pod, old, new: condition(old, new)


def every_pod_if(condition: EventFilter) -> KeysOfEvent:
    """The keys of such events."""
    return lambda old, new: None if condition(old, new) else ()


def only_itself(old: PodInfo | None, new: PodInfo | None) -> HintKeys:
    """The keys of an event that helps at most the pod that it is about, whose hints are called without keys: none."""
    return ()


def events_of_nodes_without_hints(handle: Handle) -> Sequence[EventRegistration]:
    """What of nodes a plugin that checks single nodes registers besides if there are no queueing hints.

    Without hints a node is only checked when an event of it comes, so a change that another plugin waits for counts.
    """
    if handle.feature_enabled("SchedulerQueueingHints"):
        return ()
    is_specific = handle.emulates(Behaviour.NODE_EVENTS_NAME_WHAT_CHANGED)
    action = Action.UPDATE_NODE_TAINT | Action.UPDATE_NODE_LABEL if is_specific else Action.UPDATE
    return (on(EventResource.NODE, action, invalidates=Invalidation.NOTHING),)


def placed_pods(handle: Handle, behaviour: Behaviour) -> Callable[[PodInfo], bool]:
    """Whether the changes of a pod may help others: if it has a node, or with the behaviour also a nomination."""
    if handle.emulates(behaviour):
        return attrgetter("is_assigned_or_nominated")
    return attrgetter("is_assigned")


_WATCHED_BY_DEFAULT = (
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

EVERYTHING: Sequence[EventRegistration] = tuple(
    on(resource, Action.ALL, invalidates=Invalidation.ALL) for resource in _WATCHED_BY_DEFAULT
)
"""The registrations of a plugin that declares none: all events (semantics 4.9)."""
