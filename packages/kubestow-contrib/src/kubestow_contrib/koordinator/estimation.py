"""What pods are estimated to use until they are measured, and their koordinator priority classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import Shape
from kubestow.rules.pods import QOSClass, qos_class
from kubestow.rules.requests import limits_by_spec

PROD = "koord-prod"

_MID, _BATCH, _FREE = "koord-mid", "koord-batch", "koord-free"
_PRIORITY_LABEL, _QOS_LABEL = "koordinator.sh/priority-class", "koordinator.sh/qosClass"

#: The labels that the estimates of a pod depend on.
LABEL_KEYS = (_PRIORITY_LABEL, _QOS_LABEL)

_RANGES = ((9000, 9999, PROD), (7000, 7999, _MID), (5000, 5999, _BATCH), (3000, 3999, _FREE))
_OF_QOS = {"SYSTEM": PROD, "LSE": PROD, "LSR": PROD, "LS": PROD, "BE": _BATCH}
#: The resources that pods of a class request in place of CPU and memory.
_EXTENDED = {
    _BATCH: {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"},
    _MID: {"cpu": "kubernetes.io/mid-cpu", "memory": "kubernetes.io/mid-memory"},
    _FREE: {},
}
#: What a pod uses that requests nothing: 250m of CPU, 200Mi of memory.
_DEFAULT_CPU, _DEFAULT_MEMORY = 250, 200 * 2**20
_DEFAULTS = {
    "cpu": _DEFAULT_CPU,
    "kubernetes.io/batch-cpu": _DEFAULT_CPU,
    "memory": _DEFAULT_MEMORY,
    "kubernetes.io/batch-memory": _DEFAULT_MEMORY,
}


def priority_class(shape: Shape) -> str:
    """The class that label, priority, or else QoS class give a pod."""
    found = ""
    if _PRIORITY_LABEL in shape.labels:
        label = shape.labels[_PRIORITY_LABEL]
        found = label if label in (PROD, _MID, _BATCH, _FREE) else ""
    elif shape.spec.priority is not None:
        priority = shape.spec.priority
        found = next((name for least, most, name in _RANGES if least <= priority <= most), "")
    if found:
        return found
    label = shape.labels.get(_QOS_LABEL, "")
    if label in _OF_QOS:
        return _OF_QOS[label]
    return _BATCH if qos_class(shape.spec) is QOSClass.BEST_EFFORT else PROD


def estimate(shape: Shape, resources: Sequence[str], factors: Mapping[str, int]) -> tuple[int, ...]:
    """The larger of request and limit times the factor in percent, but not above the limit; 0 without a factor."""
    limits = limits_by_spec(Pod(spec=shape.spec))
    names = _EXTENDED.get(priority_class(shape))
    amounts = []
    for resource in resources:
        name = resource if names is None else names.get(resource, "")
        factor, limit = factors.get(resource), limits.get(name, 0)
        amount = max(shape.requests.get(name, 0), limit)
        if factor is None or not amount:
            amounts.append(0 if factor is None else _DEFAULTS.get(name, 0))
            continue
        scaled = floor(amount * factor / 100 + 0.5)
        amounts.append(min(scaled, limit) if limit > 0 else scaled)
    return tuple(amounts)
