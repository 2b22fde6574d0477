"""Node pools: the shape and the price of nodes that could be added to a cluster, and how many of them are needed.

They are read from a file, which is a Node, or a price list::

    nodePools:
    - name: m7i.xlarge
      price: 0.2016                     # of one node; per hour in any currency, as long as it is the same for all
      maxNodes: 40                      # optional
      allocatable: {cpu: 3920m, memory: 14Gi, pods: 58}
      reserved: {cpu: 250m}             # optional: what pods of DaemonSets will request
      labels: {node.kubernetes.io/instance-type: m7i.xlarge}
      taints: [{key: dedicated, value: batch, effect: NoSchedule}]
      zones: [zone-a, zone-b]           # optional: the nodes are in these in turn
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kubestow.api.core import Node, Taint
from kubestow.api.formats import quantity
from kubestow.api.meta import ObjectMeta, convert
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import convert_part, read_yaml
from kubestow.engine.input.object_defaults import with_defaults
from kubestow.engine.pipeline.offline_scheduler import similar
from kubestow.errors import InputError, InvalidObject, InvalidQuantity
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow.rules.requests import requests_by_spec

_ZONE, _HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
#: Labels that differ from node to node.
_OF_ONE_NODE = (_HOSTNAME, _ZONE, "failure-domain.beta.kubernetes.io/zone")
_PODS = "pods"
_DEFAULT_PODS = "110"


class NodePool(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes of one shape; see the module. ``price`` None: not known."""

    name: str
    allocatable: dict[str, str | int | float]
    price: float | None = None
    max_nodes: int | None = None
    reserved: dict[str, str | int | float] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    zones: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty")
        if self.price is not None and not 0 < self.price < float("inf"):
            raise ValueError("price must be greater than 0")
        if self.max_nodes is not None and self.max_nodes < 1:
            raise ValueError("maxNodes must be at least 1")
        self.amounts()

    def amounts(self) -> dict[str, Fraction]:
        """What pods can request on a node, by resource name, in cores, bytes or counts. Raises ValueError."""
        amounts = {_PODS: Fraction(_DEFAULT_PODS)}
        for name, amount in self.allocatable.items():
            amounts[name] = _parsed("allocatable", name, amount)
        for name, amount in self.reserved.items():
            amounts[name] = max(Fraction(), amounts.get(name, Fraction()) - _parsed("reserved", name, amount))
        return amounts

    def node(self, index: int) -> Node:
        """The node with a number, called ``<name>-<number>``."""
        name = f"{self.name}-{index}"
        labels = {_HOSTNAME: name, **self.labels}
        if self.zones:
            labels[_ZONE] = self.zones[index % len(self.zones)]
        manifest = {
            "metadata": {"name": name, "uid": f"node/{name}", "labels": labels},
            "spec": {"taints": msgspec.to_builtins(self.taints)},
            "status": {  # in thousandths where an amount is not whole
                "allocatable": {
                    key: str(int(amount)) if amount.denominator == 1 else f"{int(amount * 1000)}m"
                    for key, amount in self.amounts().items()
                }
            },
        }
        return convert(Node, manifest)


def read_node_pools(path: str | Path) -> list[NodePool]:
    """The node pools of a file. Raises InputError, naming the entry and the field."""
    subject = str(path)
    content = read_yaml(path)
    if isinstance(content, Mapping) and content.get("kind") == "Node":
        return [_pool_of_manifest(content, subject)]
    entries = content.get("nodePools") if isinstance(content, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise InputError(subject, "expected a Node, or nodePools with a list of at least one pool")
    pools: list[NodePool] = [
        convert_part(entry, NodePool, subject=subject, place=f"nodePools[{index}]")
        for index, entry in enumerate(entries)
    ]
    for index, pool in enumerate(pools):
        if any(pool.name == earlier.name for earlier in pools[:index]):
            raise InputError(subject, f"a second pool is called {pool.name}", place=f"nodePools[{index}].name")
    return pools


def pool_like(cluster: ClusterObjects, name: str) -> NodePool:
    """A pool of nodes like one of a cluster; what its DaemonSets request is reserved. Raises InputError."""
    for node in cluster.nodes:
        if node.metadata.name == name:
            break
    else:
        known = (node.metadata.name for node in cluster.nodes)
        raise InputError(f"node {name}", f"no such node in the cluster{similar(name, known)}")
    reserved: dict[str, int] = {}
    for pod in cluster.pods:
        controller = pod.metadata.controller
        if pod.spec.node_name == name and controller is not None and controller.kind in ("DaemonSet", "Node"):
            for resource, amount in (*requests_by_spec(pod).items(), (_PODS, 1)):
                reserved[resource] = reserved.get(resource, 0) + amount
    metadata = node.metadata
    return NodePool(
        name=f"like-{name}",
        allocatable=dict(node.status.allocatable),
        reserved={key: f"{amount}m" if key == "cpu" else amount for key, amount in reserved.items()},
        labels=_common_labels(metadata),
        taints=tuple(taint for taint in node.spec.taints if not taint.key.startswith("node.kubernetes.io/")),
        zones=tuple(metadata.labels[key] for key in (_ZONE,) if key in metadata.labels),
    )


def _common_labels(metadata: ObjectMeta) -> dict[str, str]:
    return {key: value for key, value in metadata.labels.items() if key not in _OF_ONE_NODE}


def _pool_of_manifest(manifest: Mapping[str, Any], subject: str) -> NodePool:
    try:
        node = with_defaults(convert(Node, manifest))
        return NodePool(
            name=node.metadata.name,
            allocatable=dict(node.status.allocatable),
            labels=_common_labels(node.metadata),
            taints=tuple(node.spec.taints),
            zones=tuple(node.metadata.labels[key] for key in (_ZONE,) if key in node.metadata.labels),
        )
    except (InvalidObject, ValueError) as error:
        raise InputError(subject, f"not a Node: {error}") from None


def _parsed(part: str, name: str, amount: str | int | float) -> Fraction:
    try:
        value = quantity.parse(str(amount))
    except InvalidQuantity as error:
        raise ValueError(f"{part}.{name}: {error}") from None
    if value < 0:
        raise ValueError(f"{part}.{name} must not be negative")
    return value


def all_nodes(pools: Iterable[NodePool], counts: Iterable[int]) -> Iterator[Node]:
    """The nodes of several pools."""
    for pool, count in zip(pools, counts, strict=True):
        yield from (pool.node(index) for index in range(count))


# -- how many are needed ---------------------------------------------------------------------------------------------


#: More pods than this are not named in a table.
_NAMES = 4


class UnplacedPods(NamedTuple):
    """Pods that stay pending for the same reasons, and their names with namespaces."""

    message: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """The fewest nodes of one pool alone; None if no number of them is enough, with the pods that stay pending."""

    pool: NodePool
    nodes: int | None
    pending: tuple[UnplacedPods, ...] = ()

    @property
    def price(self) -> float | None:
        """The price of these nodes, None if there are none or it is not known."""
        return None if self.nodes is None or self.pool.price is None else self.nodes * self.pool.price


@dataclass(frozen=True, slots=True, repr=False)
class NodesNeeded(Displayed):
    """How many nodes to add.

    ``pods`` is the number of pods to place, of which ``fitting`` fit already. ``never`` are those that fit with no
    number of nodes, all else is about the others. ``single`` has the answer for each pool alone. ``mix`` is the
    cheapest mix that was found, by pool name, None if no pod is left; ``price`` is its price, and ``lower_bound`` a
    price below which there is none.
    """

    pods: int
    fitting: int
    single: tuple[PoolNeed, ...]
    mix: dict[str, int] | None
    price: float | None
    lower_bound: float | None
    never: tuple[UnplacedPods, ...]

    def document(self) -> dict[str, Any]:
        """The result as data for JSON and YAML."""
        return {
            "kind": "NodesNeeded",
            "pods": self.pods,
            "fitting": self.fitting,
            "pools": [
                {"name": need.pool.name, "nodes": need.nodes, "price": need.price, "pending": _groups(need.pending)}
                for need in self.single
            ],
            "mix": self.mix,
            "price": self.price,
            "lowerBound": self.lower_bound,
            "pending": _groups(self.never),
        }

    def blocks(self) -> Iterator[Block]:
        """The answer in one line, the nodes and price of each pool alone, and the pods that never fit."""
        yield Paragraph(self.answer())
        if self.mix:
            table = Table("pool alone", "nodes", "price", "why not", right=("nodes", "price"))
            for need in self.single:
                why = "; ".join(f"{_names(group.pods)}: {group.message}" for group in need.pending)
                nodes = "-" if need.nodes is None else f"{need.nodes:,}"
                table.add(need.pool.name, nodes, "-" if need.price is None else f"{need.price:,.4g}", why)
            yield table
        if self.never:
            table = Table("pods", "fit with no number of nodes", "why", right=("pods",))
            for group in self.never:
                table.add(f"{len(group.pods):,}", _names(group.pods), group.message)
            yield table

    def answer(self) -> str:
        """The answer in one line."""
        never = sum(len(group.pods) for group in self.never)
        fitting = f"{self.fitting:,} of {counted(self.pods, 'pod')} fit without further nodes"
        others = f"; {never:,} fit with no number of nodes" if never else ""
        if not self.mix:
            return f"{fitting}{others}"
        mix = " and ".join(f"{count:,} {name}" for name, count in self.mix.items())
        but = f" but {never:,} that fit with no number of nodes" if never else ""
        answer = f"{fitting}; with {mix} all do{but}"
        if self.price is None:
            return answer
        return f"{answer}, at a price of {self.price:,.6g} (no less than {self.lower_bound:,.6g} is possible)"


def _names(pods: Sequence[str]) -> str:
    rest = f" and {len(pods) - _NAMES:,} more" if len(pods) > _NAMES else ""
    return ", ".join(pods[:_NAMES]) + rest


def _groups(pending: Iterable[UnplacedPods]) -> list[dict[str, Any]]:
    return [{"pods": len(group.pods), "names": list(group.pods), "message": group.message} for group in pending]
