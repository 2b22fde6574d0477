"""Unschedulable and gated pods, in cohorts: pods for which every event means the same.

The pods of a cohort were rejected by the same plugins and have the same hint signatures, so one evaluation of the hints
decides for all of them. Cohorts are indexed by what these plugins wait for (:mod:`.hint_index`), so that the hints are
called only for cohorts that an event may help. What it costs to decide depends on what the event may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.queue.hint_index import HintIndex, KeysByPlugin
from kubestow.scheduling.queue.queueing_hints import HintSignatures
from kubestow.scheduling.queued_pod import QueuedPod

Sign = Callable[[PodInfo, Iterable[str]], HintSignatures]
"""Returns the hint signatures of a pod for the plugins that rejected it."""

Keys = Callable[[PodInfo, Iterable[str]], KeysByPlugin]
"""Returns the hint keys of a pod for the plugins that rejected it; None where every event may help."""


class CohortKey(NamedTuple):
    """What the pods of a cohort have in common."""

    scheduler_name: str
    signatures: HintSignatures
    pending_plugins: frozenset[str]
    gated_by: str
    requeue_when_ungated: bool
    #: Whether the pods are gated and stay gated, whatever happens, until their own preemption has ended.
    is_held: bool
    #: The uid of a pod that is a cohort of its own, because the hints of a plugin are called for every pod; else "".
    only: str


class Cohort:
    """Pods for which every event means the same, by uid."""

    __slots__ = ("hint_keys", "key", "pods")

    def __init__(self, key: CohortKey) -> None:
        self.key = key
        #: The plugins that rejected the pods or returned Pending, each with what events it can be helped by.
        self.hint_keys: KeysByPlugin = {}
        self.pods: dict[str, QueuedPod] = {}


class UnschedulablePods:
    """The unschedulable and gated pods that no event has helped yet."""

    def __init__(self, sign: Sign, keys: Keys) -> None:
        self._sign, self._keys = sign, keys
        self._cohorts: dict[CohortKey, Cohort] = {}
        self._index: HintIndex[Cohort] = HintIndex()
        self._cohort_of: dict[str, Cohort] = {}

    def __bool__(self) -> bool:
        return bool(self._cohort_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._cohort_of

    def add(self, queued: QueuedPod, *, is_held: bool = False) -> None:
        """Add a pod, or move it to the cohort of its present state. ``is_held`` as in :class:`CohortKey`."""
        info, uid = queued.info, queued.info.uid
        self.remove(uid)
        signatures = self._sign(info, sorted(queued.rejectors | queued.pending_plugins))
        is_individual = any(signature is None for _, signature in signatures)
        key = CohortKey(
            info.spec.scheduler_name,
            signatures,
            queued.pending_plugins,
            queued.gated_by,
            queued.requeue_when_ungated,
            is_held,
            uid if is_individual else "",
        )
        cohort = self._cohorts.get(key)
        if cohort is None:
            cohort = self._cohorts[key] = Cohort(key)
            cohort.hint_keys = self._keys(info, [plugin for plugin, _ in signatures])
            if key.requeue_when_ungated:  # no hint is called again: any event counts that may have opened the gate
                cohort.hint_keys = {
                    plugin: keys if plugin == key.gated_by else None for plugin, keys in cohort.hint_keys.items()
                }
            self._index.add(cohort, cohort.hint_keys)
        cohort.pods[uid] = queued
        self._cohort_of[uid] = cohort

    def remove(self, uid: str) -> None:
        """Remove a pod, if it is here."""
        cohort = self._cohort_of.pop(uid, None)
        if cohort is None:
            return
        del cohort.pods[uid]
        if not cohort.pods:
            self._drop(cohort)

    def take(self, cohort: Cohort, uids: Iterable[str]) -> list[QueuedPod]:
        """Remove some pods of a cohort and return them."""
        taken = [cohort.pods.pop(uid) for uid in list(uids)]
        for queued in taken:
            del self._cohort_of[queued.info.uid]
        if not cohort.pods:
            self._drop(cohort)
        return taken

    def take_all(self, cohort: Cohort) -> list[QueuedPod]:
        """Remove all pods of a cohort and return them."""
        for uid in cohort.pods:
            del self._cohort_of[uid]
        self._drop(cohort)
        return list(cohort.pods.values())

    def _drop(self, cohort: Cohort) -> None:
        del self._cohorts[cohort.key]
        self._index.remove(cohort, cohort.hint_keys)

    def is_held(self, uid: str) -> bool:
        """Whether a pod is held (see :class:`CohortKey`)."""
        cohort = self._cohort_of.get(uid)
        return cohort is not None and cohort.key.is_held

    def cohorts(self) -> list[Cohort]:
        """All cohorts."""
        return list(self._cohorts.values())

    @property
    def rejectors(self) -> Collection[str]:
        """The plugins that rejected any of the pods or returned Pending."""
        return self._index.plugins

    def rejected_by(self, plugins: KeysByPlugin) -> list[Cohort]:
        """The cohorts that an event with these hint keys can help, each once, and perhaps others."""
        return self._index.find(plugins)
