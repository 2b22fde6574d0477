"""Topology-aware scheduling: the domains of nodes (blocks, racks, hosts) in which the pods of a Workload fit together.

A flavor with a topology has a tree of domains, one level for each node label. What is free in a leaf is what its nodes
can allocate, less the pods that other schedulers placed there and what Workloads were assigned. Counted from the leaves
up is how many pods, and how many *slices* of pods that must share a domain, a domain has room for, with and without the
leader of a group of pod sets.

Pods go to one domain of the level that is required or preferred if one has room: the one with the least room that
suffices. What is only preferred is then sought one level up, and finally in several domains. Below that level, domains
are filled from the largest down, the last one by the least room again. Unconstrained pods go where least is free.
(Source: Kueue ``pkg/cache/scheduler/tas_flavor_snapshot.go``.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key

import msgspec

from kubestow.api.core import Node, Pod, PodSpec, Toleration
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, selects_node, untolerated
from kubestow.rules.resource_lists import pod_resources
from kubestow_contrib.kueue.objects import PodSet, ResourceFlavor, Topology, TopologyRequest, amount
from kubestow_contrib.kueue.quota_tree import Amounts

HOSTNAME = "kubernetes.io/hostname"
_PODS = "pods"

Values = tuple[str, ...]
"""The values of a domain's levels, from the highest that is given to the lowest."""


@dataclass(frozen=True, slots=True)
class DomainAssignment:
    """So many pods in the domain of these values."""

    values: Values
    count: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """The domains of the pods of one pod set, and the node labels that their values are of."""

    levels: tuple[str, ...]
    domains: tuple[DomainAssignment, ...]


@dataclass(frozen=True, slots=True)
class DomainUsage:
    """``count`` pods with ``requests`` each in a domain."""

    values: Values
    requests: Mapping[str, int]
    count: int


TopologyUsage = dict[str, list[DomainUsage]]
"""What is used of domains, by flavor."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """``count`` pods of a pod set, with ``requests`` each.

    ``is_implied`` if only the ClusterQueue asks for topology.
    """

    pod_set: PodSet
    count: int
    requests: Amounts
    is_implied: bool = False

    @property
    def group(self) -> str | None:
        """The name of the group of pod sets that share a domain."""
        request = self.pod_set.topology_request
        return None if request is None else request.pod_set_group_name


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pods of a pod set go, or why they do not fit."""

    assignment: TopologyAssignment | None
    failure: str = ""


@dataclass(eq=False, slots=True)
class _Domain:
    """A domain, and how many pods fit in it in the present search: ``with_leader`` beside a leader."""

    values: Values
    parent: _Domain | None = None
    children: list[_Domain] = field(default_factory=list)
    node: Node | None = None
    pods: int = 0
    slices: int = 0
    pods_with_leader: int = 0
    slices_with_leader: int = 0
    leaders: int = 0

    def reset(self) -> None:
        self.pods = self.slices = self.pods_with_leader = self.slices_with_leader = self.leaders = 0


@dataclass(slots=True)
class _Search:
    """What is searched: ``count`` pods in slices, the levels of the whole and of slices, by index.

    ``inner`` has the size of what must share a domain at the levels below that of slices.
    """

    count: int
    leaders: int
    slice_size: int
    level: int
    slice_level: int
    inner: Mapping[int, int]
    is_required: bool
    is_unconstrained: bool

    @property
    def slices(self) -> int:
        return self.count // self.slice_size


class FlavorTopology:
    """The domains of the nodes of one flavor, and what is used of them.

    ``nodes`` are those that can be scheduled to and have the labels of the flavor and of all ``levels``.
    """

    def __init__(self, name: str, levels: Sequence[str], nodes: Iterable[Node], tolerations: Sequence[Toleration] = ()):
        self.name, self.levels, self._tolerations = name, tuple(levels), tuple(tolerations)
        self.by_host = bool(levels) and levels[-1] == HOSTNAME
        self._leaves: dict[Values, _Domain] = {}
        self._per_level: list[dict[Values, _Domain]] = [{} for _ in levels]
        self._free: dict[Values, Amounts] = {}
        self._used: dict[Values, Amounts] = {}
        self._leaf_of: dict[str, Values] = {}
        for node in nodes:
            values = tuple(node.metadata.labels[level] for level in self.levels)
            key = self._key(values)
            if key not in self._leaves:
                self._leaves[key] = self._new_domain(values)
                if self.by_host:
                    self._leaves[key].node = node
            self._leaf_of[node.metadata.name] = key
            free = self._free.setdefault(key, {})
            for resource, quantity in node.status.allocatable.items():
                free[resource] = free.get(resource, 0) + amount(resource, quantity)

    def _new_domain(self, values: Values) -> _Domain:
        domain = _Domain(values)
        self._per_level[len(values) - 1][values] = domain
        if len(values) > 1:
            parent = self._per_level[len(values) - 2].get(values[:-1])
            domain.parent = self._new_domain(values[:-1]) if parent is None else parent
            domain.parent.children.append(domain)
        return domain

    def _key(self, values: Values) -> Values:
        """Hosts have names of their own; other leaves are identified by all levels."""
        return values[-1:] if self.by_host else values

    # -- usage ---------------------------------------------------------------------------------------------------------

    def occupy(self, node_name: str, requests: Mapping[str, int]) -> None:
        """A pod without a topology assignment is on a node."""
        free = self._free.get(self._leaf_of.get(node_name, ()))
        if free is not None:
            for resource, used in (*requests.items(), (_PODS, 1)):
                free[resource] = free.get(resource, 0) - used

    def use(self, usage: DomainUsage, sign: int = 1) -> None:
        """Pods were assigned to a domain, or (-1) are no longer; nothing if it does not exist."""
        key = self._key(usage.values)
        if key in self._leaves:
            used = self._used.setdefault(key, {})
            for resource, each in (*usage.requests.items(), (_PODS, 1)):
                used[resource] = used.get(resource, 0) + sign * each * usage.count

    def copy_of_use(self) -> dict[Values, Amounts]:
        """What Workloads use of the leaves, to be given back to :meth:`restore_use`."""
        return {key: dict(used) for key, used in self._used.items()}

    def restore_use(self, used: dict[Values, Amounts]) -> None:
        """Have Workloads use again what they used before."""
        self._used = used

    def _remaining(self, key: Values, *, empty: bool = False) -> Amounts:
        free = dict(self._free[key])
        if not empty:
            for resource, used in self._used.get(key, {}).items():
                free[resource] = free.get(resource, 0) - used
        return free

    def fits(self, usages: Iterable[DomainUsage]) -> bool:
        """Whether each domain has room for what is to be used of it."""
        for usage in usages:
            key = self._key(usage.values)
            if key not in self._leaves or _count_in(usage.requests, self._remaining(key)) < usage.count:
                return False
        return True

    def has_levels(self, request: TopologyRequest | None) -> bool:
        """Whether the topology has all levels that a request names."""
        level = self._level_of(request, is_implied=False)
        constraints = () if request is None else request.slice_constraints
        return level in self.levels and all(one.topology in self.levels for one in constraints)

    # -- search --------------------------------------------------------------------------------------------------------

    def place(
        self,
        requests: Sequence[PlacementRequest],
        assumed: dict[Values, Amounts] | None = None,
        *,
        empty: bool = False,
    ) -> dict[str, Placement]:
        """Where the pods of the pod sets of a Workload go, by the names of pod sets, up to the first that do not fit.

        ``assumed`` is used of leaves in addition, and grows by what is placed. ``empty`` ignores what Workloads use.
        """
        assumed = {} if assumed is None else assumed
        found: dict[str, Placement] = {}
        groups: dict[object, list[PlacementRequest]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(index if request.group is None else request.group, []).append(request)
        for group in groups.values():
            workers, leader = group[0], None
            if len(group) > 1:
                leader = group[1]
                if leader.count > workers.count:
                    workers, leader = leader, workers
            placements = self._place_group(workers, leader, assumed, empty=empty)
            failure = placements if isinstance(placements, str) else ""
            for request in group:
                assignment = None if isinstance(placements, str) else placements.get(request.pod_set.name)
                found[request.pod_set.name] = Placement(assignment, failure)
                for domain in () if assignment is None else assignment.domains:
                    used = assumed.setdefault(self._key(domain.values), {})
                    for resource, each in (*request.requests.items(), (_PODS, 1)):
                        used[resource] = used.get(resource, 0) + each * domain.count
            if failure:
                break
        return found

    def _place_group(
        self,
        workers: PlacementRequest,
        leader: PlacementRequest | None,
        assumed: Mapping[Values, Amounts],
        *,
        empty: bool,
    ) -> dict[str, TopologyAssignment] | str:
        search = self._search_for(workers, leaders=0 if leader is None else 1)
        if isinstance(search, str):
            return search
        self._count_leaves(workers, leader, assumed, empty=empty)
        for root in self._per_level[0].values():
            self._count(root, search, 0)
        found = self._fitting_domains(search, search.level)
        if isinstance(found, str):
            return found
        level, domains = found
        domains = self._filled(domains, search, search.count, search.leaders, search.slice_size, by_slices=True)
        while level < min(len(self.levels) - 1, search.slice_level):
            below = [child for domain in domains for child in domain.children]
            below = self._sorted(below, search)
            domains = self._filled(below, search, search.count, search.leaders, search.slice_size, by_slices=True)
            level += 1
        while level < len(self.levels) - 1:
            size = search.inner.get(level + 1, 1) if level >= search.slice_level else search.slice_size
            chosen: list[_Domain] = []
            for domain in domains:
                below = self._sorted(domain.children, search)
                if size > 1:
                    for child in below:
                        child.slices, child.slices_with_leader = child.pods // size, child.pods_with_leader // size
                chosen += self._filled(below, search, domain.pods, domain.leaders, size, by_slices=size > 1)
            domains = chosen
            level += 1
        assignments = {}
        if leader is not None:
            leading = [(domain, domain.leaders) for domain in domains if domain.leaders]
            assignments[leader.pod_set.name] = self._assignment(leading)
        assignments[workers.pod_set.name] = self._assignment([(domain, domain.pods) for domain in domains])
        return assignments

    def _search_for(self, workers: PlacementRequest, *, leaders: int) -> _Search | str:
        request = workers.pod_set.topology_request
        constraints = () if request is None else request.slice_constraints
        if constraints and constraints[0].size <= 0:
            return "slices have no size"
        level_name = self._level_of(request, is_implied=workers.is_implied)
        slice_name = constraints[0].topology if constraints else self.levels[-1]
        for name in (level_name, slice_name):
            if name not in self.levels:
                return f"topology {self.name} has no level {name}"
        level, slice_level = self.levels.index(level_name), self.levels.index(slice_name)
        if level > slice_level:
            return f"level {slice_name} of slices is above level {level_name}"
        size = constraints[0].size if constraints else 1
        inner: dict[int, int] = {}
        outer_size, outer_level = size, slice_level
        for constraint in constraints[1:]:
            if constraint.topology not in self.levels:
                return f"topology {self.name} has no level {constraint.topology}"
            inner_level = self.levels.index(constraint.topology)
            if inner_level <= outer_level:
                return f"level {constraint.topology} of inner slices is not below {self.levels[outer_level]}"
            if outer_size % constraint.size:
                return f"slices of {outer_size} do not consist of slices of {constraint.size}"
            inner |= dict.fromkeys(range(outer_level + 1, inner_level + 1), constraint.size)
            outer_size, outer_level = constraint.size, inner_level
        is_required = request is not None and request.required is not None
        slices_only = bool(constraints) and request is not None and not (request.required or request.preferred)
        unconstrained = bool(request and request.unconstrained) or workers.is_implied or slices_only
        return _Search(workers.count, leaders, size, level, slice_level, inner, is_required, unconstrained)

    def _level_of(self, request: TopologyRequest | None, *, is_implied: bool) -> str:
        """The level in which all pods should be; "" if none is named."""
        if request is not None:
            if request.required is not None:
                return request.required
            if request.preferred is not None:
                return request.preferred
            if request.slice_constraints:
                return self.levels[0]
            if request.unconstrained:
                return self.levels[-1]
        return self.levels[-1] if is_implied else ""

    # -- how many pods fit ---------------------------------------------------------------------------------------------

    def _count_leaves(
        self,
        workers: PlacementRequest,
        leader: PlacementRequest | None,
        assumed: Mapping[Values, Amounts],
        *,
        empty: bool,
    ) -> None:
        for domains in self._per_level:
            for domain in domains.values():
                domain.reset()
        requests = {**workers.requests, _PODS: workers.requests.get(_PODS, 0) + 1}
        leading = None if leader is None else {**leader.requests, _PODS: leader.requests.get(_PODS, 0) + 1}
        spec = workers.pod_set.template.spec
        for key, leaf in self._leaves.items():
            if leaf.node is not None and not self._admits(spec, leaf.node):
                continue
            remaining = self._remaining(key, empty=empty)
            for resource, used in assumed.get(key, {}).items():
                remaining[resource] = remaining.get(resource, 0) - used
            leaf.pods = _count_in(requests, remaining)
            if leading is not None and _count_in(leading, remaining) > 0:
                leaf.leaders = 1
                for resource, used in leading.items():
                    remaining[resource] = remaining.get(resource, 0) - used
            leaf.pods_with_leader = _count_in(requests, remaining)

    def _admits(self, spec: PodSpec, node: Node) -> bool:
        """Whether pods tolerate a node's taints, and select it."""
        tolerations = (*spec.tolerations, *self._tolerations)
        if untolerated(node.spec.taints, tolerations, effects=(NO_SCHEDULE, NO_EXECUTE), comparisons=True):
            return False
        return selects_node(spec, node.metadata.name, node.metadata.labels)

    def _count(self, domain: _Domain, search: _Search, level: int) -> None:
        """Sum up from the leaves how many pods and slices fit in a domain."""
        size = search.slice_size
        if not domain.children:
            if level == search.slice_level:
                domain.slices, domain.slices_with_leader = domain.pods // size, domain.pods_with_leader // size
            return
        inner = search.inner.get(level + 1, 1)
        losses: list[tuple[int, int]] = []
        domain.pods = domain.slices = domain.leaders = 0
        for child in domain.children:
            self._count(child, search, level + 1)
            pods, with_leader = child.pods // inner * inner, child.pods_with_leader // inner * inner
            domain.pods += pods
            domain.slices += child.slices
            domain.leaders = max(domain.leaders, child.leaders)
            if not search.leaders or child.leaders:
                losses.append((pods - with_leader, child.slices - child.slices_with_leader))
        # The leader goes where it costs least.
        domain.pods_with_leader = domain.pods - min(one[0] for one in losses) if losses else 0
        domain.slices_with_leader = domain.slices - min(one[1] for one in losses) if losses else 0
        if level == search.slice_level:
            domain.slices, domain.slices_with_leader = domain.pods // size, domain.pods_with_leader // size

    # -- which domains are chosen --------------------------------------------------------------------------------------

    def _sorted(self, domains: Iterable[_Domain], search: _Search, *, leaders_first: bool = False) -> list[_Domain]:
        """Domains with most slices first, unconstrained those with least; then those with fewest spare pods."""

        def compare(one: _Domain, other: _Domain) -> int:
            if leaders_first and one.leaders != other.leaders:
                return other.leaders - one.leaders
            slices = (one.slices_with_leader, other.slices_with_leader) if leaders_first else (one.slices, other.slices)
            if slices[0] != slices[1]:
                return slices[0] - slices[1] if search.is_unconstrained else slices[1] - slices[0]
            pods = (one.pods_with_leader, other.pods_with_leader) if leaders_first else (one.pods, other.pods)
            if pods[0] != pods[1]:
                return pods[0] - pods[1]
            return (one.values > other.values) - (one.values < other.values)

        return sorted(domains, key=cmp_to_key(compare))

    def _fitting_domains(self, search: _Search, level: int) -> tuple[int, list[_Domain]] | str:
        """The level and the domains of it that have room for all pods, or why none has."""
        domains = self._per_level[level].values()
        if not domains:
            return f"topology {self.name} has no domain at level {self.levels[level]}"
        ordered = self._sorted(domains, search, leaders_first=True)
        wanted, top = search.slices, ordered[0]

        def has_room(domain: _Domain) -> bool:
            return domain.slices_with_leader >= wanted and domain.leaders >= search.leaders

        if search.is_unconstrained:
            for domain in ordered:
                room = domain.slices_with_leader if search.leaders else domain.slices
                if domain.leaders >= search.leaders and room >= wanted:
                    return level, [domain]
            if search.is_required:
                return self._does_not_fit(ordered[-1].pods, search)
        elif has_room(top):
            top = self._best_fit(ordered, wanted, search.leaders, by_slices=True)
        if has_room(top):
            return level, [top]
        if search.is_required:
            return self._does_not_fit(top.slices, search)
        if level > 0 and not search.is_unconstrained:
            return self._fitting_domains(search, level - 1)
        return self._several(search, level, ordered)

    def _several(self, search: _Search, level: int, ordered: list[_Domain]) -> tuple[int, list[_Domain]] | str:
        """Several domains of a level that together have room for all pods."""
        chosen: list[_Domain] = []
        left, leaders = search.slices, search.leaders
        ordered = _leader_first(ordered, search.count, search.leaders, search.slice_size, by_slices=True)
        index = 0
        while leaders > 0 and index < len(ordered) and ordered[index].leaders > 0:
            domain = ordered[index]
            if not search.is_unconstrained and domain.slices_with_leader >= left:
                domain = self._best_fit(ordered[index:], left, leaders, by_slices=True)
            chosen.append(domain)
            leaders -= domain.leaders
            left -= domain.slices_with_leader
            index += 1
        if leaders > 0:
            return self._does_not_fit(search.leaders - leaders, search)
        ordered = self._sorted(ordered[index:], search)
        for index, domain in enumerate(ordered):
            if left <= 0:
                break
            if not search.is_unconstrained and domain.slices >= left:
                domain = self._best_fit(ordered[index:], left, 0, by_slices=True)
            chosen.append(domain)
            left -= domain.slices
        if left > 0:
            return self._does_not_fit(search.slices - left, search)
        return level, chosen

    def _does_not_fit(self, fitting: int, search: _Search) -> str:
        what = "pods" if search.slice_size == 1 else "slices"
        return f"topology {self.name} has room for {max(0, fitting)} of {search.slices} {what}"

    @staticmethod
    def _best_fit(domains: Sequence[_Domain], wanted: int, leaders: int, *, by_slices: bool) -> _Domain:
        """The domain with the least room that suffices, the first of all if none does."""

        def room(domain: _Domain) -> int:
            if by_slices:
                return domain.slices_with_leader if leaders else domain.slices
            return domain.pods_with_leader if leaders else domain.pods

        sufficing = [domain for domain in domains if domain.leaders >= leaders and room(domain) >= wanted]
        return min(sufficing, key=room, default=domains[0])

    def _filled(
        self, domains: Sequence[_Domain], search: _Search, count: int, leaders: int, size: int, *, by_slices: bool
    ) -> list[_Domain]:
        """The domains that take ``count`` pods, and leaders, in their order; their counts are what they take."""
        ordered = _leader_first(list(domains), count, leaders, size, by_slices=by_slices)
        unit = size if by_slices else 1
        left = count // unit
        chosen = []
        for index, domain in enumerate(ordered):
            room = _room(domain, by_slices=by_slices, with_leader=leaders > 0)
            enough = room >= left and domain.leaders >= leaders if leaders else room >= left
            if not search.is_unconstrained and enough:
                domain = self._best_fit(ordered[index:], left, leaders, by_slices=by_slices)
                room = _room(domain, by_slices=by_slices, with_leader=leaders > 0)
            is_last = room >= left and domain.leaders >= leaders
            taken = left if is_last else min(room, left)
            domain.leaders = min(domain.leaders, leaders)
            domain.pods = taken * unit
            if by_slices:
                domain.slices = taken
            chosen.append(domain)
            if is_last:
                return chosen
            leaders -= domain.leaders
            left -= taken
        return chosen

    def _assignment(self, domains: Iterable[tuple[_Domain, int]]) -> TopologyAssignment:
        """The assignment of pods to leaves; hosts are named without the levels above them."""
        first = len(self.levels) - 1 if self.by_host else 0
        ordered = sorted(domains, key=lambda one: one[0].values)
        found = tuple(DomainAssignment(domain.values[first:], count) for domain, count in ordered if count)
        return TopologyAssignment(self.levels[first:], found)


def flavor_topologies(
    flavors: Iterable[ResourceFlavor], topologies: Iterable[Topology], nodes: Sequence[Node], pods: Iterable[Pod] = ()
) -> dict[str, FlavorTopology]:
    """The topologies of flavors that have one, by flavor, with the nodes that can be scheduled to.

    ``pods`` are on nodes without an assignment by topology. Raises InvalidQuantity.
    """
    levels = {one.metadata.name: one.levels for one in topologies}
    found = {}
    occupying = [(pod.spec.node_name, whole_pod_requests(pod.spec)) for pod in pods if pod.spec.node_name]
    for flavor in flavors:
        spec = flavor.spec
        if spec.topology_name is None or spec.topology_name not in levels:
            continue
        wanted = levels[spec.topology_name]
        own = [
            node
            for node in nodes
            if not node.spec.unschedulable
            and all(node.metadata.labels.get(name) == value for name, value in spec.node_labels.items())
            and all(level in node.metadata.labels for level in wanted)
        ]
        topology = FlavorTopology(spec.topology_name, wanted, own, spec.tolerations)
        for node_name, requests in occupying:
            topology.occupy(node_name, requests)
        found[flavor.metadata.name] = topology
    return found


def whole_pod_requests(spec: PodSpec) -> Amounts:
    """What a pod requests, overhead included, of resources of any name. Raises InvalidQuantity."""
    requests = pod_resources(msgspec.to_builtins(spec), "requests")
    return {name: amount(name, quantity) for name, quantity in requests.items()}


def _room(domain: _Domain, *, by_slices: bool, with_leader: bool) -> int:
    if by_slices:
        return domain.slices_with_leader if with_leader else domain.slices
    return domain.pods_with_leader if with_leader else domain.pods


def _leader_first(domains: list[_Domain], count: int, leaders: int, size: int, *, by_slices: bool) -> list[_Domain]:
    """The domains with one first that can take the leaders and leaves enough room for all pods."""
    if not leaders or len(domains) < 2:
        return domains
    wanted = count // size if by_slices else count
    total = sum(_room(domain, by_slices=by_slices, with_leader=False) for domain in domains)
    for domain in domains:
        lost = _room(domain, by_slices=by_slices, with_leader=False) - _room(
            domain, by_slices=by_slices, with_leader=True
        )
        if domain.leaders >= leaders and total - lost >= wanted:
            return [domain, *(one for one in domains if one is not domain)]
    return domains


def _count_in(requests: Mapping[str, int], capacity: Mapping[str, int]) -> int:
    """How many times requests fit into what is left."""
    counts = [max(0, capacity.get(resource, 0) // wanted) for resource, wanted in requests.items() if wanted > 0]
    return min(counts, default=2**31 - 1)
