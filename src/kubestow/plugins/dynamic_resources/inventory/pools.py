"""Pools of devices, and which of them a node reaches (semantics 8.16).

Drivers publish a pool in several slices; only the newest generation counts, and only once all its slices are there.
Nodes that reach the same slices and devices share one :class:`ReachableDevices`, so a search that failed on one of them
need not be repeated on the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.plugins.dynamic_resources.inventory.devices import Counters, PooledDevice
from kubestow.plugins.dynamic_resources.inventory.slices import PoolID, PublishedSlice, PublishedSlices

__all__ = ["Candidate", "DevicePools", "Pool", "ReachableDevices"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device on offer; ``reachable`` is False for one that its slice offers to other nodes only."""

    device: PooledDevice
    pool: Pool
    reachable: bool


@dataclass(slots=True, eq=False)
class Pool:
    """A pool as nodes see it that reach the same part of it. Devices of an unusable pool are left out.

    ``counters`` are what the pool's devices share, ``elsewhere`` its devices on slices that these nodes do not reach.
    """

    id: PoolID
    is_incomplete: bool = False
    invalid: str = ""
    candidates: tuple[Candidate, ...] = ()
    elsewhere: tuple[PooledDevice, ...] = ()
    counters: Counters = field(default_factory=dict)

    @property
    def has_binding_conditions(self) -> bool:
        """Whether some device has to be made ready after it was allocated; such pools come last."""
        return any(candidate.device.device.binding_conditions for candidate in self.candidates)

    def devices(self) -> Iterator[PooledDevice]:
        """All devices of the pool, reachable or not."""
        yield from (candidate.device for candidate in self.candidates)
        yield from self.elsewhere


@dataclass(frozen=True, slots=True, eq=False)
class ReachableDevices:
    """The pools that some nodes reach, in the order in which devices are tried, and their usable devices."""

    pools: tuple[Pool, ...]
    candidates: tuple[Candidate, ...]

    @classmethod
    def of(cls, pools: Iterable[Pool]) -> ReachableDevices:
        """Pools in order: by name, those with binding conditions last."""
        ordered = tuple(sorted(pools, key=lambda pool: (pool.has_binding_conditions, pool.id)))
        return cls(ordered, tuple(candidate for pool in ordered for candidate in pool.candidates))


@dataclass(frozen=True, slots=True)
class _Reach:
    """Where a slice that names no node is offered: masks over the nodes in question, one or one per device."""

    slice: PublishedSlice
    masks: list[Mask]


class DevicePools:
    """The pools that slices make up."""

    def __init__(self, slices: PublishedSlices) -> None:
        self._slices = slices
        self._version = -1
        self._reached: dict[tuple[str, bytes], ReachableDevices] = {}

    def reached_by(self, nodes: Nodes) -> list[ReachableDevices]:
        """What each of the nodes reaches. Raises Unreachable."""
        self._slices.refresh()
        if self._version != self._slices.version:
            self._reached.clear()
            self._version = self._slices.version
        reaches = [_Reach(published, list(published.masks(nodes))) for published in self._slices.shared]
        masks = [mask for reach in reaches for mask in reach.masks]
        table: Mask = np.stack(masks, axis=1) if masks else np.empty((len(nodes), 0), np.bool_)
        return [self._reached_at(name, table[position], reaches) for position, name in enumerate(nodes.names)]

    def _reached_at(self, node_name: str, offered: Mask, reaches: Sequence[_Reach]) -> ReachableDevices:
        local = self._slices.local.get(node_name)
        key = (node_name if local else "", offered.tobytes())
        known = self._reached.get(key)
        if known is None:
            known = self._reached[key] = self._put_together(local or [], offered, reaches)
        return known

    def _put_together(self, local: list[PublishedSlice], offered: Mask, reaches: Sequence[_Reach]) -> ReachableDevices:
        found: dict[PoolID, list[PublishedSlice]] = {}
        out_of_reach: set[PooledDevice] = set()
        for published in local:
            _add(found, published)
        start = 0
        for reach in reaches:
            bits = offered[start : start + len(reach.masks)]
            start += len(reach.masks)
            if bits.any():
                _add(found, reach.slice)
                if reach.slice.chooses_per_device:
                    out_of_reach |= {device for device, bit in zip(reach.slice.devices, bits, strict=False) if not bit}
        pools = (self._pool(pool, slices, out_of_reach) for pool, slices in found.items())
        return ReachableDevices.of(pool for pool in pools if pool is not None)

    def _pool(self, pool: PoolID, reached: list[PublishedSlice], out_of_reach: set[PooledDevice]) -> Pool | None:
        """One pool; None when slices out of reach show that these are obsolete."""
        generation, wanted = reached[0].generation, reached[0].source.spec.pool.resource_slice_count
        everything = reached
        if len(reached) != wanted:
            if any(other.generation > generation for other in self._slices.of_pool[pool]):
                return None
            everything = [other for other in self._slices.of_pool[pool] if other.generation == generation]
            if len(everything) != wanted:
                return Pool(pool, is_incomplete=True)
        return self._assembled(pool, reached, everything, out_of_reach)

    def _assembled(
        self,
        pool: PoolID,
        reached: Sequence[PublishedSlice],
        everything: Sequence[PublishedSlice],
        out_of_reach: set[PooledDevice],
    ) -> Pool:
        reached = sorted(reached, key=lambda published: published.name)
        names = {published.name for published in reached}
        elsewhere = [device for other in everything if other.name not in names for device in other.devices]
        devices = [device for published in reached if not published.counters for device in published.devices]
        counters = [pair for published in reached for pair in published.counters]
        problem = (
            next((published.problem for published in reached if published.problem), "")
            or _duplicate([device.id.device for device in devices], "device name")
            or _duplicate([name for name, _ in counters], "counter set name")
            or (_dangling([*devices, *elsewhere], dict(counters)) if self._slices.partitionable else "")
        )
        if problem:
            return Pool(pool, invalid=problem)
        assembled = Pool(pool, elsewhere=tuple(elsewhere), counters=dict(counters))
        assembled.candidates = tuple(Candidate(device, assembled, device not in out_of_reach) for device in devices)
        return assembled


def _add(found: dict[PoolID, list[PublishedSlice]], published: PublishedSlice) -> None:
    """Add a slice to its pool: an older generation is left out, a newer one takes the place of all before it."""
    slices = found.setdefault(published.pool, [])
    if slices and published.generation < slices[0].generation:
        return
    if slices and published.generation > slices[0].generation:
        slices.clear()
    slices.append(published)


def _duplicate(names: Sequence[str], what: str) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"duplicate {what} {name}"
        seen.add(name)
    return ""


def _dangling(devices: Iterable[PooledDevice], counters: Mapping[str, Mapping[str, int]]) -> str:
    """What devices consume that their pool does not have."""
    for device in devices:
        for counter_set, consumed in device.counters.items():
            if counter_set not in counters:
                return f"counter set {counter_set} not found"
            for name in consumed:
                if name not in counters[counter_set]:
                    return f"counter {name} not found in counter set {counter_set}"
    return ""
