"""What a snapshot of a cluster leaves out: everything that may be confidential and that scheduling does not read.

Annotations are free text: those of unknown projects and users are dropped, and so is what drivers of volumes are given.
Secrets and config maps are not among the kinds that are read; of an object of such a kind the data is dropped. Of
containers only the fields that scheduling reads are kept, so environment variables, commands and probes are gone, in
pods as in pod templates.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: The domains of the annotations that are kept: those of Kubernetes and of projects whose annotations scheduling reads.
_ANNOTATION_DOMAINS = (
    "kubernetes.io",
    "k8s.io",
    "x-k8s.io",
    "kubestow.dev",
    "volcano.sh",
    "koordinator.sh",
    "crane.io",
    "openshift.io",
    "alibabacloud.com",
)
#: The fields of a container that are kept.
_CONTAINER_FIELDS = frozenset({"name", "image", "resources", "ports", "restartPolicy", "restartPolicyRules"})
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_DATA = ("data", "stringData", "binaryData")
_KINDS_WITH_DATA = ("Secret", "ConfigMap")


def redacted(manifest: Object) -> Object:
    """The object without what a snapshot leaves out; ``manifest`` is changed."""
    if manifest.get("kind") in _KINDS_WITH_DATA:
        for field in _DATA:
            manifest.pop(field, None)
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        if isinstance(annotations := metadata.get("annotations"), dict):
            is_node = manifest.get("kind") == "Node"
            metadata["annotations"] = {
                name: value for name, value in annotations.items() if _is_kept_annotation(name, is_node=is_node)
            }
    if isinstance(spec, dict):
        _redact_pod_spec(spec)
        for field in ("csi", "flexVolume"):  # of a persistent volume
            _drop_attributes(spec.get(field))
        pod_sets = spec.get("podSets")  # of a Workload of Kueue
        for owner in (spec, *(pod_sets if isinstance(pod_sets, list) else ())):
            for field in ("template", "jobTemplate"):
                if isinstance(owner, dict) and isinstance(template := owner.get(field), dict):
                    redacted(template)
    return manifest


def _redact_pod_spec(spec: Object) -> None:
    for field in _CONTAINERS:
        containers = spec.get(field)
        if isinstance(containers, list):
            spec[field] = [
                {key: value for key, value in container.items() if key in _CONTAINER_FIELDS}
                for container in containers
                if isinstance(container, dict)
            ]
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict):
            for field in ("csi", "flexVolume"):
                _drop_attributes(volume.get(field))


def _drop_attributes(source: object) -> None:
    """Drop what a volume's driver is given, which is free text and often has credentials."""
    if isinstance(source, dict):
        source.pop("volumeAttributes", None)
        source.pop("options", None)


def _is_kept_annotation(name: str, *, is_node: bool) -> bool:
    """Whether an annotation is of a known project; on nodes also a measured load, whose name is bare."""
    domain, slash, _ = name.rpartition("/")
    if not slash:
        return is_node
    is_known = any(domain == known or domain.endswith(f".{known}") for known in _ANNOTATION_DOMAINS)
    return is_known and name != _LAST_APPLIED
