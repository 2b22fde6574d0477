"""The explanation of one pod: what every plugin says about every node, why this node or none, and what would help.

Plain data is :meth:`Explanation.document`, what people see :meth:`Explanation.blocks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.engine.explanation.counterfactuals import Counterfactual
from kubestow.engine.explanation.evaluated_nodes import EvaluatedNodes, NodeEvaluation, NodeGroup, PluginVerdict
from kubestow.engine.explanation.node_tables import NodeComparison, reason_text, rejections_table, verdicts_and_scores
from kubestow.engine.explanation.plain_words import plain_reason
from kubestow.engine.pipeline.offline_scheduler import similar
from kubestow.errors import InputError
from kubestow.framework.status import Code
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed, View

_MOST_GROUPS = 15
_FEW_GROUPS = 4
_EXAMPLES = 3
_BEST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Preemption:
    """The pods (namespace/name) that the scheduler would evict from a node for the pod.

    Evicting ``violations`` of them violates a disruption budget.
    """

    node: str
    victims: tuple[str, ...]
    violations: int


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Displayed):
    """Why a pod is on its node, or on none. In a notebook and with rich it shows as tables.

    ``bound_to`` is the node of a pod that has one (else empty): it is evaluated as if it was not there. ``message`` is
    what the scheduler writes into the PodScheduled condition, empty if a node is feasible. ``reported`` is what the pod
    itself says about its scheduling where that differs. ``gate`` says why the pod
    does not even enter the active queue. ``target`` is the node that the counterfactuals are for, None for any;
    ``searched`` says whether they were searched for, which is needless for a pod that fits. ``missing`` says what the
    cluster does not have, such as a claim of the pod or a node of its size.
    """

    pod: str
    profile: str
    bound_to: str
    evaluated: EvaluatedNodes
    message: str = ""
    reported: str = ""
    gate: str = ""
    preemption: Preemption | None = None
    counterfactuals: tuple[Counterfactual, ...] = ()
    target: str | None = None
    searched: bool = False
    missing: tuple[str, ...] = ()
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

    def compare(self, one: str, other: str) -> NodeComparison:
        """Why one node and not the other. Raises InputError for an unknown node."""
        return NodeComparison(self.node(one), self.node(other))

    def about(self, name: str) -> View:
        """One node in tables, and the counterfactuals. Raises InputError for an unknown one."""
        node = self.node(name)
        title = f"pod {self.pod} on node {node.node}"
        return View([*_in_detail([node], title, own=self.bound_to), *self._what_would_help()])

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
        total, evaluated = len(self.evaluated), self.evaluated
        lines = [f"pod {self.pod}, profile {self.profile}: fits on {self.feasible:,} of {counted(total, 'node')}"]
        if self.gate:
            lines.append(f"it is not attempted: {self.gate}")
        if self.reported:
            lines.append(self.reported)
        if self.bound_to:
            lines.append(self._own_node_text())
        if self.feasible:
            best = self.best(1)[0]
            tied = f", as {evaluated.tied:,} nodes have; the scheduler chooses one at random"
            lines.append(f"the best is {best.node} with a total of {best.total}{'' if evaluated.tied == 1 else tied}")
        elif self.message:
            lines += [*self.missing, *self._plain(), self.message]
        if (found := self.preemption) is not None:
            against = f", {found.violations} of them against a disruption budget" if found.violations else ""
            lines.append(f"preemption on {found.node} would evict {', '.join(found.victims)}{against}")
        return lines

    def _plain(self) -> Iterator[str]:
        """The reasons in plain words, where these say more than the scheduler's message."""
        reasons = self.waits_for()
        if not self.gate and not all(reason in self.message for reason in reasons):
            yield reasons_text([reasons])

    def _own_node_text(self) -> str:
        own = self.own_node()
        if own is None:
            return f"it is bound to {self.bound_to}; evaluated as if it was not there"
        if own.rank is None:
            reasons = "; ".join(map(reason_text, own.rejections))
            return f"it is bound to {self.bound_to}, where it would not fit now: {reasons}"
        place = f"rank {own.rank:,} of {self.feasible:,} with a total of {own.total}"
        return f"it is bound to {self.bound_to}; evaluated as if it was not there, that node has {place}"

    def own_node(self) -> NodeEvaluation | None:
        """The evaluation of the node that the pod is bound to, None without one that is in the cluster."""
        return self.evaluated.node(self.bound_to) if self.bound_to in self.evaluated.positions else None

    def detailed(self, best: int = _BEST_SHOWN) -> list[NodeEvaluation]:
        """The pod's own node, and so many of the best ones."""
        own = self.own_node()
        shown = (*(() if own is None else (own,)), *self.best(best))
        return list({node.node: node for node in shown}.values())

    def summary(self) -> list[str]:
        """The headline, the largest groups of nodes while the pod fits nowhere, and the smallest change."""
        lines = self.headline()
        groups = [] if self.feasible else self.groups()
        for group in groups[:_FEW_GROUPS]:
            lines.append(f"  {counted(len(group.nodes), 'node')}: {'; '.join(map(reason_text, group.rejections))}")
        if len(groups) > _FEW_GROUPS:
            lines.append("  " + counted(sum(len(group.nodes) for group in groups[_FEW_GROUPS:]), "more node"))
        if self.counterfactuals:
            lines.append(f"smallest change: {self.counterfactuals[0].text}")
        elif self.searched:
            lines.append(self._none_found())
        return lines

    def _none_found(self) -> str:
        return f"no small change was found with which the pod fits on {self.target or 'any node'}"

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
        if self.reported:
            document["reported"] = self.reported
        if self.gate:
            document["gate"] = self.gate
        if (found := self.preemption) is not None:
            victims = list(found.victims)
            document["preemption"] = {"node": found.node, "victims": victims, "violations": found.violations}
        return document | {
            "groups": [
                {"count": len(group.nodes), "rejections": list(map(_rejection, group.rejections)), "nodes": group.nodes}
                for group in self.groups()
            ],
            "counterfactualsFor": self.target,
            "counterfactuals": [counterfactual.document() for counterfactual in self.counterfactuals],
            **({"missing": list(self.missing)} if self.missing else {}),
            "remarks": list(self.remarks),
            "byNode": [_node(self.evaluated.at(row)) for row in range(len(self.evaluated))],
        }

    def __repr__(self) -> str:
        """The pod and the number of feasible nodes."""
        return f"<Explanation of {self.pod}: fits on {self.feasible:,} of {counted(len(self.evaluated), 'node')}>"

    def blocks(self) -> Iterator[Block]:
        """The result, the nodes that are rejected by groups, the best nodes in detail, and what would help."""
        yield Paragraph("\n".join(self.headline()))
        if groups := self.groups():
            yield from (Paragraph(""), rejections_table(groups, most=_MOST_GROUPS, examples=_EXAMPLES))
        if detailed := self.detailed():
            yield from (Paragraph(""), *_in_detail(detailed, "in detail", own=self.bound_to))
        yield from self._what_would_help()

    def _what_would_help(self) -> Iterator[Block]:
        if self.counterfactuals:
            where = f" on {self.target}" if self.target else ""
            table = Table("", f"the pod would fit{where} with one of these changes, each verified", right=())
            for number, counterfactual in enumerate(self.counterfactuals, 1):
                table.add(str(number), counterfactual.text)
            yield from (Paragraph(""), table)
        elif self.searched:
            yield from (Paragraph(""), Paragraph(self._none_found()))


def _in_detail(nodes: Sequence[NodeEvaluation], title: str, *, own: str) -> Iterator[Block]:
    yield Paragraph(title)
    for table in verdicts_and_scores(nodes, own=own):
        yield from (Paragraph(""), table)


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
        f"{'up to ' if len(nodes) > 1 else ''}{counted(max(nodes), 'node')}: {reason}" if any(nodes) else reason
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
