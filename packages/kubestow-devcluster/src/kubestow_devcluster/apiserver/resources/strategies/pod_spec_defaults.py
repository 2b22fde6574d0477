"""Defaults of pod specs, in pods and templates."""

from __future__ import annotations

from kubestow.rules.defaults import default_pod_spec
from kubestow_devcluster.apiserver.schema.types import Object

__all__ = ["complete_pod_spec", "default_pod_template"]

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
#: Volume sources that have a defaultMode.
_SOURCES_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")


def default_pod_template(template: Object) -> None:
    complete_pod_spec(template.setdefault("spec", {}))


def complete_pod_spec(spec: Object) -> None:
    """Set all defaults of a pod spec: those that decisions depend on, and those that only show in the API."""
    default_pod_spec(spec)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _default_container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = "Always" if _is_latest(container.get("image", "")) else "IfNotPresent"
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])
    container.setdefault("resources", {})
    for variable in container.get("env") or ():
        field = variable.get("valueFrom", {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")


def _default_probe(probe: Object) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(name, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in _SOURCES_WITH_MODE:
        if source in volume:
            volume[source].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for projected in volume.get("projected", {}).get("sources") or ():
        if "serviceAccountToken" in projected:
            projected["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _is_latest(image: str) -> bool:
    if "@" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")
