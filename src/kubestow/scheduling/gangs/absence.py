"""Absence: placed pods taken out of the cluster for a moment, to see what would be without them.

Whoever does that puts them back before anything else happens, so nobody else ever sees the cluster without them. Nor
does it keep room then for pods that are looking for other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubestow.cluster.cache import Cluster, PlacedPod
from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["Absence", "put_back"]


class Absence:
    """The pods that are away, and the promises that do not hold meanwhile, both by uid.

    ``seeking`` are the pods whose promises those are; ``is_wanted`` says whether such a pod still wants a node.
    """

    def __init__(
        self, cluster: Cluster, seeking: Sequence[PodInfo] = (), is_wanted: Callable[[PodInfo], bool] = lambda _: True
    ) -> None:
        self._cluster, self._seeking, self._is_wanted = cluster, seeking, is_wanted
        self._away: dict[str, PlacedPod] = {}
        self._promises: dict[str, tuple[PodInfo, str]] = {}

    def only(self, pods: Iterable[PodInfo]) -> None:
        """Let exactly these pods be away; others that were are put back."""
        self._break_promises()
        wanted = {pod.uid for pod in pods}
        for uid in [uid for uid in self._away if uid not in wanted]:
            put_back(self._cluster, self._away.pop(uid))
        for uid in wanted:
            placed_pod = self._cluster.placed_pod(uid)
            if placed_pod is not None:
                self._cluster.remove_pod(uid)
                self._away[uid] = placed_pod

    def end(self) -> None:
        """Put everybody back, and let the promises hold again."""
        self.only(())
        for info, node_name in self._promises.values():
            if self._is_wanted(info) and self._cluster.nomination(info.uid) is None:
                self._cluster.nominate(info, node_name)
        self._promises.clear()

    def _break_promises(self) -> None:
        for info in self._seeking:
            if (node_name := self._cluster.nomination(info.uid)) is not None:
                self._promises[info.uid] = info, node_name
                self._cluster.drop_nomination(info.uid)


def put_back(cluster: Cluster, placed_pod: PlacedPod) -> None:
    """A pod is where it was before."""
    if placed_pod.assumed:
        cluster.assume(placed_pod.info, placed_pod.node_name)
    else:
        cluster.put_pod(placed_pod.info)
