"""How many nodes have to be added until all pods fit, and the cheapest mix of several node pools.

Whether pods fit with some nodes more is decided by the scheduler's own plugins: the pending pods of the cluster and
those of a workload are placed one after another, without preemption, by the first profile. Pods that do not fit are
tried again as long as others are placed, because they may wait for these. The fewest nodes of one pool are found by
bisection, under the assumption that a further node does no harm. Pods that fit with no number of nodes are set aside
first, with their reasons; the answer is about the others.

The mix starts from the cheapest single pool, and from all pools together, is reduced pool by pool, and then improved by
exchanges: nodes of one pool for fewer or cheaper ones of another, as long as everything fits. What is found is minimal
in this sense, and not proven to be the cheapest; ``lower_bound`` says how much cheaper it could be at most.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from kubestow import gc_tuning
from kubestow.api.formats.int64 import exact_sum
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.volume_controller import with_bound_volumes
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.engine.pipeline.pod_placer import Placer
from kubestow.engine.placement.modelled_pods import passes_without_pods
from kubestow.errors import InputError, PluginError
from kubestow.framework.status import Status
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow_lab.capacity.independent_nodes import fill_independently, place_as_many
from kubestow_lab.flow.equivalence import Mask
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.what_if.node_pools import NodePool, NodesNeeded, PoolNeed, UnplacedPods, all_nodes

Counts = tuple[int, ...]

#: So many copies of a pod, or more, are placed all at once where that is possible.
_MANY_COPIES = 32


def nodes_needed(
    cluster: ClusterObjects,
    arrivals: Arrivals,
    pools: Sequence[NodePool],
    options: SchedulerOptions | None = None,
    *,
    progress: Callable[[int], None] = lambda decisions: None,
) -> NodesNeeded:
    """Find how many nodes to add until the pending pods of a cluster and those that arrive all fit.

    ``progress`` is called with the number of decisions about pods so far, over all mixes. Raises ConfigurationError,
    PluginError, and InputError if there is no pod to place, if two pools have one name or a node's name is taken, and
    if several pools have no prices.
    """
    if not pools:
        raise InputError("node pools", "there are none, expected at least one")
    for name, count in Counter(pool.name for pool in pools).items():
        if count > 1:
            raise InputError(f"node pool {name}", "there are several of this name")
    unpriced = [pool.name for pool in pools if pool.price is None]
    if len(pools) > 1 and unpriced:
        raise InputError(f"node pool {unpriced[0]}", "has no price, expected one for each of several pools")
    with gc_tuning.paused():
        return _answer(_Fit(cluster, arrivals, pools, options or SchedulerOptions(), progress), pools)


def _answer(fit: _Fit, pools: Sequence[NodePool]) -> NodesNeeded:
    """The answer about the pods that fit with some number of nodes, and those that never do by name."""
    pods = len(fit.pods)
    never = fit.set_aside() if fit.misfits() else ()
    while True:
        search = _Search(fit, pools)
        single = search.single()
        mix = search.mix(single) if fit.pods else None
        misfits = () if mix is not None else fit.set_aside()
        if not misfits:
            break
        never = (*never, *misfits)
    priced = mix is not None and all(pool.price is not None for pool in pools)
    return NodesNeeded(
        pods=pods,
        fitting=len(fit.pods) - sum(len(group.pods) for group in fit.pending(fit.none)),
        single=single,
        mix=None if mix is None else {pool.name: count for pool, count in zip(pools, mix, strict=True) if count},
        price=None if mix is None or not priced else round(search.price(mix), 6),
        lower_bound=round(search.lowest_price(), 6) if priced else None,
        never=never,
    )


class _Fit:
    """Which pods stay pending with some nodes more. ``pods`` are those that are not set aside."""

    def __init__(
        self,
        cluster: ClusterObjects,
        arrivals: Arrivals,
        pools: Sequence[NodePool],
        options: SchedulerOptions,
        progress: Callable[[int], None],
    ) -> None:
        self._cluster = cluster.altered(
            objects=with_bound_volumes((*cluster.objects, *arrivals.objects)),
            custom_resources=(*cluster.custom_resources, *arrivals.custom_resources),
        )
        self._arrivals, self._pools = arrivals, pools
        self._gates = options.gates
        self._registry, self._configuration = options.registry(), options.read_configuration()
        self._progress, self._decisions = progress, 0
        self._known: dict[Counts, tuple[UnplacedPods, ...]] = {}
        self._set_aside: set[str] = set()
        self.none: Counts = (0,) * len(pools)
        #: The cluster with a node of each pool, or one in each of its zones.
        self.sample = self._placer(tuple(max(1, len(pool.zones)) for pool in pools))
        self.pods = self._pods(self.sample)
        if not self.pods:
            raise InputError("workload", "there is no pending pod to place, expected pods in the cluster or a workload")

    @property
    def most(self) -> Counts:
        """The most nodes of each pool: with one for each pod, a further one does not help."""
        return tuple(min(len(self.pods), pool.max_nodes or len(self.pods)) for pool in self._pools)

    def pending(self, counts: Counts) -> tuple[UnplacedPods, ...]:
        """The pods that stay pending with so many nodes of each pool."""
        found = self._known.get(counts)
        if found is None:
            found = self._known[counts] = self._place(counts)
        return found

    def misfits(self) -> frozenset[str]:
        """The pods that fit on no node of the cluster and of the pools as these are, without the pods to place."""
        profile = self.sample.profile
        shapes = {id(info.shape): info for info in self.pods}
        never = {key for key, info in shapes.items() if not profile.evaluations.of(info).find_feasible(info).count}
        return frozenset(info.key for info in self.pods if id(info.shape) in never)

    def set_aside(self) -> tuple[UnplacedPods, ...]:
        """Set aside the pods that stay pending with as many nodes as there may be.

        Where only misfits are left, it is enough that twice as many nodes do not help them.
        """
        most, misfits = self.most, self.misfits()
        step, before = max(1, max(len(pool.zones) for pool in self._pools)), frozenset[str]()
        while True:
            counts = tuple(min(step, each) for each in most)
            found = self.pending(counts)
            names = frozenset(name for group in found for name in group.pods)
            if counts == most or not names or (names == before and names <= misfits):
                break
            before, step = names, 2 * step
        self._set_aside |= names
        self.pods = self._pods(self.sample)
        self._known.clear()
        return found

    def _placer(self, counts: Counts) -> Placer:
        added = list(all_nodes(self._pools, counts)) if counts else []
        taken = {node.metadata.name for node in self._cluster.nodes}
        for node in added:
            if node.metadata.name in taken:
                raise InputError(f"node pool {node.metadata.name.rpartition('-')[0]}", "its nodes' names are taken")
        cluster = self._cluster.altered(nodes=(*self._cluster.nodes, *added))
        return Placer(cluster, self._configuration, self._registry, self._gates, ties=FirstByName())

    def _pods(self, placer: Placer) -> list[PodInfo]:
        every = (*placer.pending, *(placer.info(arrival.pod) for arrival in self._arrivals.pods))
        return sorted((info for info in every if info.key not in self._set_aside), key=lambda info: -info.priority)

    def _place(self, counts: Counts) -> tuple[UnplacedPods, ...]:
        placer = self._placer(counts)
        waiting = self._pods(placer)
        while True:
            messages: dict[str, list[str]] = {}
            rejected: list[PodInfo] = []
            first_copy = len(waiting)
            while first_copy and waiting[first_copy - 1].shape is waiting[-1].shape:
                first_copy -= 1
            placed = position = 0
            while position < len(waiting):
                if position == first_copy and not placed:
                    placed = self._place_copies(placer, waiting[position:])
                    position += placed
                    if position == len(waiting):
                        break
                outcome, end = placer.place(waiting[position]), position + 1
                if isinstance(outcome, Status):
                    if placed:
                        end = len(waiting)  # copies that do not influence each other: the others fit nowhere either
                    rejected += waiting[position:end]
                    messages.setdefault(outcome.message, []).extend(info.key for info in waiting[position:end])
                self._decisions += end - position
                self._progress(self._decisions)
                position = end
            if not rejected or len(rejected) == len(waiting):
                groups = (UnplacedPods(message, tuple(names)) for message, names in messages.items())
                return tuple(sorted(groups, key=lambda group: -len(group.pods)))
            waiting = rejected

    def _place_copies(self, placer: Placer, copies: Sequence[PodInfo]) -> int:
        """Place copies all at once, if only their number matters because they do not influence each other.

        No other pods come after them, so it does not matter which nodes they get. Returns how many were placed.
        """
        try:
            if len(copies) < _MANY_COPIES or not fill_independently(placer.cache, placer.profile, copies[0]):
                return 0
            return place_as_many(placer.cache, placer.profile, copies)
        except PluginError:
            return 0  # the copy that is placed next reports it


class _Search:
    """The search for the fewest and the cheapest nodes."""

    def __init__(self, fit: _Fit, pools: Sequence[NodePool]) -> None:
        self._fit, self._pools, self._most = fit, pools, fit.most
        self._prices = [1.0 if pool.price is None else pool.price for pool in pools]
        self._bounds = _Bounds(fit, pools)

    def single(self) -> tuple[PoolNeed, ...]:
        """The fewest nodes of each pool alone."""
        return tuple(self._single(index) for index in range(len(self._pools)))

    def lowest_price(self) -> float:
        """A price below which there is no mix."""
        return self._bounds.lowest_price(self._prices)

    def _fits(self, counts: Counts) -> bool:
        return self._bounds.allow(counts) and not self._fit.pending(counts)

    def price(self, counts: Counts) -> float:
        """The price of a mix."""
        return math.fsum(count * price for count, price in zip(counts, self._prices, strict=True))

    def _single(self, index: int) -> PoolNeed:
        none, most = self._fit.none, self._most[index]
        low, step = 0, 1
        while low < most and not self._bounds.allow(_with(none, index, low)):
            low += 1
        high = low
        while high < most and not self._fits(_with(none, index, high)):
            low, high, step = high + 1, high + step, 2 * step
        high = min(high, most)
        if not self._fits(_with(none, index, high)):
            return PoolNeed(self._pools[index], None, self._fit.pending(_with(none, index, high)))
        return PoolNeed(self._pools[index], self._fewest(none, index, high, low))

    def _fewest(self, counts: Counts, index: int, high: int, low: int = 0) -> int:
        """The fewest nodes of a pool, ``low`` to ``high``, with which everything fits beside those of the others."""
        while low < high:
            middle = (low + high) // 2
            if self._fits(_with(counts, index, middle)):
                high = middle
            else:
                low = middle + 1
        return high

    def mix(self, single: Sequence[PoolNeed]) -> Counts | None:
        """The cheapest mix that is found, given the fewest nodes of each pool alone; None if no mix is enough."""
        starts = [
            _with(self._fit.none, index, need.nodes) for index, need in enumerate(single) if need.nodes is not None
        ]
        if len(self._pools) == 1:
            return starts[0] if starts else None
        if not starts:
            if not self._fits(self._most):
                return None
            starts = [self._most]
        best = min(starts, key=self.price)
        found = []
        for counts in (best, self._reduced(best)):
            while (better := self._cheaper(counts)) is not None:
                counts = better
            found.append(counts)
        return min(found, key=lambda counts: (self.price(counts), counts))

    def _reduced(self, start: Counts) -> Counts:
        """As few nodes of each pool as possible, first of the pools whose nodes are expensive for what they have.

        It begins with all nodes that might be needed: of no pool more than the price of the ``start`` buys.
        """
        affordable = [math.floor(self.price(start) / price) for price in self._prices]
        counts = tuple(map(max, start, map(min, self._most, affordable)))
        cores = [pool.amounts().get("cpu") for pool in self._pools]
        price_of_core = [
            price / float(has) if has else math.inf for price, has in zip(self._prices, cores, strict=True)
        ]
        for index in sorted(range(len(counts)), key=price_of_core.__getitem__, reverse=True):
            counts = _with(counts, index, self._fewest(counts, index, counts[index]))
        return counts

    def _cheaper(self, counts: Counts) -> Counts | None:
        """The mix after the first exchange that makes it cheaper: some nodes of a pool for some of another."""
        for given in range(len(counts)):
            step = counts[given]
            while step:
                for taken in range(len(counts)):
                    found = self._exchange(counts, given, step, taken)
                    if found is not None:
                        return found
                step //= 2
        return None

    def _exchange(self, counts: Counts, given: int, step: int, taken: int) -> Counts | None:
        fewer = _with(counts, given, counts[given] - step)
        if given == taken:
            return fewer if self._fits(fewer) else None
        saved = step * self._prices[given]
        most = min(self._most[taken] - counts[taken], math.ceil(saved / self._prices[taken] - 1e-9) - 1)
        if most < 1 or not self._fits(_with(fewer, taken, counts[taken] + most)):
            return None
        return _with(fewer, taken, self._fewest(fewer, taken, counts[taken] + most))


class _Bounds:
    """What is necessary for all pods to fit, whatever the scheduler does: enough of each resource, and enough places.

    What is free on a node counts for a resource if a pod that requests it may be there (taints, selectors and whatever
    else does not depend on pods). A node has no more places than pods with the smallest request of each resource fit.
    """

    def __init__(self, fit: _Fit, pools: Sequence[NodePool]) -> None:
        pods, nodes = fit.pods, fit.sample.cache.all_nodes()
        self._pods = len(pods)
        names = sorted({name for info in pods for name, amount in info.requests.items() if amount})
        usable, allowed = _usable(fit, names)
        rows_by_name = fit.sample.cache.nodes.rows
        pool_rows = [
            [rows_by_name[pool.node(index).metadata.name] for index in range(max(1, len(pool.zones)))] for pool in pools
        ]
        existing = np.ones(len(nodes), np.bool_)
        existing[list(itertools.chain(*pool_rows))] = False
        #: Amounts by resource: requested by all pods, free on the nodes of the cluster, and on a node of each pool.
        self.requested = np.array([sum(info.requests.get(name, 0) for info in pods) for name in names], np.float64)
        every = [np.maximum(nodes.allocatable(name) - nodes.requested(name), 0) for name in names]
        free = [amounts * (existing & usable[name]) for name, amounts in zip(names, every, strict=True)]
        self.free = np.array([exact_sum(amounts) for amounts in free], np.float64)
        self.per_node = np.array(
            [
                [float((amounts * usable[name])[rows].max()) for name, amounts in zip(names, every, strict=True)]
                for rows in pool_rows
            ]
        ).reshape(len(pools), len(names))
        places = np.maximum(nodes.allowed_pods - nodes.pod_count, 0) * allowed
        for name, amounts in zip(names, every, strict=True):
            if least := min(info.requests.get(name, 0) for info in pods):
                places = np.minimum(places, amounts // least)
        self._places = int(places[existing].sum())
        self._places_per_node = [int(places[rows].max()) for rows in pool_rows]

    def allow(self, counts: Counts) -> bool:
        """Whether all pods may fit with so many nodes of each pool."""
        if not (self.free + np.array(counts) @ self.per_node >= self.requested - 1e-6).all():
            return False
        places = sum(count * each for count, each in zip(counts, self._places_per_node, strict=True))
        return self._places + places >= self._pods

    def lowest_price(self, prices: Sequence[float]) -> float:
        """No mix is cheaper: what is missing of the scarcest resource, at its lowest price."""
        missing = np.maximum(self.requested - self.free, 0)
        with np.errstate(divide="ignore"):
            price = (np.array(prices)[:, None] / self.per_node).min(axis=0, initial=math.inf)
        needed = (missing > 0) & np.isfinite(price)
        return float((missing[needed] * price[needed]).max(initial=0.0))


def _usable(fit: _Fit, names: Sequence[str]) -> tuple[dict[str, Mask], Mask]:
    """Where pods that request a resource may be, by resource, and where any pod may be: bool, one per sample node."""
    total = len(fit.sample.cache.nodes)
    usable = {name: np.zeros(total, np.bool_) for name in names}
    allowed = np.zeros(total, np.bool_)
    for info in {id(info.shape): info for info in fit.pods}.values():
        found = fit.sample.profile.evaluations.of(info).find_feasible(info)
        mask = np.ones(total, np.bool_) if found.candidates is None else passes_without_pods(found)
        allowed |= mask
        for name in names:
            if info.requests.get(name, 0):
                usable[name] |= mask
    return usable, allowed


def _with(counts: Counts, index: int, count: int) -> Counts:
    return (*counts[:index], count, *counts[index + 1 :])
