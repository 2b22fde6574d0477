"""What-if changes to a cluster, undone when the block ends.

    with cluster.simulate() as simulation:
        simulation.remove_pod(victim.uid)
        cluster.assume(preemptor, "node-1")
        ...  # decide about other pods
    # the cluster is as it was before, whatever happened in the block

Inside the block the cluster's own :meth:`assume`, :meth:`forget`, :meth:`nominate` and :meth:`drop_nomination` are
undone as well, so code that places pods needs no second version. Results cached before the block are still valid after
it, and results computed inside are not: the journal returns to its position (:mod:`kubestow.cluster.changes.journal`).
A change costs as much as it does outside, plus a copy of the list of pods on its node.

Blocks nest like savepoints. They are synchronous: no watch event may be applied before the block ends, so there must be
no await inside that suspends it; writers for observed objects raise KubestowError meanwhile. What plugins assume in
catalogs and hold on their own at Reserve is undone by their Unreserve, not by the end of the block.
"""

from __future__ import annotations

from types import TracebackType

from kubestow.cluster.changes.events import POD_BITS
from kubestow.cluster.changes.journal import Journal, UndoLog
from kubestow.cluster.placed_pods import NOMINATED, TERMS_CARRIED, PlacedPod, PlacedPods
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError

#: The journal bits of changes that are undone.
_UNDONE = POD_BITS | NOMINATED | TERMS_CARRIED


class Simulation:
    """A block whose changes are undone, and the changes that only a simulation makes.

    These raise KubestowError outside the block. Leaving the block raises it when the block has been suspended, so that
    it overlaps with another; both are undone all the same.
    """

    def __init__(self, placed_pods: PlacedPods, journal: Journal, undo_log: UndoLog) -> None:
        self._placed_pods, self._journal, self._undo_log = placed_pods, journal, undo_log
        self._depth = 0

    def __enter__(self) -> Simulation:
        self._depth = self._undo_log.begin()
        self._journal.begin_branch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        depth, self._depth = self._depth, 0
        self._journal.roll_back(depth, _UNDONE)
        self._undo_log.roll_back(depth)

    def remove_pod(self, uid: str) -> None:
        """Take a pod off its node, if it is on one."""
        self._require_active()
        placed_pod = self._placed_pods.by_uid.get(uid)
        if placed_pod is not None:
            self._placed_pods.remove(placed_pod)

    def add_pod(self, info: PodInfo, node_name: str) -> None:
        """Put a pod on a node as if the API server had confirmed it. Raises KubestowError when it is placed already."""
        self._require_active()
        self._placed_pods.place(PlacedPod(info, node_name, assumed=False))

    def take_host_ports(self, uid: str) -> None:
        """Have the host ports of a placed pod taken, as if it was removed and added again."""
        self._require_active()
        placed_pod = self._placed_pods.by_uid.get(uid)
        if placed_pod is not None:
            self._placed_pods.take_host_ports(placed_pod)

    def _require_active(self) -> None:
        if not self._depth:
            raise KubestowError("the simulation is not active: its methods must be called inside its block")
