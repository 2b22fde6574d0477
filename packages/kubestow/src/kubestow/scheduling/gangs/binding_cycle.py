"""The binding cycle of a gang's member: at the gang's barrier it waits for the other members.

wait on Permit ─► PreBind ─► gang barrier ─► extender bind or Bind plugins ─► PostBind
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from kubestow.framework.runtime import PreFlight
from kubestow.framework.status import Status
from kubestow.scheduling.binding_context import BindingContext
from kubestow.scheduling.binding_cycle import BindingCycles
from kubestow.scheduling.gangs.barrier import GangBarrier

__all__ = ["GangBindingCycles", "MemberBindingContext"]


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

    def _nomination_after_failure(self, context: MemberBindingContext) -> str:
        """Bound members of a gang may be useless without this one, so its node stays reserved for it."""
        return context.node_name if context.barrier.may_bind_part else ""

    async def _prepare(self, context: MemberBindingContext, pre_flight: PreFlight) -> Status:
        return await context.barrier.arrive(context.info.uid, super()._prepare(context, pre_flight))

    async def _send(self, context: MemberBindingContext) -> Status:
        """Bind the member; extenders take time, so the gang is checked before each attempt to bind."""
        return (
            context.barrier.rejection()
            or (await self._bind_by_extender(context) if self._extenders else None)
            or context.barrier.rejection()
            or await context.profile.runtime.run_bind_plugins(context.state, context.info, context.node_name)
        )
