"""The usage of nodes: samples by node name, checked, and as columns over the node table.

A sample is used only if its values can be true: finite and not negative. It expires, so that a node whose metrics have
ended is treated like one without metrics. A sample from the future is a sign of a wrong clock; a small difference of
clocks is tolerated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.changes.journal import NEVER
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.errors import InvalidQuantity
from kubestow.framework.event_registration import invalidation_mask, on

#: A sample is used for so many seconds after the end of its window.
EXPIRATION = 300.0
#: A sample whose window ends at most this many seconds from now is used, too.
CLOCK_SKEW = 60.0

Floats = NDArray[np.float64]


class UsageSample(NamedTuple):
    """The usage of a node in percent of its capacity; NaN stands for a value that is not known.

    ``cpu`` and ``memory`` are averages over a window, or the latest values; ``…_deviation`` are standard deviations
    over the window, 0 if not known. ``time`` is the end of the window in seconds since the Unix epoch.
    """

    time: float
    cpu: float = math.nan
    memory: float = math.nan
    cpu_deviation: float = 0.0
    memory_deviation: float = 0.0


class UsageColumns(NamedTuple):
    """The fields of the samples as arrays over the rows of the node table, float64; NaN where there is none."""

    time: Floats
    cpu: Floats
    memory: Floats
    cpu_deviation: Floats
    memory_deviation: Floats


def amount_of(resource: str, quantity: Quantity) -> int:
    """A quantity in millicores of CPU, bytes or counts; 0 if it is malformed."""
    try:
        return millis(quantity) if resource == "cpu" else units(quantity)
    except InvalidQuantity:
        return 0


def usable(sample: UsageSample, now: float) -> UsageSample | None:
    """The sample without values that cannot be true; None if nothing is left or its time is wrong.

    A deviation that cannot be true counts as unknown, which is 0.
    """
    if not now - EXPIRATION <= sample.time <= now + CLOCK_SKEW:
        return None
    cpu, memory = _checked(sample.cpu, math.nan), _checked(sample.memory, math.nan)
    if math.isnan(cpu) and math.isnan(memory):
        return None
    return UsageSample(
        sample.time, cpu, memory, _checked(sample.cpu_deviation, 0.0), _checked(sample.memory_deviation, 0.0)
    )


def _checked(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) and value >= 0 else otherwise


class NodeUsage:
    """The latest usable sample of each node."""

    def __init__(self, table: NodeTable) -> None:
        #: The node table that the columns follow.
        self.table = table
        #: The samples by node name.
        self.samples: Mapping[str, UsageSample] = {}
        #: Incremented with every change of the samples.
        self.version = 0
        self._columns: tuple[int, int, UsageColumns] | None = None

    def replace(self, samples: Mapping[str, UsageSample]) -> bool:
        """Use other samples; whether they differ."""
        if samples == self.samples:
            return False
        self.samples = samples
        self.version += 1
        return True

    @property
    def columns(self) -> UsageColumns:
        """The samples as arrays over the rows of the node table; they must not be changed."""
        table, cached = self.table, self._columns
        if cached is None or cached[:2] != (table.structure, self.version):
            missing = UsageSample(math.nan, cpu_deviation=math.nan, memory_deviation=math.nan)
            found = [self.samples.get(name, missing) for name in table.names]
            arrays = np.array(found, np.float64).reshape(len(found), len(missing)).T
            cached = self._columns = table.structure, self.version, UsageColumns(*np.ascontiguousarray(arrays))
        return cached[2]


class NodeCapacity:
    """The capacity of nodes, which the usage in percent refers to, as of the latest samples."""

    def __init__(self, usage: NodeUsage) -> None:
        self._usage = usage
        self._columns: tuple[int, int, Floats] | None = None

    def cpu(self, nodes: Nodes) -> Floats:
        """The CPU capacity in millicores, float64; what is allocatable for nodes that report no capacity."""
        cpu: Floats = self._column()[nodes.rows]
        missing = np.isnan(cpu)
        return np.where(missing, nodes.allocatable("cpu"), cpu) if missing.any() else cpu

    def cpu_of_row(self, node: NodeRow) -> float:
        """The same for a single node."""
        cpu: float = self._column().item(node.row)
        return node.allocatable("cpu") if math.isnan(cpu) else cpu

    def _column(self) -> Floats:
        """The reported capacities of all rows, NaN where there is none."""
        table, cached = self._usage.table, self._columns
        if cached is None or cached[:2] != (table.structure, self._usage.version):
            capacity = np.full(len(table), math.nan)
            for row, node in enumerate(table.objects):
                with suppress(KeyError, InvalidQuantity):
                    capacity[row] = millis(node.status.capacity["cpu"])
            cached = self._columns = table.structure, self._usage.version, capacity
        return cached[2]


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
        window = self._cluster.change_window
        if self._generation == window.begin():
            return []
        table = self._cluster.nodes
        rows = window.invalid_rows(self._generation, self._mask)
        self._generation = window.generation
        if rows is None:
            rows = [row for row, node in enumerate(table.objects) if self._known.get(table.names[row]) is not node]
            if len(self._known) > len(table):
                self._known = {name: node for name, node in self._known.items() if name in table.rows}
        for row in rows:
            self._known[table.names[row]] = table.objects[row]
        return rows
