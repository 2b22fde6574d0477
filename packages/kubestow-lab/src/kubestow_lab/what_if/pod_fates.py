"""The fates of the pods of removed nodes: as data, and as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow_lab.simulation.outcomes import PodOutcome
from kubestow_lab.simulation.plugin_failures import PluginFailure

#: More pods than this are shown by owner, not one by one; more nodes than this are counted.
_FEW_PODS = 30
_FEW_NODES = 8


class Fate(StrEnum):
    """What becomes of a pod whose node is removed."""

    #: Its controller's replacement got a node.
    RESCHEDULED = "Rescheduled"
    #: The replacement fits on no node.
    PENDING = "Pending"
    #: Nothing replaces it.
    LOST = "Lost"
    #: It belongs to its node (a pod of a DaemonSet, or a static pod), or is being deleted already.
    ENDS_WITH_NODE = "EndsWithNode"
    #: It is not evicted, so the drain does not end.
    BLOCKED = "Blocked"


_PHRASES = {
    Fate.RESCHEDULED: "come back on other nodes",
    Fate.PENDING: "stay pending",
    Fate.LOST: "are lost",
    Fate.ENDS_WITH_NODE: "end with their node",
    Fate.BLOCKED: "block the drain",
}


class PodFate(msgspec.Struct, rename="camel", frozen=True):
    """What becomes of a pod: the node of its replacement, or the reason why it has none."""

    namespace: str
    name: str
    owner: str
    priority: int
    node: str
    fate: Fate
    new_node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class NodeRemoval(Displayed):
    """The nodes that were removed, the fate of their pods, and the pods of other nodes that were evicted for these.

    ``rounds`` is the number of rounds of a drain. ``remarks`` and ``plugin_failures`` are those of the simulations.
    ``after`` is the cluster as it is then, without the pods that are lost.
    """

    cause: str
    nodes: tuple[str, ...]
    pods: tuple[PodFate, ...]
    preempted: tuple[PodOutcome, ...]
    after: ClusterObjects
    rounds: int = 1
    remarks: tuple[str, ...] = ()
    plugin_failures: tuple[PluginFailure, ...] = ()

    def count(self, *fates: Fate) -> int:
        """The number of pods with one of these fates."""
        return sum(1 for pod in self.pods if pod.fate in fates)

    def document(self) -> dict[str, Any]:
        """The result as data for JSON and YAML."""
        return {
            "kind": "NodeRemoval",
            "cause": self.cause,
            "nodes": list(self.nodes),
            "rounds": self.rounds,
            "summary": {fate.value: self.count(fate) for fate in Fate},
            "pods": msgspec.to_builtins(self.pods),
            "remarks": list(self.remarks),
            "preempted": [{"pod": outcome.key, "node": outcome.node} for outcome in self.preempted],
        }

    def blocks(self) -> Iterator[Block]:
        """The numbers of pods by fate, and each pod; many pods by owner, fate and reason."""
        nodes = ", ".join(self.nodes) if len(self.nodes) <= _FEW_NODES else counted(len(self.nodes), "node")
        counts = Counter(pod.fate for pod in self.pods)
        fates = ", ".join(f"{counts[fate]:,} {_PHRASES[fate]}" for fate in Fate if counts[fate]) or "no pods"
        verb = "draining" if self.cause == "drain" else "losing"
        yield Paragraph(f"{verb} {nodes}: {fates}")
        if self.preempted:
            keys = ", ".join(outcome.key for outcome in self.preempted[:_FEW_PODS])
            yield Paragraph(f"evicted for them on other nodes, {counted(len(self.preempted), 'pod')}: {keys}")
        if len(self.pods) > _FEW_PODS:
            yield _owners(self.pods)
        elif self.pods:
            table = Table("pod", "from", "fate", "to", "why", right=())
            for pod in self.pods:
                table.add(f"{pod.namespace}/{pod.name}", pod.node, pod.fate.value, pod.new_node or "-", pod.reason)
            yield table


def _owners(pods: Iterable[PodFate]) -> Table:
    groups: dict[tuple[str, str, str, str], list[PodFate]] = {}
    for pod in pods:
        groups.setdefault((pod.namespace, pod.owner or pod.name, pod.fate.value, pod.reason), []).append(pod)
    table = Table("pods", "owner", "fate", "nodes", "why", right=("pods", "nodes"))
    for (namespace, owner, fate, reason), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        nodes = len({pod.new_node for pod in members if pod.new_node})
        table.add(f"{len(members):,}", f"{namespace} {owner}", fate, f"{nodes:,}" if nodes else "-", reason)
    return table
