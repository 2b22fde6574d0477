"""What a placement of a gang has to respect, as arrays: a relaxation of what the scheduler's filters say.

The pods of a gang are in kinds that no filter tells apart. Filters that look at a node alone are masks; requests, pod
slots and host ports are amounts; devices are in :mod:`.gang_devices`; between pods of the gang there are anti-affinity,
affinity and hard spreading. Every
constraint here is necessary: the engine accepts no placement that violates one, in whatever order the pods are placed.
What is not here (filters of other projects, the order of placements) the engine finds when it verifies a solution.

A problem is a copy: it stays as it is when the cluster changes, so it can be searched beside the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.domains import DomainSums
from kubestow.engine.gangs.device_formulation import ClaimsOfPods, find_devices
from kubestow.engine.gangs.gang_devices import GangDevices
from kubestow.engine.placement.modelled_pods import filter_plugin, passes_without_pods
from kubestow.framework.gang import Gang
from kubestow.framework.profile import Profile
from kubestow.framework.status import Status
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResourcesWithoutScore
from kubestow.plugins.dynamic_resources.filtering import ClaimLookup
from kubestow.plugins.inter_pod_affinity import ANTI_AFFINITY as REPELLED
from kubestow.plugins.inter_pod_affinity import EXISTING_ANTI_AFFINITY as REPELLED_BY_EXISTING
from kubestow.plugins.inter_pod_affinity import InterPodAffinity
from kubestow.plugins.node_ports import NodePorts
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow.plugins.pod_topology_spread.constraints import selected_label_keys
from kubestow.plugins.pod_topology_spread.pod_topology_spread import PodTopologySpread
from kubestow.rules.pods import HostPort

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: The families of constraints beside the resources, which are families by their names.
SLOTS, PORTS, ANTI_AFFINITY, AFFINITY, SPREADING = (
    "pods per node",
    "host ports",
    "pod anti-affinity",
    "pod affinity",
    "topology spread",
)
#: The family of what claims ask for; its name in words is that of the device classes.
DEVICES = "devices"
#: The families of what a gang asks for itself.
SEGMENTS, GROUP_TOPOLOGY = "segments of pods per domain", "topology of a group in the composite group"

#: The ``group`` of kinds of pods that are not of the gang.
OTHERS = "others"

#: Its rejections stay when further pods are placed, so it counts as a filter that looks at the node alone.
_LASTING = frozenset({"NodePorts"})


@dataclass(frozen=True, eq=False)
class Kind:
    """Pods of a gang that no filter tells apart, and that are of the same ``group``: the number of a gang without
    children and the role of the pods in it, or OTHERS for pods that are placed beside the gang.

    ``passes`` (bool per node) are the nodes that pass all filters that further pods do not influence; ``requests`` are
    positive, in millicores, bytes or counts.
    """

    pods: Sequence[PodInfo]
    group: Hashable
    requests: Mapping[str, int]
    host_ports: Sequence[HostPort]
    passes: Mask

    @property
    def shape(self) -> Shape:
        """The shape of the first of the pods."""
        return self.pods[0].shape

    @property
    def name(self) -> str:
        """The name of the first of the pods, and how many others there are."""
        others = len(self.pods) - 1
        return self.pods[0].key + (f" and {others:,} more" if others else "")


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of a topology key: ``of_node`` (int32 per node) has their numbers, MISSING without the label."""

    key: str
    of_node: NDArray[np.int32]
    number: int

    @classmethod
    def of(cls, nodes: Nodes, key: str) -> Domains:
        """The domains of a key among nodes."""
        return cls(key, nodes.label(key).copy(), len(nodes.label_values(key)))

    def add_to(self, digest: blake2b) -> None:
        """Add the domains to a digest."""
        digest.update(self.key.encode())
        digest.update(self.of_node.tobytes())

    @cached_property
    def are_single_nodes(self) -> bool:
        """Whether each domain is one node, as those of the host name are."""
        return bool((np.bincount(self.of_node[self.of_node != MISSING]) <= 1).all())


@dataclass(frozen=True, eq=False)
class Exclusion:
    """No domain has pods of both kinds (by number); of a single kind, no domain has two."""

    kinds: tuple[int, int]
    domains: Domains


@dataclass(frozen=True, eq=False)
class Attraction:
    """A pod of ``kind`` needs another in its domain: an ``existing`` one (bool by domain), or of the ``supporters``.

    With ``may_be_first`` one pod of the kind needs none.
    """

    kind: int
    domains: Domains
    existing: Mask
    supporters: frozenset[int]
    may_be_first: bool


@dataclass(frozen=True, eq=False)
class Spread:
    """Where pods of ``kinds`` are, the pods that count exceed the least of all domains by ``max_skew`` at most.

    ``existing`` (int64 by domain) are the pods that count before, ``eligible`` the domains (bool) that the least is
    taken of, ``included`` (bool per node) the nodes that count, ``counted`` the kinds that do. The least is 0 if there
    are fewer than ``min_domains``. A pod ``counts_itself`` where it is to be placed even if it does not count later.
    Kinds that count and have the same constraint have it together.
    """

    kinds: frozenset[int]
    domains: Domains
    existing: Amounts
    eligible: Mask
    included: Mask
    counted: frozenset[int]
    max_skew: int
    min_domains: int
    counts_itself: bool

    @property
    def limits(self) -> tuple[int, int, bool]:
        """What is allowed where pods count."""
        return self.max_skew, self.min_domains, self.counts_itself

    @property
    def arrays(self) -> tuple[Amounts, Mask, Mask]:
        """Which pods and nodes count."""
        return self.existing, self.eligible, self.included

    @property
    def constraint(self) -> Hashable:
        """Equal for the same constraint of different kinds, all of which count; a kind that does not has its own."""
        own = frozenset[int]() if self.kinds <= self.counted else self.kinds
        return self.domains.key, own, self.counted, self.limits, *(array.tobytes() for array in self.arrays)


@dataclass(frozen=True, eq=False)
class SegmentRule:
    """In each domain the pods of some ``kinds`` and ``existing`` ones (int64 by domain) are a multiple of ``size``.

    That is not possible if a member ``is_outside``, on a node without a domain.
    """

    kinds: frozenset[int]
    domains: Domains
    existing: Amounts
    size: int
    is_outside: bool = False


@dataclass(frozen=True, eq=False)
class Confinement:
    """The pods of some ``kinds`` are all within one of some ``choices``, bool (choices, nodes)."""

    kinds: frozenset[int]
    choices: Mask
    family: str = GROUP_TOPOLOGY

    @cached_property
    def class_of_node(self) -> NDArray[np.intp]:
        """Equal for nodes of the same choices."""
        numbers: dict[bytes, int] = {}
        columns = np.ascontiguousarray(np.packbits(self.choices, axis=0).T)
        return np.array([numbers.setdefault(column.tobytes(), len(numbers)) for column in columns], np.intp)


@dataclass(frozen=True, eq=False)
class GangProblem:
    """The pods of a gang without a node, and what a placement has to respect.

    ``free`` has the free amounts by resource, ``slots`` the free pod slots, int64 per node; none is negative.
    """

    node_names: Sequence[str]
    kinds: Sequence[Kind]
    free: Mapping[str, Amounts]
    slots: Amounts
    exclusions: Sequence[Exclusion]
    attractions: Sequence[Attraction]
    spreads: Sequence[Spread]
    segments: Sequence[SegmentRule] = ()
    confinements: Sequence[Confinement] = ()
    devices: GangDevices | None = None

    @property
    def are_pods_independent(self) -> bool:
        """Whether the pods share nothing but the amounts of nodes."""
        between = (self.exclusions, self.attractions, self.spreads, self.segments, self.confinements)
        if any(between) or any(kind.host_ports for kind in self.kinds):
            return False
        return self.devices is None or not self.devices.tie_pods

    def families(self, within: Mask) -> list[str]:
        """The families of constraints that may exclude a placement on some nodes (bool per node)."""
        pods = sum(len(kind.pods) for kind in self.kinds)
        confined = {confinement.family for confinement in self.confinements}
        may_exclude = {
            SLOTS: bool((self.slots[within] < pods).any()),
            PORTS: any(kind.host_ports for kind in self.kinds),
            DEVICES: self.devices is not None or DEVICES in confined,
            ANTI_AFFINITY: bool(self.exclusions),
            AFFINITY: bool(self.attractions),
            SPREADING: bool(self.spreads),
            SEGMENTS: bool(self.segments),
            GROUP_TOPOLOGY: GROUP_TOPOLOGY in confined,
        }
        return [*self.free, *(family for family, may in may_exclude.items() if may)]

    def digest(self) -> bytes:
        """Equal for problems that have the same placements, with the same pods on the same nodes."""
        digest = blake2b(digest_size=16)
        digest.update("\0".join(self.node_names).encode())
        for kind in self.kinds:
            uids = sorted(pod.uid for pod in kind.pods)
            digest.update(repr((uids, sorted(kind.requests.items()), kind.host_ports)).encode())
            digest.update(kind.passes.tobytes())
        for name, free in sorted(self.free.items()):
            digest.update(name.encode())
            digest.update(free.tobytes())
        digest.update(self.slots.tobytes())
        for exclusion in self.exclusions:
            digest.update(repr(exclusion.kinds).encode())
            exclusion.domains.add_to(digest)
        for attraction in self.attractions:
            supporters = sorted(attraction.supporters)
            digest.update(repr((attraction.kind, supporters, attraction.may_be_first)).encode())
            digest.update(attraction.existing.tobytes())
            attraction.domains.add_to(digest)
        for spread in self.spreads:
            digest.update(repr((sorted(spread.kinds), sorted(spread.counted), *spread.limits)).encode())
            for array in spread.arrays:
                digest.update(array.tobytes())
            spread.domains.add_to(digest)
        for rule in self.segments:
            digest.update(repr((sorted(rule.kinds), rule.size, rule.is_outside)).encode())
            digest.update(rule.existing.tobytes())
            rule.domains.add_to(digest)
        for confinement in self.confinements:
            digest.update(repr(sorted(confinement.kinds)).encode())
            digest.update(confinement.choices.tobytes())
        if self.devices is not None:
            self.devices.add_to(digest)
        return digest.digest()

    def capacity(self, number: int, without: Collection[str] = ()) -> Amounts:
        """How many pods of a kind (by number) fit on each node by themselves, int64 per node.

        Families of constraints, such as the name of a resource, can be left out.
        """
        kind = self.kinds[number]
        found = np.where(kind.passes, len(kind.pods), 0)
        if SLOTS not in without:
            found = np.minimum(found, self.slots)
        for resource, amount in kind.requests.items():
            if resource not in without:
                found = np.minimum(found, self.free[resource] // amount)
        if kind.host_ports and PORTS not in without:
            found = np.minimum(found, 1)
        local = None if self.devices is None else self.devices.local
        if local is not None and number in local.kinds and DEVICES not in without:
            found = np.minimum(found, local.capacity(number))
        return found


def formulate_gang(
    cluster: Cluster, profile: Profile, gang: Gang, pods: Iterable[PodInfo], others: Iterable[PodInfo] = ()
) -> GangProblem:
    """The problem of a gang on a cluster as it is, and of ``others`` beside it. Raises PluginError.

    ``pods`` are the members to be placed. All pods have no node, and can be modelled
    (:func:`kubestow.engine.placement.modelled_pods.why_not_modelled`).
    """
    groups = _groups(gang, pods)
    groups[OTHERS] = list(others)
    allocating = filter_plugin(profile, DynamicResourcesWithoutScore)
    lookup = ClaimLookup(cluster.resource_claims) if allocating is None else allocating.claim_lookup
    claims = ClaimsOfPods(lookup, [pod for same in groups.values() for pod in same])
    # The labels that pods of the gang select each other by matter as soon as one of them is placed.
    keys: set[str] = set()
    for shape in {pod.shape for same in groups.values() for pod in same}:
        keys |= shape.affinity_terms.label_keys | selected_label_keys(shape.spec.topology_spread_constraints)
    alike: dict[tuple[Hashable, ...], list[PodInfo]] = {}
    for name, same in groups.items():
        for pod in same:
            labels = frozenset((key, value) for key, value in pod.labels.items() if key in keys)
            key = name, pod.namespace, labels, profile.evaluations.group(pod), claims.key(pod)
            alike.setdefault(key, []).append(pod)
    nodes, fit = cluster.all_nodes(), filter_plugin(profile, NodeResourcesFit)
    filters_ports = filter_plugin(profile, NodePorts) is not None
    kinds = []
    for (group, *_), same in alike.items():
        pod = same[0]
        found = profile.evaluations.of(pod).find_feasible(pod)
        state = None if allocating is None else allocating.claims_of(pod)
        if state is None or not state.unallocated:
            passes = passes_without_pods(found, lasting=_LASTING | {DynamicResourcesWithoutScore.name})
        elif found.error is None:  # a node without devices now may have some in another order of pods
            passes = passes_without_pods(found, lasting=_LASTING)
        else:
            passes = np.ones(len(nodes), np.bool_)
        requests = dict(fit.checked_requests(pod.shape.requests)) if fit is not None else {}
        ports = tuple(pod.shape.host_ports) if filters_ports else ()
        kinds.append(Kind(same, group, requests, ports, passes))
    exclusions: list[Exclusion] = []
    attractions: list[Attraction] = []
    affinity = filter_plugin(profile, InterPodAffinity)
    if affinity is not None:
        exclusions, attractions = _affinity(affinity, nodes, kinds)
    segments = _segment_rules(cluster, nodes, gang, kinds)
    confinements = _confinements(cluster, profile, gang, kinds)
    spreading = filter_plugin(profile, PodTopologySpread)
    problem = GangProblem(
        list(nodes.names),
        kinds,
        _free(nodes, fit, kinds),
        np.maximum(nodes.allowed_pods - nodes.pod_count, 0),
        exclusions,
        attractions,
        [] if spreading is None else _spreads(spreading, nodes, kinds),
        segments,
        confinements,
    )
    return problem if allocating is None else _with_devices(problem, cluster, allocating, claims)


def kinds_of(gang: Gang, leaves: Sequence[Gang], kinds: Sequence[Kind], role: str | None = None) -> frozenset[int]:
    """The numbers of the kinds of a gang, which is part of one with these ``leaves``; only those of a role if given."""
    numbers = {leaves.index(leaf) for leaf in gang.leaves()}
    return frozenset(
        number
        for number, kind in enumerate(kinds)
        if isinstance(kind.group, tuple) and kind.group[0] in numbers and role in (None, kind.group[1])
    )


def _free(nodes: Nodes, fit: NodeResourcesFit | None, kinds: Sequence[Kind]) -> dict[str, Amounts]:
    """The free amounts of the requested resources; as much as is requested where devices may be allocated instead."""
    found: dict[str, Amounts] = {}
    for name in sorted({name for kind in kinds for name in kind.requests}):
        allocatable = nodes.allocatable(name)
        free = found[name] = np.maximum(allocatable - nodes.requested(name), 0)
        if fit is not None and fit.is_backed_by_devices(name):
            free[allocatable <= 0] = sum(kind.requests.get(name, 0) * len(kind.pods) for kind in kinds)
    return found


def _with_devices(
    problem: GangProblem, cluster: Cluster, plugin: DynamicResourcesWithoutScore, claims: ClaimsOfPods
) -> GangProblem:
    """The problem with the devices that its pods need; those that share devices of a node are confined to one."""
    kinds = problem.kinds
    rooms = [problem.capacity(number) for number in range(len(kinds))]
    pods, passes = [kind.pods for kind in kinds], [kind.passes for kind in kinds]
    devices = find_devices(cluster, plugin, pods, claims.shared, passes, rooms)
    if devices is None:
        return problem
    confinements = list(problem.confinements)
    for own in devices.on_one_node:
        passing = np.logical_or.reduce([passes[number] for number in own])
        confinements.append(Confinement(own, np.eye(len(passing), dtype=np.bool_)[passing], DEVICES))
    return replace(problem, devices=devices, confinements=confinements)


# -- what the gang asks for --------------------------------------------------------------------------------------------


def _groups(gang: Gang, pods: Iterable[PodInfo]) -> dict[Hashable, list[PodInfo]]:
    """The pods by the number of their gang among those without children, and by their role in it."""
    group_of = {
        uid: (number, next((role.name for role in leaf.roles if uid in role.uids), ""))
        for number, leaf in enumerate(gang.leaves())
        for uid in leaf.members.pods
    }
    groups: dict[Hashable, list[PodInfo]] = {}
    for pod in pods:
        groups.setdefault(group_of[pod.uid], []).append(pod)
    return groups


def _segment_rules(cluster: Cluster, nodes: Nodes, gang: Gang, kinds: Sequence[Kind]) -> list[SegmentRule]:
    """The segments of each gang without children; what they exclude at once is taken out of ``kind.passes``."""
    leaves, rules = list(gang.leaves()), []
    for leaf in leaves:
        if leaf.segments is None:
            continue
        domains, own = Domains.of(nodes, leaf.segments.key), kinds_of(leaf, leaves, kinds)
        existing, is_outside = np.zeros(domains.number, np.int64), False
        for uid in leaf.members.placed:
            placed = cluster.placed_pod(uid)
            row = None if placed is None else cluster.nodes.rows.get(placed.node_name)
            if row is None or domains.of_node[row] == MISSING:
                is_outside |= placed is not None
            else:
                existing[domains.of_node[row]] += 1
        for number in own:
            kinds[number].passes[domains.of_node == MISSING] = False
        rules.append(SegmentRule(own, domains, existing, leaf.segments.size, is_outside))
    return rules


def _confinements(cluster: Cluster, profile: Profile, gang: Gang, kinds: Sequence[Kind]) -> list[Confinement]:
    """The placements of the gangs below a composite one, those without any taken out of ``kind.passes``."""
    leaves, found = list(gang.leaves()), []
    below = list(gang.children)
    while below:
        child = below.pop()
        below += child.children
        own = kinds_of(child, leaves, kinds)
        pods = [pod for number in own for pod in kinds[number].pods]
        placements = profile.gangs.generate_placements(child, pods, cluster) if pods else None
        if isinstance(placements, Status):
            for number in own:
                kinds[number].passes[:] = False
        elif placements is not None:
            choices = np.zeros((len(placements), len(cluster.nodes)), np.bool_)
            for choice, placement in zip(choices, placements, strict=True):
                choice[placement.nodes.row_numbers] = True
            found.append(Confinement(own, choices))
    return found


# -- between pods ------------------------------------------------------------------------------------------------------


def _affinity(
    plugin: InterPodAffinity, nodes: Nodes, kinds: Sequence[Kind]
) -> tuple[list[Exclusion], list[Attraction]]:
    """Affinity and anti-affinity between the kinds; what existing pods exclude is taken out of ``kind.passes``."""
    states = [plugin.state_of(kind.pods[0]) for kind in kinds]
    exclusions: list[Exclusion] = []
    attractions: list[Attraction] = []
    for number, (kind, state) in enumerate(zip(kinds, states, strict=True)):
        terms = kind.shape.affinity_terms
        keys = state.verdict_keys(nodes)
        kind.passes[(keys == REPELLED_BY_EXISTING) | (keys == REPELLED)] = False
        for key in sorted(terms.required_anti_topology_keys & nodes.label_keys):
            repelled = state.repelled_by(key)
            for other, each in enumerate(kinds):
                if repelled(each.shape):
                    exclusions.append(Exclusion((number, other), Domains.of(nodes, key)))
        supporters = frozenset(other for other, each in enumerate(kinds) if state.matches_affinity(each.shape))
        counted = {key: state.counts[key].affinity for key in terms.required_topology_keys if key in state.counts}
        totals = [sums.total for sums in counted.values() if sums is not None]
        for key in sorted(terms.required_topology_keys):
            sums = counted.get(key)
            if sums is None:  # no node has the key
                kind.passes[:] = False
                continue
            domains = Domains.of(nodes, key)
            kind.passes[domains.of_node == MISSING] = False
            may_be_first = state.matches_own_affinity and not any(totals)
            attractions.append(Attraction(number, domains, sums.by_domain > 0, supporters - {number}, may_be_first))
    return exclusions, attractions


def _spreads(plugin: PodTopologySpread, nodes: Nodes, kinds: Sequence[Kind]) -> list[Spread]:
    """The hard constraints of the kinds. Those that share their counts with others are left to the engine."""
    spreads: dict[Hashable, Spread] = {}
    for number, kind in enumerate(kinds):
        hard = plugin.hard_constraints(kind.shape)
        for constraint, sums in () if hard is None else hard.counts():
            domains = Domains.of(nodes, constraint.topology_key)
            kind.passes[domains.of_node == MISSING] = False
            if not isinstance(sums, DomainSums):
                continue
            eligible = np.zeros(domains.number, np.bool_)
            eligible[sums.present] = True
            counted = frozenset(
                other for other, each in enumerate(kinds) if constraint.counts(each.shape, kind.shape.namespace)
            )
            spread = Spread(
                frozenset({number}),
                domains,
                sums.by_domain.copy(),
                eligible,
                sums.eligible.copy(),
                counted,
                constraint.max_skew,
                constraint.min_domains,
                counts_itself=constraint.matches(kind.shape.labels),
            )
            same = spreads.get(spread.constraint)
            spreads[spread.constraint] = spread if same is None else replace(same, kinds=same.kinds | spread.kinds)
    return list(spreads.values())
