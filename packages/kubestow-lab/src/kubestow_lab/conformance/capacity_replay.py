"""Replay of recorded capacity reports, to compare kubestow with cluster-capacity.

The recording marks what was the same in all its runs, and only that is compared. Among nodes of equal score, which
cluster-capacity chooses from at random, the replay prefers the recorded one. The program decides as the minor version
of its libraries. The message of TaintToleration named the taint in early releases of 1.34.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow.framework.evaluation.row_totals import BestRows
from kubestow.framework.profile import Registry
from kubestow.rules.pods import is_terminal
from kubestow.scheduling.events.resources import NODES, PODS, WATCHED
from kubestow_lab.capacity.capacity_report import document
from kubestow_lab.capacity.estimate import COPIED_KINDS, Capacity, CapacityOptions, estimate
from kubestow_lab.capacity.pod_template import PodTemplate
from kubestow_lab.conformance.recorded_cases import CapacityCase, Object
from kubestow_lab.conformance.scheduling_replay import ReplayMismatch, configuration_of, differing

_RESOURCES = {resource.plural: resource for resource in WATCHED}
_INVALID = "Failed to parse pod spec file: "


@dataclass(frozen=True, slots=True)
class _AsRecorded:
    """Of the best nodes, the one that was recorded.

    ``sequence`` has the nodes of all placements where they were recorded; ``before`` is the number of pods on nodes
    before the first of these. Otherwise, of the best nodes, that which the recording has first; others come last, by
    name.
    """

    order: tuple[str, ...]
    sequence: tuple[str, ...]
    before: int

    def choose(self, cluster: ClusterCache, rows: BestRows) -> int:
        """The preferred row."""
        names = cluster.nodes.names
        placements = int(cluster.all_nodes().pod_count.sum()) - self.before
        recorded = self.sequence[placements : placements + 1]
        rank = {name: position for position, name in enumerate(self.order)} | dict.fromkeys(recorded, -1)
        return min(map(int, rows), key=lambda row: (rank.get(names[row], len(rank)), names[row]))


def replay_capacity(case: CapacityCase, registry: Registry) -> list[ReplayMismatch]:
    """Replay one case and return what differs from the recording."""
    try:
        capacity = _estimate(case, registry)
    except InputError as error:
        fields = [("error", case.expect.get("error"), f"{_INVALID}{error.problem}")]
    else:
        fields = list(_compared(case.expect, capacity))
    return differing(case.name, case.pod["metadata"]["name"], fields)


def _estimate(case: CapacityCase, registry: Registry) -> Capacity:
    template = PodTemplate(case.pod, case.name)
    gates = config.FeatureGates(minor=case.minor)
    configuration = configuration_of(case, registry, gates)
    order = tuple(name for name, _ in _recorded_nodes(case.expect))
    cluster = _cluster(case)
    nodes = {node.metadata.name for node in cluster.nodes} - case.excluded_nodes
    before = sum(1 for pod in cluster.pods if pod.spec.node_name in nodes)
    ties = _AsRecorded(order, tuple(_recorded_sequence(case.expect)), before)
    options = CapacityOptions(
        max_limit=case.max_limit, excluded_nodes=case.excluded_nodes, ties=ties, kinds=COPIED_KINDS
    )
    return estimate(cluster, template, configuration, registry=registry, gates=gates, options=options)


def _cluster(case: CapacityCase) -> ClusterObjects:
    cluster = ClusterObjects()
    for plural, objects in case.cluster.items():
        resource = _RESOURCES[plural]
        for manifest in objects:
            obj = convert(resource.type, manifest)
            if resource == NODES:
                cluster.nodes.append(obj)
            elif resource != PODS:
                cluster.objects.append(obj)
            elif isinstance(obj, Pod) and not is_terminal(obj.status.phase):
                cluster.pods.append(obj)
    return cluster


def _compared(expect: Object, capacity: Capacity) -> Iterator[tuple[str, Any, Any]]:
    """Each compared field as (path, expected, actual)."""
    if "error" in expect:
        yield "error", expect["error"], None
        return
    report, stable, status = document(capacity, ""), expect["stable"], expect["status"]
    yield "spec", expect["spec"], report["spec"]
    if stable["total"]:
        yield "status.replicas", status["replicas"], capacity.replicas
    elif capacity.replicas not in expect["totals"]:
        yield "status.replicas", expect["totals"], capacity.replicas
    if stable["failReason"]:
        reason = report["status"]["failReason"]
        yield "status.failReason.failType", status["failReason"]["failType"], reason["failType"]
        expected = without_taints(status["failReason"]["failMessage"])
        yield "status.failReason.failMessage", expected, reason["failMessage"]
    recorded, placed = _recorded_nodes(expect), list(capacity.per_node().items())
    if stable["perNode"]:
        yield "status.pods.replicasOnNodes", dict(recorded), dict(placed)
        if stable["nodeOrder"]:
            yield "status.pods.replicasOnNodes.nodeName", [name for name, _ in recorded], [name for name, _ in placed]
    if stable["sequence"] and "sequence" in expect:
        yield "sequence", _recorded_sequence(expect), capacity.nodes


def _recorded_sequence(expect: Object) -> list[str]:
    return [entry.partition("@")[2] for entry in expect.get("sequence") or ()]


def _recorded_nodes(expect: Object) -> list[tuple[str, int]]:
    pods = (expect.get("status") or {}).get("pods") or ()
    return [(entry["nodeName"], entry["replicas"]) for pod in pods for entry in pod.get("replicasOnNodes") or ()]


_MESSAGE = re.compile(r"(0/\d+ nodes are available: )(.*?)\.( no new claims.*)?")
_TAINT = re.compile(r"untolerated taint \{[^}]*\}")


def without_taints(message: str) -> str:
    """A message of early 1.34 as later releases write it: taints are counted together."""
    found = _MESSAGE.fullmatch(message)
    if found is None:
        return message
    counts = Counter[str]()
    for part in re.split(r", (?=\d+ )", found[2]):
        count, _, reason = part.partition(" ")
        counts[_TAINT.sub("untolerated taint(s)", reason)] += int(count)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"{found[1]}{reasons}.{found[3] or ''}"
