"""Queueing hints: which rejected pods an event may make schedulable.

Built once from the events that the plugins of all profiles register (semantics 4.9). The hints of a profile are
evaluated only for the plugins that rejected the pod.
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

__all__ = ["QueueingHints", "Registrations", "Requeue"]

#: Plugins of other extension points cannot reject a pod, so their registrations are ignored.
_REJECTING_PLUGINS = (
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    ReservePlugin,
    PermitPlugin,
    PlacementGeneratePlugin,
)
_NODE_TAINT_UPDATE = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_TAINT)

#: The registrations that match an event: by scheduler name, then by plugin.
Registrations = Mapping[str, Mapping[str, Sequence[EventRegistration]]]


class Requeue(Enum):
    """What an event means for a rejected pod."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


class QueueingHints:
    """The registrations of all plugins of all profiles.

    ``unregistered`` names rejectors that register no events (extenders): every event may help their pods.
    """

    def __init__(self, profiles: Mapping[str, Profile], *, unregistered: Collection[str] = ()) -> None:
        self._profiles = profiles
        unconditional = [(name, registration) for name in unregistered for registration in EVERYTHING]
        self._by_profile: dict[str, list[tuple[str, EventRegistration]]] = {
            profile.scheduler_name: [
                (plugin.name, registration)
                for plugin in profile.plugins
                if isinstance(plugin, _REJECTING_PLUGINS)
                for registration in _requeueing_registrations(plugin)
            ]
            + unconditional
            for profile in profiles.values()
        }
        self._matching: dict[ClusterEvent, dict[str, dict[str, list[EventRegistration]]]] = {}
        self._with_event_filter: set[ClusterEvent] = set()

    def matching(self, event: ClusterEvent) -> Registrations:
        """The registrations that match an event."""
        known = self._matching.get(event)
        if known is None:
            known = self._matching[event] = self._find_matching(event)
        return known

    def _find_matching(self, event: ClusterEvent) -> dict[str, dict[str, list[EventRegistration]]]:
        matching: dict[str, dict[str, list[EventRegistration]]] = {}
        for scheduler_name, registrations in self._by_profile.items():
            for plugin, registration in registrations:
                if registration.event.matches(event):
                    matching.setdefault(scheduler_name, {}).setdefault(plugin, []).append(registration)
                    if registration.event_filter is not None:
                        self._with_event_filter.add(event)
        return matching

    def filtered(self, event: ClusterEvent, old: Any, new: Any) -> Registrations:
        """The same, without plugins whose event filters tell that the event helps no pod at all."""
        matching = self.matching(event)
        if event not in self._with_event_filter:
            return matching
        return {
            scheduler_name: {
                plugin: registrations
                for plugin, registrations in plugins.items()
                if any(
                    self._profiles[scheduler_name].runtime.run_event_filter(plugin, registration, old, new)
                    for registration in registrations
                )
            }
            for scheduler_name, plugins in matching.items()
        }

    def decide(
        self,
        pod: PodInfo,
        registrations: Mapping[str, Sequence[EventRegistration]],
        *,
        event: ClusterEvent,
        rejectors: Collection[str],
        pending: Collection[str],
        old: Any,
        new: Any,
    ) -> Requeue:
        """Whether an event requeues a pod (semantics 6.8): a plugin that returned Pending skips the backoff."""
        runtime = self._profiles[pod.spec.scheduler_name].runtime
        found = Requeue.SKIP
        for plugin in (*rejectors, *(name for name in pending if name not in rejectors)):
            for registration in registrations.get(plugin, ()):
                if not runtime.run_queueing_hint(plugin, registration, pod, old, new, event=event):
                    continue
                if plugin in pending:
                    return Requeue.IMMEDIATELY
                if not pending:
                    return Requeue.AFTER_BACKOFF
                found = Requeue.AFTER_BACKOFF
        return found


def _requeueing_registrations(plugin: Plugin) -> list[EventRegistration]:
    """The plugin's registrations that may requeue a pod. A node is often created tainted, so Add implies taints."""
    registrations = [registration for registration in plugin.events_to_register if registration.requeues]
    node_events = [r.event for r in registrations if r.event.resource is EventResource.NODE]
    has_add = any(event.action & Action.ADD for event in node_events)
    has_taint_update = any(event.action & Action.UPDATE_NODE_TAINT for event in node_events)
    return (
        [*registrations, EventRegistration(_NODE_TAINT_UPDATE)] if has_add and not has_taint_update else registrations
    )
