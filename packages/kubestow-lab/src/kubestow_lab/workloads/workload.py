"""A workload: a cluster, the pods submitted to it in order, and later changes to them.

All objects are plain Kubernetes objects in JSON form, ready to be created. A workload is a value, independent of its
source (:mod:`kubestow_lab.traces.openb`, :mod:`kubestow_lab.workloads.synthetic`) and of the way it is submitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: A Kubernetes object in API JSON form.
Object = dict[str, Any]

#: Pod annotation with the run time on a simulated node, such as ``"30s"``; pods without it run forever.
DURATION = "kubestow.dev/duration"
#: Pod annotation with the run time that is expected of its job, which queues plan with.
RUN_TIME = "kubestow.dev/run-time"


@dataclass(frozen=True, slots=True)
class GateRemoval:
    """Removal of a scheduling gate once ``after_submitted`` pods of the workload have been submitted.

    It depends on a number of pods rather than on time, so that runs are reproducible on machines of any speed.
    """

    namespace: str
    pod: str
    gate: str
    after_submitted: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes, pods in order of submission, priority classes, and gate removals in order of ``after_submitted``.

    ``attribution`` names the source of the data; show it with ``title``.
    """

    title: str
    attribution: str
    nodes: tuple[Object, ...]
    pods: tuple[Object, ...]
    priority_classes: tuple[Object, ...] = ()
    gate_removals: tuple[GateRemoval, ...] = ()
