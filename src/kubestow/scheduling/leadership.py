"""Who may schedule: of several schedulers only the one that leads (semantics 1.3).

A standby has everything but the lead: it watches, its caches are warm and its queue is full, and it changes nothing.
From the moment it leads it schedules, and when it does not lead any more it stops at once, whatever it was doing: what
was under way may be done by its successor already. How leaders are elected is not said here.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["Leadership", "NoLeaderElection"]


class Leadership(Protocol):
    """A candidacy. Its life is: acquire, hold beside the work, release; it is used once."""

    @property
    def is_leader(self) -> bool:
        """Whether we lead, as far as we know."""

    @property
    def overdue(self) -> float:
        """Seconds since our lead ran out without being renewed; zero or less while all is well."""

    async def acquire(self) -> None:
        """Return once we lead."""

    async def hold(self) -> None:
        """Go on leading. Returns or raises when that is over."""

    async def release(self) -> None:
        """Let another lead without delay. Failures are only logged."""


class NoLeaderElection:
    """The lead of a scheduler that nobody competes with."""

    is_leader = True
    overdue = 0.0

    async def acquire(self) -> None:
        """We lead already."""

    async def hold(self) -> None:
        """For ever."""
        await asyncio.get_running_loop().create_future()

    async def release(self) -> None:
        """Nobody waits for it."""
