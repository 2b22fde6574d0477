"""The gang barrier: members of a gang wait for one another before the first of them is bound.

    wait on Permit ─► PreBind ─► gang barrier ─► extender bind or Bind plugins ─► PostBind

A binding cannot be undone, so no member is bound while others can still fail at Permit or PreBind. When ``min_count``
members have arrived or are bound, all of them continue. When that number can no longer be reached, or at the timeout,
all fail and their PreBind plugins are cancelled. Bindings can still be refused after the barrier has opened, so each
member is checked once more before it is bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

from kubestow.framework.runtime.binding_runtime import PreFlight
from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.binding_cycle import BindingCycles
from kubestow.scheduling.waiting_pods import go_duration


class GangBarrier:
    """The barrier of one gang: opens when the arrived and the ``bound`` members (uids) make up ``min_count``.

    ``placed_members`` returns the uids of the members that are placed, or nominated to an existing node. ``on_empty``
    is called when the last expected member has left, bound or not. ``timeout`` is in seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        min_count: int,
        bound: Iterable[str],
        timeout: float,
        placed_members: Callable[[], Iterable[str]],
        on_empty: Callable[[], None],
    ) -> None:
        self._name, self._min_count, self._bound = name, min_count, set(bound)
        self._needed = min_count - len(self._bound)
        self._placed_members, self._on_empty = placed_members, on_empty
        self._expected: dict[str, asyncio.Future[Status]] = {}
        self._arrived: set[str] = set()
        self._result: Status | None = None
        #: Whether preparations go on until they end although the barrier has failed.
        self._is_closed = False
        #: Whether an expected member has left without a binding; until then no member needs the final check.
        self._lost_member = False
        self._timer = asyncio.get_running_loop().call_later(timeout, self._time_out, timeout)

    @property
    def may_bind_part(self) -> bool:
        """Whether other members are bound, or will be, should one fail now."""
        return bool(self._bound) or (self._result is not None and self._result.ok)

    @property
    def failure(self) -> str | None:
        """Why the barrier has failed; None while it has not."""
        return self._result.message if self._result is not None and not self._result.ok else None

    def expect(self, uid: str) -> None:
        """A member is on its way to the barrier."""
        result: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._expected[uid] = result
        if self._result is not None:
            result.set_result(self._result)

    def expects(self, uid: str) -> bool:
        """Whether a member has not left yet."""
        return uid in self._expected

    async def arrive(self, uid: str, preparation: Coroutine[Any, Any, Status]) -> Status:
        """Prepare a member for its binding, then wait for the others; SUCCESS lets it be bound."""
        result, work = self._expected.get(uid), asyncio.ensure_future(preparation)
        try:
            if result is None:
                return Status.unschedulable("removed")
            await asyncio.wait((work, result), return_when=asyncio.FIRST_COMPLETED)
            if self._is_closed:
                await asyncio.wait((work,))
            if work.done() or result.result().ok:
                status = await work
                if not status.ok:
                    return status
                self._member_arrived(uid)
            return await result
        finally:
            work.cancel()
            await asyncio.wait((work,))

    def rejection(self) -> Status | None:
        """The final check before a binding: why a member must not be bound, None if it may be.

        Members that passed the barrier may have lost their nodes since because bindings were refused. A member that
        was bound counts, whatever became of it.
        """
        if not self._lost_member:
            return None
        placed = len(self._bound.union(self._placed_members()))
        if placed >= self._min_count:
            return None
        return self._released(f"only {placed} of the {self._min_count} pods that it needs have nodes")

    def leave(self, uid: str, reason: str, *, is_bound: bool = False) -> None:
        """A member has been bound, or never will be."""
        result = self._expected.pop(uid, None)
        if result is None:
            return
        if is_bound:
            self._bound.add(uid)
        else:
            self._lost_member = True
        self._arrived.discard(uid)
        if not result.done():
            result.set_result(Status.unschedulable(reason))
        if len(self._expected) < self._needed:
            self.fail(reason)
        if not self._expected:
            self._timer.cancel()
            self._on_empty()

    def fail(self, reason: str) -> None:
        """Fail all members, unless the barrier has opened already."""
        self._decide(self._released(reason))

    def close(self, reason: str) -> None:
        """Fail all members, unless the barrier has opened already, but let those that are being prepared end that.

        A request of a PreBind plugin that is cancelled may take effect or not.
        """
        self._is_closed = True
        self.fail(reason)

    def _released(self, reason: str) -> Status:
        return Status.unschedulable(f"pod group {self._name} released its reserved nodes: {reason}")

    def _member_arrived(self, uid: str) -> None:
        if uid in self._expected:
            self._arrived.add(uid)
        if len(self._arrived) >= self._needed:
            self._decide(SUCCESS)

    def _time_out(self, seconds: float) -> None:
        self.fail(
            f"{len(self._arrived)} of the {self._needed} pods that it needs were ready to be bound "
            f"after {go_duration(seconds)}"
        )

    def _decide(self, result: Status) -> None:
        if self._result is not None:
            return
        self._result = result
        self._timer.cancel()
        for future in self._expected.values():
            if not future.done():
                future.set_result(result)


class GangBarriers:
    """The barriers of all gangs with members on their way to be bound, by the name of the gang."""

    def __init__(self) -> None:
        self._barriers: dict[Hashable, GangBarrier] = {}

    def get(self, gang: Hashable) -> GangBarrier | None:
        """The barrier of a gang; None when none of its members is on the way."""
        return self._barriers.get(gang)

    def create(
        self,
        gang: Hashable,
        *,
        min_count: int,
        bound: Iterable[str],
        timeout: float,
        placed_members: Callable[[], Iterable[str]],
    ) -> GangBarrier:
        """A new barrier for a gang, removed when its last member has left."""
        barrier = self._barriers[gang] = GangBarrier(
            str(gang),
            min_count=min_count,
            bound=bound,
            timeout=timeout,
            placed_members=placed_members,
            on_empty=lambda: self._barriers.__delitem__(gang),
        )
        return barrier

    def may_be_bound(self, uid: str) -> bool:
        """Whether nothing has happened to the gang of a pod for which its binding should not be sent once more."""
        return all(barrier.rejection() is None for barrier in self._barriers.values() if barrier.expects(uid))

    def leave(self, uid: str, reason: str) -> None:
        """A pod that may be expected at a barrier never will be bound."""
        for barrier in list(self._barriers.values()):
            barrier.leave(uid, reason)

    def close_all(self, reason: str) -> None:
        """Fail all members that wait at a barrier, or will after their preparation, which is not cancelled."""
        for barrier in list(self._barriers.values()):
            barrier.close(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberBindingContext(BindingContext):
    """An assumed member of a gang, bound together with the others that are expected at the ``barrier``."""

    barrier: GangBarrier

    @classmethod
    def of(cls, context: BindingContext, barrier: GangBarrier) -> Self:
        """The context of a pod that is bound together with its gang."""
        return cls(**{field.name: getattr(context, field.name) for field in fields(BindingContext)}, barrier=barrier)


class GangBindingCycles(BindingCycles[MemberBindingContext]):
    """Runs the binding cycles of members of gangs."""

    async def _run(self, context: MemberBindingContext) -> Status:
        status = await super()._run(context)
        reason = f"{context.info.key}: {status.message}"
        context.barrier.leave(context.info.uid, reason, is_bound=status.ok)
        return status

    def _nomination_after_failure(self, context: MemberBindingContext) -> str | None:
        """Bound members of a gang may be useless without this one, so its node stays reserved for it."""
        return context.node_name if context.barrier.may_bind_part else ""

    async def _wait_on_permit_and_pre_bind(self, context: MemberBindingContext, pre_flight: PreFlight) -> Status:
        preparation = super()._wait_on_permit_and_pre_bind(context, pre_flight)
        return await context.barrier.arrive(context.info.uid, preparation)

    async def _bind(self, context: MemberBindingContext) -> Status:
        """Bind the member; extenders take time, so the gang is checked before each attempt to bind."""
        return (
            context.barrier.rejection()
            or (await self._bind_by_extender(context) if self._extenders else None)
            or context.barrier.rejection()
            or await context.runtime.run_bind_plugins(context.state, context.info, context.node_name)
        )
