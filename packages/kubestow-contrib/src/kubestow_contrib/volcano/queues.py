"""Queue objects of Volcano (scheduling.volcano.sh/v1beta1), and what is wrong with them.

A queue with a mistake admits no pods: the message names the field, in the log and in the condition of its pods.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.api.meta import APIObject
from kubestow.errors import InvalidQuantity
from kubestow.log_fields import fields

__all__ = ["DEFAULT_QUEUE", "Amounts", "Queue", "QueueRules", "amounts_of", "read_queues"]

_log = logging.getLogger(__name__)

Amounts = Mapping[str, int]
"""Amounts by resource: millicores, bytes or counts; ``pods`` is a resource, too."""

DEFAULT_QUEUE = "default"
"""The queue of pod groups that name none. It exists even if there is no object of that name."""

_ROOT = "root"
_MAX_WEIGHT = 65535


class QueueGuarantee(APIObject, frozen=True):
    """``spec.guarantee``."""

    resource: dict[str, Quantity] = {}


class QueueSpec(APIObject, frozen=True):
    """``spec``. ``deserved`` and ``parent`` are checked, and not used by proportion."""

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


def read_queues(objects: Iterable[Queue], known: Mapping[str, QueueRules]) -> dict[str, QueueRules]:
    """The queues by name. A problem is logged unless the queue is ``known`` with it."""
    by_name = {obj.metadata.name: obj for obj in objects}
    queues = {name: _rules(obj, by_name) for name, obj in by_name.items()}
    queues.setdefault(DEFAULT_QUEUE, QueueRules(DEFAULT_QUEUE))
    for name, rules in queues.items():
        if rules.problem and (name not in known or known[name].problem != rules.problem):
            _log.warning("%s", rules.problem, extra=fields(queue=name, err=rules.problem))
    return queues


def amounts_of(quantities: Mapping[str, Quantity] | None, path: str) -> dict[str, int]:
    """Quantities as integers. Raises InvalidQuantity, with the path of the field, for one that is malformed or
    negative."""
    amounts = {}
    for name, quantity in (quantities or {}).items():
        try:
            amounts[name] = millis(quantity) if name == "cpu" else units(quantity)
        except InvalidQuantity as error:
            raise InvalidQuantity(error.problem, path=f"{path}.{name}") from None
        if amounts[name] < 0:
            raise InvalidQuantity(f"is {quantity}, expected at least 0", path=f"{path}.{name}")
    return amounts


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
    return QueueRules(name, spec.weight, capability, guarantee, reclaimable, spec.priority, created)


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
    if cycle := _cycle(obj, by_name):
        yield f"spec.parent: is a cycle: {' -> '.join(cycle)}"
    if state not in ("", "Open"):
        yield f"status.state: is {state}, so the queue admits no pods"


def _cycle(obj: Queue, by_name: Mapping[str, Queue]) -> list[str]:
    """The names from the queue to its ancestor that is on the way already; empty if the chain of parents ends."""
    path = [obj.metadata.name]
    while (parent := by_name[path[-1]].spec.parent) not in ("", _ROOT) and parent in by_name:
        path.append(parent)
        if parent in path[:-1]:
            return path
    return []
