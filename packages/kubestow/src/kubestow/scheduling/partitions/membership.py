"""Membership: which partition a node and a pod belong to.

Every scheduler of a cluster computes it from the objects alone, so all agree without a write. It depends on their
number, which is therefore the same for all of them (:mod:`kubestow.client.partition_election`).

Pods that constrain each other belong to one partition, whose scheduler knows of all of them what it has decided since
the watch has shown it. Which pods these are is read off what they constrain, not off their controller: a selector that
selects its own pod selects its workload, with all revisions of it.

    a pod on one node            as a DaemonSet creates them: the partition of the node
    constraints on its like      topology spread, affinity and volume claims of its own namespace that include itself:
                                 a hash of the selectors and claims
    other constraints on pods    affinity to other workloads: the designated partition, which has all such pods
    gangs, devices               pods with a pod group or resource claims: the designated partition, too
    all others                   a hash of the pod's uid
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from kubestow.api.core import Affinity, NodeSelectorRequirement, PodAffinityTerm, PodSpec
from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import compile_selector
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import required_terms

PARTITION_LABEL = "kubestow.dev/partition"
"""The label of a node with the number of its partition; a node without it belongs to one by a hash of its name."""

DESIGNATED = 0
"""The partition of the pods that constrain pods of other workloads, and of those that cannot leave their partition."""

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class _OnNode:
    """Pods that can only run on the node of this name."""

    name: str


Criterion = _OnNode | bytes | int | None
"""What decides about the partition of pods: a node, the key of what they constrain, None for nothing (their uid
decides), or the number of a partition."""


class Membership:
    """The partition of nodes and pods, of ``count`` partitions."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._criteria: WeakKeyDictionary[Shape, Criterion] = WeakKeyDictionary()

    def of_node(self, name: str, labels: Mapping[str, str]) -> int:
        """The partition of a node. A label that is no number of a partition does not count."""
        labelled = labels.get(PARTITION_LABEL, "")
        if labelled.isdecimal() and (number := int(labelled)) < self.count:
            return number
        return self._hashed(name.encode())

    def of_pod(self, pod: PodInfo) -> int | str:
        """The partition of a pod; the name of a node for a pod that belongs to the partition of this node."""
        criterion = self.criterion(pod)
        if criterion is None:
            return self._hashed(pod.uid.encode())
        if isinstance(criterion, bytes):
            return self._hashed(criterion)
        return criterion.name if isinstance(criterion, _OnNode) else criterion

    def _hashed(self, key: bytes) -> int:
        return zlib.crc32(key) % self.count

    def criterion(self, pod: PodInfo) -> Criterion:
        """What decides about the partition of a pod; the same for pods that constrain each other."""
        shape = pod.shape
        try:
            return self._criteria[shape]
        except KeyError:
            criterion = self._criteria[shape] = _criterion_of(shape)
            return criterion


def is_confined(pod: PodInfo) -> bool:
    """Whether a pod cannot be bound to a node of another partition, whatever its own one is.

    The members of a gang are bound together, which one scheduler sees to. Devices are allocated before the binding, and
    no API server notices a device that two schedulers have allocated.
    """
    return _is_confined(pod.shape.spec)


def _is_confined(spec: PodSpec) -> bool:
    return bool(spec.resource_claims) or spec.scheduling_group is not None or spec.workload_ref is not None


def _criterion_of(shape: Shape) -> Criterion:
    spec = shape.spec
    if _is_confined(spec):
        return DESIGNATED
    constraints: set[bytes] = {b"claim " + name.encode() for name in shape.family.claims.names}
    for spread in spec.topology_spread_constraints:
        if spread.label_selector is not None:
            constraints.add(_encode(spread.label_selector))
            if not _selects(spread.label_selector, shape):
                return DESIGNATED
    for term, is_required in _affinity_terms(spec.affinity):
        selects_own = _selects(term.label_selector, shape) and term.namespace_selector is None
        if selects_own and set(term.namespaces) <= {shape.namespace}:
            constraints.add(_encode(term.label_selector))
        elif is_required:
            return DESIGNATED
    if constraints:
        return _encode((shape.namespace, sorted(constraints)))
    terms = required_terms(spec) or ()
    names = {_only_node(term.match_fields) for term in terms}
    return _OnNode(name) if len(names) == 1 and (name := names.pop()) else None


def _selects(selector: LabelSelector | None, shape: Shape) -> bool:
    """Whether a selector selects the pods of a shape that has it; one that does not parse selects none."""
    try:
        return compile_selector(selector).matches(shape.labels)
    except InvalidSelector:
        return False


def _affinity_terms(affinity: Affinity | None) -> Iterator[tuple[PodAffinityTerm, bool]]:
    """The terms about other pods, and whether each is required."""
    if affinity is None:
        return
    for of_kind in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if of_kind is not None:
            for term in of_kind.required_during_scheduling_ignored_during_execution:
                yield term, True
            for weighted in of_kind.preferred_during_scheduling_ignored_during_execution:
                yield weighted.pod_affinity_term, False


def _only_node(match_fields: Iterable[NodeSelectorRequirement]) -> str:
    """The name of the only node that the fields of a term select; "" if they may select several."""
    for requirement in match_fields:  # the only field is metadata.name
        if requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.values[0]
    return ""
