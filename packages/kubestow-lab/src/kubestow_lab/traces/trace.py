"""A trace: the nodes of a cluster, and the tasks that were submitted to it, in whatever format it was published.

A reader turns a published format into this; :mod:`kubestow_lab.traces.loading` turns this into Kubernetes objects. What
a trace does not say, such as the cores of a machine in a trace with normalised capacities, is an assumption: a field of
the format's subclass of :class:`Assumptions`, with a documented default that a user can change.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import numpy as np

from kubestow.errors import InputError
from kubestow_lab.workloads.gpu import NodeShape, PodShape

A = TypeVar("A", bound="Assumptions")


@dataclass(frozen=True, slots=True)
class TracedNode:
    """A machine; ``resources`` are its further extended resources by name, as integers."""

    name: str
    shape: NodeShape
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A required node affinity: an operator of Kubernetes' node selectors on a label."""

    label: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What the pods of a task have in common, and what makes pods alike for the scheduler.

    ``resources`` are further extended resources. At most ``most_per_node`` pods of an ``app`` may be on one node; 0 is
    no limit.
    """

    shape: PodShape
    priority: int = 0
    requirements: tuple[Requirement, ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    app: str = ""
    most_per_node: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """``count`` pods that are submitted together and end together.

    ``created`` is in seconds from any start that all tasks of the trace share. ``duration`` is the run time in seconds;
    for a task that never ran, how long it waited; None for one that does not end. ``queue`` is the virtual cluster,
    user or organisation that it belongs to. ``is_gang``: its pods ran as one, with those of all tasks of its ``job``,
    which is named if it has several. ``requested_time`` is the run time that its user asked for, in seconds.
    """

    name: str
    template: PodTemplate
    created: float
    duration: float | None
    count: int = 1
    queue: str = ""
    is_gang: bool = False
    job: str = ""
    requested_time: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterTrace:
    """Nodes and tasks, who published them, and how many records were left out, by the reason."""

    attribution: str
    nodes: Sequence[TracedNode]
    tasks: Sequence[Task]
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def start(self) -> float:
        """When the first task is created."""
        return min((task.created for task in self.tasks), default=0.0)

    def window(self, start: float, end: float) -> ClusterTrace:
        """The tasks that are created from ``start`` until before ``end``, seconds after the first of the trace."""
        first = self.start
        kept = [task for task in self.tasks if start <= task.created - first < end]
        left_out = self.left_out + Counter({"task outside the window": len(self.tasks) - len(kept)})
        return replace(self, tasks=kept, left_out=+left_out)


def assumption(default: Any, meaning: str) -> Any:
    """A field of a class of assumptions, with its meaning and unit for the documentation."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is assumed of any trace where it says nothing."""

    gangs: bool = assumption(False, "tasks of several pods that ran as one are gangs: pod groups of GangScheduling")
    namespaces: bool = assumption(False, "virtual clusters, users or organisations become namespaces")
    joint_start: bool = assumption(False, "pods that ran as one work together: they run from when all have a node")

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Self:
        """Assumptions with some changed, each as ``KEY=VALUE``. Raises InputError."""
        known: dict[str, Field[Any]] = {each.name.replace("_", "-"): each for each in fields(cls)}
        values: dict[str, Any] = {}
        for setting in settings:
            key, separator, text = setting.partition("=")
            if key not in known or not separator:
                raise InputError("--assume", f"expected KEY=VALUE with one of {', '.join(known)}, got {setting!r}")
            values[known[key].name] = _parsed(key, text, known[key].default)
        return cls(**values)

    def __str__(self) -> str:
        """All assumptions as ``KEY=VALUE``."""
        return ", ".join(f"{each.name.replace('_', '-')}={_shown(getattr(self, each.name))}" for each in fields(self))


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(key: str, text: str, default: Any) -> Any:
    """A value of the type of the default; a number must be finite and not negative."""
    try:
        match default:
            case bool():
                return {"true": True, "false": False}[text.lower()]
            case int():
                value: float = int(text)
            case float():
                value = float(text)
            case _:
                return text
        if not (math.isfinite(value) and value >= 0):
            raise ValueError
    except (KeyError, ValueError):
        kind = {bool: "true or false", int: "an integer of at least 0", float: "a number of at least 0"}[type(default)]
        raise InputError("--assume", f"expected {kind} for {key}, got {text!r}") from None
    return value


def uniform_nodes(
    count: int, shape: NodeShape, *, prefix: str = "node", resources: Mapping[str, int] | None = None
) -> list[TracedNode]:
    """Equal machines, where a trace says only how many there are."""
    return [TracedNode(f"{prefix}-{index}", shape, resources=resources or {}) for index in range(count)]


def assumed_nodes(
    tasks: Iterable[Task],
    shape: NodeShape,
    *,
    count: int,
    headroom: float,
    prefix: str = "node",
    resources: Mapping[str, int] | None = None,
) -> list[TracedNode]:
    """Equal machines, where a trace has none: ``count``, or for 0 as many as the trace needs at its peak.

    These are at least one, and hold what ran at the same time at most, times ``headroom``, by amounts alone.
    ``resources`` are the further extended resources of a node.
    """
    wanted = count or math.ceil(headroom * _peak(tasks, shape, resources or {}))
    return uniform_nodes(max(1, wanted), shape, prefix=prefix, resources=resources)


def _peak(tasks: Iterable[Task], shape: NodeShape, resources: Mapping[str, int]) -> float:
    """How many nodes of a shape what ran at the same time at most would fill, in the scarcest resource."""
    capacity = np.array([shape.cpu_milli, shape.memory_mib, 1000 * shape.gpus, *resources.values()], float)
    times: list[float] = []
    amounts: list[tuple[float, ...]] = []
    for task in tasks:
        pod, extra = task.template.shape, dict(task.template.resources)
        request = (pod.cpu_milli, pod.memory_mib, pod.gpus * pod.gpu_milli, *(extra.get(name, 0) for name in resources))
        times.append(task.created)
        amounts.append(tuple(float(task.count * amount) for amount in request))
        if task.duration is not None:
            times.append(task.created + task.duration)
            amounts.append(tuple(-float(task.count * amount) for amount in request))
    if not times:
        return 0.0
    # What ends at a moment makes room for what starts then.
    changes = np.array(amounts)
    order = np.lexsort((changes.sum(axis=1), np.array(times)))
    peak = np.cumsum(changes[order], axis=0).max(axis=0)
    wanted = np.divide(peak, capacity, out=np.zeros_like(peak), where=capacity > 0)
    return float(wanted.max())


def gpu_amounts(wanted: float) -> tuple[int, int]:
    """The GPUs of a pod, and thousandths of each: none, a share of one GPU, or whole ones, rounded up."""
    if wanted <= 0:
        return 0, 0
    return (1, max(1, math.ceil(1000 * wanted))) if wanted <= 1 else (math.ceil(wanted), 1000)
