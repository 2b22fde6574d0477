"""Waiting pods: assumed pods that can still be stopped, on Permit or in PreBind (semantics 4.6, 9.6).

A pod waits on Permit until every plugin that asked for it has allowed it; the first rejection ends the wait. In PreBind
a pod can only be cancelled, which preemption does to a victim that is not bound yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor

MAX_PERMIT_WAIT = 15 * 60.0
"""No plugin may delay a pod longer than this, in seconds."""

#: The plugin on whose behalf victims are stopped.
_PREEMPTION = "DefaultPreemption"


class WaitingPod:
    """One pod that waits on Permit, and the plugins that have not allowed it yet."""

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

    @property
    def deadline(self) -> float:
        """When the first of these plugins rejects the pod, in seconds of the event loop's clock."""
        return min((timer.when() for timer in self._timers.values()), default=0.0)

    async def result(self) -> Status:
        """SUCCESS once all plugins have allowed the pod, otherwise the first rejection."""
        return await self._result

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin."""
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._decide(SUCCESS)

    def reject(self, plugin: str, message: str) -> bool:
        """Reject the pod on behalf of a plugin; False when its wait has ended already."""
        return self._decide(Status(Code.UNSCHEDULABLE, (message,), plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """End the wait with an error, so that the pod is retried; False when its wait has ended already."""
        return self._decide(Status(Code.ERROR, (message,), plugin))

    def stop_timers(self) -> None:
        """Let no timeout reject the pod any more."""
        for timer in self._timers.values():
            timer.cancel()

    def _time_out(self, plugin: str, seconds: float) -> None:
        self.reject(plugin, f"rejected due to timeout after waiting {go_duration(seconds)} at plugin {plugin}")

    def _decide(self, status: Status) -> bool:
        if self._result.done():
            return False
        self.stop_timers()
        self._result.set_result(status)
        return True


class WaitingPods:
    """The pods that wait on Permit and those in PreBind, by uid."""

    def __init__(self, minor: Minor = DEFAULT_MINOR) -> None:
        self._retries_victims = minor.has(Behaviour.VICTIMS_ON_PERMIT_ARE_RETRIED)
        self._cancels_pre_bind = minor.has(Behaviour.VICTIMS_IN_PRE_BIND_ARE_CANCELLED)
        self._waiting: dict[str, WaitingPod] = {}
        #: For pods in PreBind: completing the future cancels the plugins, with its result as the message.
        self._in_pre_bind: dict[str, asyncio.Future[str]] = {}

    def add(self, info: PodInfo, timeouts: Mapping[str, float]) -> WaitingPod:
        """Have a pod wait for plugins, each at most so many seconds (and MAX_PERMIT_WAIT)."""
        waiting = WaitingPod(info, {plugin: min(seconds, MAX_PERMIT_WAIT) for plugin, seconds in timeouts.items()})
        self._waiting[info.uid] = waiting
        return waiting

    def remove(self, uid: str) -> None:
        """End a pod's wait on Permit, decided or not."""
        waiting = self._waiting.pop(uid, None)
        if waiting is not None:
            waiting.stop_timers()

    def get(self, uid: str) -> WaitingPod | None:
        """A pod that waits on Permit; None when it does not."""
        return self._waiting.get(uid)

    def all(self) -> list[WaitingPod]:
        """Every pod that waits on Permit."""
        return list(self._waiting.values())

    def enter_pre_bind(self, uid: str) -> asyncio.Future[str]:
        """A pod's PreBind plugins begin to run. The returned future cancels them when it completes."""
        cancellation: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._in_pre_bind[uid] = cancellation
        return cancellation

    def leave_pre_bind(self, uid: str) -> None:
        """A pod's PreBind plugins have ended."""
        del self._in_pre_bind[uid]

    def preempt(self, uid: str) -> bool:
        """Stop a pod that is a victim of preemption, so that it is retried; False when it can no longer be stopped."""
        waiting = self._waiting.get(uid)
        if waiting is not None:
            stop = waiting.preempt if self._retries_victims else waiting.reject
            if stop(_PREEMPTION, "preempted"):
                return True
        if not self._cancels_pre_bind:
            return False
        cancellation = self._in_pre_bind.get(uid)
        if cancellation is None or cancellation.done():
            return False
        cancellation.set_result(f"preempted by {_PREEMPTION}")
        return True


def go_duration(seconds: float) -> str:
    """A duration as Go prints it, such as ``5m0s`` or ``1.5s``."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
