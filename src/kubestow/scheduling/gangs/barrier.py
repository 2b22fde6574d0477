"""The rendezvous of a gang: placed members meet before the first of them is bound.

A binding cannot be taken back, so none is made while a member may still fail on the way to it: refused by a Permit
plugin, left without its volume. Once as many are here as the gang needs, they all go on. When so many have failed that
this cannot happen any more, or the time is up, everybody is sent back, and whatever is still being made ready for one
of them is cancelled. Those who went on may still lose others whose bindings were refused, so each has a last look
around before it is bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.waiting_pods import go_duration

__all__ = ["GangBarrier"]


class GangBarrier:
    """Where members have to meet within ``timeout`` seconds: so many as make up the ``min_count`` with those ``bound``.

    ``holding`` tells which members of the gang have a node at the moment, or have been promised one. ``on_end`` is
    called when the last one has gone, bound or not.
    """

    def __init__(
        self,
        name: str,
        *,
        min_count: int,
        bound: Iterable[str],
        timeout: float,
        holding: Callable[[], Iterable[str]],
        on_end: Callable[[], None],
    ) -> None:
        self._name, self._quorum, self._bound = name, min_count, set(bound)
        self._needed = min_count - len(self._bound)
        self._holding, self._on_end = holding, on_end
        self._expected: dict[str, asyncio.Future[Status]] = {}
        self._here: set[str] = set()
        self._result: Status | None = None
        #: Whether somebody who was expected will not be bound; until then there is nothing to look around for.
        self._is_short = False
        self._timer = asyncio.get_running_loop().call_later(timeout, self._time_out, timeout)

    @property
    def may_leave_a_part(self) -> bool:
        """Whether siblings of one who fails now may be bound for good."""
        return bool(self._bound) or (self._result is not None and self._result.ok)

    @property
    def failure(self) -> str | None:
        """Why everybody is being sent back, None when nobody is."""
        return self._result.message if self._result is not None and not self._result.ok else None

    def expect(self, uid: str) -> None:
        """A member will come."""
        verdict: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._expected[uid] = verdict
        if self._result is not None:
            verdict.set_result(self._result)

    async def meet(self, uid: str, getting_ready: Coroutine[Any, Any, Status]) -> Status:
        """Make a member ready to be bound, and let it wait for the others; what becomes of it."""
        verdict, work = self._expected.get(uid), asyncio.ensure_future(getting_ready)
        try:
            if verdict is None:
                return Status.unschedulable("removed")
            await asyncio.wait((work, verdict), return_when=asyncio.FIRST_COMPLETED)
            if work.done() or verdict.result().ok:
                status = await work
                if not status.ok:
                    return status
                self._arrived(uid)
            return await verdict
        finally:
            work.cancel()
            await asyncio.wait((work,))

    def objection(self) -> Status | None:
        """The last look around: too many of those who went on may have been refused since, and lost their nodes.

        Who has been bound counts, whatever became of it.
        """
        if not self._is_short:
            return None
        together = len(self._bound.union(self._holding()))
        if together >= self._quorum:
            return None
        return self._sent_back(f"only {together} of the {self._quorum} pods that it needs have nodes")

    def leave(self, uid: str, why: str, *, is_bound: bool = False) -> None:
        """A member has been bound, or never will be."""
        verdict = self._expected.pop(uid, None)
        if verdict is None:
            return
        if is_bound:
            self._bound.add(uid)
        else:
            self._is_short = True
        self._here.discard(uid)
        if not verdict.done():
            verdict.set_result(Status.unschedulable(why))
        if len(self._expected) < self._needed:
            self.fail(why)
        if not self._expected:
            self._timer.cancel()
            self._on_end()

    def fail(self, why: str) -> None:
        """Send everybody back, unless they have been let through already."""
        self._decide(self._sent_back(why))

    def _sent_back(self, why: str) -> Status:
        return Status.unschedulable(f"pod group {self._name} gave its nodes back: {why}")

    def _arrived(self, uid: str) -> None:
        if uid in self._expected:
            self._here.add(uid)
        if len(self._here) >= self._needed:
            self._decide(SUCCESS)

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
        for verdict in self._expected.values():
            if not verdict.done():
                verdict.set_result(result)
