"""Queueing hints: for an event, which refused pods are worth another try.

Made once from what the plugins of all profiles declare (semantics 4.9). A profile's hints are asked only for the
plugins that refused the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import EVERYTHING, EventRegistration
from kubestow.framework.interface import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from kubestow.framework.placement import PlacementGeneratePlugin
from kubestow.framework.profile import Profile

__all__ = ["Concerned", "QueueingHints", "Requeue"]

#: Only plugins of these kinds can refuse a pod, so only theirs are kept.
_REFUSING = (
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    ReservePlugin,
    PermitPlugin,
    PlacementGeneratePlugin,
)
_TAINTS = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_TAINT)


#: By scheduler name, then by plugin.
Concerned = Mapping[str, Mapping[str, Sequence[EventRegistration]]]


class Requeue(Enum):
    """What to do with a refused pod after an event."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


class QueueingHints:
    """The events that all plugins of all profiles want to hear of.

    ``hear_everything`` names others that refuse pods, and of which nobody knows what changes their minds.
    """

    def __init__(
        self,
        profiles: Collection[Profile],
        *,
        hear_everything: Collection[str] = (),
    ) -> None:
        self._runtimes = {profile.scheduler_name: profile.runtime for profile in profiles}
        unknowing = [(name, interest) for name in hear_everything for interest in EVERYTHING]
        self._by_profile: dict[str, list[tuple[str, EventRegistration]]] = {
            profile.scheduler_name: [
                (plugin.name, interest)
                for plugin in profile.plugins
                if isinstance(plugin, _REFUSING)
                for interest in _waking(plugin)
            ]
            + unknowing
            for profile in profiles
        }
        self._concerned: dict[ClusterEvent, dict[str, dict[str, list[EventRegistration]]]] = {}
        self._glanced_at: set[ClusterEvent] = set()

    def concerned(self, event: ClusterEvent) -> Concerned:
        """The interests in an event: by scheduler name, then by plugin."""
        known = self._concerned.get(event)
        if known is None:
            known = self._concerned[event] = self._find_concerned(event)
        return known

    def _find_concerned(self, event: ClusterEvent) -> dict[str, dict[str, list[EventRegistration]]]:
        concerned: dict[str, dict[str, list[EventRegistration]]] = {}
        for scheduler_name, events_to_register in self._by_profile.items():
            for plugin, interest in events_to_register:
                if interest.event.matches(event):
                    concerned.setdefault(scheduler_name, {}).setdefault(plugin, []).append(interest)
                    if interest.event_filter is not None:
                        self._glanced_at.add(event)
        return concerned

    def at_a_glance(self, event: ClusterEvent, old: Any, new: Any) -> Concerned:
        """The same, without the plugins that see at once that nobody is helped."""
        concerned = self.concerned(event)
        if event not in self._glanced_at:
            return concerned
        return {
            scheduler_name: {
                plugin: events_to_register
                for plugin, events_to_register in plugins.items()
                if any(
                    self._runtimes[scheduler_name].run_event_filter(plugin, interest, old, new)
                    for interest in events_to_register
                )
            }
            for scheduler_name, plugins in concerned.items()
        }

    def decide(
        self,
        event: ClusterEvent,
        events_to_register: Mapping[str, Sequence[EventRegistration]],
        pod: PodInfo,
        *,
        rejectors: Collection[str],
        pending: Collection[str],
        old: Any,
        new: Any,
    ) -> Requeue:
        """Whether an event is worth another try for one pod (semantics 6.8, step 4)."""
        found, runtime = Requeue.SKIP, self._runtimes[pod.spec.scheduler_name]
        for plugin in (*rejectors, *(name for name in pending if name not in rejectors)):
            for interest in events_to_register.get(plugin, ()):
                if not runtime.run_queueing_hint(plugin, interest, pod, old, new, event=event):
                    continue
                if plugin in pending:
                    return Requeue.IMMEDIATELY
                if not pending:
                    return Requeue.AFTER_BACKOFF
                found = Requeue.AFTER_BACKOFF
        return found


def _waking(plugin: Plugin) -> list[EventRegistration]:
    """The plugin's interests that can help a pod; a node is often created tainted, so Add implies taints too."""
    events_to_register = [interest for interest in plugin.events_to_register if interest.requeues]
    on_nodes = [interest.event for interest in events_to_register if interest.event.resource is EventResource.NODE]
    hears_add = any(event.action & Action.ADD for event in on_nodes)
    hears_taints = any(event.action & Action.UPDATE_NODE_TAINT for event in on_nodes)
    return [*events_to_register, EventRegistration(_TAINTS)] if hears_add and not hears_taints else events_to_register
