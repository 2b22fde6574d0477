"""The company of other pods that pods of one shape want, shun, or are shunned by, per topology domain (semantics 8.15).

A :class:`PodCompany` is made once per shape, and again when namespaces or the terms that other pods carry change; it
holds the counters, so that asking is arithmetic on one number per domain and one lookup per node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.labels import MISSING
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.affinity import AffinityTerm, CarriedTerm, Role
from kubestow.cluster.topology.domains import DomainSums, domain_sums

__all__ = ["LACKS_COMPANY", "SHUNNED", "SHUNS", "PodCompany"]

Mask = NDArray[np.bool_]
Keys = NDArray[np.int8]
Terms = tuple[AffinityTerm, ...]

#: The keys of a verdict; where several hold, the reference names the one with the highest number.
SHUNNED, SHUNS, LACKS_COMPANY = np.int8(1), np.int8(2), np.int8(3)


@dataclass(slots=True)
class _Topology:
    """The pods that decide about the domains of one label."""

    #: Pods that every required affinity term speaks of; None when none of the terms is about this label.
    wanted: DomainSums | None = None
    #: Pods that required anti-affinity terms speak of, by term.
    unwanted: list[tuple[AffinityTerm, DomainSums]] = field(default_factory=list)
    #: Pods that carry required anti-affinity terms which speak of this one, by term.
    hostile: list[DomainSums] = field(default_factory=list)


class PodCompany:
    """Who is where, of the pods that matter to pods of one shape."""

    def __init__(self, cluster: Cluster, shape: Shape, *, hard_weight: int) -> None:
        self._cluster = cluster
        self._shape = shape
        self._namespace_labels = cluster.namespaces.get(shape.namespace, {})
        terms, namespaces = shape.affinity_terms, cluster.namespaces
        #: The required affinity terms, and whether such a pod is one that they all speak of.
        self.required: Terms = tuple(term.resolved(namespaces) for term in terms.required)
        self.wants_itself = all(term.matches(shape.namespace, shape.labels) for term in self.required)
        #: What required terms, the pods' own and those of others, are about, by label.
        self.topologies: dict[str, _Topology] = {}
        #: What speaks for (or, with a negative weight, against) the domains of pods, by label.
        self._leanings: dict[str, list[tuple[int, DomainSums]]] = {}
        for term in self.required:
            self._topology(term).wanted = self._spoken_of(self.required, term.topology_key)
        for term in terms.required_anti:
            term = term.resolved(namespaces)
            self._topology(term).unwanted.append((term, self._spoken_of((term,), term.topology_key)))
        for weight, term in terms.preferred:
            self._lean(term, weight, self._spoken_of((term.resolved(namespaces),), term.topology_key))
        for carried in cluster.carried_terms.about(shape.groups):
            self._heed(carried, hard_weight)

    def _heed(self, carried: CarriedTerm, hard_weight: int) -> None:
        """Take in a term that other pods carry."""
        term = carried.term
        if not self.is_meant_by(term):
            return
        match carried.role:
            case Role.REQUIRED_ANTI:
                self._topology(term).hostile.append(self._carriers(carried))
            case Role.PREFERRED:
                self._lean(term, carried.weight, self._carriers(carried))
            case Role.REQUIRED if hard_weight > 0:
                self._lean(term, hard_weight, self._carriers(carried))

    def is_meant_by(self, term: AffinityTerm) -> bool:
        """Whether a term that another pod carries speaks of these pods."""
        return term.matches(self._shape.namespace, self._shape.labels, self._namespace_labels)

    def _topology(self, term: AffinityTerm) -> _Topology:
        return self.topologies.setdefault(term.topology_key, _Topology())

    def _lean(self, term: AffinityTerm, weight: int, sums: DomainSums) -> None:
        self._leanings.setdefault(term.topology_key, []).append((weight, sums))

    def _spoken_of(self, terms: Terms, topology_key: str) -> DomainSums:
        key = ("spoken of", tuple((term.namespaces, term.namespace_selector, term.selector) for term in terms))
        groups = next((groups for term in terms if (groups := term.groups) is not None), None)
        counter = self._cluster.counter(
            key, lambda other: int(_all_mean(terms, other)), groups=groups, terminating=True
        )
        return domain_sums(self._cluster.nodes, counter, topology_key)

    def _carriers(self, carried: CarriedTerm) -> DomainSums:
        key = ("carriers", carried)
        counter = self._cluster.counter(
            key, lambda other: other.carried_terms[carried], groups=frozenset((carried,)), terminating=True
        )
        return domain_sums(self._cluster.nodes, counter, carried.term.topology_key)

    # -- filtering -----------------------------------------------------------------------------------------------

    @property
    def matters(self) -> bool:
        """Whether any node could be refused as things are."""
        return any(
            topology.wanted is not None or topology.unwanted or any(sums.total for sums in topology.hostile)
            for topology in self.topologies.values()
        )

    def keys(self, nodes: Nodes) -> NDArray[np.int32]:
        """0, SHUNNED, SHUNS or LACKS_COMPANY per row."""
        if isinstance(nodes, HypotheticalNodes):
            return _Imagined(self, nodes).keys().astype(np.int32)
        nobody_yet = self.wants_itself and not any(
            topology.wanted.total for topology in self.topologies.values() if topology.wanted is not None
        )
        keys = np.zeros(len(nodes), np.int8)
        for label, topology in self.topologies.items():
            by_domain = _keys_by_domain(topology, nobody_yet=nobody_yet)
            if by_domain is not None:
                np.maximum(keys, by_domain.take(nodes.label(label)), out=keys)
        return keys.astype(np.int32)

    # -- scoring -------------------------------------------------------------------------------------------------

    @property
    def leans(self) -> bool:
        """Whether there is any pod whose company is preferred, or that prefers this one's, for or against."""
        return any(sums.total for leanings in self._leanings.values() for _, sums in leanings)

    def scores(self, nodes: Nodes) -> NDArray[np.int64]:
        """The weights of all leanings per row, summed up over the pods in the row's domains."""
        total = np.zeros(len(nodes), np.int64)
        for label, leanings in self._leanings.items():
            (weight, sums), *others = leanings
            by_domain = weight * sums.by_domain
            for weight, sums in others:
                by_domain += weight * sums.by_domain
            by_domain[MISSING] = 0
            total += by_domain.take(nodes.label(label))
        return total


def _all_mean(terms: Terms, other: Shape) -> bool:
    return all(term.matches(other.namespace, other.labels) for term in terms)


def _keys_by_domain(topology: _Topology, *, nobody_yet: bool) -> Keys | None:
    """The verdict on every domain of a label; None when it lets all nodes pass."""
    keys: Keys | None = None
    for sums in topology.hostile:
        if sums.total:
            keys = _raised(keys, sums.by_domain > 0, SHUNNED)
    for _, sums in topology.unwanted:
        if sums.total:
            keys = _raised(keys, sums.by_domain > 0, SHUNS)
    if keys is not None:
        keys[MISSING] = 0
    if topology.wanted is not None:
        lacking = np.zeros(len(topology.wanted.by_domain), np.bool_) if nobody_yet else topology.wanted.by_domain <= 0
        lacking[MISSING] = True
        keys = _raised(keys, lacking, LACKS_COMPANY)
    return keys


def _raised(keys: Keys | None, where: Mask, key: np.int8) -> Keys:
    raised: Keys = where.view(np.int8) * key
    return raised if keys is None else np.maximum(keys, raised, out=raised)


class _Imagined:
    """The verdict on hypothetical rows: each has its own counts in the domains that its node belongs to."""

    def __init__(self, company: PodCompany, nodes: HypotheticalNodes) -> None:
        self._company = company
        self._nodes = nodes

    def keys(self) -> Keys:
        keys = np.zeros(len(self._nodes), np.int8)
        for where, key in ((self._shunned(), SHUNNED), (self._shuns(), SHUNS), (self._lacks_company(), LACKS_COMPANY)):
            keys[where] = key
        return keys

    def _in_some(self, label: str) -> Mask:
        """Where the node has a label at all."""
        has: Mask = np.not_equal(self._nodes.label(label), MISSING)
        return has

    def _at(self, sums: DomainSums) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = sums.by_domain.take(self._nodes.label(sums.topology_key))
        return counts

    def _shunned(self) -> Mask:
        """Pods that are imagined to come may shun this one for reasons that nobody in the cluster had."""
        company, nodes = self._company, self._nodes
        met: set[str] = set(company.topologies)

        @cache
        def hostility(shape: Shape) -> Counter[str]:
            terms = shape.affinity_terms.required_anti
            labels = Counter(term.topology_key for term in terms if company.is_meant_by(term))
            met.update(labels)
            return labels

        nodes.changed_by(lambda info: hostility(info.shape).total())  # meets every shape
        shunned = np.zeros(len(nodes), np.bool_)
        for label in met:
            topology = company.topologies.get(label, _Topology())
            counts = nodes.changed_by(lambda info, label=label: hostility(info.shape)[label])  # type: ignore[misc]
            for sums in topology.hostile:
                counts = counts + self._at(sums)
            shunned |= (counts > 0) & self._in_some(label)
        return shunned

    def _shuns(self) -> Mask:
        shuns = np.zeros(len(self._nodes), np.bool_)
        for label, topology in self._company.topologies.items():
            for term, sums in topology.unwanted:
                shuns |= (self._at(sums) + self._change((term,)) > 0) & self._in_some(label)
        return shuns

    def _lacks_company(self) -> Mask:
        lacking = np.zeros(len(self._nodes), np.bool_)
        if not self._company.required:
            return lacking
        change = self._change(self._company.required)
        nobody_yet = np.full(len(self._nodes), self._company.wants_itself)
        homeless = np.zeros(len(self._nodes), np.bool_)
        for label, topology in self._company.topologies.items():
            if topology.wanted is not None:
                has = self._in_some(label)
                homeless |= ~has
                lacking |= self._at(topology.wanted) + change <= 0
                nobody_yet &= topology.wanted.total + np.where(has, change, 0) == 0
        refused: Mask = homeless | (lacking & ~nobody_yet)
        return refused

    def _change(self, terms: Terms) -> NDArray[np.int64]:
        """How many more pods there would be that all of the terms speak of."""
        means = cache(lambda shape: int(_all_mean(terms, shape)))

        def amount(info: PodInfo) -> int:
            return means(info.shape)

        return self._nodes.changed_by(amount)
