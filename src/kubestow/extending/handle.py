"""What plugins may use when they are served as an extender.

Filters and scores read; whatever writes belongs to the scheduler that asks. A plugin that tries anyway gets an error
which says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, NoReturn, TypeVar

from kubestow.cluster.cache import Cluster
from kubestow.cluster.catalog import Described
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.errors import KubestowError
from kubestow.framework.claim_writer import ResourceClaimWriter
from kubestow.framework.interface import Waiting

__all__ = ["ReadingHandle"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ReadingHandle:
    """Implements :class:`kubestow.framework.interface.Handle`."""

    def __init__(self, cluster: Cluster, gates: FeatureGates, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self._gates = gates
        self._background: set[asyncio.Task[None]] = set()

    def feature_enabled(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return self._gates.enabled(gate)

    def is_preempting(self, uid: str) -> bool:
        """The other scheduler's evictions are its own business."""
        return False

    def waiting_pods(self) -> Sequence[Waiting]:
        """Nor is anything known of pods that it holds back."""
        return ()

    def pending_pods(self) -> Sequence[PodInfo]:
        """Nor of its queue."""
        return ()

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Not here."""
        _refuse("activate pods")

    def now(self) -> datetime:
        """The present moment."""
        return datetime.now(UTC)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the background."""
        task = asyncio.create_task(_logged(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str) -> None:
        """Events are the other scheduler's; this one goes to the log."""
        _log.info("pod %s: %s: %s", pod.key, reason, note)

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """Nobody waits for devices here."""

    async def wait_for(self, answer: Callable[[], T | None], seconds: float) -> T | None:
        """Nobody waits for news here."""
        return answer()

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """Nothing is in doubt where nothing is written."""
        return await read()

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Nothing is in doubt where nothing is written."""
        return await work

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Not here."""
        _refuse("bind a pod")

    async def patch(self, obj: Described, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        """Not here."""
        _refuse("patch an object")

    @property
    def resource_claims(self) -> ResourceClaimWriter:
        """Not here."""
        _refuse("write to resource claims")


def _refuse(what: str) -> NoReturn:
    raise KubestowError(f"a plugin that is served as an extender cannot {what}: it only filters and scores")


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        _log.exception("work of a plugin failed")
