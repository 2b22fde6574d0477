"""Queue objects and their mistakes, and the division of the cluster among queues."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import Quantity
from kubestow.api.meta import APIObject
from kubestow.errors import InvalidQuantity
from kubestow.log_fields import fields
from kubestow_contrib.shares import Amounts, amounts_of, water_fill

_log = logging.getLogger(__name__)

DEFAULT_QUEUE = "default"
"""The queue of pod groups that name none. It exists even if there is no object of that name."""

ROOT_QUEUE = "root"
"""The parent of queues that name none. It need not exist."""
_MAX_WEIGHT = 65535


class QueueGuarantee(APIObject, frozen=True):
    """``spec.guarantee``."""

    resource: dict[str, Quantity] = {}


class QueueSpec(APIObject, frozen=True):
    """``spec``. ``deserved`` and ``parent`` are checked, and used by capacity only."""

    weight: int = 1
    capability: dict[str, Quantity] = {}
    reclaimable: bool | None = None
    guarantee: QueueGuarantee = QueueGuarantee()
    deserved: dict[str, Quantity] = {}
    parent: str = ""
    priority: int = 0


class QueueStatus(APIObject, frozen=True):
    """``status``."""

    state: str = ""


class Queue(CustomObject, frozen=True):
    """A queue, which is cluster-scoped."""

    resource: ClassVar[str] = "queues.v1beta1.scheduling.volcano.sh"
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


@dataclass(frozen=True, slots=True)
class QueueRules:
    """A queue as the plugin uses it. ``problem`` says why it admits no pods; it is empty for a usable queue."""

    name: str
    weight: int = 1
    capability: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    reclaimable: bool = True
    priority: int = 0
    created: str = ""
    problem: str = ""
    deserved: Amounts = field(default_factory=dict)
    #: The name of the parent, that of the root by default; empty for the root itself.
    parent: str = ""


def read_queues(objects: Iterable[Queue], known: Mapping[str, QueueRules]) -> dict[str, QueueRules]:
    """The queues by name. A problem is logged unless the queue is ``known`` with it."""
    by_name = {obj.metadata.name: obj for obj in objects}
    queues = {name: _rules(obj, by_name) for name, obj in by_name.items()}
    queues.setdefault(DEFAULT_QUEUE, QueueRules(DEFAULT_QUEUE, parent=ROOT_QUEUE))
    for name, rules in queues.items():
        if rules.problem and (name not in known or known[name].problem != rules.problem):
            _log.warning("%s", rules.problem, extra=fields(queue=name, err=rules.problem))
    return queues


def _rules(obj: Queue, by_name: Mapping[str, Queue]) -> QueueRules:
    name, spec = obj.metadata.name, obj.spec
    reclaimable, created = spec.reclaimable is not False, obj.metadata.creation_timestamp or ""
    try:
        capability = amounts_of(spec.capability, "spec.capability")
        guarantee = amounts_of(spec.guarantee.resource, "spec.guarantee.resource")
        deserved = amounts_of(spec.deserved, "spec.deserved")
        problem = next(_problems(obj, capability, guarantee, deserved, by_name), "")
    except InvalidQuantity as error:
        capability, guarantee, problem = {}, {}, str(error)
    if problem:
        return QueueRules(name, reclaimable=reclaimable, created=created, problem=f"Queue {name}: {problem}")
    parent = "" if name == ROOT_QUEUE else spec.parent or ROOT_QUEUE
    return QueueRules(
        name, spec.weight, capability, guarantee, reclaimable, spec.priority, created, "", deserved, parent
    )


def _problems(
    obj: Queue, capability: Amounts, guarantee: Amounts, deserved: Amounts, by_name: Mapping[str, Queue]
) -> Iterator[str]:
    spec, state = obj.spec, obj.status.state
    if not 1 <= spec.weight <= _MAX_WEIGHT:
        yield f"spec.weight: is {spec.weight}, expected 1 to {_MAX_WEIGHT}"
    for name in capability:
        if guarantee.get(name, 0) > capability[name]:
            yield f"spec.guarantee.resource.{name}: is above spec.capability.{name}"
        if deserved.get(name, 0) > capability[name]:
            yield f"spec.deserved.{name}: is above spec.capability.{name}"
    for name in deserved:
        if guarantee.get(name, 0) > deserved[name]:
            yield f"spec.guarantee.resource.{name}: is above spec.deserved.{name}"
    path = [obj.metadata.name]
    while (parent := by_name[path[-1]].spec.parent) not in ("", ROOT_QUEUE) and parent in by_name:
        path.append(parent)
        if parent in path[:-1]:
            yield f"spec.parent: is a cycle: {' -> '.join(path)}"
            break
    if state not in ("", "Open"):
        yield f"status.state: is {state}, so the queue admits no pods"


class Division:
    """The division of ``total`` among queues, given their rules and what each may use at most (``capabilities``)."""

    def __init__(
        self, total: Amounts, rules: Sequence[QueueRules], capabilities: Sequence[Mapping[str, float]]
    ) -> None:
        self._names = list(total)
        self._rows = {each.name: row for row, each in enumerate(rules)}
        self._queues = [each.name for each in rules]
        self._total = np.array(list(total.values()), np.float64)
        self._weights = np.array([each.weight for each in rules], np.float64)
        self._guarantee = self._table([each.guarantee for each in rules])
        self._capability = np.maximum(self._table(capabilities), self._guarantee)
        self._upper = self._guarantee.copy()
        self._deserved = np.full_like(self._upper, -1.0)

    def request(self, queue: str, amounts: Amounts) -> None:
        """Replace what a queue requests."""
        row = self._rows[queue]
        requested = np.array([amounts.get(name, 0) for name in self._names], np.float64)
        self._upper[row] = np.maximum(np.minimum(requested, self._capability[row]), self._guarantee[row])

    def changes(self) -> Iterable[tuple[str, dict[str, float]]]:
        """What each queue deserves, for those where that has changed since the last call."""
        deserved = self._upper.copy()
        if (self._upper.sum(axis=0) > self._total).any():
            deserved = water_fill(self._total, self._weights, self._guarantee, self._upper)
        changed = np.flatnonzero((deserved != self._deserved).any(axis=1))
        self._deserved = deserved
        for row, amounts in zip(changed.tolist(), deserved[changed].tolist(), strict=True):
            yield self._queues[row], dict(zip(self._names, amounts, strict=True))

    def _table(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        values = [row.get(name, 0) for row in rows for name in self._names]
        return np.array(values, np.float64).reshape(len(rows), len(self._names))
