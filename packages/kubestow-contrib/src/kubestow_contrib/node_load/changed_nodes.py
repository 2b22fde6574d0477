"""Which rows of the node table are to be read again, for what plugins derive from node objects."""

from __future__ import annotations

from kubestow.api.core import Node
from kubestow.cluster.cache import Cluster
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.invalidation import NEVER
from kubestow.framework.event_registration import invalidation_mask, on

__all__ = ["ChangedNodes"]


class ChangedNodes:
    """The rows whose node object is new since the last call, as far as some actions on nodes change it."""

    def __init__(self, cluster: Cluster, actions: Action) -> None:
        self._cluster = cluster
        self._mask = invalidation_mask((on(EventResource.NODE, Action.ADD | actions),))
        self._generation = NEVER
        #: The objects that were returned last, by node name.
        self._known: dict[str, Node] = {}

    def rows(self) -> list[int]:
        """The rows that have changed; all of them in the first call."""
        cycle = self._cluster.cycle
        if self._generation == cycle.begin():
            return []
        table = self._cluster.nodes
        rows = cycle.invalid_rows(self._generation, self._mask)
        self._generation = cycle.generation
        if rows is None:
            rows = [row for row, node in enumerate(table.objects) if self._known.get(table.names[row]) is not node]
            if len(self._known) > len(table):
                self._known = {name: node for name, node in self._known.items() if name in table.rows}
        for row in rows:
            self._known[table.names[row]] = table.objects[row]
        return rows
