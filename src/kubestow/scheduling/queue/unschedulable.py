"""Unschedulable pods, indexed by the plugins that rejected them.

An event concerns few plugins. The index gives the pods that those plugins rejected, so that an event never walks over
all pending pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubestow.scheduling.queued_pod import QueuedPod

__all__ = ["UnschedulablePods"]


class UnschedulablePods:
    """The unschedulable and gated pods by each plugin in their ``rejectors`` and ``pending``."""

    def __init__(self) -> None:
        self._by_plugin: dict[str, dict[str, QueuedPod]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_plugin)

    def add(self, queued: QueuedPod) -> None:
        """Index a pod under the plugins that rejected it."""
        for plugin in queued.rejectors | queued.pending:
            self._by_plugin.setdefault(plugin, {})[queued.info.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod, if it is here. Its rejectors must be those with which it was added."""
        for plugin in queued.rejectors | queued.pending:
            rejected = self._by_plugin.get(plugin)
            if rejected is not None:
                rejected.pop(queued.info.uid, None)
                if not rejected:
                    del self._by_plugin[plugin]

    def rejected_by(self, plugins: Iterable[str]) -> Iterator[QueuedPod]:
        """The pods that any of the plugins rejected, each once."""
        seen: set[str] = set()
        for plugin in plugins:
            for uid, queued in self._by_plugin.get(plugin, {}).items():
                if uid not in seen:
                    seen.add(uid)
                    yield queued
