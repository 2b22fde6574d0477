"""The entries of a flight record: the inputs of a scheduler, and its outputs.

A replay feeds the inputs (:data:`Input`) to the scheduler; each has the numbers of steps and of clock readings of the
scheduler before it arrived. Outputs (:data:`Output`) are decisions, calls and other actions of the scheduler; a replay
compares them with its own.
"""

from __future__ import annotations

from datetime import datetime
from random import Random
from typing import Any

import msgspec

from kubestow.api.meta import ObjectMeta

MAX_SECONDS = 60_000_000_000
"""The clock readings of a record are below so many seconds, 1,900 years from the epoch: all can be dates."""


class _Entry(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="entry"):
    pass


class _Input(_Entry, frozen=True):
    """``steps`` and ``readings`` count the scheduler's callbacks and clock readings from the start to the input."""

    steps: int
    readings: int


class Listed(_Input, frozen=True, tag=1):
    """A complete list of a resource, given by its position among those subscribed to; ``time`` in seconds."""

    time: float
    resource: int
    objects: list[Any]


class Changed(_Input, frozen=True, tag=2):
    """A watch event."""

    time: float
    resource: int
    type: str
    object: Any


class Undecodable(_Input, frozen=True, tag=3):
    """An object that cannot be decoded: what identifies it, and why."""

    resource: int
    metadata: ObjectMeta
    problem: str


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An exception: the name of its class, and its arguments (the text, for classes that kubestow does not define)."""

    type: str
    arguments: list[Any]


class Answered(_Input, frozen=True, tag=4):
    """A call has ended: with a value, or with a failure."""

    call: int
    value: Any = None
    failure: Failure | None = None


class TimerFired(_Input, frozen=True, tag=5):
    """A timer of the scheduler has fired; timers are numbered in the order in which they were set."""

    timer: int


class Stopped(_Input, frozen=True, tag=6):
    """The scheduler was asked to stop."""


class Called(_Entry, frozen=True, tag=7):
    """The scheduler called the API server, an extender or the leader elector; calls are numbered in order."""

    call: int
    method: str
    arguments: list[Any]


class Decided(_Entry, frozen=True, tag=8):
    """A decision about a pod.

    If no node was found, ``node`` is empty and ``message`` has the reason. ``candidates`` is the number of scored
    nodes, ``nominated`` and ``victims`` (uids) are the result of preemption.
    """

    pod: str
    uid: str
    node: str
    message: str
    candidates: int
    nominated: str
    victims: list[str]


class AttemptEnded(_Entry, frozen=True, tag=9):
    """The end of an attempt to schedule a pod, and its number."""

    uid: str
    attempt: int
    result: str


Input = Listed | Changed | Undecodable | Answered | TimerFired | Stopped
Output = Called | Decided | AttemptEnded
Entry = Input | Output


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a file: the time and the composition of the recorded scheduler.

    ``began`` is the date and time in UTC, ``monotonic`` the clock of the scheduler at that moment, in seconds.
    ``configuration`` is a KubeSchedulerConfiguration, ``gates`` are all feature gates. ``random`` is the state of the
    scheduler's random source, as of :meth:`random.Random.getstate`.
    ``emulated_version`` is the minor version of Kubernetes that it decides as, such as "1.33"; records of 1.36 may have
    none. A record without a scheduler (``kubestow record``) has only the first four fields, ``resources``, and in
    ``server_version`` the version of the API server, such as ``v1.33.4``, if it is known.
    A file that continues the record of another one has ``resources`` too, and no ``random``; its first ``snapshot``
    entries are the objects that existed when it began. ``snapshot`` is None in all other files.
    """

    kubestow: str
    python: str
    began: str
    monotonic: float
    has_scheduler: bool = True
    resources: list[tuple[str, str, str]] = []
    snapshot: int | None = None
    configuration: dict[str, Any] = {}
    gates: dict[str, bool] = {}
    emulated_version: str = ""
    server_version: str = ""
    plugins: list[str] = []
    pod_max_in_unschedulable_pods: float = 300.0
    random: list[Any] = []

    def __post_init__(self) -> None:
        """Raises ValueError for a time or a state that cannot be used."""
        moment = datetime.fromisoformat(self.began)
        if moment.tzinfo is None or not 1970 <= moment.year < 4000:
            raise ValueError(f"began: expected a time in UTC after 1970, got {self.began!r}")
        if not abs(self.monotonic) < MAX_SECONDS:
            raise ValueError(f"monotonic: expected seconds, got {self.monotonic}")
        if self.random:
            self.random_source()

    def random_source(self) -> Random:
        """A random source in the recorded state. Raises ValueError."""
        random = Random()
        try:
            version, state, gauss = self.random
            random.setstate((version, tuple(state), gauss))
            if gauss is not None and not isinstance(gauss, float):
                raise TypeError("expected a float")
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"random: not the state of a random source: {error}") from None
        return random


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a file: the reason if the record ends before the scheduler, and the number of missing entries.

    ``next_file`` is the name of the file that continues the record, empty without one.
    """

    reason: str = ""
    dropped: int = 0
    next_file: str = ""
