"""CostAware: the node where the pod is cheapest, by prices of nodes per hour.

The price of a node is in its annotation, or else by the value of one of its labels, such as the instance type. With the
charge ``Share`` a pod costs the part of the node's price that it takes: the largest of the shares of the node's
resources that it requests. With ``Node`` it costs the whole price of a node without pods, and nothing on one that has
some and is paid for already; so pods gather on few nodes, and new ones are opened from the cheapest on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from enum import StrEnum
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Handle, ScorePlugin, Scores
from kubestow_contrib.node_load.usage import ChangedNodes
from kubestow_contrib.range_normalization import normalized_range

#: Raw scores are whole millionths of the price's unit.
_SCALE = 1e6
_LARGEST = 2.0**62


class Charge(StrEnum):
    """What a pod costs: its share of the node's price, or the price of a node that it is the first pod of."""

    SHARE = "Share"
    NODE = "Node"


class CostArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Prices per hour, in any currency: of nodes by the value of a label, and of those without any.

    A node's annotation takes precedence; one that is no number of at least 0 is ignored.
    """

    default_price: float
    prices: dict[str, float] = {}
    label: str = "node.kubernetes.io/instance-type"
    annotation: str = "kubestow.dev/price-per-hour"
    charge: Charge = Charge.SHARE

    def __post_init__(self) -> None:
        for price in (self.default_price, *self.prices.values()):
            if not 0 <= price < math.inf:
                raise ValueError(f"prices must be at least 0, got {price}")


class CostAware(ScorePlugin):
    """Prefers the nodes where the pod costs least."""

    name = "CostAware"
    Args: ClassVar[type[Any]] = CostArgs
    label_keys = ()
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE, requeues=False),
        on(
            EventResource.NODE,
            Action.ADD | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ANNOTATION,
            requeues=False,
        ),
    )

    def __init__(self, args: CostArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._prices = handle.cluster.nodes.columns.new(np.float64, fill=args.default_price)
        self._changed = ChangedNodes(handle.cluster, Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ANNOTATION)

    def signature(self, pod: PodInfo) -> Hashable:
        """The requests, if a share of the price is charged."""
        return tuple(sorted(pod.shape.requests.items())) if self.args.charge is Charge.SHARE else ()

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """What the pod costs, in millionths per hour, negative."""
        cost = self._prices_of(nodes)
        if self.args.charge is Charge.SHARE:
            cost = cost * _dominant_share(pod, nodes)
        else:
            cost = np.where(nodes.pod_count == 0, cost, 0.0)
        scores: Scores = -np.minimum(np.rint(cost * _SCALE), _LARGEST).astype(np.int64)
        return scores

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        return int(self.score(state, pod, node.as_nodes())[0])

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        """100 for the lowest cost, 0 for the highest."""
        return normalized_range(scores)

    def _prices_of(self, nodes: Nodes) -> NDArray[np.float64]:
        for row in self._changed.rows():
            self._prices.values[row] = self._price(self.handle.cluster.nodes.objects[row])
        return self._prices.readonly[nodes.rows]

    def _price(self, node: Node) -> float:
        by_label: float = self.args.prices.get(node.metadata.labels.get(self.args.label, ""), self.args.default_price)
        try:
            price = float(node.metadata.annotations.get(self.args.annotation, by_label))
        except ValueError:
            return by_label
        return price if 0 <= price < math.inf else by_label


def _dominant_share(pod: PodInfo, nodes: Nodes) -> NDArray[np.float64]:
    """The largest share of a node's resources that a pod requests, from 0 to 1."""
    share = np.zeros(len(nodes))
    for name, amount in pod.shape.requests.items():
        allocatable = nodes.allocatable(name)
        part = np.divide(amount, allocatable, out=np.ones(len(nodes)), where=allocatable > 0)
        np.maximum(share, part if amount else 0.0, out=share)
    return np.minimum(share, 1.0)
