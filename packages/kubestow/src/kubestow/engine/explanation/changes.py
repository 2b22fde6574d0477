"""Changes to a pod or a cluster that might make the pod fit, and how small they are.

A change is applied to the pod as an object, and to the cluster cache for the time of a block, after which the cache is
as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import msgspec

from kubestow.api.core import Container, Pod, PodSpec, Taint, Toleration
from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import millis, units
from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.cluster.changes.catalog import Catalog
from kubestow.rules.requests import CPU

replace = msgspec.structs.replace

#: What is changed, the least intrusive first.
_POD, _NODE, _BUDGET, _OTHER_PODS, _NEW_NODE = range(5)

Size = tuple[int, int, float]
"""The number of edits, how intrusive the most intrusive one is, and a weight among equally intrusive ones: for requests
the share that is given up, 1 for a toleration, 2 for a constraint of the pod."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change. ``kind`` is its name in documents, ``text`` says what to do in one line."""

    kind: ClassVar[str]
    #: The size of a change that is one edit.
    intrusion: ClassVar[int] = _POD
    weight: ClassVar[float] = 0.0

    @property
    def text(self) -> str:
        """What to do, in one line."""
        raise NotImplementedError

    @property
    def size(self) -> Size:
        """How small the change is: smaller ones sort first."""
        return 1, self.intrusion, self.weight

    def document(self) -> Mapping[str, Any]:
        """The fields of the change as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def idea(self) -> frozenset[str]:
        """What changes of the same idea have in common: of these, only the smallest is of interest."""
        return frozenset({self.kind})

    @property
    def given_up(self) -> float:
        """The sum of the shares of the pod's requests that it does without."""
        return 0.0

    def on_pod(self, pod: Pod) -> Pod:
        """The pod with the change."""
        return pod

    @contextmanager
    def on_cluster(self, cache: ClusterCache) -> Iterator[None]:
        """The cluster has the change inside the block."""
        yield


@dataclass(frozen=True, slots=True)
class CombinedChange(Change):
    """Several changes together."""

    kind = "together"
    parts: Sequence[Change]

    @property
    def text(self) -> str:
        return ", and ".join(part.text for part in self.parts)

    @property
    def size(self) -> Size:
        sizes = [part.size for part in self.parts]
        edits, intrusion, share = zip(*sizes, strict=True)
        return sum(edits), max(intrusion), sum(share)

    @property
    def idea(self) -> frozenset[str]:
        return frozenset().union(*(part.idea for part in self.parts))

    @property
    def given_up(self) -> float:
        return sum(part.given_up for part in self.parts)

    def document(self) -> Mapping[str, Any]:
        return {"changes": [{"kind": part.kind, **part.document()} for part in self.parts]}

    def on_pod(self, pod: Pod) -> Pod:
        for part in self.parts:
            pod = part.on_pod(pod)
        return pod

    @contextmanager
    def on_cluster(self, cache: ClusterCache) -> Iterator[None]:
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.on_cluster(cache))
            yield


# -- changes of the pod ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LowerRequest(Change):
    """Less of a resource: ``now`` and ``wanted`` are the requests of the whole pod (millicores, bytes or counts)."""

    kind = "lower request"
    resource: str
    now: int
    wanted: int

    @property
    def text(self) -> str:
        now, wanted = quantity_text(self.resource, self.now), quantity_text(self.resource, self.wanted)
        return f"request {wanted} {self.resource} instead of {now}"

    @property
    def size(self) -> Size:
        return 1, _POD, self.given_up

    @property
    def given_up(self) -> float:
        return (self.now - self.wanted) / self.now

    @property
    def idea(self) -> frozenset[str]:
        return frozenset({f"less {self.resource}"})

    def document(self) -> Mapping[str, Any]:
        return {"resource": self.resource, "from": self.now, "to": self.wanted}

    def on_pod(self, pod: Pod) -> Pod:
        return with_requests_lowered(pod, self.resource, self.now - self.wanted)


@dataclass(frozen=True, slots=True)
class Tolerate(Change):
    """A toleration of one taint."""

    kind = "toleration"
    weight = 1.0
    taint: Taint

    @property
    def text(self) -> str:
        return f"tolerate the taint {taint_text(self.taint)}"

    @property
    def idea(self) -> frozenset[str]:
        return frozenset({self.text})

    def document(self) -> Mapping[str, Any]:
        return {"key": self.taint.key, "value": self.taint.value, "effect": self.taint.effect}

    def on_pod(self, pod: Pod) -> Pod:
        taint = self.taint
        toleration = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        return replace(pod, spec=replace(pod.spec, tolerations=[*pod.spec.tolerations, toleration]))


@dataclass(frozen=True, slots=True)
class AlterPod(Change):
    """A constraint of the pod removed or relaxed, which ``alter`` does to the spec."""

    kind = "pod constraint"
    weight = 2.0
    what: str
    alter: Callable[[PodSpec], PodSpec]

    @property
    def text(self) -> str:
        return self.what

    @property
    def idea(self) -> frozenset[str]:
        return frozenset({self.what})

    def document(self) -> Mapping[str, Any]:
        return {"constraint": self.what}

    def on_pod(self, pod: Pod) -> Pod:
        return replace(pod, spec=self.alter(pod.spec))


# -- changes of nodes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlterNode(Change):
    """Labels set on a node, or a cordoned node uncordoned."""

    kind = "node"
    node: str
    labels: Mapping[str, str]
    uncordon: bool = False

    @property
    def text(self) -> str:
        parts = ["uncordon node " + self.node] if self.uncordon else []
        labels = " ".join(f"{key}={value}" for key, value in self.labels.items())
        return ", ".join([*parts, *([f"label node {self.node} with {labels}"] if labels else [])])

    @property
    def size(self) -> Size:
        return len(self.labels) + self.uncordon, _NODE, 0.0

    @contextmanager
    def on_cluster(self, cache: ClusterCache) -> Iterator[None]:
        node = cache.nodes.objects[cache.nodes.rows[self.node]]
        altered = replace(node, metadata=replace(node.metadata, labels={**node.metadata.labels, **self.labels}))
        if self.uncordon:
            taints = [taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE_TAINT]
            altered = replace(altered, spec=replace(node.spec, unschedulable=False, taints=taints))
        cache.update_node(altered)
        try:
            yield
        finally:
            cache.update_node(node)


@dataclass(frozen=True, slots=True)
class AddNode(Change):
    """An empty node with the labels, taints and allocatable amounts of another one, and what plugins read of it."""

    kind = "one more node"
    intrusion = _NEW_NODE
    like: str

    @property
    def text(self) -> str:
        return f"add one more node like {self.like}"

    @contextmanager
    def on_cluster(self, cache: ClusterCache) -> Iterator[None]:
        model = cache.nodes.objects[cache.nodes.rows[self.like]]
        name = f"{self.like}-copy"
        while name in cache.nodes.rows:
            name += "-copy"
        labels = dict(model.metadata.labels)
        if HOSTNAME in labels:
            labels[HOSTNAME] = name
        cache.add_node(replace(model, metadata=replace(model.metadata, name=name, uid=f"node/{name}", labels=labels)))
        copied: list[Catalog[Any]] = []
        for catalog in cache.catalogs():
            about = catalog.get("", self.like)  # such as the NUMA zones of the node
            if isinstance(about, CustomObject) and about.is_about_node:
                catalog.put(replace(about, metadata=replace(about.metadata, name=name)))
                copied.append(catalog)
        try:
            yield
        finally:
            for catalog in copied:
                catalog.remove("", name)
            cache.remove_node(name)


# -- changes of other objects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemovePods(Change):
    """Other pods gone from a node; ``pods`` are their namespace/name by uid.

    The ``controllers`` of these, as kind and name, create them anew.
    """

    kind = "pods gone"
    node: str
    pods: Mapping[str, str]
    controllers: Sequence[str] = ()

    @property
    def text(self) -> str:
        text = f"delete {pods_text(list(self.pods.values()))} from node {self.node}"
        if not self.controllers:
            return text
        verb = "creates" if len(self.controllers) == 1 else "create"
        again = f"{', '.join(self.controllers[:_PODS_NAMED])} {verb} new ones: scale down, or they may come back first"
        return f"{text} ({again})"

    @property
    def size(self) -> Size:
        return len(self.pods), _OTHER_PODS, 0.0

    def document(self) -> Mapping[str, Any]:
        return {"node": self.node, "pods": list(self.pods.values()), "controllers": list(self.controllers)}

    @contextmanager
    def on_cluster(self, cache: ClusterCache) -> Iterator[None]:
        with cache.simulate() as simulation:
            for uid in self.pods:
                simulation.remove_pod(uid)
            yield


@dataclass(frozen=True, slots=True)
class RaiseBudget(Change):
    """More disruptions allowed by a PodDisruptionBudget, so that a preemption violates none."""

    kind = "disruption budget"
    intrusion = _BUDGET
    namespace: str
    name: str
    by: int

    @property
    def text(self) -> str:
        count = "1 more disruption" if self.by == 1 else f"{self.by} more disruptions"
        return f"allow {count} by the disruption budget {self.namespace}/{self.name}"

    @contextmanager
    def on_cluster(self, cache: ClusterCache) -> Iterator[None]:
        budgets = cache.catalog(PodDisruptionBudget)
        budget = budgets.get(self.namespace, self.name)
        assert budget is not None
        allowed = budget.status.disruptions_allowed + self.by
        budgets.put(replace(budget, status=replace(budget.status, disruptions_allowed=allowed)))
        try:
            yield
        finally:
            budgets.put(budget)


# -- amounts and texts -----------------------------------------------------------------------------------------------

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
HOSTNAME = "kubernetes.io/hostname"
_PODS_NAMED = 5
_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def pods_text(pods: Sequence[str]) -> str:
    """The names of pods, or of the first ones and how many more there are."""
    more = f" and {len(pods) - _PODS_NAMED} more" if len(pods) > _PODS_NAMED else ""
    return ", ".join(pods[:_PODS_NAMED]) + more


def quantity_text(resource: str, amount: int) -> str:
    """An amount (millicores, bytes or counts) as a quantity."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    is_count = "/" in resource or resource == "pods"
    for suffix, unit in _BINARY if amount and not is_count else ():
        if amount % unit == 0:
            return f"{amount // unit}{suffix}"
    return str(amount)


def taint_text(taint: Taint) -> str:
    """``key=value:Effect``."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def with_requests_lowered(pod: Pod, resource: str, by: int) -> Pod:
    """The pod with so much less of a resource: its pod-level request, or those of its containers, largest first.

    Init containers that request more than the containers together are limited to what is left.
    """
    spec = pod.spec
    whole = spec.resources
    if whole is not None and resource in whole.requests:
        lowered = max(_amount(resource, whole.requests[resource]) - by, 0)
        requests = {**whole.requests, resource: _quantity(resource, lowered)}
        return replace(pod, spec=replace(spec, resources=replace(whole, requests=requests)))
    requested = [_requested(container, resource) for container in spec.containers]
    init = [_requested(container, resource) for container in spec.init_containers]
    limit = max(max(sum(requested), max(init, default=0)) - by, 0)
    excess = max(sum(requested) - limit, 0)
    for position in sorted(range(len(requested)), key=lambda position: -requested[position]):
        taken = min(excess, requested[position])
        requested[position] -= taken
        excess -= taken
    containers = [_with_request(c, resource, amount) for c, amount in zip(spec.containers, requested, strict=True)]
    init_containers = [
        _with_request(c, resource, min(amount, limit)) for c, amount in zip(spec.init_containers, init, strict=True)
    ]
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init_containers))


def _requested(container: Container, resource: str) -> int:
    return _amount(resource, container.resources.requests.get(resource, 0))


def _amount(resource: str, quantity: Any) -> int:
    return millis(quantity) if resource == CPU else units(quantity)


def _with_request(container: Container, resource: str, amount: int) -> Container:
    if resource not in container.resources.requests:
        return container
    requests = {**container.resources.requests, resource: _quantity(resource, amount)}
    return replace(container, resources=replace(container.resources, requests=requests))


def _quantity(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == CPU else str(amount)
