"""The tables of a simulation result for people: on a terminal, and as HTML in a notebook."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubestow.simulation.results.outcomes import PendingGroup, PodOutcome, PodState, pending_groups
from kubestow.simulation.results.timeline import Sample

__all__ = ["amount_text", "as_html", "plain_table", "render"]

#: More pods than this are shown by owner, not one by one.
_FEW_PODS = 30
_MOST_GROUPS = 12
_BYTES, _HUGE_PAGES = ("memory", "ephemeral-storage"), "hugepages-"
_WIDTH = 130


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


def as_html(tables: RenderableType) -> str:
    """The same tables as HTML."""
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False, markup=False)
    console.print(tables)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


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


def plain_table(first: str, *others: str, right: tuple[str, ...] | None = None) -> Table:
    """A table whose columns but the first are aligned to the right, unless ``right`` names others."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for index, name in enumerate((first, *others)):
        to_right = index > 0 if right is None else name in right
        table.add_column(name, justify="right" if to_right else "left", overflow="fold", no_wrap=to_right)
    return table


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource (millicores, bytes or counts) with its unit."""
    if resource == "cpu":
        return f"{amount / 1000:,.1f} cores"
    if resource in _BYTES or resource.startswith(_HUGE_PAGES):
        return f"{amount / 2**30:,.1f} GiB"
    return f"{amount:,}"
