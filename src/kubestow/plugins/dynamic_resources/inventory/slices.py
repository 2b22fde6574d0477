"""Slices as drivers publish them: their devices, and the nodes they are offered to (semantics 8.16).

A slice is for one node, for the nodes of a selector, for all of them, or leaves that to each of its devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelector
from kubestow.api.quantity import nanos
from kubestow.api.resource import ResourceSlice
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.nodes.selectors import matches_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.errors import InvalidQuantity, InvalidSelector
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice

__all__ = ["PoolID", "PublishedSlice", "PublishedSlices", "Unreachable", "selects"]

Mask = NDArray[np.bool_]


class PoolID(NamedTuple):
    """A pool's identity."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class Unreachable(Exception):
    """It cannot be told which nodes reach a slice; the text names the slice."""


class PublishedSlice:
    """A slice, its devices and its counters; one that cannot be read has a ``problem`` and no devices."""

    __slots__ = ("counters", "devices", "name", "pool", "problem", "source")

    def __init__(self, source: ResourceSlice) -> None:
        spec = source.spec
        self.source = source
        self.name = source.metadata.name
        self.pool = PoolID(spec.driver, spec.pool.name)
        self.devices: tuple[PooledDevice, ...] = ()
        self.counters: list[tuple[str, dict[str, int]]] = []
        self.problem = ""
        try:
            self.devices = tuple(PooledDevice(source, device) for device in spec.devices)
            self.counters = [
                (counter_set.name, {name: nanos(counter.value) for name, counter in counter_set.counters.items()})
                for counter_set in spec.shared_counters
            ]
        except InvalidQuantity as error:
            self.problem = f"slice {self.name}: {error}"

    @property
    def generation(self) -> int:
        """The pool's generation that the slice is part of."""
        return self.source.spec.pool.generation

    @property
    def chooses_per_device(self) -> bool:
        """Whether each device says which nodes reach it."""
        return self.source.spec.per_device_node_selection

    def masks(self, nodes: Nodes) -> Iterator[Mask]:
        """Where a slice that does not name its node is offered, bool: one mask, or one per device.

        None at all for a slice that is offered in a way nobody knows. Raises Unreachable.
        """
        spec = self.source.spec
        try:
            if spec.shared_counters or spec.all_nodes:
                yield np.ones(len(nodes), np.bool_)
            elif spec.node_selector is not None:
                yield selects(spec.node_selector, nodes)
            elif spec.per_device_node_selection:
                for device in spec.devices:
                    yield _mask(
                        nodes, node_name=device.node_name, everywhere=device.all_nodes, selector=device.node_selector
                    )
        except InvalidSelector as error:
            problem = f"failed to perform node selection for slice {self.name}: {error}"
            raise Unreachable(f"gather pool information: {problem}") from None


class PublishedSlices:
    """All slices, following their catalog; a slice that did not change keeps its devices.

    Without ``partitionable`` slices with counters or per-device nodes are offered to nobody.
    """

    def __init__(self, catalog: Catalog[ResourceSlice], *, partitionable: bool) -> None:
        self._catalog = catalog
        self.partitionable = partitionable
        self._by_name: dict[str, PublishedSlice] = {}
        #: Grows with every change.
        self.version = -1
        #: Slices by the node that they name, those that name none, and those of each pool.
        self.local: dict[str, list[PublishedSlice]] = {}
        self.shared: list[PublishedSlice] = []
        self.of_pool: dict[PoolID, list[PublishedSlice]] = {}

    def refresh(self) -> None:
        """Catch up with the catalog."""
        if self.version == self._catalog.version:
            return
        known = self._by_name
        self._by_name, self.local, self.shared, self.of_pool = {}, {}, [], {}
        for source in self._catalog:
            published = known.get(source.metadata.name)
            if published is None or published.source is not source:
                published = PublishedSlice(source)
            self._by_name[published.name] = published
            self.of_pool.setdefault(published.pool, []).append(published)
            if self.partitionable or not (published.chooses_per_device or source.spec.shared_counters):
                node_name = source.spec.node_name
                (self.local.setdefault(node_name, []) if node_name else self.shared).append(published)
        self.version = self._catalog.version


def selects(selector: NodeSelector, nodes: Nodes) -> Mask:
    """Which nodes a selector matches, bool. Raises InvalidSelector when a term cannot be read."""
    mask = np.zeros(len(nodes), np.bool_)
    for term in selector.node_selector_terms:
        mask |= matches_term(nodes, term)
    return mask


def _mask(nodes: Nodes, *, node_name: str, everywhere: bool, selector: NodeSelector | None) -> Mask:
    if everywhere and not node_name:
        return np.ones(len(nodes), np.bool_)
    if selector is not None and not node_name:
        return selects(selector, nodes)
    mask = np.zeros(len(nodes), np.bool_)
    position = nodes.position(node_name) if node_name else None
    if position is not None:
        mask[position] = True
    return mask
