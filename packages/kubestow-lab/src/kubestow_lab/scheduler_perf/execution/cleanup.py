"""Removal of what a workload has created, for clusters that are used again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow_lab.scheduler_perf.clusters.interface import ObjectReference
from kubestow_lab.scheduler_perf.execution.session import Session

__all__ = ["clean_up"]

_log = logging.getLogger(__name__)
#: How long to wait for the namespaces to disappear, in seconds, and between two looks.
_LIMIT, _INTERVAL = 120.0, 0.5


async def clean_up(session: Session) -> None:
    """Delete the pods, the other objects and the namespaces of a workload, and wait for the latter.

    What cannot be deleted is logged; the next workload that needs its name fails with a clear error.
    """
    cluster = session.cluster
    for namespace in session.namespaces:
        await _ignoring_failures(cluster.delete_pods(namespace, {}, immediately=True), f"pods of {namespace}")

    async def delete(number: int) -> None:
        reference = session.other_objects[number]
        await _ignoring_failures(
            cluster.delete(reference, immediately=reference.kind == "Pod"), f"{reference.kind} {reference.name}"
        )

    await session.in_parallel(len(session.other_objects), delete, visible=False)
    for namespace in session.namespaces:
        reference = ObjectReference("v1", "Namespace", "", namespace)
        await _ignoring_failures(cluster.delete(reference), f"namespace {namespace}")
    await _wait_for_namespaces(session)


async def _wait_for_namespaces(session: Session) -> None:
    deadline = session.clock.monotonic() + _LIMIT
    created = set(session.namespaces)
    while created:
        existing = {obj["metadata"]["name"] for obj in await session.cluster.list_objects("v1", "Namespace")}
        created &= existing
        if created and session.clock.monotonic() > deadline:
            _log.warning(
                "the namespaces %s are still being deleted",
                ", ".join(sorted(created)),
                extra=fields(namespaces=sorted(created)),
            )
            return
        if created:
            await session.clock.sleep(_INTERVAL)


async def _ignoring_failures(deletion: Awaitable[None], what: str) -> None:
    try:
        await deletion
    except (APIError, Unreachable) as error:
        _log.warning("cannot delete %s: %s", what, error, extra=fields(err=error))
