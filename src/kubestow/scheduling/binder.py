"""Binding a pod for certain.

A binding whose answer is lost, or whose server failed, may have taken effect all the same. Were the pod taken for
unbound then, the room that it takes would be given away until the watch says better. So in doubt the server is asked
what became of the pod, until it answers; meanwhile the pod keeps its place.
"""

from __future__ import annotations

import asyncio
import logging

from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.ports import ClusterAPI, ObjectReference

__all__ = ["Binder"]

_log = logging.getLogger(__name__)

#: Seconds between two questions: the first pause, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Binder:
    """Binds pods through the cluster API."""

    def __init__(self, api: ClusterAPI) -> None:
        self._api = api

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod to a node. Raises APIError or Unreachable; then the pod is not bound there."""
        try:
            await self._api.bind(pod, node_name)
        except (APIError, Unreachable) as error:
            if not _is_open(error) or await self.node_of(pod) != node_name:
                raise

    async def node_of(self, pod: ObjectReference) -> str:
        """Where the server has a pod, "" if nowhere. Raises APIError when it refuses to say."""
        pause = _FIRST_PAUSE
        while True:
            try:
                current = await self._api.read_pod(pod)
            except (APIError, Unreachable) as error:
                if not _is_open(error) and not _is_busy(error):
                    raise
                _log.debug("pod %s/%s may be bound or not: %s", pod.namespace, pod.name, error)
            else:
                return "" if current is None else current.spec.node_name
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _is_open(error: APIError | Unreachable) -> bool:
    """Whether what was asked may have been done all the same."""
    return isinstance(error, Unreachable) or error.code >= 500


def _is_busy(error: APIError | Unreachable) -> bool:
    return isinstance(error, APIError) and error.code == 429
