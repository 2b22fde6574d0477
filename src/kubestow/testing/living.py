"""A scheduler that lives on a cluster in memory, in virtual time, and what it has to complain about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from random import Random
from typing import Any

from kubestow import config
from kubestow.framework.profile import Registry
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.virtual_time import VirtualClock, run

__all__ = ["broken_contracts"]

_SECONDS = 20 * 60.0


def broken_contracts(
    configuration: config.SchedulerConfiguration, registry: Registry, objects: Iterable[Any], *, seed: float
) -> list[str]:
    """Schedule for twenty minutes of virtual time; the errors that were logged, and those that pods were told of."""

    async def told() -> list[str]:
        cluster = MemoryCluster()
        for obj in objects:
            cluster.put(obj)
        scheduler = Scheduler(
            configuration,
            registry=registry,
            api=cluster,
            clock=VirtualClock(asyncio.get_running_loop()),
            random=Random(seed),
        )
        running = asyncio.create_task(scheduler.run())
        await asyncio.wait((running,), timeout=_SECONDS)
        running.cancel()
        await asyncio.wait((running,))
        if not running.cancelled():
            running.result()
        conditions = (condition for pod in cluster.pods() for condition in pod.status.conditions)
        return [condition.message or "" for condition in conditions if condition.reason == "SchedulerError"]

    complaints = _Complaints()
    logger = logging.getLogger("kubestow")
    logger.addHandler(complaints)
    try:
        return run(told()) + complaints.messages
    finally:
        logger.removeHandler(complaints)


class _Complaints(logging.Handler):
    """Collects the errors that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
