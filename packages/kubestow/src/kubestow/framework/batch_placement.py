"""What the scheduler offers, beyond the handle of all plugins, to those that choose nodes for many pods at once.

Such a plugin gates pods at PreEnqueue, decides about them together from time to time, suggests a node for each, and
activates them. Each then has a scheduling cycle of its own, in which the suggested node is tried first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow.framework.profile import Profile

__all__ = ["BatchHandle"]


@runtime_checkable
class BatchHandle(Handle, Protocol):
    """The handle of a scheduler with a queue; offline explanations, which have none, pass a handle without this."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by scheduler name, once all are built."""

    def suggest_node(self, pod: PodInfo, node_name: str) -> None:
        """Have a queued pod tried on this node first, as if ``status.nominatedNodeName`` named it (KEP-5278).

        All other nodes are tried if the pod does not fit there any more. No capacity is kept for it. The suggestion
        ends with the pod's next attempt or update; for a pod that is not queued it has no effect.
        """
