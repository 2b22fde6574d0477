"""The objects that the controllers of workloads create from templates: pods, ReplicaSets, Jobs and claims.

Manifests in, manifests out. One section for each kind of controller (kube-controller-manager's ``pkg/controller``);
functions that are named by a verb change their argument in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kubestow.rules.owners import SUFFIX_LENGTH

Object = dict[str, Any]

#: The label of ReplicaSets of a Deployment and of their pods, with the hash of their template.
POD_TEMPLATE_HASH = "pod-template-hash"
#: The pod label with the name of the pod's ControllerRevision; daemon pods have the hash in it instead.
REVISION_LABEL = "controller-revision-hash"
#: The label, and the annotation, of a pod of an indexed Job with its completion index.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

_POD_NAME, _POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_TEMPLATE_GENERATION = "pod-template-generation"
_JOB_LABEL_PREFIXES = ("", "batch.kubernetes.io/")
_SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_LONGEST_SUBDOMAIN = 253
_LONGEST_PREFIX = 63 - SUFFIX_LENGTH


def pod_from_template(owner_name: str, template: Object, reference: Object) -> Object:
    """The pod of a controller, without a name; it shares parts with the template (``GetPodFromTemplate``).

    ``reference`` is the owner reference to the controller.
    """
    template_metadata = template.get("metadata") or {}
    metadata: Object = {"generateName": f"{owner_name}-" if len(owner_name) < _LONGEST_SUBDOMAIN else owner_name}
    for field in ("labels", "annotations", "finalizers"):
        if template_metadata.get(field):
            metadata[field] = template_metadata[field]
    metadata["ownerReferences"] = [reference]
    return {"metadata": metadata, "spec": template["spec"]}


# -- Deployments ---------------------------------------------------------------------------------------------------


def replica_set_of(deployment: Object, hash_: str, reference: Object, *, replicas: int | None) -> Object:
    """The ReplicaSet of a Deployment's template with this hash, without annotations (``getNewReplicaSet``)."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template_metadata = spec["template"].get("metadata") or {}
    labels = {**(template_metadata.get("labels") or {}), POD_TEMPLATE_HASH: hash_}
    selector = spec.get("selector") or {}
    match_labels = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: hash_}
    replica_set: Object = {
        "metadata": {
            "name": f"{metadata['name']}-{hash_}",
            "namespace": metadata["namespace"],
            "labels": dict(labels),
            "ownerReferences": [reference],
        },
        "spec": {
            "replicas": replicas,
            "selector": {**selector, "matchLabels": match_labels},
            "template": {**spec["template"], "metadata": {**template_metadata, "labels": labels}},
        },
    }
    if spec.get("minReadySeconds"):
        replica_set["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    return replica_set


# -- StatefulSets --------------------------------------------------------------------------------------------------


def stateful_pod_labels(name: str, ordinal: int) -> dict[str, str]:
    """The labels that identify a pod of a StatefulSet (``updateIdentity``)."""
    return {_POD_NAME: name, _POD_INDEX: str(ordinal)}


def mount_claims(pod_spec: Object, stateful_set: Object, pod_name: str) -> None:
    """Have a pod mount its claims: their volumes come first, in place of those of the same name (``updateStorage``)."""
    claims = {volume: claim["metadata"]["name"] for volume, claim in stateful_set_claims(stateful_set, pod_name)}
    volumes = [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()]
    volumes += [volume for volume in pod_spec.get("volumes") or () if volume.get("name") not in claims]
    if volumes:
        pod_spec["volumes"] = volumes


def stateful_set_claims(stateful_set: Object, pod_name: str) -> Iterator[tuple[str, Object]]:
    """The claims of a pod, each with the name of its volume; they have no owners yet (``getPersistentVolumeClaims``).

    Claims have the labels of their template and those that the set's selector requires.
    """
    match_labels = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        volume = template["metadata"]["name"]
        metadata: Object = {"name": f"{volume}-{pod_name}", "namespace": stateful_set["metadata"]["namespace"]}
        if labels := {**(template["metadata"].get("labels") or {}), **match_labels}:
            metadata["labels"] = labels
        if template["metadata"].get("annotations"):
            metadata["annotations"] = dict(template["metadata"]["annotations"])
        yield volume, {"metadata": metadata, "spec": dict(template.get("spec") or {})}


# -- DaemonSets ----------------------------------------------------------------------------------------------------


def revision_data(owner: Object) -> Object:
    """The data of the revision with the template of a DaemonSet or StatefulSet."""
    patch = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
    # Clients compare the stored bytes, so keys are sorted as in Go's encoding of maps.
    data: Object = msgspec.json.decode(msgspec.json.encode(patch, order="sorted"))
    return data


def daemon_pod_labels(hash_: str, *, generation: str) -> dict[str, str]:
    """The labels of a daemon pod: the hash and the generation of its template (``CreatePodTemplate``)."""
    return {REVISION_LABEL: hash_, _TEMPLATE_GENERATION: generation}


def tolerate_node_conditions(pod_spec: Object) -> None:
    """Add the tolerations of every daemon pod (``AddOrUpdateDaemonPodTolerations``).

    A toleration of the template that differs at most in its seconds is replaced where it stands.
    """
    tolerations = list(pod_spec.get("tolerations") or ())
    added = (*_DAEMON_TOLERATIONS, *((_NETWORK_TOLERATION,) if pod_spec.get("hostNetwork") else ()))
    for toleration in map(dict, added):
        places = [number for number, one in enumerate(tolerations) if _matches(one, toleration)]
        for place in places:
            tolerations[place] = toleration
        if not places:
            tolerations.append(toleration)
    pod_spec["tolerations"] = tolerations


def require_node(pod_spec: Object, node_name: str) -> None:
    """Replace the required node affinity by the name of a node (``ReplaceDaemonSetPodNodeNameNodeAffinity``)."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    affinity = pod_spec.get("affinity") or {}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod_spec["affinity"] = {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **required}}


def _toleration(taint: str, effect: str) -> dict[str, str]:
    return {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": effect}


_DAEMON_TOLERATIONS = (
    *(_toleration(taint, "NoExecute") for taint in ("not-ready", "unreachable")),
    *(
        _toleration(taint, "NoSchedule")
        for taint in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
_NETWORK_TOLERATION = _toleration("network-unavailable", "NoSchedule")


def _matches(one: Object, other: Object) -> bool:
    fields = ("key", "operator", "value", "effect")
    return all((one.get(field) or "") == (other.get(field) or "") for field in fields)


# -- Jobs and CronJobs ---------------------------------------------------------------------------------------------


def job_pod_labels(name: str, uid: str) -> dict[str, str]:
    """The labels that the API server adds to the template of a Job without a manual selector (``generateSelector``)."""
    values = {"controller-uid": uid, "job-name": name}
    return {f"{prefix}{key}": value for prefix in _JOB_LABEL_PREFIXES for key, value in values.items()}


def completion_index_prefix(job_name: str, index: int) -> str:
    """The ``generateName`` of an indexed Job's pod; a long name of the Job is cut (``podGenerateNameWithIndex``)."""
    end = f"-{index}-"
    return job_name[: _LONGEST_PREFIX - len(end)] + end


def job_of_cron_job(cron_job: Object, minutes: int, reference: Object, *, scheduled: str | None) -> Object:
    """The Job of a CronJob for a scheduled time: minutes since the epoch, and a timestamp for its annotation.

    The name contains the minutes, so each time has at most one Job (``getJobFromTemplate2``).
    """
    template = cron_job["spec"].get("jobTemplate") or {}
    metadata = dict(template.get("metadata") or {})
    name, namespace = cron_job["metadata"]["name"], cron_job["metadata"]["namespace"]
    metadata |= {"name": f"{name}-{minutes}", "namespace": namespace, "ownerReferences": [reference]}
    if scheduled is not None:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _SCHEDULED_TIMESTAMP: scheduled}
    return {"metadata": metadata, "spec": template.get("spec") or {}}
