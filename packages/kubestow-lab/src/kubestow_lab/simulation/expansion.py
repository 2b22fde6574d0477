"""The pods that the controllers of workloads create: names, labels, owners, claims and node affinity.

A Deployment creates a ReplicaSet, and that its pods; a CronJob creates one Job, as if it were due once. A Job has as
many pods as run at the same time. Generated names depend on the workload alone, so two runs give the same pods.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.api.core import Node, PodSpec
from kubestow.api.meta import convert
from kubestow.errors import InvalidObject
from kubestow.rules import workloads
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, selects_node, untolerated
from kubestow.rules.owners import controller_reference, generated_name, generated_suffix, template_hash

Object = dict[str, Any]

#: Pods of one controller; the largest clusters have 150,000 in all.
_MAX_PODS = 1_000_000


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
    hash_ = template_hash(_template(spec))
    owned = workloads.replica_set_of(deployment, hash_, _reference(deployment), replicas=spec.get("replicas"))
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", **owned}
    expansion = _replicas(replica_set, _pod_of(replica_set))
    return Expansion(expansion.pod, expansion.replicas, [replica_set])


def _replicas(controller: Object, pod: Object) -> Expansion:
    return Expansion(pod, [_generated(pod, index) for index in range(_count(controller, "replicas"))])


def _stateful_set(stateful_set: Object) -> Iterator[Expansion]:
    """Pods with ordinals, each with a claim of every volume claim template."""
    spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
    templates = spec.get("volumeClaimTemplates") or ()
    first = (spec.get("ordinals") or {}).get("start") or 0
    for index, template in enumerate(templates):
        if not (template.get("metadata") or {}).get("name"):
            raise InvalidObject("required value", path=f"spec.volumeClaimTemplates[{index}].metadata.name")
    base = _pod_of(stateful_set)
    del base["metadata"]["generateName"]
    base["metadata"]["labels"][workloads.REVISION_LABEL] = f"{name}-{template_hash(_template(spec))}"
    ordinals = range(first, first + _count(stateful_set, "replicas"))
    replicas = [Replica(f"{name}-{n}", workloads.stateful_pod_labels(f"{name}-{n}", n)) for n in ordinals]
    if not templates:
        yield Expansion(base, replicas)
        return
    for replica in replicas:
        pod = copy.deepcopy(base)
        workloads.mount_claims(pod["spec"], stateful_set, replica.name)
        claims = [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim}
            for _, claim in workloads.stateful_set_claims(stateful_set, replica.name)
        ]
        yield Expansion(pod, [replica], claims)


def _daemon_set(daemon_set: Object, nodes: Sequence[Object]) -> Iterator[Expansion]:
    """One pod for each node that it may run on; unschedulable nodes are included."""
    base = _pod_of(daemon_set)
    hash_ = template_hash(_template(daemon_set["spec"]))
    base["metadata"]["labels"] |= workloads.daemon_pod_labels(hash_, generation="1")
    workloads.tolerate_node_conditions(base["spec"])
    selecting = convert(PodSpec, base["spec"])
    for index, node in enumerate(nodes):
        decoded = convert(Node, node)
        name, labels = decoded.metadata.name, decoded.metadata.labels
        taints = untolerated(decoded.spec.taints, selecting.tolerations, effects=(NO_SCHEDULE, NO_EXECUTE))
        if not taints and selects_node(selecting, name, labels):
            pod = copy.deepcopy(base)
            workloads.require_node(pod["spec"], name)
            yield Expansion(pod, [_generated(pod, index)])


def _job(job: Object) -> Expansion:
    """As many pods as run at the same time."""
    spec, name = job["spec"], job["metadata"]["name"]
    pod = _pod_of(job)
    if not spec.get("manualSelector"):
        pod["metadata"]["labels"] |= workloads.job_pod_labels(name, _uid(job))
    if spec.get("suspend"):
        return Expansion(pod, [])
    parallelism, completions = _count(job, "parallelism"), spec.get("completions")
    count = parallelism if completions is None else min(parallelism, _integer(completions, "spec.completions"))
    if spec.get("completionMode") != "Indexed":
        return Expansion(pod, [_generated(pod, index) for index in range(count)])
    names = (_generated_name(workloads.completion_index_prefix(name, index), index) for index in range(count))
    return Expansion(pod, [Replica(one, {workloads.COMPLETION_INDEX: str(index)}) for index, one in enumerate(names)])


def _cron_job(cron_job: Object) -> Iterator[Expansion]:
    """One run of its Job."""
    if cron_job["spec"].get("suspend"):
        return
    owned = workloads.job_of_cron_job(cron_job, 0, _reference(cron_job), scheduled=None)
    job = {"apiVersion": "batch/v1", "kind": "Job", **owned}
    expansion = _job(job)
    yield Expansion(expansion.pod, expansion.replicas, [*expansion.objects, job])


# -- parts of pods -------------------------------------------------------------------------------------------------


def _template(spec: Object) -> Object:
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise InvalidObject("expected a pod template", path="spec.template")
    return template


def _pod_of(controller: Object) -> Object:
    """The manifest of a controller's pods, without a name."""
    name, template = controller["metadata"]["name"], _template(controller["spec"])
    pod = copy.deepcopy(workloads.pod_from_template(name, template, _reference(controller)))
    metadata = {"namespace": controller["metadata"]["namespace"], "labels": {}, **pod["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


def _reference(controller: Object) -> Object:
    name = controller["metadata"]["name"]
    return controller_reference(controller["apiVersion"], controller["kind"], name=name, uid=_uid(controller))


def _uid(controller: Object) -> str:
    metadata = controller["metadata"]
    uid: str | None = metadata.get("uid")
    return uid or f"{controller['kind']}/{metadata['namespace']}/{metadata['name']}".lower()


def _count(controller: Object, field: str) -> int:
    """A number of pods, 1 if it is not given."""
    value = controller["spec"].get(field)
    return 1 if value is None else _integer(value, f"spec.{field}")


def _integer(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidObject(f"expected a non-negative integer, got {value!r}", path=path)
    if value > _MAX_PODS:
        raise InvalidObject(f"expected at most {_MAX_PODS:,} pods, got {value:,}", path=path)
    return value


def _generated(pod: Object, index: int) -> Replica:
    return Replica(_generated_name(pod["metadata"]["generateName"], index), {})


def _generated_name(generate_name: str, index: int) -> str:
    return generated_name(generate_name, generated_suffix(generate_name.removesuffix("-"), index))
