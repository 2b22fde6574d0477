"""The kinds of faults, and how often they occur.

Every run draws the kinds of faults it has, because a run in which everything fails at once hides what a few faults
alone would show. Faults stop before the final checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from random import Random
from types import MappingProxyType

from kubestow.errors import APIError, KubestowError, Unreachable
from kubestow_lab.fault_simulation.trace import Steps


class Fault(StrEnum):
    """A kind of fault."""

    # of watches
    DELAY = "events are delayed"
    REORDER = "events of different objects overtake each other"
    DUPLICATE = "events are repeated"
    EXPIRY = "events are lost and the collection is listed again"
    BREAKS = "watches break, even inside an event"
    MALFORMED = "watches deliver malformed lines"
    STALLED = "watches stall"
    # of requests
    SLOW = "requests are slow"
    REJECTED = "the server responds with an error"
    FORBIDDEN = "bindings of a pod are forbidden for a while"
    REQUEST_LOST = "requests are lost"
    RESPONSE_LOST = "requests take effect and their responses are lost"
    BOUND_FIRST = "a user binds a pod before its binding arrives"
    PROTECTED = "deletions of a pod are forbidden for a while"
    # of processes
    KILLED = "a scheduler is killed"
    STOPPED = "a scheduler is stopped gracefully"
    CLOCK_JUMPS = "a wall clock jumps"
    SUSPENDED = "a scheduler is suspended for a while"
    # of plugins
    RAISES = "plugins raise"
    REJECTS = "plugins reject placed pods"
    DELAYS = "plugins delay pods"
    HANGS = "plugins hang"


RATES = (0.0, 0.0, 0.02, 0.1, 0.3)
"""The probabilities that a kind of fault may have in a run."""

#: Kinds that are drawn by themselves, so that they do not change what else a seed has, by what is drawn for them.
_DRAWN_ALONE = {Fault.BOUND_FIRST: "bound first", Fault.PROTECTED: "protected", Fault.SUSPENDED: "suspended"}
_RATES_ALONE = (0.0, 0.0, 0.0, 0.1)

_ERRORS = ((429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"))


class Faults:
    """Draws from a seed whether a fault occurs, which is a step; ``rates`` are probabilities in place of drawn ones."""

    def __init__(self, seed: int, steps: Steps, rates: Mapping[Fault, float] = MappingProxyType({})) -> None:
        self.random, self._steps = Random(f"{seed} faults"), steps
        self.active = True
        #: The time until which bindings or deletions of a pod are forbidden, by kind of fault and uid.
        self._forbidden: dict[tuple[Fault, str], float] = {}
        drawn: dict[Fault, float] = {fault: self.random.choice(RATES) for fault in Fault if fault not in _DRAWN_ALONE}
        drawn |= {fault: Random(f"{seed} {name}").choice(_RATES_ALONE) for fault, name in _DRAWN_ALONE.items()}
        self._probabilities = drawn | dict(rates)

    def occurs(self, fault: Fault) -> bool:
        """Whether a fault occurs now."""
        probability = self._probabilities[fault]
        occurs = self.active and probability > 0.0 and self.random.random() < probability
        return occurs and self._steps.takes(f"fault: {fault}")

    def forbids(self, fault: Fault, uid: str, now: float) -> bool:
        """Whether what a fault forbids of a pod is forbidden now; retries fail for the whole period."""
        if self.occurs(fault):
            self._forbidden[fault, uid] = now + self.random.uniform(1.0, 10.0)
        return self.active and now < self._forbidden.get((fault, uid), 0.0)

    def server_error(self, *, of_write: bool) -> KubestowError:
        """An error response of the server; only writes can conflict."""
        code, reason = self.random.choice((*_ERRORS, (409, "Conflict")) if of_write else _ERRORS)
        return APIError(code, reason, f"injected {reason}")

    @staticmethod
    def timeout() -> KubestowError:
        """A request timeout."""
        return Unreachable("server", "injected timeout")
