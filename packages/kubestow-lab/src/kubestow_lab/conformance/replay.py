"""Replay of all recorded cases of a file, whatever program they were recorded from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kubestow.framework.profile import Registry
from kubestow_lab.conformance.capacity_replay import replay_capacity
from kubestow_lab.conformance.descheduling_replay import replay_descheduling
from kubestow_lab.conformance.recorded_cases import CapacityCase, Case, DescheduleCase, read_cases
from kubestow_lab.conformance.scheduling_replay import ReplayMismatch, replay


def replay_file(
    path: Path, registry: Registry
) -> Iterator[tuple[Case | CapacityCase | DescheduleCase, list[ReplayMismatch]]]:
    """Each case of a file with the results that differ from the recorded ones. Raises InputError."""
    for case in read_cases(path):
        match case:
            case CapacityCase():
                yield case, replay_capacity(case, registry)
            case DescheduleCase():
                yield case, replay_descheduling(case)
            case Case():
                yield case, replay(case, registry)
