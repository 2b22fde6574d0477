"""Jobs as Workloads, and the pods of admitted Workloads.

A Job with the label ``kueue.x-k8s.io/queue-name`` becomes a Workload with one pod set: as many pods as run at the same
time, at least as many as the annotation ``kueue.x-k8s.io/job-min-parallelism`` says. When it is admitted, the labels
and tolerations of its flavors are added to its pods, as Kueue adds them to the template.
(Source: Kueue ``pkg/controller/jobs/job``, ``pkg/podset``.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubestow.api.core import PodSpec
from kubestow.api.meta import ObjectMeta, OwnerReference, convert
from kubestow.engine.input.admission import Admission as PodAdmission
from kubestow.engine.job_admission import JobPods, Owner
from kubestow.errors import InvalidObject
from kubestow.rules import workloads
from kubestow.rules.owners import controller_reference, generated_name, generated_suffix
from kubestow_contrib.kueue.objects import (
    GROUP,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    PodSet,
    PodTemplate,
    ResourceFlavor,
    TopologyRequest,
    Workload,
    WorkloadPriorityClass,
    WorkloadSpec,
)
from kubestow_contrib.kueue.workload_info import WorkloadInfo

Object = dict[str, Any]

_MIN_PARALLELISM = f"{GROUP}/job-min-parallelism"
_MOST_PODS = 1_000_000
_TOPOLOGY_ANNOTATIONS = (
    "required-topology",
    "preferred-topology",
    "unconstrained-topology",
    "slice-required-topology",
    "slice-size",
)


def queue_of(job: Object) -> str:
    """The LocalQueue that a Job of the API group batch names; "" for none, and for other kinds."""
    if (job.get("apiVersion"), job.get("kind")) != ("batch/v1", "Job"):
        return ""
    labels = (job.get("metadata") or {}).get("labels") or {}
    return str(labels.get(QUEUE_LABEL) or "")


def workload_of(
    job: Object, admission: PodAdmission, classes: Mapping[str, WorkloadPriorityClass], now: float
) -> Workload:
    """The Workload of a Job with its namespace set, whose pods are completed by ``admission``, as created now.

    Raises InvalidObject.
    """
    metadata, spec = job["metadata"], job.get("spec") or {}
    name, namespace = metadata["name"], metadata["namespace"]
    pod = _pod_of(job)
    admission.admit(pod, namespace)
    count = _count(spec.get("parallelism"), "spec.parallelism", 1)
    if spec.get("completions") is not None:
        count = min(count, _count(spec["completions"], "spec.completions", 1))
    minimum = (metadata.get("annotations") or {}).get(_MIN_PARALLELISM)
    labels = metadata.get("labels") or {}
    class_name = labels.get(PRIORITY_CLASS_LABEL)
    if class_name and class_name not in classes:
        raise InvalidObject(
            f"no WorkloadPriorityClass {class_name} in the input", path=f"metadata.labels[{PRIORITY_CLASS_LABEL}]"
        )
    priority = classes[class_name].value if class_name else pod["spec"].get("priority", 0)
    template = convert(PodTemplate, {"metadata": pod["metadata"], "spec": pod["spec"]})
    pod_set = PodSet(
        count=count,
        min_count=None if minimum is None else _minimum(minimum, count),
        template=template,
        topology_request=_topology_request(template.metadata.annotations),
    )
    uid = _uid(job)
    return Workload(
        metadata=ObjectMeta(
            name=generated_name(f"job-{name}-", generated_suffix(uid)),
            namespace=namespace,
            uid=f"workload/{uid}",
            owner_references=[convert(OwnerReference, _reference(job))],
            creation_timestamp=datetime.fromtimestamp(now, UTC).isoformat(),
        ),
        spec=WorkloadSpec(pod_sets=[pod_set], queue_name=labels[QUEUE_LABEL], priority=priority),
    )


def _topology_request(annotations: Mapping[str, str]) -> TopologyRequest | None:
    """What the annotations of a pod template ask of the topology. Raises InvalidObject."""
    given = {name: annotations.get(f"{GROUP}/podset-{name}") for name in _TOPOLOGY_ANNOTATIONS}
    if not any(given.values()):
        return None
    size = given["slice-size"]
    if size is not None and (not size.isdigit() or not int(size)):
        path = f"spec.template.metadata.annotations[{GROUP}/podset-slice-size]"
        raise InvalidObject(f"expected a positive number, got {size!r}", path=path)
    return TopologyRequest(
        required=given["required-topology"],
        preferred=given["preferred-topology"],
        unconstrained=True if given["unconstrained-topology"] == "true" else None,
        pod_set_slice_required_topology=given["slice-required-topology"],
        pod_set_slice_size=None if size is None else int(size),
    )


def owner_of(workload: Workload) -> Owner:
    """The job that a Workload is of, itself if it is of none."""
    metadata = workload.metadata
    controller = metadata.controller or next(iter(metadata.owner_references), None)
    if controller is None:
        return Owner("Workload", metadata.namespace, metadata.name)
    return Owner(controller.kind, metadata.namespace, controller.name)


def pods_of(info: WorkloadInfo, job: Object | None, flavors: Mapping[str, ResourceFlavor]) -> Iterator[JobPods]:
    """The pods of an admitted Workload: of the Job that it was made of, or else of its own pod sets.

    Pods with a topology assignment select the nodes of their domains, in the order of both.
    """
    workload = info.workload
    owner = owner_of(workload)
    for spec, admitted in zip(workload.spec.pod_sets, info.pod_sets, strict=True):
        if job is not None:
            pod = _pod_of(job)
            indexed = (job.get("spec") or {}).get("completionMode") == "Indexed"
            prefix = job["metadata"]["name"]
        else:
            pod = _pod_of_template(spec.template, workload, owner)
            indexed = False
            prefix = owner.name if len(workload.spec.pod_sets) == 1 else f"{owner.name}-{spec.name}"
        _add_flavors(pod["spec"], admitted.flavors, flavors)
        names = [_pod_name(prefix, index, indexed=indexed) for index in range(admitted.count)]
        if admitted.topology is None:
            yield JobPods(pod, names)
            continue
        first = 0
        for domain in admitted.topology.domains:
            in_domain = copy.deepcopy(pod)
            selector = dict(zip(admitted.topology.levels, domain.values, strict=True))
            in_domain["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), **selector}
            yield JobPods(in_domain, names[first : first + domain.count])
            first += domain.count


def _add_flavors(spec: Object, assigned: Mapping[str, str], flavors: Mapping[str, ResourceFlavor]) -> None:
    """Have pods run on nodes of their flavors."""
    for name in dict.fromkeys(assigned.values()):
        flavor = flavors.get(name)
        if flavor is None:
            continue
        if flavor.spec.node_labels:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **flavor.spec.node_labels}
        if flavor.spec.tolerations:
            added = msgspec.to_builtins(flavor.spec.tolerations)
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def _pod_name(prefix: str, index: int, *, indexed: bool) -> tuple[str, Mapping[str, str]]:
    if indexed:
        start = workloads.completion_index_prefix(prefix, index)
        return generated_name(start, generated_suffix(start, index)), {workloads.COMPLETION_INDEX: str(index)}
    return generated_name(f"{prefix}-", generated_suffix(prefix, index)), {}


def _pod_of(job: Object) -> Object:
    """The manifest of a Job's pods, without a name."""
    metadata, spec = job["metadata"], job.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise InvalidObject("expected a pod template", path="spec.template")
    pod = copy.deepcopy(workloads.pod_from_template(metadata["name"], template, _reference(job)))
    labels = {**(pod["metadata"].get("labels") or {})}
    if not spec.get("manualSelector"):
        labels |= workloads.job_pod_labels(metadata["name"], _uid(job))
    pod["metadata"] |= {"namespace": metadata["namespace"], "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"], "spec": pod["spec"]}


def _pod_of_template(template: PodTemplate, workload: Workload, owner: Owner) -> Object:
    """The manifest of the pods of a pod set, without a name; it has the fields that scheduling reads."""
    spec: PodSpec = template.spec
    reference = next(iter(workload.metadata.owner_references), None)
    api_version = reference.api_version if reference is not None else f"{GROUP}/v1beta2"
    uid = reference.uid if reference is not None else workload.metadata.uid
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": owner.namespace,
            "labels": dict(template.metadata.labels),
            "annotations": dict(template.metadata.annotations),
            "ownerReferences": [controller_reference(api_version, owner.kind, name=owner.name, uid=uid)],
        },
        "spec": msgspec.to_builtins(spec),
    }


def _reference(job: Object) -> Object:
    return controller_reference(job["apiVersion"], job["kind"], name=job["metadata"]["name"], uid=_uid(job))


def _uid(job: Object) -> str:
    metadata = job["metadata"]
    return metadata.get("uid") or f"{job['kind']}/{metadata['namespace']}/{metadata['name']}".lower()


def _count(value: Any, path: str, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_PODS:
        raise InvalidObject(f"expected a number from 0 to {_MOST_PODS:,}, got {value!r}", path=path)
    return value


def _minimum(text: str, count: int) -> int:
    path = f"metadata.annotations[{_MIN_PARALLELISM}]"
    if not text.isdigit() or not 0 < int(text) <= count:
        raise InvalidObject(f"expected a number from 1 to {count}, got {text!r}", path=path)
    return int(text)
