"""What the containers of a pod report: reasons of waiting and termination, exit codes, restarts."""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.descheduling.cluster_state import AssignedPod
from kubestow.descheduling.objects import ContainerStatus

__all__ = ["exit_codes", "reasons", "restarts", "waiting_reasons"]


def _statuses(pod: AssignedPod, *, init: bool, ephemeral: bool = False) -> Iterator[ContainerStatus]:
    yield from pod.status.container_statuses
    if init:
        yield from pod.status.init_container_statuses
    if ephemeral:
        yield from pod.status.ephemeral_container_statuses


def waiting_reasons(pod: AssignedPod, *, init: bool) -> set[str]:
    """Why containers wait, and with ``init`` init containers."""
    states = (status.state for status in _statuses(pod, init=init))
    return {state.waiting.reason for state in states if state.waiting is not None}


def reasons(pod: AssignedPod, *, init: bool, ephemeral: bool = False) -> set[str]:
    """Why containers wait or were terminated, and with ``init`` and ``ephemeral`` those containers."""
    found = set()
    for status in _statuses(pod, init=init, ephemeral=ephemeral):
        for state in (status.state.waiting, status.state.terminated):
            if state is not None and state.reason:
                found.add(state.reason)
    return found


def exit_codes(pod: AssignedPod, *, init: bool) -> set[int]:
    """The exit codes of terminated containers, and with ``init`` of init containers."""
    states = (status.state for status in _statuses(pod, init=init))
    return {state.terminated.exit_code for state in states if state.terminated is not None}


def restarts(pod: AssignedPod, *, init: bool) -> int:
    """How often containers were restarted, and with ``init`` init containers."""
    return sum(status.restart_count for status in _statuses(pod, init=init))
