"""The claims that controllers create for pods: PersistentVolumeClaims of ephemeral volumes, and ResourceClaims.

A pod is given by its name, namespace and uid as in ``metadata``; manifests of claims have the pod as their controller.
"""

from __future__ import annotations

from typing import Any

from kubestow.api.storage import PersistentVolumeClaim
from kubestow.rules.owners import SUFFIX_LENGTH, controller_reference

Object = dict[str, Any]

#: Annotation of a ResourceClaim that was created for a pod: the name of the entry in its ``spec.resourceClaims``.
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"

#: The controller leaves room for a hyphen and a suffix in a name of 63 characters.
_LONGEST_PREFIX = 63 - SUFFIX_LENGTH - 1


def ephemeral_claim_name(pod_name: str, volume_name: str) -> str:
    """The name of the claim of a generic ephemeral volume (KEP-1698, ``VolumeClaimName``)."""
    return f"{pod_name}-{volume_name}"


def ephemeral_claim(pod: Object, volume: Object) -> Object:
    """The PersistentVolumeClaim of an ephemeral volume of a pod (ephemeral volume controller, KEP-1698)."""
    template = volume["ephemeral"].get("volumeClaimTemplate") or {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": ephemeral_claim_name(pod["name"], volume["name"]),
            "namespace": pod["namespace"],
            **_copied(template.get("metadata") or {}, "labels", "annotations"),
            "ownerReferences": [_reference(pod)],
        },
        "spec": template.get("spec") or {},
    }


def ownership_problem(claim: PersistentVolumeClaim, *, pod: str, pod_uid: str) -> str | None:
    """The problem with the claim of an ephemeral volume that the pod does not control, None if it does.

    ``pod`` is its namespace/name (``VolumeIsForPod``).
    """
    owner = claim.metadata.controller
    if owner is not None and owner.uid == pod_uid:
        return None
    return f"PVC {claim.key} was not created for pod {pod} (pod is not owner)"


def resource_claim(pod: Object, entry_name: str, template: Object) -> Object:
    """The ResourceClaim for an entry of a pod's ``spec.resourceClaims``, with ``generateName`` (KEP-4381).

    ``template`` is the ``spec`` of the ResourceClaimTemplate.
    """
    template_metadata = template.get("metadata") or {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": resource_claim_prefix(pod["name"], entry_name),
            "namespace": pod["namespace"],
            **_copied(template_metadata, "labels"),
            "annotations": {**(template_metadata.get("annotations") or {}), POD_CLAIM_NAME: entry_name},
            "ownerReferences": [_reference(pod)],
        },
        "spec": template.get("spec") or {},
    }


def resource_claim_prefix(pod_name: str, entry_name: str) -> str:
    """The ``generateName`` of a ResourceClaim for a pod; of long names, both parts are cut in proportion (KEP-4381)."""
    prefix = f"{pod_name}-{entry_name}-"
    if len(prefix) <= _LONGEST_PREFIX:
        return prefix
    pod_part, entry_part = (name[: len(name) * _LONGEST_PREFIX // len(prefix)] for name in (pod_name, entry_name))
    return f"{pod_part}-{entry_part}"


def _copied(metadata: Object, *fields: str) -> Object:
    return {field: dict(metadata[field]) for field in fields if metadata.get(field)}


def _reference(pod: Object) -> Object:
    return controller_reference("v1", "Pod", name=pod["name"], uid=pod["uid"])
