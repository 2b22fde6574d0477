"""The pods that the controllers of workloads create: names, labels, owners, claims and node affinity.

A Deployment creates a ReplicaSet, and that its pods; a CronJob creates one Job, as if it were due once. A Job has as
many pods as run at the same time. Generated names depend on the workload alone, so two runs give the same pods.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.api.core import Node, PodSpec
from kubestow.api.meta import convert
from kubestow.errors import InvalidObject
from kubestow.rules.admission import merged_tolerations
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, selects_node, untolerated

__all__ = ["Expansion", "Replica", "expand", "generated_suffix"]

Object = dict[str, Any]

#: The alphabet of generated names in Kubernetes: no vowels, so no words.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH, _HASH_LENGTH = 5, 10
#: Between the numbers of consecutive suffixes; coprime to the size of the alphabet, so no suffix recurs early.
_STRIDE = 6_700_417
_HASH_LABEL = "pod-template-hash"
_STATEFUL_SET_POD, _POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
#: What the DaemonSet controller makes its pods tolerate.
_DAEMON_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": effect}
    for taint, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_NETWORK_TOLERATION = {
    "key": "node.kubernetes.io/network-unavailable",
    "operator": "Exists",
    "effect": "NoSchedule",
}


@dataclass(frozen=True, slots=True)
class Replica:
    """What distinguishes a pod from its siblings: its name and further labels."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Expansion:
    """Pods that share one manifest but for their names and labels, and the other objects that controllers create."""

    pod: Object
    replicas: Sequence[Replica]
    objects: Sequence[Object] = ()


def expand(workload: Object, nodes: Callable[[], Sequence[Object]]) -> Iterator[Expansion]:
    """The pods of a workload with its namespace set; ``nodes`` are read for a DaemonSet. Raises InvalidObject."""
    match workload["kind"]:
        case "Deployment":
            yield _deployment(workload)
        case "ReplicaSet" | "ReplicationController":
            yield _replicas(workload, _pod_of(workload))
        case "StatefulSet":
            yield from _stateful_set(workload)
        case "DaemonSet":
            yield from _daemon_set(workload, nodes())
        case "Job":
            yield _job(workload)
        case "CronJob":
            yield from _cron_job(workload)


# -- controllers ---------------------------------------------------------------------------------------------------


def _deployment(deployment: Object) -> Expansion:
    """Creates a ReplicaSet named after a hash of the template."""
    spec = deployment["spec"]
    hash_ = generated_suffix(repr(spec.get("template")), length=_HASH_LENGTH)
    template = copy.deepcopy(_template(spec))
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), _HASH_LABEL: hash_}
    selector = copy.deepcopy(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH_LABEL: hash_}
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    replica_set: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"{name}-{hash_}", "namespace": namespace, "ownerReferences": [_owner(deployment)]},
        "spec": {"replicas": spec.get("replicas"), "selector": selector, "template": template},
    }
    replica_set["metadata"]["labels"] = metadata["labels"]
    expansion = _replicas(replica_set, _pod_of(replica_set))
    return Expansion(expansion.pod, expansion.replicas, [replica_set])


def _replicas(controller: Object, pod: Object) -> Expansion:
    name = controller["metadata"]["name"]
    return Expansion(pod, [_generated(name, index, {}) for index in range(_count(controller, "replicas"))])


def _stateful_set(stateful_set: Object) -> Iterator[Expansion]:
    """Pods with ordinals, each with a claim of every volume claim template."""
    spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
    templates = spec.get("volumeClaimTemplates") or ()
    first = (spec.get("ordinals") or {}).get("start") or 0
    for index, template in enumerate(templates):
        if not (template.get("metadata") or {}).get("name"):
            raise InvalidObject("required value", path=f"spec.volumeClaimTemplates[{index}].metadata.name")
    base = _pod_of(stateful_set)
    ordinals = range(first, first + _count(stateful_set, "replicas"))
    replicas = [Replica(f"{name}-{n}", {_STATEFUL_SET_POD: f"{name}-{n}", _POD_INDEX: str(n)}) for n in ordinals]
    if not templates:
        yield Expansion(base, replicas)
        return
    for replica in replicas:
        pod, claims = copy.deepcopy(base), []
        volumes = pod["spec"].setdefault("volumes", [])
        for template in templates:
            volume = template["metadata"]["name"]
            claim_name = f"{volume}-{replica.name}"
            claims.append(_claim(template, claim_name, stateful_set["metadata"]["namespace"]))
            volumes[:] = [v for v in volumes if v.get("name") != volume]
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}})
        yield Expansion(pod, [replica], claims)


def _claim(template: Object, name: str, namespace: str) -> Object:
    metadata = {**(template.get("metadata") or {}), "name": name, "namespace": namespace}
    spec = template.get("spec") or {}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _daemon_set(daemon_set: Object, nodes: Sequence[Object]) -> Iterator[Expansion]:
    """One pod for each node that it may run on; unschedulable nodes are included."""
    base, name = _pod_of(daemon_set), daemon_set["metadata"]["name"]
    spec = base["spec"]
    tolerations = [*_DAEMON_TOLERATIONS, *((_NETWORK_TOLERATION,) if spec.get("hostNetwork") else ())]
    spec["tolerations"] = merged_tolerations(spec, tolerations)
    selecting = convert(PodSpec, spec)
    for index, node in enumerate(nodes):
        if not _belongs_on(selecting, convert(Node, node)):
            continue
        pod = copy.deepcopy(base)
        _require_node(pod["spec"], node["metadata"]["name"])
        yield Expansion(pod, [_generated(name, index, {})])


def _belongs_on(spec: PodSpec, node: Node) -> bool:
    taints = untolerated(node.spec.taints, spec.tolerations, effects=(NO_SCHEDULE, NO_EXECUTE))
    return not taints and selects_node(spec, node.metadata.name, node.metadata.labels)


def _require_node(spec: Object, node_name: str) -> None:
    """Replace the required node affinity by the name of a node, as the DaemonSet controller does."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    node_affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}


def _job(job: Object) -> Expansion:
    """As many pods as run at the same time."""
    spec, name = job["spec"], job["metadata"]["name"]
    pod = _pod_of(job)
    pod["metadata"]["labels"] |= dict.fromkeys(_JOB_NAMES, name)
    if spec.get("suspend"):
        return Expansion(pod, [])
    parallelism, completions = _count(job, "parallelism"), spec.get("completions")
    count = parallelism if completions is None else min(parallelism, _integer(completions, "spec.completions"))
    if spec.get("completionMode") != "Indexed":
        return Expansion(pod, [_generated(name, index, {}) for index in range(count)])
    replicas = [_generated(f"{name}-{index}", index, {_COMPLETION_INDEX: str(index)}) for index in range(count)]
    return Expansion(pod, replicas)


def _cron_job(cron_job: Object) -> Iterator[Expansion]:
    """One run of its Job."""
    spec, metadata = cron_job["spec"], cron_job["metadata"]
    if spec.get("suspend"):
        return
    template = spec.get("jobTemplate") or {}
    job_metadata = {**(template.get("metadata") or {}), "name": f"{metadata['name']}-0"}
    job_metadata |= {"namespace": metadata["namespace"], "ownerReferences": [_owner(cron_job)]}
    yield _job({"apiVersion": "batch/v1", "kind": "Job", "metadata": job_metadata, "spec": template.get("spec") or {}})


# -- parts of pods -------------------------------------------------------------------------------------------------


def _template(spec: Object) -> Object:
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise InvalidObject("expected a pod template", path="spec.template")
    return template


def _pod_of(controller: Object) -> Object:
    """The manifest of a controller's pods, without a name."""
    template = _template(controller["spec"])
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": controller["metadata"]["namespace"],
            "labels": dict(metadata.get("labels") or {}),
            "annotations": dict(metadata.get("annotations") or {}),
            "ownerReferences": [_owner(controller)],
        },
        "spec": copy.deepcopy(template["spec"]),
    }


def _owner(controller: Object) -> Object:
    metadata = controller["metadata"]
    uid = metadata.get("uid") or f"{controller['kind']}/{metadata['namespace']}/{metadata['name']}".lower()
    return {
        "apiVersion": controller["apiVersion"],
        "kind": controller["kind"],
        "name": metadata["name"],
        "uid": uid,
        "controller": True,
    }


def _count(controller: Object, field: str) -> int:
    """A number of pods, 1 if it is not given."""
    value = controller["spec"].get(field)
    return 1 if value is None else _integer(value, f"spec.{field}")


def _integer(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidObject(f"expected a non-negative integer, got {value!r}", path=path)
    return value


def _generated(prefix: str, index: int, labels: Mapping[str, str]) -> Replica:
    return Replica(f"{prefix}-{generated_suffix(prefix, index)}", labels)


def generated_suffix(seed: str, index: int = 0, *, length: int = _SUFFIX_LENGTH) -> str:
    """A suffix that looks generated, depends on its arguments alone, and is another one for each ``index``."""
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    number = (start + index * _STRIDE) % len(_ALPHABET) ** length
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)
