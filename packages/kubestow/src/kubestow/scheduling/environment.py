"""The environment that a scheduler runs in: the interfaces it is given, and the observer that watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kubestow.scheduling.decision.node_selection import TieBreak
from kubestow.scheduling.interfaces import Clock, ClusterAPI
from kubestow.scheduling.observer import Observer

__all__ = ["Environment"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside the scheduler, injected: the cluster API, time, randomness, and an observer of its work.

    ``ties`` chooses among nodes of equal score; None stands for a random choice, as kube-scheduler makes it.
    ``stopwatch``, in seconds, measures durations that are only reported; None stands for the clock. How often it is
    read depends on what is cached, so it is not a part of a flight record.
    """

    api: ClusterAPI
    clock: Clock
    random: Random
    observer: Observer = field(default_factory=Observer)
    ties: TieBreak | None = None
    stopwatch: Callable[[], float] | None = None

    @property
    def duration_clock(self) -> Callable[[], float]:
        """The clock of durations that no decision depends on, in seconds."""
        return self.stopwatch or self.clock.monotonic
