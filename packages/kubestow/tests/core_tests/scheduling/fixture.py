"""Profiles and clusters that tests of several packages share."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from kubestow.api.core import Pod
from kubestow.framework.interface import Plugin
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import MemoryCluster


def enabled(*plugins: type[Plugin]) -> dict[str, Any]:
    """Arguments of the scheduler harness that add plugins to the default profile."""
    multi_point = {"enabled": [{"name": plugin.name} for plugin in plugins]}
    return {"plugins": plugins, "profiles": [{"plugins": {"multiPoint": multi_point}}]}


class TerminatingCluster(MemoryCluster):
    """Deleted pods get a deletionTimestamp and terminate until the test removes them; ``deletions`` counts them."""

    deletions = 0

    async def delete_pod(self, pod: ObjectReference) -> None:
        self.deletions += 1
        self.put(mark_deleted(self.pod(pod.name)))


class SlowlyTerminatingCluster(MemoryCluster):
    """Answers a deletion after twenty seconds; the pod then terminates for ten more."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        await asyncio.sleep(20)
        terminating = mark_deleted(self.pod(pod.name))
        self.put(terminating)
        asyncio.get_running_loop().call_later(10, self.remove, terminating)


def mark_deleted(pod: Pod) -> Pod:
    """The pod with a deletionTimestamp."""
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
