"""Recent pods: those that the metrics of their node do not show yet.

Metrics are averages over a window that has ended. What a pod uses that was placed since, or shortly before the end of
the window, has to be estimated. :class:`RecentPods` keeps the sums of these estimates as columns of the node table.
They are updated with every pod that is placed or removed, and whenever there are new metrics, so reading them costs
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.int64 import saturated
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.interface import Handle

#: A pod counts as recent for at most so many seconds, whatever the metrics.
_LONGEST = 600.0

Estimate = tuple[int, ...]


class RecentPods:
    """The sums of an estimate over the recent pods of each node.

    ``estimate`` returns the amounts of a pod, ``width`` of them. ``shown_until`` returns, for a node name, the time in
    seconds since the Unix epoch until which pods placed on it are shown by its metrics.
    """

    def __init__(
        self, handle: Handle, estimate: Callable[[Shape], Estimate], width: int, shown_until: Callable[[str], float]
    ) -> None:
        self._handle, self._estimate, self._shown_until = handle, estimate, shown_until
        self._estimates: WeakKeyDictionary[Shape, Estimate] = WeakKeyDictionary()
        self._columns = [handle.cluster.nodes.columns.new_sums() for _ in range(width)]
        #: When pods were placed, for all that may count.
        self._placed_at: dict[str, float] = {}
        #: What is included in the columns, by pod.
        self._counted: dict[str, Estimate] = {}
        handle.cluster.listen_to_placements(self)

    def sums(self, nodes: Nodes) -> list[NDArray[np.int64]]:
        """The sum of each amount over the recent pods of each node, int64, after hypothetical changes if there are."""
        sums = [column.readonly[nodes.rows] for column in self._columns]
        if isinstance(nodes, HypotheticalNodes):
            sums, now = [column.copy() for column in sums], self._handle.now().timestamp()
            for position in range(len(nodes)):
                change = nodes.change(position)
                amounts = [(-1, self._counted.get(info.uid)) for info in change.removed]
                if change.added and now > self._shown_until(nodes.name(position)):
                    amounts += [(+1, self._of(info)) for info in change.added]
                for sign, estimate in amounts:
                    for column, amount in zip(sums, estimate or (), strict=False):
                        column[position] = saturated(column.item(position) + sign * amount)
        return sums

    def sums_of_row(self, node: NodeRow) -> list[int]:
        """The same for a single node."""
        return [column.values.item(node.row) for column in self._columns]

    # -- changes -----------------------------------------------------------------------------------------------------

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Count a pod, if it is not shown by metrics."""
        now = self._handle.now().timestamp()
        placed_at = self._placed_at.get(info.uid)
        if placed_at is None:
            started = info.status.start_time
            placed_at = now if started is None else min(now, started.timestamp())
        if placed_at < now - _LONGEST:
            return
        self._placed_at[info.uid] = placed_at
        if placed_at > self._shown_until(self._handle.cluster.nodes.names[row]):
            estimate = self._counted[info.uid] = self._of(info)
            self._add(row, estimate, +1)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Do not count a pod any more. When it was placed is remembered, since it may be added again."""
        self._placed_at.setdefault(info.uid, -math.inf)  # long ago
        estimate = self._counted.pop(info.uid, None)
        if estimate is not None:
            self._add(row, estimate, -1)

    def refresh(self) -> bool:
        """Compare all recent pods with the metrics, and forget the older ones; whether a sum has changed.

        To be called now and then, whether there are new metrics or not.
        """
        cluster, oldest = self._handle.cluster, self._handle.now().timestamp() - _LONGEST
        changed = False
        for uid, placed_at in list(self._placed_at.items()):
            placed = cluster.placed_pod(uid)
            row = None if placed is None else cluster.nodes.rows.get(placed.node_name)
            if placed is not None and row is not None:
                is_recent = placed_at >= oldest and placed_at > self._shown_until(placed.node_name)
                changed = changed or is_recent != (uid in self._counted)
                if not is_recent:
                    self.pod_removed(row, placed.info)
                elif uid not in self._counted:
                    estimate = self._counted[uid] = self._of(placed.info)
                    self._add(row, estimate, +1)
            if placed_at < oldest:
                del self._placed_at[uid]
        return changed

    def _add(self, row: int, estimate: Estimate, sign: int) -> None:
        for column, amount in zip(self._columns, estimate, strict=True):
            column.add_part(row, sign * amount, self._handle.cluster.nodes.columns)

    def _of(self, info: PodInfo) -> Estimate:
        estimate = self._estimates.get(info.shape)
        if estimate is None:
            estimate = self._estimates[info.shape] = self._estimate(info.shape)
        return estimate
