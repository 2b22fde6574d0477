"""The explanation of one pod: what every plugin says about every node, why this node or none, and what would help.

Tables for people are at the end of the module, plain data is :meth:`Explanation.document`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kubestow.engine.explanation.comparison import Comparison
from kubestow.engine.explanation.counterfactuals import Counterfactual
from kubestow.engine.explanation.evaluated_nodes import EvaluatedNodes, NodeEvaluation, PluginVerdict
from kubestow.engine.explanation.node_tables import nodes_side_by_side
from kubestow.engine.explanation.plain_words import number_of_nodes, plain_reason
from kubestow.engine.pipeline.offline_scheduler import similar
from kubestow.errors import InputError
from kubestow.framework.status import Code
from kubestow.reports.tables import as_html, plain_table

__all__ = ["Explanation", "NodeGroup", "Preemption", "reasons_text"]

_MOST_GROUPS = 15
_FEW_GROUPS = 4
_EXAMPLES = 3
_BEST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes with the same rejections, by all plugins that reject them; the first one is what is reported."""

    rejections: tuple[PluginVerdict, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preemption:
    """The pods (namespace/name) that the scheduler would evict from a node for the pod.

    Evicting ``violations`` of them violates a disruption budget.
    """

    node: str
    victims: tuple[str, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a pod is on its node, or on none. In a notebook and with rich it shows as tables.

    ``bound_to`` is the node of a pod that has one (else empty): it is evaluated as if it was not there. ``message`` is
    what the scheduler writes into the PodScheduled condition, empty if a node is feasible. ``gate`` says why the pod
    does not even enter the active queue. ``target`` is the node that the counterfactuals are for, None for any;
    ``searched`` says whether they were searched for, which is needless for a pod that fits.
    """

    pod: str
    profile: str
    bound_to: str
    evaluated: EvaluatedNodes
    message: str = ""
    gate: str = ""
    preemption: Preemption | None = None
    counterfactuals: tuple[Counterfactual, ...] = ()
    target: str | None = None
    searched: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def feasible(self) -> int:
        """The number of feasible nodes."""
        return len(self.evaluated.rows)

    def best(self, count: int = _BEST_SHOWN) -> list[NodeEvaluation]:
        """The feasible nodes with the highest totals; equal ones by name."""
        return [self.evaluated.at(row) for row in self.evaluated.rows[:count].tolist()]

    def groups(self) -> list[NodeGroup]:
        """The nodes that are not feasible by their rejections, the largest group first."""
        names = self.evaluated.names
        return [
            NodeGroup(rejections, tuple(names[row] for row in rows.tolist()))
            for rejections, rows in self.evaluated.groups()
        ]

    def node(self, name: str) -> NodeEvaluation:
        """All verdicts and scores of one node. Raises InputError for an unknown one."""
        if name not in self.evaluated.positions:
            raise InputError(f"node {name}", "no such node in the cluster" + similar(name, self.evaluated.names))
        return self.evaluated.node(name)

    def compare(self, one: str, other: str) -> Comparison:
        """Why one node and not the other. Raises InputError for an unknown node."""
        return Comparison(self.node(one), self.node(other))

    def about(self, name: str) -> RenderableType:
        """One node as a table, and the counterfactuals. Raises InputError for an unknown one."""
        return _one_node(self, self.node(name))

    def waits_for(self) -> dict[str, int]:
        """Why a pending pod is on no node, in plain words, each with the number of nodes; 0 for one about the pod.

        A node counts for the reasons that the scheduler reports, which are those of its first rejection.
        """
        if self.gate:
            return {self.gate.partition(": ")[2]: 0}
        if self.feasible:
            return {"the pod fits": self.feasible}
        counts: Counter[str] = Counter()
        for group in self.groups():
            status = group.rejections[0].status
            too_small = status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            for reason in dict.fromkeys(plain_reason(reason, too_small=too_small) for reason in status.reasons):
                counts[reason] += len(group.nodes)
        return dict(counts.most_common()) or {"the cluster has no nodes": 0}

    def headline(self) -> list[str]:
        """What the scheduler does, or would do, with the pod, in a few sentences."""
        return _headline(self)

    def summary(self) -> list[str]:
        """The explanation in a few lines: what the scheduler does with the pod, why, and the smallest change."""
        return _summary(self)

    def document(self) -> dict[str, Any]:
        """Everything as plain data, every node included."""
        document: dict[str, Any] = {
            "pod": self.pod,
            "node": self.bound_to or None,
            "profile": self.profile,
            "nodes": len(self.evaluated),
            "feasible": self.feasible,
            "tied": self.evaluated.tied,
            "message": self.message,
        }
        if self.gate:
            document["gate"] = self.gate
        if (preemption := self.preemption) is not None:
            document["preemption"] = {
                "node": preemption.node,
                "victims": list(preemption.victims),
                "violations": preemption.violations,
            }
        return document | {
            "groups": [
                {
                    "count": len(group.nodes),
                    "rejections": [_rejection(r) for r in group.rejections],
                    "nodes": group.nodes,
                }
                for group in self.groups()
            ],
            "counterfactualsFor": self.target,
            "counterfactuals": [counterfactual.document() for counterfactual in self.counterfactuals],
            "remarks": list(self.remarks),
            "byNode": [_node(self.evaluated.at(row)) for row in range(len(self.evaluated))],
        }

    def __repr__(self) -> str:
        """The pod and the number of feasible nodes."""
        return f"<Explanation of {self.pod}: fits on {self.feasible:,} of {len(self.evaluated):,} nodes>"

    def __rich__(self) -> RenderableType:
        return _tables(self)

    def _repr_html_(self) -> str:
        return as_html(_tables(self))


def reasons_text(pods: Iterable[Mapping[str, int]]) -> str:
    """What pods with the same reasons wait for (:meth:`Explanation.waits_for`), the one for the most nodes first.

    Where their numbers of nodes differ, the text has the largest.
    """
    numbers: dict[str, set[int]] = {}
    for reasons in pods:
        for reason, nodes in reasons.items():
            numbers.setdefault(reason, set()).add(nodes)
    ordered = sorted(numbers.items(), key=lambda entry: -max(entry[1]))
    return "; ".join(
        f"{'up to ' if len(nodes) > 1 else ''}{number_of_nodes(max(nodes))}: {reason}" if any(nodes) else reason
        for reason, nodes in ordered
    )


# -- plain data ------------------------------------------------------------------------------------------------------


def _rejection(verdict: PluginVerdict) -> dict[str, Any]:
    status = verdict.status
    return {"plugin": verdict.plugin, "code": status.code.value, "reasons": list(status.reasons)}


def _node(found: NodeEvaluation) -> dict[str, Any]:
    document: dict[str, Any] = {"node": found.node, "feasible": found.feasible}
    document["verdicts"] = {
        verdict.plugin: _rejection(verdict) if verdict.status.code is not Code.SUCCESS else verdict.kind.value
        for verdict in found.verdicts
    }
    if found.feasible:
        document |= {"total": found.total, "rank": found.rank}
        document["scores"] = {
            score.plugin: {"raw": score.raw, "normalized": score.normalized, "weighted": score.weighted}
            for score in found.scores
        }
    return document


# -- tables for people -----------------------------------------------------------------------------------------------


def _tables(found: Explanation) -> RenderableType:
    """The result, the nodes that are rejected by groups, the best nodes in detail, and what would help."""
    parts: list[RenderableType] = [Text("\n".join(_headline(found)))]
    groups = found.groups()
    if groups:
        parts += [Text(""), _groups(groups)]
    own = [found.node(found.bound_to)] if found.bound_to in found.evaluated.positions else []
    detailed = {node.node: node for node in (*own, *found.best())}
    if detailed:
        parts += [Text(""), nodes_side_by_side(list(detailed.values()), "in detail", own=found.bound_to)]
    return Group(*parts, *_what_would_help(found))


def _one_node(found: Explanation, node: NodeEvaluation) -> RenderableType:
    """All verdicts and scores of one node, and what would help."""
    title = f"pod {found.pod} on node {node.node}"
    return Group(nodes_side_by_side([node], title, own=found.bound_to), *_what_would_help(found))


def _what_would_help(found: Explanation) -> list[RenderableType]:
    if found.counterfactuals:
        return [Text(""), _counterfactuals(found)]
    if not found.searched:
        return []
    return [Text(""), Text(f"no small change was found with which the pod fits on {found.target or 'any node'}")]


def _summary(found: Explanation) -> list[str]:
    """The headline, the largest groups of nodes while the pod fits nowhere, and the smallest change."""
    lines = _headline(found)
    groups = [] if found.feasible else found.groups()
    for group in groups[:_FEW_GROUPS]:
        lines.append(
            f"  {number_of_nodes(len(group.nodes))}: {'; '.join(_reason(verdict) for verdict in group.rejections)}"
        )
    if len(groups) > _FEW_GROUPS:
        lines.append(f"  {sum(len(group.nodes) for group in groups[_FEW_GROUPS:]):,} more nodes")
    if found.counterfactuals:
        lines.append(f"smallest change: {found.counterfactuals[0].text}")
    return lines


def _headline(found: Explanation) -> list[str]:
    """What the scheduler does, or would do, with the pod."""
    total, evaluated = len(found.evaluated), found.evaluated
    lines = [f"pod {found.pod}, profile {found.profile}: fits on {found.feasible:,} of {total:,} nodes"]
    if found.gate:
        lines.append(f"it is not attempted: {found.gate}")
    if found.bound_to:
        lines.append(_own_node(found))
    if found.feasible:
        best = found.best(1)[0]
        tied = "" if evaluated.tied == 1 else f", as {evaluated.tied:,} nodes have; the scheduler chooses one at random"
        lines.append(f"the best is {best.node} with a total of {best.total}{tied}")
    elif found.message:
        lines.append(found.message)
    if found.preemption is not None:
        lines.append(_preemption_text(found.preemption))
    return lines


def _preemption_text(found: Preemption) -> str:
    text = f"preemption on {found.node} would evict {', '.join(found.victims)}"
    return f"{text}, {found.violations} of them against a disruption budget" if found.violations else text


def _own_node(found: Explanation) -> str:
    own = found.node(found.bound_to) if found.bound_to in found.evaluated.positions else None
    if own is None:
        return f"it is bound to {found.bound_to}; evaluated as if it was not there"
    if own.rank is None:
        reasons = "; ".join(_reason(verdict) for verdict in own.rejections)
        return f"it is bound to {found.bound_to}, where it would not fit now: {reasons}"
    place = f"rank {own.rank:,} of {found.feasible:,} with a total of {own.total}"
    return f"it is bound to {found.bound_to}; evaluated as if it was not there, that node has {place}"


def _groups(groups: Sequence[NodeGroup]) -> RenderableType:
    table = plain_table("nodes", "rejected by", "examples", right=("nodes",))
    for group in groups[:_MOST_GROUPS]:
        reasons = "\n".join(_reason(verdict) for verdict in group.rejections)
        more = ", …" if len(group.nodes) > _EXAMPLES else ""
        table.add_row(f"{len(group.nodes):,}", reasons, ", ".join(group.nodes[:_EXAMPLES]) + more)
    rest = groups[_MOST_GROUPS:]
    if rest:
        table.add_row(f"{sum(len(group.nodes) for group in rest):,}", f"… {len(rest):,} more groups", "")
    return table


def _reason(verdict: PluginVerdict) -> str:
    return f"{verdict.plugin}: {verdict.status.message}"


def _counterfactuals(found: Explanation) -> RenderableType:
    where = f" on {found.target}" if found.target else ""
    table = plain_table("", f"the pod would fit{where} with one of these changes, each verified", right=())
    for number, counterfactual in enumerate(found.counterfactuals, 1):
        table.add_row(str(number), counterfactual.text)
    return table
