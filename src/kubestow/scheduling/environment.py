"""The environment that a scheduler runs in: the interfaces it is given, and the observer that watches it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from kubestow.scheduling.interfaces import Clock, ClusterAPI
from kubestow.scheduling.observer import Observer

__all__ = ["Environment"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside the scheduler, injected: the cluster API, time, randomness, and an observer of its work."""

    api: ClusterAPI
    clock: Clock
    random: Random
    observer: Observer = field(default_factory=Observer)
