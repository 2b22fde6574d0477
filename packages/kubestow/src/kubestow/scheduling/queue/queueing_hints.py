"""Queueing hints: which rejected pods an event may make schedulable.

Built once from the events that the plugins of all profiles register (semantics 4.9). The hints of a profile are
evaluated only for the plugins that rejected the pod, and once for all pods with the same hint signature.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import EVERYTHING, EventRegistration
from kubestow.framework.gang import PlacementGeneratePlugin
from kubestow.framework.interface import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from kubestow.framework.profile import Profile
from kubestow.scheduling.queue.hint_index import Amounts, KeysByPlugin
from kubestow.scheduling.queued_pod import QueueingStrategy

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

Registrations = Mapping[str, Mapping[str, Sequence[EventRegistration]]]
"""The registrations that match an event: by scheduler name, then by plugin."""

HintSignatures = tuple[tuple[str, Hashable | None], ...]
"""The plugins that rejected a pod, each with the pod's hint signature for it; None if its hints are called per pod."""


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
                for registration in self._requeueing_registrations(plugin)
            ]
            + unconditional
            for profile in profiles.values()
        }
        #: The plugins whose registrations tell pods apart, by scheduler name and plugin name.
        self._hinting: dict[str, dict[str, Plugin]] = {
            profile.scheduler_name: {
                plugin.name: plugin
                for plugin in profile.plugins
                if any(each.hint is not None or each.hint_keys is not None for each in plugin.events_to_register)
            }
            for profile in profiles.values()
        }
        #: Those of them with keyed events.
        self._keyed = {
            name: {
                plugin: self._hinting[name][plugin]
                for plugin, registration in registrations
                if registration.hint_keys is not None
            }
            for name, registrations in self._by_profile.items()
        }
        self._matching: dict[ClusterEvent, dict[str, dict[str, list[EventRegistration]]]] = {}
        self._with_event_filter: set[ClusterEvent] = set()

    def _requeueing_registrations(self, plugin: Plugin) -> list[EventRegistration]:
        """The plugin's registrations that may requeue a pod. A node is often created tainted, so Add implies taints."""
        registrations = [registration for registration in plugin.events_to_register if registration.requeues]
        node_events = [r.event for r in registrations if r.event.resource is EventResource.NODE]
        has_add = any(event.action & Action.ADD for event in node_events)
        has_taint_update = any(event.action & Action.UPDATE_NODE_TAINT for event in node_events)
        if has_add and not has_taint_update:
            registrations.append(EventRegistration(_NODE_TAINT_UPDATE))
        return registrations

    def signatures(self, pod: PodInfo, plugins: Iterable[str]) -> HintSignatures:
        """The hint signatures of a pod that these plugins rejected."""
        name = pod.spec.scheduler_name
        hinting, runtime = self._hinting[name], self._profiles[name].queueing
        return tuple(
            (plugin, () if plugin not in hinting else runtime.hint_signature(hinting[plugin], pod))
            for plugin in plugins
        )

    def keys(self, pod: PodInfo, plugins: Iterable[str]) -> KeysByPlugin:
        """The hint keys of a pod for the plugins that rejected it; None for those without keyed events."""
        name = pod.spec.scheduler_name
        keyed, runtime = self._keyed[name], self._profiles[name].queueing
        return {plugin: runtime.hint_keys(keyed[plugin], pod) if plugin in keyed else None for plugin in plugins}

    def keys_of(self, registrations: Registrations, old: Any, new: Any, *, rejectors: Collection[str]) -> KeysByPlugin:
        """Those of the rejectors that registered an event, with its keys for them; None if it can help any pod."""
        found: dict[str, Mapping[Hashable, Amounts] | None] = {}
        for scheduler_name, by_plugin in registrations.items():
            runtime = self._profiles[scheduler_name].queueing
            for plugin, matching in by_plugin.items():
                for registration in matching if plugin in rejectors else ():
                    keys = runtime.run_hint_keys(plugin, registration, old, new)
                    found[plugin] = _united(found[plugin], keys) if plugin in found else keys
        return found

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
                    self._profiles[scheduler_name].queueing.run_event_filter(plugin, registration, old, new)
                    for registration in registrations
                )
            }
            for scheduler_name, plugins in matching.items()
        }

    def decisions(self, event: ClusterEvent, registrations: Registrations, old: Any, new: Any) -> EventDecisions:
        """The requeue decisions for one event, with the object before and after."""
        return EventDecisions(self._profiles, event, registrations, old, new)


class EventDecisions:
    """What one event means for rejected pods (semantics 6.8). A hint is called once per hint signature."""

    def __init__(
        self, profiles: Mapping[str, Profile], event: ClusterEvent, registrations: Registrations, old: Any, new: Any
    ) -> None:
        self._profiles, self._registrations = profiles, registrations
        self.event, self._old, self._new = event, old, new
        #: By scheduler name, plugin and hint signature.
        self._known: dict[tuple[str, str, Hashable], bool] = {}

    def concerns(self, scheduler_name: str, plugin: str) -> bool:
        """Whether a plugin registered the event."""
        return plugin in self._registrations.get(scheduler_name, {})

    def of(self, pod: PodInfo, *, rejectors: Collection[str], pending_plugins: Collection[str]) -> QueueingStrategy:
        """Whether the event requeues one pod."""
        signatures = tuple((plugin, None) for plugin in dict.fromkeys((*rejectors, *pending_plugins)))
        return self.of_all_like(pod, signatures, pending_plugins=pending_plugins)

    def of_all_like(
        self, pod: PodInfo, signatures: HintSignatures, *, pending_plugins: Collection[str]
    ) -> QueueingStrategy:
        """Whether the event requeues the pods that the same plugins rejected and that have the same ``signatures``.

        A plugin that returned Pending (``pending_plugins``) skips the backoff.
        """
        if self.event.is_wildcard or not signatures:
            return QueueingStrategy.AFTER_BACKOFF
        registrations = self._registrations.get(pod.spec.scheduler_name)
        found = QueueingStrategy.SKIP
        if not registrations:
            return found
        for plugin, signature in signatures:
            if plugin not in registrations or not self._queues(pod, plugin, signature, registrations[plugin]):
                continue
            if plugin in pending_plugins:
                return QueueingStrategy.IMMEDIATELY
            if not pending_plugins:
                return QueueingStrategy.AFTER_BACKOFF
            found = QueueingStrategy.AFTER_BACKOFF
        return found

    def _queues(
        self, pod: PodInfo, plugin: str, signature: Hashable | None, registrations: Sequence[EventRegistration]
    ) -> bool:
        """Whether a hint of a plugin says Queue."""
        for registration in registrations:
            if registration.hint is None:
                return True
        if signature is None:
            return self._call(pod, plugin, registrations)
        key = (pod.spec.scheduler_name, plugin, signature)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._call(pod, plugin, registrations)
        return known

    def _call(self, pod: PodInfo, plugin: str, registrations: Sequence[EventRegistration]) -> bool:
        run = self._profiles[pod.spec.scheduler_name].queueing.run_queueing_hint
        for registration in registrations:
            if run(plugin, registration, pod, self._old, self._new, event=self.event):
                return True
        return False


def _united(
    one: Mapping[Hashable, Amounts] | None, other: Mapping[Hashable, Amounts] | None
) -> Mapping[Hashable, Amounts] | None:
    """The keys of either, with the greater amounts; without amounts where they differ in number."""
    if one is None or other is None:
        return None
    united = {**one, **other}
    for key in one.keys() & other.keys():
        same_number = len(one[key]) == len(other[key])
        united[key] = tuple(map(max, one[key], other[key])) if same_number else ()
    return united
