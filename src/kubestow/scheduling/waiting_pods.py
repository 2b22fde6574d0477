"""Waiting pods: placed, but held back by Permit plugins until these allow them (semantics 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import SUCCESS, Code, Status

__all__ = ["LONGEST_WAIT", "WaitingPod", "WaitingPods", "go_duration"]

LONGEST_WAIT = 15 * 60.0
"""No plugin may hold a pod longer than this, in seconds."""


class WaitingPod:
    """One pod and the plugins that still hold it; the first refusal, or the last permission, decides."""

    def __init__(self, info: PodInfo, timeouts: Mapping[str, float]) -> None:
        self.info = info
        self._result: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._timers = {
            plugin: asyncio.get_running_loop().call_later(seconds, self._time_out, plugin, seconds)
            for plugin, seconds in timeouts.items()
        }

    @property
    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed the pod yet."""
        return list(self._timers)

    async def decided(self) -> Status:
        """SUCCESS once all plugins allow the pod, otherwise the first refusal."""
        return await self._result

    def allow(self, plugin: str) -> None:
        """One plugin lets go."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._decide(SUCCESS)

    def reject(self, plugin: str, message: str) -> bool:
        """Refuse the pod; False when it was decided already."""
        return self._decide(Status(Code.UNSCHEDULABLE, (message,), plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """End the wait with an error, so that the pod is tried again; False when it was decided already."""
        return self._decide(Status(Code.ERROR, (message,), plugin))

    def _time_out(self, plugin: str, seconds: float) -> None:
        self.reject(plugin, f"rejected due to timeout after waiting {go_duration(seconds)} at plugin {plugin}")

    def _decide(self, status: Status) -> bool:
        if self._result.done():
            return False
        self.stop()
        self._result.set_result(status)
        return True

    def stop(self) -> None:
        """Nobody's time runs out any more."""
        for timer in self._timers.values():
            timer.cancel()


class WaitingPods:
    """All waiting pods by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def add(self, info: PodInfo, timeouts: Mapping[str, float]) -> WaitingPod:
        """A pod begins to wait for plugins, each at most so many seconds (and LONGEST_WAIT)."""
        waiting = WaitingPod(info, {plugin: min(seconds, LONGEST_WAIT) for plugin, seconds in timeouts.items()})
        self._pods[info.uid] = waiting
        return waiting

    def remove(self, uid: str) -> None:
        """A pod waits no longer, decided or not."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting.stop()

    def get(self, uid: str) -> WaitingPod | None:
        """A waiting pod, None when it does not wait."""
        return self._pods.get(uid)

    def all(self) -> list[WaitingPod]:
        """Every waiting pod."""
        return list(self._pods.values())


def go_duration(seconds: float) -> str:
    """A duration as Go prints it, such as ``5m0s`` or ``1.5s``."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
