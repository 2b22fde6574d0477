"""Absence: placed pods taken out of the cluster for a moment, to see what would be without them.

Whoever does that puts them back before anything else happens: between two awaits that wait for nothing the world does
not move, so nobody else ever sees the cluster without them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.cluster.pods import PodInfo
from kubestow.cluster.state import Cluster, Placement

__all__ = ["Absence", "put_back"]


class Absence:
    """The pods that are away, by uid."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._away: dict[str, Placement] = {}

    def only(self, pods: Iterable[PodInfo]) -> None:
        """Let exactly these pods be away; others that were are put back."""
        wanted = {pod.uid for pod in pods}
        for uid in [uid for uid in self._away if uid not in wanted]:
            put_back(self._cluster, self._away.pop(uid))
        for uid in wanted:
            placement = self._cluster.placement(uid)
            if placement is not None:
                self._cluster.remove_pod(uid)
                self._away[uid] = placement

    def end(self) -> None:
        """Put everybody back."""
        self.only(())


def put_back(cluster: Cluster, placement: Placement) -> None:
    """A pod is where it was before."""
    if placement.assumed:
        cluster.assume(placement.info, placement.node_name)
    else:
        cluster.put_pod(placement.info)
