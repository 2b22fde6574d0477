"""How many nodes of which pools are needed: as data, and as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.reports.model import Block, Paragraph, Table
from kubestow.reports.text import Displayed
from kubestow_lab.what_if.node_pools import NodePool


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """The fewest nodes of one pool alone; None if no number of them is enough, with the pods that stay pending."""

    pool: NodePool
    nodes: int | None
    pending: tuple[tuple[str, int], ...] = ()

    @property
    def price(self) -> float | None:
        """The price of these nodes, None if there are none or it is not known."""
        return None if self.nodes is None or self.pool.price is None else self.nodes * self.pool.price


@dataclass(frozen=True, slots=True)
class NodesNeeded(Displayed):
    """How many nodes to add.

    ``pods`` is the number of pods to place, of which ``fitting`` fit already. ``single`` has the answer for each pool
    alone. ``mix`` is the cheapest mix that was found, by pool name, None if no mix is enough; ``price`` is its price,
    and ``lower_bound`` a price below which there is none. ``pending`` are the messages of the pods that fit with no
    mix, with their numbers.
    """

    pods: int
    fitting: int
    single: tuple[PoolNeed, ...]
    mix: dict[str, int] | None
    price: float | None
    lower_bound: float | None
    pending: tuple[tuple[str, int], ...]

    def document(self) -> dict[str, Any]:
        """The result as data for JSON and YAML."""
        return {
            "kind": "NodesNeeded",
            "pods": self.pods,
            "fitting": self.fitting,
            "pools": [
                {"name": need.pool.name, "nodes": need.nodes, "price": need.price, "pending": _messages(need.pending)}
                for need in self.single
            ],
            "mix": self.mix,
            "price": self.price,
            "lowerBound": self.lower_bound,
            "pending": _messages(self.pending),
        }

    def blocks(self) -> Iterator[Block]:
        """The answer in one line, and the nodes and price of each pool alone."""
        yield Paragraph(self.answer())
        if self.fitting < self.pods:
            table = Table("pool alone", "nodes", "price", "why not", right=("nodes", "price"))
            for need in self.single:
                why = "" if need.nodes is not None else _joined(need.pending[:1])
                nodes = "-" if need.nodes is None else f"{need.nodes:,}"
                table.add(need.pool.name, nodes, "-" if need.price is None else f"{need.price:,.4g}", why)
            yield table
        if self.pending:
            yield Paragraph(f"pending with any number of nodes: {_joined(self.pending)}")

    def answer(self) -> str:
        """The answer in one line."""
        fitting = f"{self.fitting:,} of {self.pods:,} pods fit without further nodes"
        if self.mix is None:
            return f"{fitting}; no number of nodes is enough for the others"
        if not self.mix:
            return fitting
        mix = " and ".join(f"{count:,} {name}" for name, count in self.mix.items())
        answer = f"{fitting}; with {mix} all do"
        if self.price is None:
            return answer
        return f"{answer}, at a price of {self.price:,.6g} (no less than {self.lower_bound:,.6g} is possible)"


def _joined(pending: Iterable[tuple[str, int]]) -> str:
    return "; ".join(f"{count:,} pods: {message}" for message, count in pending)


def _messages(pending: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"pods": count, "message": message} for message, count in pending]
