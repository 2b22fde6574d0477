"""Elastic quotas: what a namespace is guaranteed (``min``), what it may use at most (``max``), and what it uses.

A namespace may use more than its ``min`` while others use less than theirs. Amounts are compared as upstream does it:
CPU, memory and ephemeral storage always, where a resource that the quota leaves out counts as 0; other resources if
something of them is used or requested, with a missing ``min`` of 0 and no limit for a missing ``max``. Without a
``min`` nothing is guaranteed, without a ``max`` nothing is limited.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.api.meta import APIObject
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.errors import InvalidQuantity
from kubestow.log_fields import fields

__all__ = ["Amounts", "ElasticQuota", "ElasticQuotas", "Quota", "excess"]

_log = logging.getLogger(__name__)

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_UNLIMITED = 2**63 - 1

Amounts = Mapping[str, int]
"""Amounts by resource: millicores, bytes or counts."""


class ElasticQuotaSpec(APIObject, frozen=True):
    """``spec``."""

    min: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None


class ElasticQuota(CustomObject, frozen=True):
    """The quota of a namespace; of several, the first by name counts."""

    resource: ClassVar[str] = "elasticquotas.v1alpha1.scheduling.x-k8s.io"
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


@dataclass(frozen=True, slots=True)
class Quota:
    """The amounts of an ElasticQuota; None stands for a missing list."""

    min: Amounts | None
    max: Amounts | None

    def above_min(self, amounts: Amounts, *, beside: Amounts | None = None) -> Amounts:
        """What some amounts, with what is ``beside`` them, exceed the minimum by."""
        return excess(amounts, self.min or {}, beside=beside)

    def above_max(self, used: Amounts, request: Amounts) -> Amounts:
        """What a request would exceed the maximum by."""
        return {} if self.max is None else excess(request, self.max, beside=used, otherwise=_UNLIMITED)


def excess(amounts: Amounts, bounds: Amounts, *, beside: Amounts | None = None, otherwise: int = 0) -> dict[str, int]:
    """What each amount, together with what is ``beside`` it, exceeds its bound by; only resources that do.

    Resources other than the native ones are compared if they are among the ``amounts``, with the bound ``otherwise`` if
    they have none.
    """
    others = beside or {}
    found = {name: amounts.get(name, 0) + others.get(name, 0) - bounds.get(name, 0) for name in _NATIVE}
    for name in amounts:
        if name not in found:
            found[name] = amounts[name] + others.get(name, 0) - bounds.get(name, otherwise)
    return {name: amount for name, amount in found.items() if amount > 0}


class ElasticQuotas:
    """The quotas by namespace, and what the placed pods of these namespaces use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._catalog = cluster.catalog(ElasticQuota)
        self._version = -1
        self._quotas: dict[str, Quota] = {}
        self._guaranteed: Counter[str] = Counter()
        #: What the pods of each namespace use, whether or not it has a quota.
        self._used: dict[str, Counter[str]] = {}
        #: What the pods of all namespaces with a quota use together.
        self._used_in_total: Counter[str] = Counter()
        self._above_min: dict[str, Amounts] = {}
        #: The namespaces with a quota that use more or less than when that was computed.
        self._changed: set[str] = set()
        #: For namespaces with a quota, if it was asked for.
        self._pods: dict[str, PodCounter] = {}
        cluster.listen_to_placements(self)

    def __bool__(self) -> bool:
        """Whether there is any quota."""
        return bool(self.by_namespace)

    @property
    def by_namespace(self) -> Mapping[str, Quota]:
        """The quotas."""
        self._refresh()
        return self._quotas

    def _refresh(self) -> None:
        if self._version != self._catalog.version:
            self._version = self._catalog.version
            self._quotas = _quotas(self._catalog)
            self._guaranteed, self._used_in_total = Counter(), Counter()
            for namespace, quota in self._quotas.items():
                self._guaranteed.update(quota.min or {})
                self._used_in_total.update(self.used(namespace))
            self._above_min, self._changed = {}, set(self._quotas)
            self._pods = {name: pods for name, pods in self._pods.items() if name in self._quotas}

    def used(self, namespace: str) -> Amounts:
        """What the pods of a namespace use."""
        return self._used.get(namespace, {})

    @property
    def above_min(self) -> Mapping[str, Amounts]:
        """By namespace what its pods use above its minimum; only those that do, and only such resources."""
        quotas = self.by_namespace
        for namespace in self._changed:
            above = quotas[namespace].above_min(self.used(namespace))
            if above:
                self._above_min[namespace] = above
            else:
                self._above_min.pop(namespace, None)
        self._changed.clear()
        return self._above_min

    def present(self, namespaces: Iterable[str]) -> NDArray[np.bool_]:
        """Which nodes have pods of some namespaces with a quota, bool by row of the node table."""
        self._refresh()
        count = np.zeros(len(self._cluster.nodes), np.int64)
        for namespace in namespaces:
            count += self._pods_in(namespace).by_row
        return count > 0

    def _pods_in(self, namespace: str) -> PodCounter:
        """The number of pods of a namespace on each node."""
        pods = self._pods.get(namespace)
        if pods is None:
            key, index_keys = (ElasticQuota.resource, namespace), frozenset((namespace,))
            pods = self._pods[namespace] = self._cluster.counter(key, _one, index_keys=index_keys, terminating=True)
        return pods

    def above_min_in_total(self, request: Amounts) -> Amounts:
        """What all namespaces with a quota would use, with a request, beyond what all of them are guaranteed."""
        self._refresh()
        return excess(_sum(self._used_in_total, request), self._guaranteed)

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Count a pod."""
        if info.namespace in self.by_namespace:
            self._used_in_total.update(info.requests)
            self._changed.add(info.namespace)
        self._used.setdefault(info.namespace, Counter()).update(info.requests)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Do not count a pod any more."""
        if info.namespace in self.by_namespace:
            self._used_in_total.subtract(info.requests)
            self._changed.add(info.namespace)
        used = self._used.setdefault(info.namespace, Counter())
        used.subtract(info.requests)
        if not any(used.values()):
            del self._used[info.namespace]


def _quotas(objects: Iterable[ElasticQuota]) -> dict[str, Quota]:
    """The quotas by namespace; those with problems are logged, and left out if they cannot be used."""
    quotas: dict[str, Quota] = {}
    for obj in objects:
        namespace, key = obj.metadata.namespace, f"{obj.metadata.namespace}/{obj.metadata.name}"
        if namespace in quotas:
            _warn(key, f"is ignored: namespace {namespace} has another one")
            continue
        try:
            quota = Quota(_amounts(obj.spec.min, "min"), _amounts(obj.spec.max, "max"))
        except InvalidQuantity as error:
            _warn(key, f"is ignored: {error}")
            continue
        for name, amount in (quota.min or {}).items():
            if quota.max is not None and amount > quota.max.get(name, amount):
                _warn(key, f"spec.min.{name} is above spec.max.{name}, which limits the namespace")
        quotas[namespace] = quota
    return quotas


def _amounts(quantities: Mapping[str, Quantity] | None, field: str) -> dict[str, int] | None:
    if quantities is None:
        return None
    amounts = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = millis(quantity) if name == "cpu" else units(quantity)
        except InvalidQuantity as error:
            raise InvalidQuantity(error.problem, path=f"spec.{field}.{name}") from None
        if amounts[name] < 0:
            raise InvalidQuantity("is negative", path=f"spec.{field}.{name}")
    return amounts


def _sum(first: Amounts, second: Amounts) -> Amounts:
    return {name: first.get(name, 0) + second.get(name, 0) for name in first.keys() | second.keys()}


def _one(shape: Shape) -> int:
    return 1


def _warn(key: str, problem: str) -> None:
    _log.warning("ElasticQuota %s: %s", key, problem, extra=fields(elasticQuota=key, err=problem))
