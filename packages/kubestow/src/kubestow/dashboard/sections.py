"""The parts of the stream: version, nodes, queue, decisions, gangs, reports.

A section exists while there are viewers, and holds what they have been sent. The nodes are sent as a whole once, and
afterwards only the rows that have changed.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Taint
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import PodGroupName
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.dashboard.plugin_reports import reporting_plugins
from kubestow.dashboard.queue_pages import WAITING_ON_PERMIT, QueueRows, Reason, next_first
from kubestow.engine.explanation.plain_words import reasons_in
from kubestow.errors import PluginError
from kubestow.observability.recent_attempts import AttemptRecord, RecentAttempts
from kubestow.rules.minors import NOT_COMPARED, Minor
from kubestow.rules.requests import CPU, MEMORY, PODS
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Result
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler


class StreamSection(Protocol):
    """One part of what all viewers see, as plain data under its ``name``."""

    name: str

    def refresh(self) -> Any | None:
        """Read the scheduler; what viewers of the former content have to be sent, None if nothing has changed."""

    def content(self) -> Any:
        """Everything as of the last refresh, for a new viewer."""


class WholeSection(ABC):
    """Implements :class:`StreamSection` for content of which viewers are sent all when any of it has changed."""

    def __init__(self) -> None:
        self._content: dict[str, Any] = {}

    def refresh(self) -> dict[str, Any] | None:
        former, self._content = self._content, self._read()
        return None if former == self._content else self._content

    def content(self) -> dict[str, Any]:
        return self._content

    @abstractmethod
    def _read(self) -> dict[str, Any]:
        """The content as it is now, bounded."""


class VersionSection(WholeSection):
    """The minor version of Kubernetes that the scheduler decides as, what has to be said of it, and the server's."""

    name = "version"

    def __init__(self, minor: Minor, server_version: Callable[[], str]) -> None:
        super().__init__()
        self._minor, self._server_version = minor, server_version

    def _read(self) -> dict[str, Any]:
        caveat = "" if self._minor.is_compared else NOT_COMPARED
        return {"emulated": str(self._minor), "server": self._server_version(), "caveat": caveat}


#: The label keys offered to group nodes by: at most so many, with at most so many values each.
_MOST_KEYS, _MOST_VALUES = 24, 512
_MOST_RESOURCES = 24
#: Words in label keys by which nodes are usually grouped, the most usual first.
_USUAL = ("topology.kubernetes.io/zone", "pool", "nodegroup", "rack", "topology.kubernetes.io/region", "instance-type")

Amounts = dict[str, NDArray[np.int64]]


class NodesSection:
    """The nodes of the scheduler cache as columns: names, labels and taints by code, amounts by resource.

    Labels and taints are sent again as a whole when any node's change; amounts by row, as they change. Implements
    :class:`StreamSection`.
    """

    name = "nodes"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._revision = -1
        self._described: dict[str, Any] = {}
        self._allocatable: Amounts = {}
        self._requested: Amounts = {}
        #: Whether each node is cordoned (bool).
        self._cordoned: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def refresh(self) -> dict[str, Any] | None:
        table = self._cluster.nodes
        former = self._allocatable, self._requested, self._cordoned
        self._read_amounts()
        if table.revision != self._revision or list(self._allocatable) != list(former[0]):
            self._described = _describe(table.names, table.objects)
            self._revision = table.revision
            return self.content()
        return self._difference(*former)

    def content(self) -> dict[str, Any]:
        return {
            **self._described,
            "resources": list(self._allocatable),
            "allocatable": {name: values.tolist() for name, values in self._allocatable.items()},
            "requested": {name: values.tolist() for name, values in self._requested.items()},
            "cordoned": np.flatnonzero(self._cordoned).tolist(),
        }

    def _read_amounts(self) -> None:
        table = self._cluster.nodes
        names = [name for name in table.allocatable if table.allocatable[name].values.any()]
        names.sort(key=lambda name: (name != CPU, name != MEMORY, name))
        self._allocatable = {name: table.allocatable[name].values.copy() for name in names[:_MOST_RESOURCES]}
        self._requested = {name: table.requested[name].values.copy() for name in self._allocatable}
        self._allocatable[PODS] = table.allowed_pods.values.copy()
        self._requested[PODS] = table.pod_count.values.copy()
        self._cordoned = table.unschedulable.values.copy()

    def _difference(
        self, allocatable: Amounts, requested: Amounts, cordoned: NDArray[np.bool_]
    ) -> dict[str, Any] | None:
        changed = self._cordoned != cordoned
        for now, before in ((self._allocatable, allocatable), (self._requested, requested)):
            for name, values in now.items():
                changed |= values != before[name]
        rows = np.flatnonzero(changed)
        if not len(rows):
            return None
        return {
            "rows": rows.tolist(),
            "allocatable": {
                name: values[rows].tolist()
                for name, values in self._allocatable.items()
                if not np.array_equal(values, allocatable[name])
            },
            "requested": {name: values[rows].tolist() for name, values in self._requested.items()},
            "cordoned": self._cordoned[rows].astype(np.int8).tolist(),
        }


def _describe(names: Sequence[str], objects: Sequence[Node]) -> dict[str, Any]:
    """Names, labels and taints of all nodes: distinct values, and one code per node (0 for none)."""
    values_by_key: dict[str, dict[str, list[int]]] = {}
    taints: dict[tuple[Taint, ...], int] = {(): 0}
    codes = []
    for row, node in enumerate(objects):
        for key, value in node.metadata.labels.items():
            values_by_key.setdefault(key, {}).setdefault(value, []).append(row)
        codes.append(taints.setdefault(tuple(node.spec.taints), len(taints)))
    # Nodes are grouped by labels with few enough values: a name of its own for each node is no group.
    keys = [
        key
        for key, rows in values_by_key.items()
        if len(rows) <= _MOST_VALUES and (len(rows) < len(objects) or _usualness(key) < len(_USUAL))
    ]
    keys.sort(key=lambda key: (_usualness(key), key))
    return {
        "names": list(names),
        "labels": {key: _coded(values_by_key[key], len(objects)) for key in keys[:_MOST_KEYS]},
        "taints": {"values": [[_taint(taint) for taint in each] for each in taints], "codes": codes},
    }


def _usualness(key: str) -> int:
    return next((rank for rank, word in enumerate(_USUAL) if word in key), len(_USUAL))


def _coded(rows_by_value: dict[str, list[int]], nodes: int) -> dict[str, Any]:
    codes = np.zeros(nodes, np.int32)
    values = sorted(rows_by_value)
    for code, value in enumerate(values, 1):
        codes[rows_by_value[value]] = code
    return {"values": values, "codes": codes.tolist()}


def _taint(taint: Taint) -> str:
    """A taint as ``kubectl taint`` writes it."""
    pair = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{pair}:{taint.effect}"


#: Pods listed per place, groups, and example pods of a group.
_MOST_PODS, _MOST_GROUPS, _MOST_EXAMPLES = 50, 100, 5


class QueueSection(WholeSection):
    """The queue and the pods after it: how many wait where, which come next, and groups with the same reason.

    Pods are listed up to a number per place, those that are tried next first; groups count all of them.
    """

    name = "queue"

    def __init__(self, scheduler: Scheduler, rows: QueueRows) -> None:
        super().__init__()
        self._scheduler, self._rows = scheduler, rows
        #: Groups by reason as they were sent, without what changes: the texts are made once.
        self._texts: dict[Reason, dict[str, Any]] = {}

    def _read(self) -> dict[str, Any]:
        by_place: dict[Place, list[QueuedPod]] = {place: [] for place in Place}
        by_reason: dict[Reason, list[QueuedPod]] = {}
        for queued in self._scheduler.queue.pods.values():
            by_place[queued.place].append(queued)
            if queued.place is not Place.ACTIVE:
                by_reason.setdefault(self._rows.reason(queued), []).append(queued)
        waiting, in_flight = list(self._rows.waiting_on_permit()), list(self._rows.in_flight())
        counts: dict[str, int] = {place.value: len(pods) for place, pods in by_place.items()}
        counts |= {Place.IN_FLIGHT.value: len(in_flight), WAITING_ON_PERMIT: len(waiting)}
        next_pods = [heapq.nsmallest(_MOST_PODS, pods, key=next_first) for pods in by_place.values()]
        return {
            "counts": counts,
            "groups": self._groups(by_reason),
            "pods": [
                *(self._rows.queued(queued) for pods in next_pods for queued in pods),
                *waiting[:_MOST_PODS],
                *in_flight[:_MOST_PODS],
            ],
        }

    def _groups(self, by_reason: dict[Reason, list[QueuedPod]]) -> list[dict[str, Any]]:
        """The largest groups, each with the texts that its pods have in common."""
        largest = heapq.nlargest(_MOST_GROUPS, by_reason.items(), key=lambda item: len(item[1]))
        self._texts = {reason: self._texts.get(reason) or self._rows.describe(reason) for reason, _ in largest}
        return [
            {
                **self._texts[reason],
                "count": len(pods),
                "oldest": self._rows.time(min(queued.timestamp for queued in pods)),
                "examples": [queued.info.key for queued in pods[:_MOST_EXAMPLES]],
            }
            for reason, pods in largest
        ]


#: Seconds on the timeline, attempts listed, reasons counted per second.
_SECONDS, _MOST_ATTEMPTS, _MOST_REASONS = 300, 50, 5
_MOST_CHARACTERS = 300

Point = dict[str, Any]


class DecisionsSection:
    """What the scheduler has decided: attempts per second with their results, latency and reasons, and the attempts.

    All of it is counted from the recent attempts that are kept anyway. The seconds before the first viewer therefore
    have the last eight attempts of each pod only. Implements :class:`StreamSection`.
    """

    name = "decisions"

    def __init__(self, attempts: RecentAttempts, clock: Clock) -> None:
        self._attempts, self._clock = attempts, clock
        #: By second since 1970, those without an attempt left out.
        self._points: dict[int, Point] = {}
        self._newest: list[dict[str, Any]] = []
        #: The second that was still in progress at the last refresh, and the attempts that it had.
        self._from = 0

    def refresh(self) -> dict[str, Any] | None:
        now = int(self._clock.now().timestamp())
        changed = self._points_since(max(self._from, now - _SECONDS))
        self._from = now
        former_newest, self._newest = self._newest, self._list_newest()
        changed = {second: point for second, point in changed.items() if self._points.get(second) != point}
        self._points = {second: p for second, p in (self._points | changed).items() if second > now - _SECONDS}
        if not changed and former_newest == self._newest:
            return None
        return {"points": list(changed.values()), "attempts": self._newest}

    def content(self) -> dict[str, Any]:
        return {"points": [self._points[second] for second in sorted(self._points)], "attempts": self._newest}

    def _points_since(self, second: int) -> dict[int, Point]:
        """The points of this second and those after it."""
        by_second: dict[int, list[AttemptRecord]] = {}
        for _, records in self._attempts.newest_pods():
            if int(records[-1].ended_at.timestamp()) < second:
                break
            for record in reversed(records):
                ended = int(record.ended_at.timestamp())
                if ended < second:
                    break
                by_second.setdefault(ended, []).append(record)
        return {ended: _point(ended, records) for ended, records in sorted(by_second.items())}

    def _list_newest(self) -> list[dict[str, Any]]:
        listed = []
        for (key, records), _ in zip(self._attempts.newest_pods(), range(_MOST_ATTEMPTS), strict=False):
            record = records[-1]
            listed.append(
                {
                    "pod": key,
                    "number": record.number,
                    "time": round(record.ended_at.timestamp(), 1),
                    "seconds": round(record.seconds, 5),
                    "result": record.result.value,
                    "node": record.node_name,
                    "message": record.message[:_MOST_CHARACTERS],
                }
            )
        return listed


def _point(second: int, records: Iterable[AttemptRecord]) -> Point:
    """One second: attempts by result, the 50th, 90th and 99th percentile of their seconds, the commonest reasons."""
    records = list(records)
    results = Counter(record.result for record in records)
    percentiles = np.percentile([record.seconds for record in records], (50, 90, 99))
    reasons: Counter[str] = Counter()
    for record in records:
        if record.result is Result.UNSCHEDULABLE:
            reasons.update({reason for _, reason in reasons_in(record.message)} or {record.message[:_MOST_CHARACTERS]})
        elif record.result is Result.ERROR:
            reasons["internal error"] += 1
    return {
        "time": second,
        **{result.value: results[result] for result in Result},
        "latency": [round(seconds, 6) for seconds in percentiles.tolist()],
        "reasons": dict(reasons.most_common(_MOST_REASONS)),
    }


#: Gangs that are listed, those that lack most pods first, and their members.
_MOST_GANGS, _MOST_MEMBERS = 50, 64


class GangsSection(WholeSection):
    """The pod groups that have members."""

    name = "gangs"

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def _read(self) -> dict[str, Any]:
        groups = self._scheduler.cluster.pod_groups
        names = heapq.nlargest(_MOST_GANGS, groups, key=self._lacking)
        return {"count": len(groups), "gangs": [self._gang(name) for name in names]}

    def _lacking(self, name: PodGroupName) -> tuple[int, str]:
        members = self._scheduler.cluster.pod_groups.members(name)
        return len(members.pods) - len(members.placed), str(name)

    def _gang(self, name: PodGroupName) -> dict[str, Any]:
        members = self._scheduler.cluster.pod_groups.members(name)
        pods = list(members.pods.values())
        return {
            "name": str(name),
            "api": name.api,
            "minCount": self._min_count(pods[0]),
            "pods": len(pods),
            "placed": len(members.placed),
            "members": [self._member(info) for info in pods[:_MOST_MEMBERS]],
        }

    def _min_count(self, info: PodInfo) -> int | None:
        """How many members must have nodes at the same time; None if the profile does not schedule the group as one."""
        profile = self._scheduler.profiles.get(info.spec.scheduler_name)
        try:
            gang = None if profile is None else profile.gangs.gang_of(info)
        except PluginError:
            return None
        return None if gang is None else gang.min_count

    def _member(self, info: PodInfo) -> dict[str, str]:
        placed_pod = self._scheduler.cluster.placed_pod(info.uid)
        if placed_pod is not None:
            is_waiting = self._scheduler.waiting_pods.get(info.uid) is not None
            state = "waiting on permit" if is_waiting else "assumed" if placed_pod.assumed else "placed"
            return {"pod": info.key, "state": state, "node": placed_pod.node_name}
        queued = self._scheduler.queue.pods.get(info.uid)
        return {"pod": info.key, "state": "in flight" if queued is None else queued.place.value, "node": ""}


class ReportsSection(WholeSection):
    """The plugins that report about themselves; the reports are read on request."""

    name = "reports"

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def _read(self) -> dict[str, Any]:
        return {name: plugin.report_title for name, plugin in reporting_plugins(self._scheduler).items()}
