"""The errors of a running scheduler: logged ones, and SchedulerError conditions of pods."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kubestow.framework.interface import Plugin
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

__all__ = ["scheduler_errors"]

_SECONDS = 20 * 60.0


def scheduler_errors(objects: Iterable[Any], *, plugin: type[Plugin], profile: Mapping[str, Any]) -> list[str]:
    """Run the scheduler for 20 minutes of virtual time; the messages of all errors."""
    messages: list[str] = []

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(_SECONDS)
        conditions = (condition for pod in harness.cluster.pods() for condition in pod.status.conditions)
        messages.extend(condition.message or "" for condition in conditions if condition.reason == "SchedulerError")

    logged = _ErrorHandler()
    logger = logging.getLogger("kubestow")
    logger.addHandler(logged)
    try:
        in_virtual_time(scenario, *objects, plugins=[plugin], profiles=[profile])
    finally:
        logger.removeHandler(logged)
    return messages + logged.messages


class _ErrorHandler(logging.Handler):
    """Collects logged errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
