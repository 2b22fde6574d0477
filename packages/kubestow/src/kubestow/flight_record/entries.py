"""The entries of a flight record: what the scheduler received from outside, and what it did.

Inputs (:data:`Input`) are what a replay feeds to the scheduler; each says after how many steps of the scheduler and how
many readings of its clocks it arrived. Outputs (:data:`Output`) are what the scheduler did between them; a replay
compares its own with them.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "Answered",
    "AttemptEnded",
    "Called",
    "Changed",
    "Decided",
    "End",
    "Entry",
    "Failure",
    "Header",
    "Input",
    "Listed",
    "Output",
    "Stopped",
    "TimerFired",
    "Undecodable",
]


class _Entry(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="entry"):
    pass


class _Input(_Entry, frozen=True):
    """``steps`` and ``readings`` count what the scheduler has run and read before, since the record began."""

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
    """An object that cannot be decoded, by namespace and name."""

    resource: int
    subject: str
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

    ``node`` is empty and ``message`` says why if no node was found; ``candidates`` is the number of nodes that were
    scored, ``nominated`` and ``victims`` (uids) are what preemption found.
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
    """What was recorded, and with what.

    ``began`` is the date and time in UTC, ``monotonic`` the clock of the scheduler at that moment, in seconds.
    ``configuration`` is a KubeSchedulerConfiguration, ``gates`` are all feature gates. ``random`` is the state of the
    scheduler's random source, as of :meth:`random.Random.getstate`.
    A record without a scheduler of its own (``kubestow record``) has only the first four fields and ``resources``.
    A file that goes on with the record of another one has ``resources`` as well, and no ``random``: its first
    ``snapshot`` entries are the objects that existed, which None says of no other file.
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
    plugins: list[str] = []
    pod_max_in_unschedulable_pods: float = 300.0
    random: list[Any] = []


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a file: why the record does not reach to the end of the scheduler, and how many entries are missing.

    ``next_file`` is the name of the file that goes on with the record, empty if there is none.
    """

    reason: str = ""
    dropped: int = 0
    next_file: str = ""
