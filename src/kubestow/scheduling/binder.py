"""Binding a pod for certain.

A binding whose answer is lost, or whose server failed, may have taken effect all the same. Were the pod taken for
unbound then, the room that it takes would be given away until the watch says better. So in doubt the server is asked
what became of the pod, until it answers; meanwhile the pod keeps its place.
"""

from __future__ import annotations

from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.doubt import until_answered
from kubestow.scheduling.ports import ClusterAPI, ObjectReference

__all__ = ["Binder"]


class Binder:
    """Binds pods through the cluster API."""

    def __init__(self, api: ClusterAPI) -> None:
        self._api = api

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod to a node. Raises APIError or Unreachable; then the pod is not bound there."""
        try:
            await self._api.bind(pod, node_name)
        except (APIError, Unreachable) as error:
            if not error.in_doubt or await self.node_of(pod) != node_name:
                raise

    async def node_of(self, pod: ObjectReference) -> str:
        """Where the server has a pod, "" if nowhere. Raises APIError when it refuses to say."""
        current = await until_answered(f"pod {pod.namespace}/{pod.name}", lambda: self._api.read_pod(pod))
        return "" if current is None else current.spec.node_name
