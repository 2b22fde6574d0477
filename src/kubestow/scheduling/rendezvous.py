"""The rendezvous of a gang: placed members meet before the first of them is bound.

A binding cannot be taken back, so none is made while a member may still fail on the way to it: refused by a Permit
plugin, left without its volume. Once as many are here as the gang needs, they all go on; when so many have failed that
this cannot happen any more, or the time is up, everybody is sent back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.waiting import go_duration

__all__ = ["Rendezvous"]


class Rendezvous:
    """Where so many members as ``needed`` have to meet within ``timeout`` seconds. ``on_end`` is called when the last
    one has gone, bound or not."""

    def __init__(self, name: str, *, needed: int, timeout: float, on_end: Callable[[], None]) -> None:
        self._name, self._needed, self._on_end = name, needed, on_end
        self._expected: set[str] = set()
        self._here: dict[str, asyncio.Future[Status]] = {}
        self._result: Status | None = None
        self._timer = asyncio.get_running_loop().call_later(timeout, self._time_out, timeout)

    @property
    def has_failed(self) -> bool:
        """Whether everybody is being sent back."""
        return self._result is not None and not self._result.ok

    def expect(self, uid: str) -> None:
        """A member will come."""
        self._expected.add(uid)

    async def arrive(self, uid: str) -> Status:
        """A member is ready to be bound; what becomes of it."""
        if uid not in self._expected:
            return Status.unschedulable("removed")
        if self._result is not None:
            return self._result
        arrived: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._here[uid] = arrived
        if len(self._here) >= self._needed:
            self._decide(SUCCESS)
        return await arrived

    def leave(self, uid: str, why: str) -> None:
        """A member has been bound, or never will be."""
        if uid not in self._expected:
            return
        self._expected.remove(uid)
        arrived = self._here.pop(uid, None)
        if arrived is not None and not arrived.done():
            arrived.set_result(Status.unschedulable(why))
        if len(self._expected) < self._needed:
            self.fail(why)
        if not self._expected:
            self._timer.cancel()
            self._on_end()

    def fail(self, why: str) -> None:
        """Send everybody back, unless they have been let through already."""
        self._decide(Status.unschedulable(f"pod group {self._name} gave its nodes back: {why}"))

    def _time_out(self, seconds: float) -> None:
        self.fail(
            f"{len(self._here)} of the {self._needed} pods that it needs were ready to be bound "
            f"after {go_duration(seconds)}"
        )

    def _decide(self, result: Status) -> None:
        if self._result is not None:
            return
        self._result = result
        self._timer.cancel()
        for arrived in self._here.values():
            if not arrived.done():
                arrived.set_result(result)
