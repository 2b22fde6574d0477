"""The HTML reports of a simulation and of a comparison of two, one self-contained page each.

The data of the figures is columns of equal length, and pods refer to nodes, owners and messages by their index, because
a report of thousands of nodes and pods is read on a phone too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kubestow.engine.explanation.explain import explain_pending
from kubestow.engine.explanation.explanation import Explanation
from kubestow.engine.explanation.explanation_report import decision_blocks
from kubestow.engine.input.cluster_version import versions_text
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError
from kubestow.reports.model import (
    Block,
    Cards,
    Details,
    Figure,
    Heading,
    Paragraph,
    Report,
    Section,
    Span,
    Table,
    amount_text,
    counted,
)
from kubestow.reports.page import as_page
from kubestow_lab.comparison import tables
from kubestow_lab.comparison.comparison import SimulationComparison
from kubestow_lab.comparison.pod_differences import PodChange
from kubestow_lab.comparison.thresholds import CheckedThreshold
from kubestow_lab.simulation.outcomes import Origin, OutcomeState, PodOutcome, UnplacedGroup
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.simulation.simulation_result import NodeState, SimulationResult

_T = TypeVar("_T")
#: So many groups of pods are listed, and of so many pending ones a pod's decision is shown.
_MOST_GROUPS, _MOST_DECISIONS, _MOST_DIFFERENCES = 200, 8, 300
_MOST_ROWS, _PODS_NAMED = 500, 50
#: A report has no more pods than this; those that are not running come first.
MOST_PODS = 20_000
_ZONE = "topology.kubernetes.io/zone"
_NODES_FIGURE = Figure(
    "Nodes",
    "Each cell is a node, coloured by its requested share. Choose a cell with the pointer or the arrow keys;"
    " Enter lists its pods.",
    "nodes",
)


# -- a simulation ----------------------------------------------------------------------------------------------------


def simulation_report(result: SimulationResult, simulation: Simulation | None = None) -> str:
    """The page. With the ``simulation`` of the result, decisions about pending pods are explained too."""
    groups = result.pending_groups()
    decisions = _decisions(result, simulation, groups) if simulation is not None else {}
    remarks = [Paragraph(f"Remark: {remark}", note=True) for remark in result.remarks]
    sections: list[Section | Figure] = [
        Section("Summary", [Cards(_headline_figures(result)), _resources(result), *remarks]),
        _timeline_figure("Requested share, fragmentation and numbers of pods and nodes, by virtual time."),
        _NODES_FIGURE,
    ]
    if result.jobs:
        sections.append(Section("Jobs", list(result.job_blocks()), anchor="jobs"))
    if groups:
        sections.append(
            Section("Pending pods", list(_pending(groups, decisions, result.in_plain_words)), anchor="pending")
        )
    for report in result.plugin_reports.values():
        sections += report.sections
    if result.preemptions or result.count(OutcomeState.PREEMPTED):
        sections.append(Section("Preemptions", list(_preemptions(result))))
    note = (
        "In order of arrival." if len(result.outcomes) <= MOST_PODS else f"The first {MOST_PODS:,}; pending ones first."
    )
    sections.append(Figure("Pods", note, "pods", anchor="pods"))
    data = {
        "resources": result.resources,
        "timelines": [_timeline_data("", result)],
        "clusters": _node_maps("", result),
        "pods": pods_data(result.outcomes),
    }
    run = result.run
    subtitle = (
        f"{counted(len(result.outcomes), 'pod')}, {counted(len(result.nodes), 'node')},"
        f" {versions_text(run['emulatedVersion'], server_version=run.get('serverVersion', ''))},"
        f" seed {run['seed']}, ties {run['ties']}: {counted(run['attempts'], 'scheduling attempt')} in"
        f" {run['seconds']:,.1f} s of virtual time"
    )
    return as_page(Report("Simulation report", subtitle, sections, data))


def _headline_figures(result: SimulationResult) -> list[tuple[str, str]]:
    def placed(origin: Origin, further: int = 0) -> str:
        states = result.states(origin)
        number = states[OutcomeState.RUNNING] + states[OutcomeState.COMPLETED]
        return f"{number:,} of {states.total() + further:,}"

    preempted = result.count(OutcomeState.PREEMPTED)
    return [
        ("pods placed", placed(Origin.WORKLOAD, result.refused_count)),
        ("pods pending", f"{result.count(OutcomeState.PENDING):,}"),
        *([("pods refused", f"{result.refused_count:,}")] if result.refused else []),
        ("pods preempted", f"{preempted:,}"),
        *([("replacements of these placed", placed(Origin.REPLACEMENT))] if preempted else []),
        ("nodes in use at the end", f"{result.timeline[-1].nodes_used:,} of {len(result.nodes):,}"),
    ]


def _resources(result: SimulationResult) -> Table:
    last = result.timeline[-1]
    headings = ("requested", "allocatable", "share", "highest share", "fragmentation")
    table = Table("resource", *headings, caption="Resources at the end")
    for index, name in enumerate(result.resources):
        requested, total = last.requested[index], last.allocatable[index]
        highest = max((sample.share(index) for sample in result.timeline), default=0.0)
        table.add(
            name,
            amount_text(name, requested),
            amount_text(name, total),
            f"{requested / total:.1%}" if total else "-",
            f"{highest:.1%}",
            f"{last.fragmentation[index]:.1%}",
        )
    return table


def _pending(
    groups: Sequence[UnplacedGroup],
    decisions: Mapping[str, Explanation],
    words: Callable[[UnplacedGroup], Sequence[str]],
) -> Iterator[Block]:
    total = sum(len(group.pods) for group in groups)
    yield Paragraph(f"{counted(total, 'pod')} by owner and reason, the largest group first.", note=True)
    for group in groups[:_MOST_GROUPS]:
        first = group.pods[0]
        content: list[Block] = [_pod_names(group.pods), *map(Paragraph, words(group))]
        if first in decisions:
            content.append(Heading(f"The decision about {first}, evaluated on the cluster at the end:"))
            content += decision_blocks(decisions[first])
        summary = [Span(counted(len(group.pods), "pod"), "strong"), Span(group.owner or first, "code")]
        yield Details(summary, content, group.message)
    rest = groups[_MOST_GROUPS:]
    if rest:
        yield Paragraph(
            f"… and {counted(sum(len(group.pods) for group in rest), 'pod')} in {counted(len(rest), 'more group')}"
        )


def _decisions(
    result: SimulationResult, simulation: Simulation, groups: Sequence[UnplacedGroup]
) -> dict[str, Explanation]:
    """The decision about the first pod of each of the largest groups, by the name of the pod."""
    cluster = simulation.cluster_after(result)
    pods = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in cluster.pods}
    first = [pods[group.pods[0]] for group in groups[:_MOST_DECISIONS] if group.pods[0] in pods]
    options = SchedulerOptions(simulation.configuration, simulation.plugins, simulation.gates)
    return {explanation.pod: explanation for explanation in explain_pending(cluster, first, options)}


def _preemptions(result: SimulationResult) -> Iterator[Block]:
    victims = [outcome for outcome in result.outcomes if outcome.state is OutcomeState.PREEMPTED]
    yield Paragraph(
        f"{counted(len(result.preemptions), 'preemption')} evicted {counted(len(victims), 'pod')}.", note=True
    )
    if result.preemptions:
        headings, right = (
            ("time, s", "for the pod", "priority", "on node", "victims"),
            ("time, s", "priority", "victims"),
        )
        table = Table(*headings, right=right, caption="Preemptions")
        for found in result.preemptions[:_MOST_ROWS]:
            table.add(f"{found.time:,.3f}", found.pod, f"{found.priority:,}", found.node, f"{found.victims:,}")
        yield table
    if victims:
        headings = ("time, s", "preempted pod", "priority", "from node", "owner")
        table = Table(*headings, right=("time, s", "priority"), caption="Preempted pods")
        for each in victims[:_MOST_ROWS]:
            table.add(f"{each.ended or 0.0:,.3f}", each.key, f"{each.priority:,}", each.node, each.owner or "-")
        yield table
    if max(len(victims), len(result.preemptions)) > _MOST_ROWS:
        yield Paragraph(f"The first {_MOST_ROWS:,} are shown.", note=True)


# -- a comparison ----------------------------------------------------------------------------------------------------


def comparison_report(comparison: SimulationComparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """The page: thresholds, metrics, both clusters over time and at the end, and the pods that differ.

    Raises InputError for the comparison of a record, which has no simulated clusters.
    """
    baseline, candidate = comparison.baseline, comparison.candidate
    results = [side.result for side in (baseline, candidate) if isinstance(side.result, SimulationResult)]
    if len(results) < 2:
        raise InputError("html", "a comparison of a record has no page, expected one of simulations")
    sections: list[Section | Figure] = [Section("Summary", list(_comparison_summary(comparison)))]
    if checked:
        sections.append(Section("Thresholds", [tables.thresholds_table(checked)]))
    sections += [
        Section("Metrics", [_metrics(comparison)]),
        _timeline_figure(f"Solid: {baseline.name} (baseline); dashed: {candidate.name} (candidate)."),
        _NODES_FIGURE,
    ]
    if comparison.pods:
        sections.append(Section("Pods that differ, by owner", list(_differences(comparison))))
        note = f"The outcomes in the candidate of the first {MOST_PODS:,}." if len(comparison.pods) > MOST_PODS else ""
        sections.append(Figure("Pods that differ", note or "In order of arrival.", "pods", anchor="pods"))
    if comparison.causes:
        sections.append(Section("Causes of the differences", [tables.causes_table(comparison.causes)]))
    shown = comparison.pods[:MOST_PODS]
    sides = list(zip(("baseline", "candidate"), results, strict=True))
    data = {
        "resources": results[0].resources,
        "timelines": [_timeline_data(role, result) for role, result in sides],
        "clusters": [_node_maps(f"{role} ", result)[0] for role, result in sides],
        "pods": pods_data([difference.outcome for difference in shown])
        | {
            "change": [difference.change.value for difference in shown],
            "before": ["" if difference.baseline is None else difference.baseline.node for difference in shown],
        },
    }
    run = results[0].run
    subtitle = (
        f"{baseline.name} (baseline) and {candidate.name} (candidate): {counted(len(results[0].outcomes), 'pod')},"
        f" {counted(len(results[0].nodes), 'node')}, {comparison.versions},"
        f" seed {run['seed']}, ties {run['ties']}"
    )
    return as_page(Report("Comparison of two simulations", subtitle, sections, data))


def _comparison_summary(comparison: SimulationComparison) -> Iterator[Block]:
    found = comparison.metrics["pending"]
    yield Cards(
        [
            ("pods pending, baseline", f"{found.baseline:,.0f}"),
            ("pods pending, candidate", f"{found.candidate:,.0f}"),
            ("pods that lose", f"{comparison.count(PodChange.LOST):,}"),
            ("pods that win", f"{comparison.count(PodChange.WON):,}"),
            ("pods on another node", f"{comparison.count(PodChange.MOVED):,}"),
        ]
    )
    yield Paragraph(tables.headline(comparison.pods) + ".")
    for side in (comparison.baseline, comparison.candidate):
        for remark in side.remarks:
            yield Paragraph(f"Remark: {side.name}: {remark}", note=True)


def _metrics(comparison: SimulationComparison) -> Table:
    """All metrics, with the changes of those that differ."""
    table = Table("metric", "baseline", "candidate", "change", "", right=("baseline", "candidate", "change"))
    for found in comparison.metrics.values():
        values = (tables.value_text(found, value) for value in (found.baseline, found.candidate))
        change = (tables.change_text(found), Span(found.verdict, found.verdict)) if tables.differs(found) else ("", "")
        table.add(Span(found.name, hint=found.metric.meaning), *values, *change)
    return table


def _differences(comparison: SimulationComparison) -> Iterator[Block]:
    groups = comparison.groups()
    for group in groups[:_MOST_DIFFERENCES]:
        owner = f"{group.namespace} {group.owner or 'pods without owner'}"
        summary = [Span(f"{counted(len(group.pods), 'pod')} {group.change.value}", "strong"), Span(owner, "code")]
        yield Details(summary, [_pod_names(group.pods)], group.reason or None)
    if len(groups) > _MOST_DIFFERENCES:
        yield Paragraph(f"… and {counted(len(groups) - _MOST_DIFFERENCES, 'more group')}", note=True)


# -- parts of both ---------------------------------------------------------------------------------------------------


def _pod_names(pods: Sequence[str]) -> Paragraph:
    """The names of the pods of a group, the first ones if they are many."""
    more = f" and {len(pods) - _PODS_NAMED:,} more" if len(pods) > _PODS_NAMED else ""
    return Paragraph(Span(", ".join(pods[:_PODS_NAMED]) + more, "names"))


def _timeline_figure(note: str) -> Figure:
    """The cluster over time; ``note`` says what the lines are."""
    return Figure("Over time", f"{note} With the keyboard, left and right move through the samples.", "timeline")


def _timeline_data(name: str, result: SimulationResult) -> dict[str, Any]:
    """The samples of a simulation that is called ``name``: times in seconds, counts, and shares by resource."""
    timeline = result.timeline
    return {
        "name": name,
        "time": [round(sample.time, 3) for sample in timeline],
        "counts": {
            "pods": [sample.pods for sample in timeline],
            "pending": [sample.pending for sample in timeline],
            "nodes in use": [sample.nodes_used for sample in timeline],
        },
        "utilisation": {
            resource: [round(sample.share(index), 4) for sample in timeline]
            for index, resource in enumerate(result.resources)
        },
        "fragmentation": {
            resource: [round(sample.fragmentation[index], 4) for sample in timeline]
            for index, resource in enumerate(result.resources)
        },
    }


def _node_maps(role: str, result: SimulationResult) -> list[dict[str, Any]]:
    """The nodes at the end, and before them those at the busiest time if that was another one."""
    end = _nodes_data(f"{role}at the end", result, result.nodes)
    busiest = result.busiest
    if busiest is None:
        return [end]
    return [_nodes_data(f"{role}with most pods, after {busiest.time:,.0f} s", result, busiest.nodes), end]


def _nodes_data(name: str, result: SimulationResult, nodes: Sequence[NodeState]) -> dict[str, Any]:
    """The state of the nodes of a result, in order of their names; amounts in millicores, bytes or counts.

    Allocatable amounts are an index into ``capacities``, because most nodes are of few kinds.
    """
    zones = {node.metadata.name: node.metadata.labels.get(_ZONE, "") for node in result.api.nodes()}
    kinds, capacities = _indexed(tuple(state.allocatable[name] for name in result.resources) for state in nodes)
    return {
        "name": name,
        "names": [state.name for state in nodes],
        "zones": [zones.get(state.name, "") for state in nodes],
        "pods": [state.pods for state in nodes],
        "requested": {resource: [state.requested[resource] for state in nodes] for resource in result.resources},
        "capacities": [dict(zip(result.resources, amounts, strict=True)) for amounts in capacities],
        "capacity": kinds,
    }


def pods_data(outcomes: Sequence[PodOutcome]) -> dict[str, Any]:
    """At most :data:`MOST_PODS` pods; ``left_out`` is the number of others."""
    if len(outcomes) > MOST_PODS:
        order = (OutcomeState.PENDING, OutcomeState.PREEMPTED, OutcomeState.RUNNING, OutcomeState.COMPLETED)
        outcomes = sorted(outcomes, key=lambda outcome: order.index(outcome.state))
    shown = outcomes[:MOST_PODS]
    node, nodes = _indexed(outcome.node for outcome in shown)
    owner, owners = _indexed(outcome.owner for outcome in shown)
    message, messages = _indexed(outcome.message for outcome in shown)
    return {
        "leftOut": len(outcomes) - len(shown),
        "names": [outcome.key for outcome in shown],
        "owner": owner,
        "state": [outcome.state.value for outcome in shown],
        "node": node,
        "priority": [outcome.priority for outcome in shown],
        "arrived": [round(outcome.arrived, 3) for outcome in shown],
        "bound": [None if outcome.bound is None else round(outcome.bound, 3) for outcome in shown],
        "message": message,
        "nodes": nodes,
        "owners": owners,
        "messages": messages,
    }


def _indexed(values: Iterable[_T]) -> tuple[list[int], list[_T]]:
    """The index of each value among the distinct ones, and these in the order in which they were first seen."""
    indexes: dict[_T, int] = {}
    return [indexes.setdefault(value, len(indexes)) for value in values], list(indexes)
