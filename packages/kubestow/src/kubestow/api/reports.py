"""What is reported on objects: the kinds of events and of conditions.

Each kind is a constant of the module that writes it. The documentation lists these constants with ``help``
(reference/events.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The reasons of the conditions PodScheduled and PodGroupScheduled (semantics 5.9).
REASON_UNSCHEDULABLE = "Unschedulable"
REASON_SCHEDULER_ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class EventType:
    """A kind of event (events.k8s.io/v1) about an object of the kind ``regarding``.

    ``note`` is the form of its text, with names in braces for :meth:`str.format`; ``type`` is Normal or Warning.
    ``help`` says when the event is recorded.
    """

    reason: str
    action: str
    note: str
    help: str
    type: str = "Normal"
    regarding: str = "Pod"


@dataclass(frozen=True, slots=True)
class ConditionType:
    """A type of condition of the objects of a kind: what each reason means that it is written with."""

    type: str
    kind: str
    reasons: Mapping[str, str]
