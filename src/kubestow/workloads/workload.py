"""A workload: a cluster, the pods submitted to it in order, and what happens to them on the way.

Everything in it is a plain Kubernetes object in API JSON form, ready to be posted to an API server. Workloads are
values: where they come from (:mod:`kubestow.workloads.openb`, :mod:`kubestow.workloads.synthetic`) and what plays them
do not know each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DURATION", "GateLift", "Object", "Workload"]

#: A Kubernetes object in API JSON form.
Object = dict[str, Any]

#: The pod annotation that tells a simulated node how long the pod runs, such as ``"30s"``. Without it, it runs on.
DURATION = "kubestow.dev/duration"


@dataclass(frozen=True, slots=True)
class GateLift:
    """A scheduling gate to take off a pod once ``after_submitted`` pods of the workload have been submitted.

    Counting pods, not seconds, keeps a run the same on a slow machine and on a fast one.
    """

    namespace: str
    pod: str
    gate: str
    after_submitted: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes, pods in the order they are submitted, the priority classes they name, and gate lifts in the order they
    fall due. ``attribution`` says whose data it is or was counted from; show it wherever ``title`` is shown."""

    title: str
    attribution: str
    nodes: tuple[Object, ...]
    pods: tuple[Object, ...]
    priority_classes: tuple[Object, ...] = ()
    gate_lifts: tuple[GateLift, ...] = ()
