"""The pod store: the last state of every pod that the watch has shown and that has not ended.

The pods as last reported by the API server. Unlike the cluster cache, the store holds no assumed pods.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.cluster.pods.shapes import PodInfo


class PodStore:
    """Pods by uid and by name."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], PodInfo] = {}
        self._by_uid: dict[str, PodInfo] = {}

    def get(self, uid: str) -> PodInfo | None:
        """The pod of a uid; None when it has ended or been deleted."""
        return self._by_uid.get(uid)

    def named(self, namespace: str, name: str) -> PodInfo | None:
        """The pod of a name; None when there is none."""
        return self._by_name.get((namespace, name))

    def names(self) -> list[tuple[str, str]]:
        """Namespace and name of every pod."""
        return list(self._by_name)

    def pods(self) -> Iterable[PodInfo]:
        """Every pod."""
        return self._by_name.values()

    def wants_node(self, uid: str) -> bool:
        """Whether a pod exists, has no node and is not being deleted."""
        pod = self._by_uid.get(uid)
        return pod is not None and not pod.pod.spec.node_name and pod.pod.metadata.deletion_timestamp is None

    def put(self, pod: PodInfo) -> None:
        """Add or replace a pod."""
        metadata = pod.pod.metadata
        self._by_name[metadata.namespace, metadata.name] = pod
        self._by_uid[metadata.uid] = pod

    def remove(self, namespace: str, name: str) -> PodInfo | None:
        """Remove a pod and return its last state; None when it is not here."""
        pod = self._by_name.pop((namespace, name), None)
        if pod is not None:
            self._by_uid.pop(pod.uid, None)
        return pod
