"""The partitions that one scheduler holds: whose pods it places, and whose nodes it binds them to.

An election (:mod:`kubestow.client.partition_election`) assigns partitions. A scheduler that takes one over begins with
its nodes, and with its pods once none of them is on offer to another partition: what the former holder had decided
about those is only known when it has been answered. Before a partition is handed over it is drained.

An offer is how a pod gets a node of another partition. The scheduler of the pod has placed it there, because it fits
on no node of its own; that of the node binds it, or declines. In between the pod names the node in an annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.partitions.membership import Membership

OFFER_ANNOTATION = "kubestow.dev/offered-node"
"""The node that a pending pod is placed on, in a partition whose scheduler has not answered yet."""

#: Between two looks whether a partition is drained, or the offers of its pods have been answered; in seconds.
_PAUSE = 0.05


class HeldPartitions:
    """Of ``count`` partitions, those that this scheduler holds; none at first.

    ``holder_of`` tells the identity of the holder of any of them, "" if it is not known.
    """

    def __init__(self, count: int, *, holder_of: Callable[[int], str] = lambda partition: "") -> None:
        self.membership = Membership(count)
        self.count, self.holder_of = count, holder_of
        self._nodes: set[int] = set()
        self._pods: set[int] = set()
        self._draining: set[int] = set()
        #: How many pods this scheduler has on offer to others.
        self.open_offers = 0

    def attach(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        pods: PodStore,
        attempted: Callable[[], PodInfo | None],
        changed: Callable[[], None],
        hold_back: Callable[[str, float], None],
        observer: Observer,
    ) -> None:
        """Connect a scheduler: the pods that it knows, and the one whose attempt is in progress.

        ``changed`` is called when other nodes or pods are held; ``hold_back`` keeps a pod, by namespace and name, from
        being tried for some seconds.
        """
        self._cluster, self._clock = cluster, clock
        self._pod_store, self._attempted = pods, attempted
        self._changed, self._hold_back = changed, hold_back
        self.observer = observer

    @property
    def held(self) -> list[int]:
        """The partitions whose nodes this scheduler binds pods to, in order."""
        return sorted(self._nodes)

    # -- membership ------------------------------------------------------------------------------------------------

    def of_node(self, name: str) -> int:
        """The partition of a node; by its name alone if it is not known."""
        row = self._cluster.nodes.rows.get(name)
        labels = {} if row is None else self._cluster.nodes.objects[row].metadata.labels
        return self.membership.of_node(name, labels)

    def of_pod(self, pod: PodInfo) -> int:
        """The partition of a pod."""
        partition = self.membership.of_pod(pod)
        return self.of_node(partition) if isinstance(partition, str) else partition

    def has_node(self, name: str) -> bool:
        """Whether pods are placed on a node without asking another scheduler."""
        return self.of_node(name) in self._nodes

    def may_bind_to(self, name: str) -> bool:
        """Whether pods that have been placed on a node may be bound to it: also while its partition is drained."""
        return (partition := self.of_node(name)) in self._nodes or partition in self._draining

    def may_attempt(self, pod: PodInfo) -> bool:
        """Whether this scheduler tries a pending pod: its own ones, and those offered to it."""
        offered = offered_node(pod)
        return self.has_node(offered) if offered else self.of_pod(pod) in self._pods

    def whereabouts(self, pod: PodInfo) -> str:
        """Which other scheduler tries a pending pod, for messages; "" if it is this one."""
        if self.may_attempt(pod):
            return ""
        offered = offered_node(pod)
        partition = self.of_node(offered) if offered else self.of_pod(pod)
        text = f"the pod belongs to partition {partition} of {self.count}"
        if offered:
            text = f"the pod is offered to partition {partition} of {self.count}, for node {offered}"
        holder = self.holder_of(partition)
        return f"{text}, held by {holder}" if holder else text

    # -- the assignment of partitions ------------------------------------------------------------------------------

    async def take(self, partition: int, held_back: Mapping[str, float]) -> None:
        """Take a partition over, once everything is known that its former holder has written.

        ``held_back`` are pods that cost former holders their Lease, with the seconds for which they are not to be
        tried. Returns when its pods are scheduled, too.
        """
        for key, seconds in held_back.items():
            self._hold_back(key, seconds)
        self._nodes.add(partition)
        self._changed()
        offered = [pod.uid for pod in self._pod_store.pods() if is_on_offer(pod) and self.of_pod(pod) == partition]
        while partition in self._nodes and any(map(self._is_on_offer, offered)):
            await self._clock.sleep(_PAUSE)
        if partition in self._nodes:  # else it has been given up meanwhile
            self._pods.add(partition)
            self._changed()

    def _is_on_offer(self, uid: str) -> bool:
        pod = self._pod_store.get(uid)
        return pod is not None and is_on_offer(pod)

    async def drain(self, partition: int) -> None:
        """Begin nothing more with the nodes and the pods of a partition; returns when nothing is in progress."""
        self._nodes.discard(partition)
        self._pods.discard(partition)
        self._draining.add(partition)
        self._changed()
        while self._is_in_progress(partition):
            await self._clock.sleep(_PAUSE)
        self._draining.discard(partition)
        self.observer.partition_handed_over()

    def _is_in_progress(self, partition: int) -> bool:
        attempted = self._attempted()
        if attempted is not None and self.of_pod(attempted) == partition:
            return True
        return any(
            self.of_node(placed.node_name) == partition or self.of_pod(placed.info) == partition
            for placed in self._cluster.assumed()
        )


def offered_node(pod: PodInfo) -> str:
    """The node that a pod is offered for, "" for none. On a pod that has a node it means nothing any more."""
    return pod.pod.metadata.annotations.get(OFFER_ANNOTATION, "")


def is_on_offer(pod: PodInfo) -> bool:
    """Whether a pod may still be bound to the node that it is offered for.

    An API server binds neither a pod that is being deleted nor one with scheduling gates.
    """
    return bool(offered_node(pod) and not (pod.is_assigned or pod.terminating or pod.spec.scheduling_gates))
