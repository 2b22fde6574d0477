"""Leadership: of several schedulers only the leader schedules (semantics 1.3).

A standby watches, so its caches are warm and its queue is full, and it writes nothing. A leader that loses the lead
stops at once, because its successor may already be doing the same work. How a leader is elected is up to the
implementation (:mod:`kubestow.client.leader_election`).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["Leadership", "NoLeaderElection"]


class Leadership(Protocol):
    """A candidate for leadership, used once: acquire, hold while scheduling, release."""

    @property
    def is_leader(self) -> bool:
        """Whether this scheduler leads, as far as it knows."""

    @property
    def overdue(self) -> float:
        """Seconds since the lease expired without being renewed; zero or less while it is valid."""

    async def acquire(self) -> None:
        """Return once this scheduler leads."""

    async def hold(self) -> None:
        """Keep the lead. Returns or raises when it is lost."""

    async def release(self) -> None:
        """Give up the lead, so that another candidate can acquire it at once. Failures are only logged."""


class NoLeaderElection:
    """A scheduler without leader election always leads."""

    is_leader = True
    overdue = 0.0

    async def acquire(self) -> None:
        """Return at once."""

    async def hold(self) -> None:
        """Block until cancelled."""
        await asyncio.get_running_loop().create_future()

    async def release(self) -> None:
        """Nothing to give up."""
