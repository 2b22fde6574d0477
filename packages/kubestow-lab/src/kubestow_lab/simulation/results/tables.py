"""The tables of a simulation result, for a terminal and for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubestow.reports.tables import amount_text, plain_table
from kubestow_lab.simulation.results.outcomes import PendingGroup, PodOutcome, PodState, pending_groups
from kubestow_lab.simulation.results.timeline import Sample

__all__ = ["render"]

#: More pods than this are shown by owner, not one by one.
_FEW_PODS = 30
_MOST_GROUPS = 12


def render(outcomes: Sequence[PodOutcome], last: Sample, resources: Sequence[str], *, nodes: int) -> RenderableType:
    """The summary, the resources, who landed where, and who is pending.

    ``last`` is the last sample of the timeline, with an amount for each of ``resources``; ``nodes`` is their number.
    """
    parts: list[RenderableType] = [Text(_headline(outcomes, last, nodes)), _resources(last, resources)]
    if outcomes:
        parts.append(_pods(outcomes) if len(outcomes) <= _FEW_PODS else _owners(outcomes))
    groups = pending_groups(outcomes)
    if groups:
        parts.append(_pending(groups))
    return Group(*parts)


def _headline(outcomes: Sequence[PodOutcome], last: Sample, nodes: int) -> str:
    states = Counter(outcome.state for outcome in outcomes)
    placed = states[PodState.RUNNING] + states[PodState.COMPLETED]
    text = (
        f"{placed:,} of {len(outcomes):,} pods placed; {last.nodes_used:,} of {nodes:,} nodes in use"
        f" after {last.time:,.1f} s of virtual time"
    )
    preempted = states[PodState.PREEMPTED]
    return f"{text}\n{preempted:,} pods preempted" if preempted else text


def _resources(last: Sample, resources: Sequence[str]) -> Table:
    table = plain_table("resource", "requested", "allocatable", "share", "fragmentation")
    for i, name in enumerate(resources):
        requested, total = last.requested[i], last.allocatable[i]
        share = f"{requested / total:.1%}" if total else "-"
        amounts = (amount_text(name, requested), amount_text(name, total))
        table.add_row(name, *amounts, share, f"{last.fragmentation[i]:.1%}")
    return table


def _pods(outcomes: Sequence[PodOutcome]) -> Table:
    table = plain_table("namespace", "pod", "state", "node", right=())
    for outcome in outcomes:
        table.add_row(outcome.namespace, outcome.name, outcome.state.value, outcome.node or "-")
    return table


def _owners(outcomes: Sequence[PodOutcome]) -> Table:
    """The numbers of pods by owner and state, for the owners with most pods."""
    states: dict[str, Counter[PodState]] = {}
    nodes: dict[str, set[str]] = {}
    for outcome in outcomes:
        owner = _owner(outcome)
        states.setdefault(owner, Counter())[outcome.state] += 1
        if outcome.node:
            nodes.setdefault(owner, set()).add(outcome.node)
    table = plain_table("owner", "pods", *(state.value.lower() for state in PodState), "nodes")
    largest = sorted(states, key=lambda owner: (-states[owner].total(), owner))
    for owner in largest[:_MOST_GROUPS]:
        counts = states[owner]
        cells = (f"{counts[state]:,}" for state in PodState)
        table.add_row(owner, f"{counts.total():,}", *cells, f"{len(nodes.get(owner, ())):,}")
    if len(largest) > _MOST_GROUPS:
        table.add_row(f"… {len(largest) - _MOST_GROUPS:,} more", *([""] * (len(PodState) + 2)))
    return table


def _owner(outcome: PodOutcome) -> str:
    return f"{outcome.namespace} {outcome.owner or 'pods without owner'}"


def _pending(groups: Sequence[PendingGroup]) -> Table:
    table = plain_table("pending", "owner", "why", right=("pending",))
    for group in groups[:_MOST_GROUPS]:
        table.add_row(f"{len(group.pods):,}", group.owner or group.pods[0], group.message)
    rest = groups[_MOST_GROUPS:]
    if rest:
        table.add_row(f"{sum(len(group.pods) for group in rest):,}", f"… {len(rest):,} more groups", "")
    return table
