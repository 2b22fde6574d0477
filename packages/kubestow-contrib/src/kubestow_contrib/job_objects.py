"""The pods that the controllers of JobSet, LeaderWorkerSet, RayCluster, RayJob and TrainJob create.

Offline commands expand these workloads (entry point group ``kubestow.workload_kinds``). All pods are created at once:
start-up orders, ``dependsOn``, retries and autoscaling are not applied. Pods have the labels by which their job is
known (:mod:`kubestow.rules.jobs`) and the names of a first start. A suspended workload has no pods.
(Sources: JobSet ``pkg/controllers``, LeaderWorkerSet ``pkg/controllers`` and ``pkg/webhooks``, KubeRay
``ray-operator/controllers/ray``, Kubeflow Trainer ``pkg/runtime``.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from kubestow.errors import InvalidObject
from kubestow.plugins.registry import References
from kubestow.rules import workloads
from kubestow.rules.owners import controller_reference, generated_name, generated_suffix

Object = dict[str, Any]

_JOBSET, _LWS = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
_RAY, _TRAINER = "ray.io", "trainer.kubeflow.org"
_ANCESTOR = f"{_TRAINER}/trainjob-ancestor-step"
_DEFAULT_RUNTIME = "ClusterTrainingRuntime"
_MOST_PODS = 1_000_000
#: What the pod requests that submits a RayJob, unless its template says otherwise.
_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


# -- JobSet ----------------------------------------------------------------------------------------------------------


def objects_of_job_set(job_set: Object, references: References) -> Iterator[Object]:
    """The pods of the Jobs of a JobSet with its namespace set. Raises InvalidObject."""
    spec, name = job_set["spec"], job_set["metadata"]["name"]
    if spec.get("suspend"):
        return
    for index, replicated in enumerate(_list(spec, "replicatedJobs")):
        path = f"spec.replicatedJobs[{index}]"
        template = replicated.get("template") or {}
        for number in range(count_of(replicated, "replicas", path, 1)):
            job_name = f"{name}-{replicated['name']}-{number}"
            metadata = template.get("metadata") or {}
            labels = {
                **(metadata.get("labels") or {}),
                f"{_JOBSET}/jobset-name": name,
                f"{_JOBSET}/replicatedjob-name": replicated["name"],
                f"{_JOBSET}/job-index": str(number),
            }
            annotations = {**(metadata.get("annotations") or {}), **labels}
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**job_set["metadata"], "name": job_name}}
            yield {**job, "spec": template.get("spec") or {}}
            yield from _pods_of_job(job, template.get("spec") or {}, f"{path}.template.spec", labels, annotations)


def _pods_of_job(
    job: Object, spec: Object, path: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Iterator[Object]:
    """The pods of an indexed Job, which is what controllers of jobs make by default."""
    name = job["metadata"]["name"]
    parallelism = count_of(spec, "parallelism", path, 1)
    count = min(parallelism, count_of(spec, "completions", path, parallelism))
    job_labels = {**labels, **workloads.job_pod_labels(name, f"job/{job['metadata']['namespace']}/{name}")}
    for number in range(count):
        prefix = workloads.completion_index_prefix(name, number)
        own = {**job_labels, workloads.COMPLETION_INDEX: str(number)}
        pod_name = generated_name(prefix, generated_suffix(prefix, number))
        yield _pod(job, spec.get("template"), f"{path}.template", pod_name, own, annotations)


# -- LeaderWorkerSet -------------------------------------------------------------------------------------------------


def objects_of_leader_worker_set(leader_worker_set: Object, references: References) -> Iterator[Object]:
    """The leaders and workers of all groups. Raises InvalidObject."""
    spec, name = leader_worker_set["spec"], leader_worker_set["metadata"]["name"]
    template = spec.get("leaderWorkerTemplate") or {}
    size = count_of(template, "size", "spec.leaderWorkerTemplate", 1)
    for group in range(count_of(spec, "replicas", "spec", 1)):
        for worker in range(size):
            leads = worker == 0 and template.get("leaderTemplate") is not None
            field = "leaderTemplate" if leads else "workerTemplate"
            labels = {
                f"{_LWS}/name": name,
                f"{_LWS}/group-index": str(group),
                f"{_LWS}/worker-index": str(worker),
            }
            leader = f"{name}-{group}"
            annotations = {f"{_LWS}/size": str(size), **({f"{_LWS}/leader-name": leader} if worker else {})}
            metadata = {**leader_worker_set["metadata"], "name": leader if worker else name}
            owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata}
            pod_name = f"{leader}-{worker}" if worker else leader
            path = f"spec.leaderWorkerTemplate.{field}"
            yield _pod(owner, template.get(field), path, pod_name, labels, annotations)


# -- Ray -------------------------------------------------------------------------------------------------------------


def objects_of_ray_cluster(ray_cluster: Object, references: References) -> Iterator[Object]:
    """The head and the workers of a RayCluster. Raises InvalidObject."""
    yield from _ray_pods(ray_cluster, ray_cluster["spec"], "spec", {})


def objects_of_ray_job(ray_job: Object, references: References) -> Iterator[Object]:
    """The pods of the RayCluster of a RayJob, and the pod that submits the job. Raises InvalidObject."""
    spec, metadata = ray_job["spec"], ray_job["metadata"]
    if spec.get("suspend"):
        return
    origin = {f"{_RAY}/originated-from-crd": "RayJob", f"{_RAY}/originated-from-cr-name": metadata["name"]}
    cluster_spec = spec.get("rayClusterSpec")
    if cluster_spec is not None:
        cluster_name = generated_name(f"{metadata['name']}-", generated_suffix(metadata["name"]))
        cluster = {"apiVersion": ray_job["apiVersion"], "kind": "RayCluster"}
        cluster["metadata"] = {"name": cluster_name, "namespace": metadata["namespace"]}
        yield from _ray_pods(cluster, cluster_spec, "spec.rayClusterSpec", origin)
    if (spec.get("submissionMode") or "K8sJobMode") == "K8sJobMode":
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        container = {"name": "ray-job-submitter", "resources": _SUBMITTER}
        template = spec.get("submitterPodTemplate") or {
            "metadata": _head_metadata(cluster_spec),
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        labels = {**origin, **workloads.job_pod_labels(metadata["name"], f"job/{metadata['name']}")}
        name = generated_name(f"{metadata['name']}-", generated_suffix(metadata["name"], 0))
        yield _pod(job, template, "spec.submitterPodTemplate", name, labels, {})


def _head_metadata(cluster_spec: Object | None) -> Object:
    """The annotations of the head, which say in which queue the job is: for the pod that submits it."""
    head = ((cluster_spec or {}).get("headGroupSpec") or {}).get("template") or {}
    return {"annotations": dict((head.get("metadata") or {}).get("annotations") or {})}


def _ray_pods(cluster: Object, spec: Object, path: str, origin: Mapping[str, str]) -> Iterator[Object]:
    name = cluster["metadata"]["name"]
    if spec.get("suspend"):
        return

    def labels(kind: str, group: str) -> dict[str, str]:
        own = {f"{_RAY}/cluster": name, f"{_RAY}/node-type": kind, f"{_RAY}/group": group, f"{_RAY}/is-ray-node": "yes"}
        return {**own, **origin}

    head = spec.get("headGroupSpec") or {}
    head_path = f"{path}.headGroupSpec.template"
    yield _pod(cluster, head.get("template"), head_path, f"{name}-head", labels("head", "headgroup"), {})
    for index, group in enumerate(spec.get("workerGroupSpecs") or ()):
        at = f"{path}.workerGroupSpecs[{index}]"
        least = count_of(group, "minReplicas", at, 0)
        replicas = max(least, count_of(group, "replicas", at, least))
        replicas = 0 if group.get("suspend") else min(replicas, count_of(group, "maxReplicas", at, replicas))
        own = labels("worker", group["groupName"])
        prefix = f"{name}-{group['groupName']}-worker-"
        for number in range(replicas * count_of(group, "numOfHosts", at, 1)):
            pod_name = generated_name(prefix, generated_suffix(prefix, number))
            yield _pod(cluster, group.get("template"), f"{at}.template", pod_name, own, {})


# -- TrainJob --------------------------------------------------------------------------------------------------------


def objects_of_train_job(train_job: Object, references: References) -> Iterator[Object]:
    """The pods of the JobSet that a TrainJob's runtime describes. Raises InvalidObject, also without the runtime."""
    spec, metadata = train_job["spec"], train_job["metadata"]
    if spec.get("suspend"):
        return
    reference = spec.get("runtimeRef") or {}
    kind, name = reference.get("kind") or _DEFAULT_RUNTIME, reference.get("name") or ""
    runtime = references(kind, "" if kind == _DEFAULT_RUNTIME else metadata["namespace"], name)
    if runtime is None:
        raise InvalidObject(f"there is no {kind} {name} in the input", path="spec.runtimeRef")
    trainer = spec.get("trainer") or {}
    policy = runtime["spec"].get("mlPolicy") or {}
    nodes = count_of(trainer, "numNodes", "spec.trainer", count_of(policy, "numNodes", "spec.mlPolicy", 1))
    job_set_spec = copy.deepcopy((runtime["spec"].get("template") or {}).get("spec") or {})
    for replicated in job_set_spec.get("replicatedJobs") or ():
        template = replicated.get("template") or {}
        step = ((template.get("metadata") or {}).get("labels") or {}).get(_ANCESTOR)
        if step == "trainer":
            template["spec"] |= {"parallelism": nodes, "completions": nodes}
            if resources := trainer.get("resourcesPerNode"):
                for container in template["spec"]["template"]["spec"]["containers"]:
                    if container["name"] == "node":
                        container["resources"] = resources
        pod_template = template["spec"]["template"]
        own = pod_template.get("metadata") or {}
        pod_template["metadata"] = {
            **own,
            "labels": {**(own.get("labels") or {}), **(spec.get("labels") or {})},
            "annotations": {**(own.get("annotations") or {}), **(spec.get("annotations") or {})},
        }
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": job_set_spec}
    yield from objects_of_job_set(job_set, references)


# -- parts of all ----------------------------------------------------------------------------------------------------


def _pod(
    owner: Object,
    template: Object | None,
    path: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Object:
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise InvalidObject("expected a pod template", path=path)
    namespace, owner_name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    uid = f"{owner['kind']}/{namespace}/{owner_name}".lower()
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
            "ownerReferences": [controller_reference(owner["apiVersion"], owner["kind"], name=owner_name, uid=uid)],
        },
        "spec": copy.deepcopy(template["spec"]),
    }


def _list(of: Object, field: str) -> list[Object]:
    found = of.get(field)
    if not isinstance(found, list) or not found:
        raise InvalidObject("expected at least one", path=f"spec.{field}")
    return found


def count_of(of: Object, field: str, path: str, default: int) -> int:
    """A number of pods in a field; ``path`` is that of the object. Raises InvalidObject."""
    value = of.get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_PODS:
        raise InvalidObject(f"expected a number from 0 to {_MOST_PODS:,}, got {value!r}", path=f"{path}.{field}")
    return value
