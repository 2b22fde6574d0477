"""What may go wrong, and how often.

Every run draws which kinds of faults it has at all: a world in which everything fails at once hides what a few faults
alone would show. Faults stop when the world is told to come to rest.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

from kubestow.errors import APIError, KubestowError, Unreachable

__all__ = ["Fault", "Faults"]


class Fault(StrEnum):
    """A kind of fault."""

    # of watches
    DELAY = "events come late"
    REORDER = "events of different objects overtake each other"
    DUPLICATE = "events come twice"
    EXPIRY = "events are lost and the collection is listed anew"
    BREAKS = "watches break, also inside an event"
    GARBLED = "watches bring lines that are none"
    SILENT = "watches fall silent"
    # of requests
    SLOW = "requests take long"
    REFUSED = "the server refuses or fails"
    FORBIDDEN = "somebody does not let a pod be bound for a while"
    NOT_SENT = "requests are lost"
    ANSWER_LOST = "answers are lost, what was asked is done"
    # of processes
    KILLED = "a scheduler is killed"
    STOPPED = "a scheduler is stopped in good order"
    CLOCK_JUMPS = "somebody sets a clock"
    # of plugins
    RAISES = "plugins raise"
    REFUSES = "plugins refuse after placement"
    DAWDLES = "plugins take their time"
    HANGS = "plugins never answer"


_REFUSALS = ((429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"))


class Faults:
    """Draws whether a fault happens now."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.active = True
        #: Until when pods may not be bound, by uid.
        self._forbidden: dict[str, float] = {}
        self._odds = {fault: random.choice((0.0, 0.0, 0.02, 0.1, 0.3)) for fault in Fault}

    def strikes(self, fault: Fault) -> bool:
        """Whether it happens now."""
        odds = self._odds[fault]
        return self.active and odds > 0.0 and self.random.random() < odds

    def forbids(self, uid: str, now: float) -> bool:
        """Whether a pod may not be bound now; for as long as that is so, trying again does not help."""
        if self.strikes(Fault.FORBIDDEN):
            self._forbidden[uid] = now + self.random.uniform(1.0, 10.0)
        return self.active and now < self._forbidden.get(uid, 0.0)

    def refusal(self, *, of_write: bool) -> KubestowError:
        """One of the server's ways to say no; only writes can conflict with others."""
        code, reason = self.random.choice((*_REFUSALS, (409, "Conflict")) if of_write else _REFUSALS)
        return APIError(code, reason, f"injected {reason}")

    @staticmethod
    def silence() -> KubestowError:
        """No answer."""
        return Unreachable("server", "injected silence")
