"""Replay of all recorded cases of a file, whatever program they were recorded from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kubestow.framework.profile import Registry
from kubestow.rules.minors import Minor
from kubestow_lab.conformance.capacity_replay import replay_capacity
from kubestow_lab.conformance.descheduling_replay import replay_descheduling
from kubestow_lab.conformance.observed_decisions import is_observed, replay_observed
from kubestow_lab.conformance.recorded_cases import CapacityCase, Case, DescheduleCase, read_cases
from kubestow_lab.conformance.scheduling_replay import ReplayMismatch, replay


def replay_file(
    path: Path, registry_of: Callable[[Minor], Registry], minor: Minor | None = None
) -> Iterator[tuple[Case | CapacityCase | DescheduleCase, list[ReplayMismatch]]]:
    """Each case of a file with the results that differ from the recorded ones. Raises InputError.

    The cases were recorded from a ``minor`` version; None stands for the one that file or folder names.
    ``registry_of`` has the plugins of a minor version.
    """
    for case in read_cases(path, minor):
        match case:
            case CapacityCase():
                yield case, replay_capacity(case, registry_of(case.minor))
            case DescheduleCase():
                yield case, replay_descheduling(case)
            case Case():
                replay_case = replay_observed if is_observed(case) else replay
                yield case, replay_case(case, registry_of(case.minor))
