"""The gap between what a scheduler placed and the best placement, as data, JSON and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Move:
    """A pod (namespace/name) and its node before and after, empty where it is pending."""

    pod: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Figures:
    """One placement of the pods that take part: how many, at what cost, and the cluster with it.

    ``utilisation`` has the requested share by resource.
    """

    name: str
    placed: int
    pending: int
    cost: int
    nodes_used: int
    utilisation: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """As data for JSON."""
        return {
            "placed": self.placed,
            "pending": self.pending,
            "cost": self.cost,
            "nodesUsed": self.nodes_used,
            "utilisation": {name: round(share, 6) for name, share in self.utilisation.items()},
        }


@dataclass(frozen=True, slots=True, repr=False)
class Gap(Displayed):
    """What the scheduler placed (``greedy``), rounds of min-cost flow, and the best placement found (``optimum``).

    ``found_by`` is ``optimum``, ``pinned`` (with pods that have constraints between nodes where they were), ``flow`` or
    ``greedy``. ``bound`` is a number of pods that no placement in the order of priorities exceeds, among the ``pods``
    that take part; ``proven`` says that none is better. ``refused`` are placements of the solver that the engine did
    not accept. ``moves`` leads from the greedy placement to the optimum. ``unmodelled`` and ``ineligible`` have the
    reason why a pending pod did not take part, by namespace/name.
    """

    greedy: Figures
    flow: Figures
    optimum: Figures
    found_by: str
    cost_model: str
    pods: int
    bound: int
    proven: bool
    cost_proven: bool
    unmodelled: Mapping[str, str]
    ineligible: Mapping[str, str]
    refused: tuple[Move, ...]
    moves: tuple[Move, ...]

    @property
    def newly_placed(self) -> tuple[Move, ...]:
        """The pending pods that the optimum places."""
        return tuple(move for move in self.moves if not move.source)

    @property
    def displaced(self) -> tuple[Move, ...]:
        """The running pods that the optimum leaves pending, in favour of others."""
        return tuple(move for move in self.moves if not move.target)

    @property
    def moved(self) -> tuple[Move, ...]:
        """The running pods that are on another node in the optimum."""
        return tuple(move for move in self.moves if move.source and move.target)

    def as_json(self) -> dict[str, Any]:
        """As data for JSON."""
        return {
            "costModel": self.cost_model,
            "pods": self.pods,
            "greedy": self.greedy.as_json(),
            "flow": self.flow.as_json(),
            "optimum": self.optimum.as_json(),
            "foundBy": self.found_by,
            "bound": self.bound,
            "proven": self.proven,
            "costProven": self.cost_proven,
            "gap": {"pods": self.optimum.placed - self.greedy.placed, "cost": self.greedy.cost - self.optimum.cost},
            "newlyPlaced": [{"pod": move.pod, "node": move.target} for move in self.newly_placed],
            "displaced": [{"pod": move.pod, "node": move.source} for move in self.displaced],
            "moved": [{"pod": move.pod, "from": move.source, "to": move.target} for move in self.moved],
            "refused": [{"pod": move.pod, "node": move.target} for move in self.refused],
            "notModelled": dict(self.unmodelled),
            "notEligible": dict(self.ineligible),
        }

    def blocks(self) -> Iterator[Block]:
        """The placements side by side, what is known about the optimum, and the moves to it."""
        resources = list(self.greedy.utilisation)
        figures = Table("placement", "placed", "pending", "nodes in use", "cost", *resources)
        for each in (self.greedy, self.flow, self.optimum):
            shares = (f"{each.utilisation.get(name, 0.0):.1%}" for name in resources)
            numbers = (f"{number:,}" for number in (each.placed, each.pending, each.nodes_used, each.cost))
            figures.add(each.name, *numbers, *shares)
        yield from (Paragraph(""), figures, Paragraph(self._verdict()))
        if moves := self.newly_placed + self.displaced + self.moved:
            table = Table("pod", "from", "to", right=())
            for move in moves[:_SHOWN]:
                table.add(move.pod, move.source or "pending", move.target or "pending")
            if len(moves) > _SHOWN:
                table.add(f"… {len(moves) - _SHOWN:,} more", "", "")
            yield table

    def _verdict(self) -> str:
        """What is known about the optimum, in sentences."""
        gap = self.optimum.placed - self.greedy.placed
        known = "proven optimal" if self.proven else f"not proven optimal, no placement has more than {self.bound:,}"
        cost = "proven least" if self.cost_proven else "not proven least"
        more = self.optimum.cost - self.greedy.cost
        placed, displaced, moved = len(self.newly_placed), len(self.displaced), len(self.moved)
        pods = f"{'-' if gap < 0 else '+'}{counted(abs(gap), 'pod')}"
        lines = [
            f"gap: {pods} ({known}), cost {more:+,} by {self.cost_model} ({cost})",
            f"{counted(placed, 'pending pod')} placed, {displaced:,} displaced, {moved:,} moved",
        ]
        if not self.pods:
            lines.append("no pod takes part: all have ended, or keep their nodes")
        if self.refused:
            lines.append(f"the engine refused {counted(len(self.refused), 'placement')} of the solver")
        if self.unmodelled:
            pods = counted(len(self.unmodelled), "pending pod is", "pending pods are")
            lines.append(f"{pods} not modelled (volumes, claims, devices, gangs)")
        if self.ineligible:
            pods = counted(len(self.ineligible), "pending pod is", "pending pods are")
            lines.append(f"{pods} gated, being deleted or without a profile")
        return "\n".join(lines)
