"""The report of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kubestow.engine.explanation.explain import explain_pending
from kubestow.engine.explanation.explanation import Explanation
from kubestow.engine.explanation.report import decision_tables
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.reports.markup import Html, element, fragment, table
from kubestow.reports.page import figure_section, page, section
from kubestow.reports.sections import nodes_section, pod_names, summary_cards, timeline_section
from kubestow.reports.tables import amount_text
from kubestow_lab.reports.figures import MOST_PODS, nodes_data, pods_data, timeline_data
from kubestow_lab.simulation.results.outcomes import PendingGroup, PodState
from kubestow_lab.simulation.results.result import SimulationResult
from kubestow_lab.simulation.simulation import Simulation

__all__ = ["simulation_report"]

#: So many groups of pending pods are listed, and of so many a pod's decision is shown.
_MOST_GROUPS, _MOST_DECISIONS = 200, 8
_MOST_ROWS = 500


def simulation_report(result: SimulationResult, simulation: Simulation | None = None) -> str:
    """The page. With the ``simulation`` of the result, decisions about pending pods are explained too."""
    groups = result.pending_groups()
    decisions = _decisions(result, simulation, groups) if simulation is not None else {}
    sections = [
        section("Summary", summary_cards(_headline_figures(result)), _resources(result), *_remarks(result)),
        timeline_section("Requested share, fragmentation and numbers of pods and nodes, by virtual time."),
        nodes_section(),
    ]
    if groups:
        sections.append(section("Pending pods", *_pending(groups, decisions), anchor="pending"))
    if result.preemptions or result.count(PodState.PREEMPTED):
        sections.append(section("Preemptions", *_preemptions(result)))
    note = (
        "In order of arrival." if len(result.outcomes) <= MOST_PODS else f"The first {MOST_PODS:,}; pending ones first."
    )
    sections.append(figure_section("Pods", note, "pods", id="pods"))
    data = {
        "resources": result.resources,
        "timelines": [timeline_data("", result)],
        "clusters": _node_maps(result),
        "pods": pods_data(result.outcomes),
    }
    run = result.run
    subtitle = (
        f"{len(result.outcomes):,} pods, {len(result.nodes):,} nodes, seed {run['seed']}, ties {run['ties']}:"
        f" {run['attempts']:,} scheduling attempts in {run['seconds']:,.1f} s of virtual time"
    )
    return page("Simulation report", subtitle, sections, data)


def _node_maps(result: SimulationResult) -> list[dict[str, Any]]:
    """The nodes at the end, and before them those at the busiest time if that was another one."""
    if result.busiest is None:
        return [nodes_data("at the end", result, result.nodes)]
    busiest = nodes_data(f"with most pods, after {result.busiest.time:,.0f} s", result, result.busiest.nodes)
    return [busiest, nodes_data("at the end", result, result.nodes)]


# -- summary ---------------------------------------------------------------------------------------------------------


def _headline_figures(result: SimulationResult) -> list[tuple[str, str]]:
    states = Counter(outcome.state for outcome in result.outcomes)
    placed = states[PodState.RUNNING] + states[PodState.COMPLETED]
    return [
        ("pods placed", f"{placed:,} of {len(result.outcomes):,}"),
        ("pods pending", f"{states[PodState.PENDING]:,}"),
        ("pods preempted", f"{states[PodState.PREEMPTED]:,}"),
        ("nodes in use at the end", f"{result.timeline[-1].nodes_used:,} of {len(result.nodes):,}"),
    ]


def _resources(result: SimulationResult) -> Html:
    last = result.timeline[-1]
    rows = []
    for index, name in enumerate(result.resources):
        requested, total = last.requested[index], last.allocatable[index]
        samples = [(sample.requested[index], sample.allocatable[index]) for sample in result.timeline]
        highest = max((amount / capacity for amount, capacity in samples if capacity), default=0.0)
        rows.append(
            (
                name,
                amount_text(name, requested),
                amount_text(name, total),
                f"{requested / total:.1%}" if total else "-",
                f"{highest:.1%}",
                f"{last.fragmentation[index]:.1%}",
            )
        )
    header = ("resource", "requested", "allocatable", "share", "highest share", "fragmentation")
    return table(header, rows, numbers=range(1, 6), caption="Resources at the end")


def _remarks(result: SimulationResult) -> Iterator[Html]:
    for remark in result.remarks:
        yield element("p", f"Remark: {remark}", class_="note")


# -- pending pods ----------------------------------------------------------------------------------------------------


def _pending(groups: Sequence[PendingGroup], decisions: dict[str, Explanation]) -> Iterator[Html]:
    total = sum(len(group.pods) for group in groups)
    yield element("p", f"{total:,} pods by owner and reason, the largest group first.", class_="note")
    for group in groups[:_MOST_GROUPS]:
        first = group.pods[0]
        count = "1 pod" if len(group.pods) == 1 else f"{len(group.pods):,} pods"
        summary = element(
            "summary", element("b", count), " ", element("code", group.owner or first), element("p", group.message)
        )
        content = [pod_names(group.pods)]
        if first in decisions:
            note = f"The decision about {first}, evaluated on the cluster at the end:"
            content += [element("h3", note), *decision_tables(decisions[first])]
        yield element("details", summary, *content)
    rest = groups[_MOST_GROUPS:]
    if rest:
        yield element("p", f"… and {sum(len(group.pods) for group in rest):,} pods in {len(rest):,} more groups")


def _decisions(
    result: SimulationResult, simulation: Simulation, groups: Sequence[PendingGroup]
) -> dict[str, Explanation]:
    """The decision about the first pod of each of the largest groups, by the name of the pod."""
    cluster = simulation.cluster_after(result)
    pods = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in cluster.pods}
    first = [pods[group.pods[0]] for group in groups[:_MOST_DECISIONS] if group.pods[0] in pods]
    options = SchedulerOptions(simulation.configuration, simulation.plugins, simulation.gates)
    return {explanation.pod: explanation for explanation in explain_pending(cluster, first, options)}


# -- preemptions -----------------------------------------------------------------------------------------------------


def _preemptions(result: SimulationResult) -> Iterator[Html]:
    victims = [outcome for outcome in result.outcomes if outcome.state is PodState.PREEMPTED]
    yield element("p", f"{len(result.preemptions):,} preemptions evicted {len(victims):,} pods.", class_="note")
    if result.preemptions:
        rows = [
            (f"{found.time:,.3f}", found.pod, f"{found.priority:,}", found.node, f"{found.victims:,}")
            for found in result.preemptions[:_MOST_ROWS]
        ]
        header = ("time, s", "for the pod", "priority", "on node", "victims")
        yield table(header, rows, numbers=(0, 2, 4), caption="Preemptions")
    if victims:
        rows = [
            (f"{outcome.ended or 0.0:,.3f}", outcome.key, f"{outcome.priority:,}", outcome.node, outcome.owner or "-")
            for outcome in victims[:_MOST_ROWS]
        ]
        header = ("time, s", "preempted pod", "priority", "from node", "owner")
        yield table(header, rows, numbers=(0, 2), caption="Preempted pods")
    if max(len(victims), len(result.preemptions)) > _MOST_ROWS:
        yield fragment(element("p", f"The first {_MOST_ROWS:,} are shown.", class_="note"))
