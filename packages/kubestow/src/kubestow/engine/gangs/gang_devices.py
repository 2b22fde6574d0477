"""What a gang needs of devices, and what there is, as arrays: a relaxation of what DynamicResources allocates.

Devices are *local* if one node can access them, else *wide*. What nodes have for requests of local devices are
combinations of pods. Wide devices are in groups that nothing tells apart, each for the nodes that can access them; how
many pods use how many of a group is up to the solver. A claim that several pods share is allocated once, and its pods
are on nodes that can access its devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LocalDevices:
    """What nodes have for the local claims of some ``kinds`` (by number).

    ``class_of_node`` (intp per node) says which entry of ``patterns`` (int64, patterns by kinds) are the largest
    combinations of pods that get devices there.
    """

    kinds: tuple[int, ...]
    class_of_node: NDArray[np.intp]
    patterns: Sequence[Amounts]

    @cached_property
    def competing(self) -> frozenset[int]:
        """The kinds whose capacities do not say everything, because they compete with each other somewhere."""
        return frozenset(self.kinds) if any(len(patterns) > 1 for patterns in self.patterns) else frozenset()

    def capacity(self, kind: int) -> Amounts:
        """How many pods of one of the kinds get devices on each node by themselves, int64 per node."""
        position = self.kinds.index(kind)
        most = np.array([patterns[:, position].max(initial=0) for patterns in self.patterns], np.int64)
        return most[self.class_of_node]

    def on(self, node: int) -> Amounts:
        """The patterns of a node."""
        return self.patterns[int(self.class_of_node[node])]


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Devices that nothing tells apart, which the nodes of some ``reaches`` (by number) can access.

    Each is for one claim, unless there is ``capacity`` (nano units in all of them) that claims take parts of.
    ``counters`` are what one of the devices consumes of the counters of its pool.
    """

    count: int
    reaches: frozenset[int]
    capacity: Mapping[str, int] | None = None
    counters: Mapping[Hashable, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """``count`` devices of any of some ``groups`` (by number), of whose capacity these amounts are taken each.

    They are for one ``request`` (by number) of a claim.
    """

    request: int
    count: int
    groups: Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class WideClaim:
    """A claim of each pod of a kind, or one that all pods of some ``kinds`` share.

    ``modes`` are the ways to satisfy it, by the reach of the node; in one of them its devices are of all the uses.
    """

    kinds: frozenset[int]
    is_shared: bool
    modes: Mapping[int, Sequence[Sequence[DeviceUse]]]


@dataclass(frozen=True, eq=False)
class WideDevices:
    """The devices that several nodes can access, by groups, and the claims that compete for them.

    ``reach_of_node`` (intp per node) is equal for nodes that can access the same ones; ``counters`` are what is left of
    those of their pools, in nano units.
    """

    reach_of_node: NDArray[np.intp]
    groups: Sequence[DeviceGroup]
    claims: Sequence[WideClaim]
    counters: Mapping[Hashable, int]


@dataclass(frozen=True, eq=False)
class GangDevices:
    """What the kinds of a gang need of devices, and what there is.

    ``per_pod`` is how many devices each kind requests for a pod, shared ones not counted. The pods of each of the
    ``on_one_node`` (sets of kinds) share a claim for devices of one node. ``names`` are the device classes with their
    drivers; ``local_free`` (int64 per node) are the devices that suit any of the kinds.
    """

    names: Sequence[str]
    per_pod: Mapping[int, int]
    shared_count: int
    local_free: Amounts
    local: LocalDevices | None = None
    wide: WideDevices | None = None
    on_one_node: Sequence[frozenset[int]] = ()

    @property
    def text(self) -> str:
        """What the devices are, in words."""
        return f"devices of class {' and '.join(self.names)}"

    @property
    def tie_pods(self) -> bool:
        """Whether pods on different nodes, or of different kinds, depend on each other."""
        return (
            self.wide is not None or bool(self.on_one_node) or (self.local is not None and bool(self.local.competing))
        )

    @property
    def classes_of_nodes(self) -> list[NDArray[np.intp]]:
        """Equal for nodes that differ in nothing about devices, intp per node."""
        found = [] if self.local is None else [self.local.class_of_node]
        return found if self.wide is None else [*found, self.wide.reach_of_node]

    def free(self, within: Mask) -> int:
        """How many devices are free that suit any of the kinds on some nodes (bool per node)."""
        free = int(self.local_free[within].sum())
        if self.wide is not None:
            reaches = set(self.wide.reach_of_node[within].tolist())
            free += sum(group.count for group in self.wide.groups if not reaches.isdisjoint(group.reaches))
        return free

    def add_to(self, digest: blake2b) -> None:
        """Add what there is to a digest."""
        digest.update(repr((self.names, sorted(self.per_pod.items()), self.on_one_node)).encode())
        digest.update(self.local_free.tobytes())
        if self.local is not None:
            digest.update(repr(self.local.kinds).encode())
            digest.update(self.local.class_of_node.tobytes())
            for patterns in self.local.patterns:
                digest.update(patterns.tobytes())
        if self.wide is not None:
            digest.update(self.wide.reach_of_node.tobytes())
            digest.update(
                repr((self.wide.groups, self.wide.claims, sorted(map(repr, self.wide.counters.items())))).encode()
            )
