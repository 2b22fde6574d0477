"""What a snapshot of a cluster leaves out: everything that may be confidential and that scheduling does not read.

Secrets and config maps are not among the kinds that are read; of an object of such a kind the data is dropped. Of
containers only the fields that scheduling reads are kept, so environment variables, commands and probes are gone, in
pods as in pod templates.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
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
            annotations.pop(_LAST_APPLIED, None)
    if isinstance(spec, dict):
        _redact_pod_spec(spec)
        for field in ("template", "jobTemplate"):
            if isinstance(template := spec.get(field), dict):
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
        source = volume.get("csi") if isinstance(volume, dict) else None
        if isinstance(source, dict):
            source.pop("volumeAttributes", None)
