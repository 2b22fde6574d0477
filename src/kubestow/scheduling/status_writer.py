"""Pod status patches, written in the background.

At most one patch of a pod is on its way; while it is, newer ones replace each other, so that a pod that fails a hundred
times in a second costs a request or two. Whoever is about to bind a pod first waits until nothing of it is on its way,
because a late "unschedulable" must not overtake the binding.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.ports import ClusterAPI, ObjectReference, PodStatusPatch

__all__ = ["StatusWriter"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Write:
    """The patch that is to go out next for one pod (None: nothing more), and the task that writes."""

    pod: ObjectReference
    next: PodStatusPatch | None
    task: asyncio.Task[None] | None = None
    under_way: bool = False


class StatusWriter:
    """Writes the statuses of pods; at most ``concurrency`` requests at once."""

    def __init__(self, api: ClusterAPI, *, concurrency: int = 16) -> None:
        self._api = api
        self._slots = asyncio.Semaphore(concurrency)
        self._writes: dict[str, _Write] = {}

    def patch(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Have a patch written soon, merged with one that has not gone out yet."""
        write = self._writes.get(pod.uid)
        if write is not None:
            write.next = _merged(write.next, patch)
            return
        write = self._writes[pod.uid] = _Write(pod, patch)
        write.task = asyncio.create_task(self._write_out(write))

    async def settle(self, uid: str) -> None:
        """Drop what has not gone out for a pod, and wait for what has."""
        write = self._writes.get(uid)
        if write is None or write.task is None:
            return
        write.next = None
        if write.under_way:
            await asyncio.wait([write.task])

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What has not been written yet."""
        return [write.task for write in self._writes.values() if write.task is not None]

    async def _write_out(self, write: _Write) -> None:
        try:
            async with self._slots:
                write.under_way = True
                while (patch := write.next) is not None:
                    write.next = None
                    await self._send(write.pod, patch)
        finally:
            del self._writes[write.pod.uid]

    async def _send(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        try:
            await self._api.patch_pod_status(pod, patch)
        except APIError as error:
            if error.code != 404:
                _log.warning("status of pod %s/%s not updated: %s", pod.namespace, pod.name, error)
        except Unreachable as error:
            _log.warning("status of pod %s/%s not updated: %s", pod.namespace, pod.name, error)


def _merged(older: PodStatusPatch | None, newer: PodStatusPatch) -> PodStatusPatch:
    if older is None:
        return newer
    nomination = older.nominated_node_name if newer.nominated_node_name is None else newer.nominated_node_name
    return PodStatusPatch(newer.condition or older.condition, nomination)
