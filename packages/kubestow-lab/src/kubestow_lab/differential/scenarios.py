"""Scenarios: a cluster and one pod, taken from recorded cases and mutated.

A mutation leaves objects out, copies a node or a pod under another name, changes an amount, or replaces a part of a
spec by that of another case: taints, labels, affinity, requests, priorities. So rules meet that no recorded case has
together. What results need not be valid; the API server rejects what is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kubestow_lab.conformance.recorded_cases import Case, Object, read_cases

#: Parts that are exchanged between the specs of pods, and between nodes.
_POD_PARTS = (
    *("affinity", "tolerations", "topologySpreadConstraints", "nodeSelector", "containers", "initContainers"),
    *("priority", "preemptionPolicy", "overhead", "volumes", "resourceClaims", "hostNetwork"),
)
_NODE_PARTS = (("spec", "taints"), ("metadata", "labels"), ("status", "allocatable"), ("status", "images"))
_AMOUNT = re.compile(r"\d+(m|Ki|Mi|Gi|k|M|G)?")
#: Mutations of one scenario, at most.
_MAX_MUTATIONS = 6
#: Objects in a scenario, at most: a play creates each of them.
_MAX_OBJECTS = 60


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster, its objects by plural resource name, and the pod to decide about. ``origin`` is a recorded case."""

    origin: str
    cluster: Mapping[str, list[Object]]
    pod: Object

    @property
    def size(self) -> int:
        return sum(map(len, self.cluster.values()))


def scenarios_of(paths: Iterable[Path]) -> list[Scenario]:
    """The scenarios of recorded cases with the default configuration: one for each pod, beside the cluster."""
    found = []
    for path in paths:
        for case in read_cases(path):
            if isinstance(case, Case) and case.config is None and not case.feature_gates:
                cluster = _existing(case.cluster)
                found += [Scenario(case.name, cluster, _ungated(pod)) for pod in case.pods]
    return [scenario for scenario in found if scenario.size <= _MAX_OBJECTS]


def _existing(cluster: Mapping[str, list[Object]]) -> dict[str, list[Object]]:
    """Without pods that have no node: the scheduler of a real cluster would decide about them, too."""
    existing = {plural: list(objects) for plural, objects in cluster.items() if objects}
    existing["pods"] = [pod for pod in existing.get("pods", ()) if pod["spec"].get("nodeName")]
    return existing


def _ungated(pod: Object) -> Object:
    """A pod that is pending, without gates, for the default scheduler."""
    spec = {name: value for name, value in pod["spec"].items() if name not in ("schedulingGates", "nodeName")}
    return {**pod, "spec": spec | {"schedulerName": "default-scheduler"}, "status": {}}


class Mutator:
    """Makes scenarios without end from those of recorded cases."""

    def __init__(self, recorded: Sequence[Scenario], random: Random) -> None:
        self._recorded, self._random = recorded, random

    def draw(self) -> Scenario:
        """A recorded scenario after a few mutations."""
        recorded = self._random.choice(self._recorded)
        cluster, pod = deepcopy(dict(recorded.cluster)), deepcopy(recorded.pod)
        for _ in range(self._random.randint(0, _MAX_MUTATIONS)):
            mutate = self._random.choice(_MUTATIONS)
            mutate(self, cluster, pod)
        return Scenario(recorded.origin, cluster, pod)

    def _donor(self) -> Scenario:
        return self._random.choice(self._recorded)

    def leave_out(self, cluster: dict[str, list[Object]], pod: Object) -> None:
        """Without one of the objects."""
        plural = self._random.choice(list(cluster))
        if len(cluster[plural]) > (plural == "nodes"):
            cluster[plural].pop(self._random.randrange(len(cluster[plural])))

    def copy(self, cluster: dict[str, list[Object]], pod: Object) -> None:
        """A node or a pod once more."""
        plural = self._random.choice(("nodes", "pods"))
        if not cluster.get(plural):
            return
        copied = deepcopy(self._random.choice(cluster[plural]))
        name = f"{copied['metadata']['name'][:40]}-{self._random.randrange(1000)}"
        copied["metadata"] = {**copied["metadata"], "name": name, "uid": f"uid-{name}"}
        labels = copied["metadata"].get("labels")
        if plural == "nodes" and labels and "kubernetes.io/hostname" in labels:
            labels["kubernetes.io/hostname"] = name
        cluster[plural].append(copied)

    def change_pod(self, cluster: dict[str, list[Object]], pod: Object) -> None:
        """A part of the spec of another pod, or its labels."""
        donor = deepcopy(self._donor().pod)
        part = self._random.choice(_POD_PARTS)
        if part in donor["spec"]:
            pod["spec"][part] = donor["spec"][part]
        elif part != "containers":
            pod["spec"].pop(part, None)
        if self._random.random() < 0.2:
            pod["metadata"]["labels"] = donor["metadata"].get("labels") or {}

    def change_placed_pod(self, cluster: dict[str, list[Object]], pod: Object) -> None:
        """The same of a pod on a node, or another node for it."""
        if not cluster.get("pods"):
            return
        placed = self._random.choice(cluster["pods"])
        if self._random.random() < 0.3:
            placed["spec"]["nodeName"] = self._random.choice(cluster["nodes"])["metadata"]["name"]
        else:
            self.change_pod(cluster, placed)

    def change_node(self, cluster: dict[str, list[Object]], pod: Object) -> None:
        """A part of another node, whose name stays."""
        node, donor = self._random.choice(cluster["nodes"]), self._donor()
        if not donor.cluster.get("nodes"):
            return
        other = deepcopy(self._random.choice(donor.cluster["nodes"]))
        section, field = self._random.choice(_NODE_PARTS)
        value = (other.get(section) or {}).get(field)
        if value is None:
            return
        node[section] = {**(node.get(section) or {}), field: value}
        if field == "labels" and "kubernetes.io/hostname" in value:
            value["kubernetes.io/hostname"] = node["metadata"]["name"]
        if field == "allocatable":
            node["status"]["capacity"] = value

    def change_amount(self, cluster: dict[str, list[Object]], pod: Object) -> None:
        """Another request of the pod, or another allocatable of a node."""
        node = self._random.choice(cluster["nodes"])
        allocatable: dict[str, Any] = (node.get("status") or {}).get("allocatable") or {}
        containers = pod["spec"].get("containers") or ()
        requests = [(container.get("resources") or {}).get("requests") or {} for container in containers]
        amounts = self._random.choice([*requests, allocatable])
        if not amounts:
            return
        name = self._random.choice(list(amounts))
        if (found := _AMOUNT.fullmatch(str(amounts[name]))) is not None:
            number = int(found[0].removesuffix(found[1] or ""))
            changed = self._random.choice((number // 2, number * 2, number + 1, max(0, number - 1), 0))
            amounts[name] = f"{changed}{found[1] or ''}"
        if amounts is allocatable:
            node["status"]["capacity"] = dict(allocatable)

    def transplant(self, cluster: dict[str, list[Object]], pod: Object) -> None:
        """The whole pod of another case."""
        pod["spec"] = deepcopy(self._donor().pod["spec"])


_MUTATIONS: tuple[Any, ...] = (
    *(Mutator.leave_out, Mutator.copy, Mutator.change_pod, Mutator.change_pod, Mutator.change_placed_pod),
    *(Mutator.change_node, Mutator.change_amount, Mutator.transplant),
)
