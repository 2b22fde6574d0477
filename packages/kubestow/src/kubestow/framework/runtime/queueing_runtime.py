"""The plugins of the scheduling queue: PreEnqueue, QueueSort, and queueing hints.

A failing plugin must neither stop the queue nor leave a pod in it permanently. The failure is logged. A failed
PreEnqueue is an Error status of that pod only, a pod without a sort key is queued last, and a failed hint counts as
Queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from operator import index
from typing import Any, TypeVar

from kubestow.api.formats.int64 import saturated
from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import EventRegistration, HintKeys
from kubestow.framework.interface import Plugin, PreEnqueuePlugin, Queued, SubqueueOrder
from kubestow.framework.runtime.plugin_caller import (
    FAILURES,
    ExtensionPointTimer,
    PluginCaller,
    hashable,
    log_failure,
    may_gate,
    unless_it_fails,
)
from kubestow.framework.status import SUCCESS, Status

T = TypeVar("T")


class QueueingRuntime(PluginCaller):
    """Calls the plugins of one profile for pods in the scheduling queue."""

    def gates_of(self, pod: PodInfo) -> tuple[PreEnqueuePlugin, ...]:
        """The PreEnqueue plugins that can gate a pod, in order; one that fails to say so can."""
        return tuple([plugin for plugin in self.plugins.pre_enqueue if may_gate(plugin, pod)])

    def run_pre_enqueue_plugins(self, pod: PodInfo, plugins: Sequence[PreEnqueuePlugin] | None = None) -> Status:
        """SUCCESS if no plugin gates the pod, else the first failure; ``plugin`` names its plugin.

        ``plugins`` are those to call, all that can gate the pod by default.
        """
        gates = self.gates_of(pod) if plugins is None else plugins
        if not gates and self.observer is None:
            return SUCCESS
        with ExtensionPointTimer(self, "PreEnqueue") as timer:
            for plugin in gates:
                status = timer.call_for_status(plugin, plugin.pre_enqueue, pod)
                if not status.ok:
                    return timer.ended_with(status.by(plugin.name))
            return SUCCESS

    def sort_key(self, queued: Queued) -> Any:
        """What the active queue compares: the QueueSort plugin's key. Pods without a key sort last, oldest first."""
        plugin = self.plugins.queue_sort
        try:
            return 0, plugin.sort_key(queued)
        except FAILURES:
            log_failure(plugin.name, "QueueSort", pod=queued.info.key)
            return 1, queued.timestamp

    @property
    def has_subqueues(self) -> bool:
        """Whether the QueueSort plugin orders subqueues of pods."""
        return self.plugins.queue_sort.subqueues is not None

    def subqueue_of(self, pod: PodInfo) -> Hashable:
        """The subqueue of a pod; None if the plugin fails."""
        return self._call_subqueue_order(lambda order: hashable(order.subqueue_of(pod)), None)

    def subqueue_opened(self, subqueue: Hashable) -> None:
        """A subqueue has a pod now, and had none before."""
        self._call_subqueue_order(lambda order: order.opened(subqueue), None)

    def first_subqueue(self, subqueues: Collection[Hashable]) -> Hashable:
        """The subqueue that is next, of some; the one that was opened first if the plugin fails or names another."""
        oldest = next(iter(subqueues))

        def first(order: SubqueueOrder) -> Hashable:
            found = order.first(subqueues)
            return found if found in subqueues else oldest

        return self._call_subqueue_order(first, oldest)

    def _call_subqueue_order(self, call: Callable[[SubqueueOrder], T], otherwise: T) -> T:
        plugin = self.plugins.queue_sort
        order = plugin.subqueues
        assert order is not None
        return unless_it_fails(otherwise, plugin.name, "the order of subqueues", lambda: call(order))

    def run_queueing_hint(
        self, plugin: str, registration: EventRegistration, pod: PodInfo, old: Any, new: Any, *, event: ClusterEvent
    ) -> bool:
        """Whether an event is worth another attempt at a pod that the named plugin rejected; True if the hint fails."""
        hint = registration.hint
        if hint is None:
            return True
        began = self.now()
        queues = unless_it_fails(
            None, plugin, "queueing hint", lambda: bool(hint(pod, old, new)), pod=pod.key, event=event.label
        )
        if self.observer is not None:
            result = "Error" if queues is None else "Queue" if queues else "QueueSkip"
            self.observer.queueing_hint_called(plugin, event.label, result, self.now() - began)
        return queues is not False  # a broken hint must not leave a pod in the queue for ever

    def hint_signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """What of the pod the plugin's queueing hints depend on; None, for calls of its own, if that fails."""
        return unless_it_fails(
            None, plugin.name, "hint_signature", lambda: hashable(plugin.hint_signature(pod)), pod=pod.key
        )

    def hint_keys(self, plugin: Plugin, pod: PodInfo) -> dict[Hashable, tuple[int, ...]] | None:
        """The keys of a pod that the plugin rejected, with their amounts; None, for all events, also if that fails."""
        return unless_it_fails(None, plugin.name, "hint_keys", lambda: _as_keys(plugin.hint_keys(pod)), pod=pod.key)

    def run_hint_keys(
        self, plugin: str, registration: EventRegistration, old: Any, new: Any
    ) -> dict[Hashable, tuple[int, ...]] | None:
        """The keys of the pods that an event can help; None, for all pods, without keys or if that fails."""
        keys_of_event = registration.hint_keys
        if keys_of_event is None:
            return None
        return unless_it_fails(
            None, plugin, "hint_keys", lambda: _as_keys(keys_of_event(old, new)), event=registration.event.label
        )

    def run_event_filter(self, plugin: str, registration: EventRegistration, old: Any, new: Any) -> bool:
        """Whether an event can help any pod that the named plugin rejected; True if the filter fails."""
        passes = registration.event_filter
        if passes is None:
            return True
        return unless_it_fails(
            True, plugin, "event filter", lambda: bool(passes(old, new)), event=registration.event.label
        )


def _as_keys(keys: HintKeys | None) -> dict[Hashable, tuple[int, ...]] | None:
    """Hint keys with their amounts, of 64 bits. Raises TypeError if they are not what the contract says."""
    if keys is None:
        return None
    if not isinstance(keys, Mapping):
        return dict.fromkeys(keys, ())
    return {key: tuple(saturated(index(amount)) for amount in amounts) for key, amounts in keys.items()}
