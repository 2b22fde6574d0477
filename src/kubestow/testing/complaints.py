"""What a living scheduler has to complain about: errors in its log, and those that it told pods of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kubestow.framework.interface import Plugin
from kubestow.testing.living import Living, in_virtual_time

__all__ = ["complaints"]

_SECONDS = 20 * 60.0


def complaints(objects: Iterable[Any], *, plugin: type[Plugin], profile: Mapping[str, Any]) -> list[str]:
    """Schedule for twenty minutes of virtual time; everything that went wrong."""
    told: list[str] = []

    async def story(world: Living) -> None:
        await world.passes(_SECONDS)
        conditions = (condition for pod in world.cluster.pods() for condition in pod.status.conditions)
        told.extend(condition.message or "" for condition in conditions if condition.reason == "SchedulerError")

    logged = _Errors()
    logger = logging.getLogger("kubestow")
    logger.addHandler(logged)
    try:
        in_virtual_time(story, *objects, plugins=[plugin], profiles=[profile])
    finally:
        logger.removeHandler(logged)
    return told + logged.messages


class _Errors(logging.Handler):
    """Collects the errors that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
