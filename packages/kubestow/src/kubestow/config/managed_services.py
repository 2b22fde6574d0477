"""Configurations of managed Kubernetes services, read as the KubeSchedulerConfiguration that they stand for.

Services do not take a KubeSchedulerConfiguration as it is, and each documents what it takes:

AKS
    The object SchedulerConfiguration (aks.azure.com) with the name ``upstream``, whose ``spec.rawConfig`` is the text
    of a KubeSchedulerConfiguration (learn.microsoft.com/azure/aks/configure-aks-scheduler). Pods of other scheduler
    names stay with AKS's defaults, so the profiles default-scheduler and aks-system are added.
EKS
    ``kubeSchedulerConfig`` of CreateCluster, UpdateClusterConfig and DescribeCluster: the scoring strategy of
    NodeResourcesFit (docs.aws.amazon.com/eks/latest/userguide/control-plane-configuration.html).
GKE
    ``autoscaling.autoscalingProfile`` of a cluster, as ``gcloud container clusters describe`` prints it
    (cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler). Documented are the preference for nodes with
    much of their CPU, memory or GPUs allocated, and a scheduler name; not the plugins and their weights.

What a service does not accept is an error at its place in the text, like those of the KubeSchedulerConfiguration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kubestow.config.configuration import API_VERSION, KIND
from kubestow.config.document import Document, DocumentError, parse_document, parse_embedded, unwrap_config_map
from kubestow.config.field_errors import FieldError, child

_DEFAULT_SCHEDULER = "default-scheduler"
_AKS_GROUP, _AKS_KIND, _AKS_NAME, _AKS_SYSTEM = "aks.azure.com/", "SchedulerConfiguration", "upstream", "aks-system"
#: The fields that AKS documents as configurable.
_AKS_FIELDS = ("percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds", "profiles")
#: Where the configuration of EKS is: in requests and eksctl's files, in descriptions, and in Cluster API's objects.
_EKS_PARENTS, _EKS_CONFIG, _EKS_PLUGIN = ("", "cluster", "spec"), "kubeSchedulerConfig", "nodeResourcesFit"
_EKS_STRATEGIES = ("LeastAllocated", "MostAllocated")
_GKE_SCHEDULER, _GKE_PROFILE = "gke.io/optimize-utilization-scheduler", "autoscaling.autoscalingProfile"
_GKE_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
_ARGS = "profiles[0].pluginConfig[0].args"


def read_document(source: str | bytes | Mapping[str, Any]) -> Document:
    """Parse a KubeSchedulerConfiguration, a ConfigMap with one, or the configuration of a managed service.

    The document is that of the KubeSchedulerConfiguration, with positions in ``source``. Raises DocumentError.
    """
    document = unwrap_config_map(parse_document(source))
    data = document.data
    if not isinstance(data, Mapping):
        return document
    version, kind = data.get("apiVersion"), data.get("kind")
    if kind == KIND:
        return document
    if isinstance(version, str) and version.startswith(_AKS_GROUP) and kind == _AKS_KIND:
        return _from_aks(document)
    if (path := _eks_path(data)) is not None:
        return _from_eks(document, path)
    if "kind" not in data and isinstance(_field(data, _GKE_PROFILE), str):
        return _from_gke(document)
    return document


def _field(data: Any, path: str) -> Any:
    """The value at a path of names, None if there is none; the empty path is the data."""
    for name in path.split(".") if path else ():
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def _configuration(*profiles: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": list(profiles)}


def _fit_profile(name: str, strategy: Any) -> dict[str, Any]:
    """A profile with the default plugins and this scoring strategy of NodeResourcesFit."""
    arguments = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    return {"schedulerName": name, "pluginConfig": [arguments]}


# -- AKS -------------------------------------------------------------------------------------------------------------


def _from_aks(document: Document) -> Document:
    raw = _field(document.data, "spec.rawConfig")
    if not isinstance(raw, str):
        error = FieldError("spec.rawConfig", f"expected the text of a {KIND}")
        raise DocumentError(document.located(error))
    inner = parse_embedded(document, "spec.rawConfig", raw)
    refused, remarks = [], []
    name = _field(document.data, "metadata.name")
    if name != _AKS_NAME:
        refused.append(document.located(FieldError("metadata.name", f"AKS reads {_AKS_NAME} only, got {name!r}")))
    if not isinstance(inner.data, Mapping):
        return replace(inner, refused=tuple(refused))
    for name in inner.data:
        if name not in ("apiVersion", "kind", *_AKS_FIELDS):
            text = "is not among the fields that AKS documents as configurable"
            remarks.append(inner.located(FieldError(name, text)))
    profiles = inner.data.get("profiles") or []
    if not isinstance(profiles, list):
        return replace(inner, refused=tuple(refused), remarks=tuple(remarks))
    names = [_field(profile, "schedulerName") or _DEFAULT_SCHEDULER for profile in profiles]
    for index, name in enumerate(names):
        path = f"profiles[{index}].schedulerName"
        if name == _AKS_SYSTEM:
            refused.append(inner.located(FieldError(path, f"AKS does not allow a profile {_AKS_SYSTEM}")))
        if name == "default_scheduler":
            text = f"pods without a scheduler name have {_DEFAULT_SCHEDULER}, which is another name"
            remarks.append(inner.located(FieldError(path, text)))
    added = [{"schedulerName": name} for name in (_DEFAULT_SCHEDULER, _AKS_SYSTEM) if name not in names]
    data = {**inner.data, "profiles": [*profiles, *added]}
    return replace(inner, data=data, refused=tuple(refused), remarks=tuple(remarks))


# -- EKS -------------------------------------------------------------------------------------------------------------


def _eks_path(data: Mapping[str, Any]) -> str | None:
    """Where the scheduler's configuration of an EKS cluster is; None if there is none."""
    if _EKS_PLUGIN in data and "kind" not in data:  # the argument of --kube-scheduler-config
        return ""
    paths = (child(parent, _EKS_CONFIG) for parent in _EKS_PARENTS)
    return next((path for path in paths if isinstance(_field(data, path), Mapping)), None)


def _from_eks(document: Document, path: str) -> Document:
    place = child(child(path, _EKS_PLUGIN), "scoringStrategy")
    given = _field(document.data, place)
    if given is None:
        return replace(document, data=_configuration({"schedulerName": _DEFAULT_SCHEDULER}), positions={})
    strategy, refused = given, []
    if isinstance(given, Mapping):
        strategy, kind = {"type": "LeastAllocated", **given}, given.get("type")
        if isinstance(kind, str) and kind not in _EKS_STRATEGIES:
            error = FieldError(child(place, "type"), f"EKS accepts {' and '.join(_EKS_STRATEGIES)}, got {kind!r}")
            refused.append(document.located(error))
            strategy["type"] = _EKS_STRATEGIES[0]  # its other fields are still checked
    positions = {
        f"{_ARGS}.scoringStrategy{field.removeprefix(place)}": position
        for field, position in document.positions.items()
        if field == place or field.startswith((f"{place}.", f"{place}["))
    }
    data = _configuration(_fit_profile(_DEFAULT_SCHEDULER, strategy))
    return replace(document, data=data, positions=positions, refused=tuple(refused))


# -- GKE -------------------------------------------------------------------------------------------------------------


def _from_gke(document: Document) -> Document:
    profile = _field(document.data, _GKE_PROFILE)
    names = (_DEFAULT_SCHEDULER, _GKE_SCHEDULER)
    if profile == "BALANCED":
        return replace(document, data=_configuration(*({"schedulerName": name} for name in names)), positions={})
    if profile != "OPTIMIZE_UTILIZATION":
        error = FieldError(_GKE_PROFILE, f"expected BALANCED or OPTIMIZE_UTILIZATION, got {profile!r}")
        raise DocumentError(document.located(error))
    strategy = {"type": "MostAllocated", "resources": [{"name": name, "weight": 1} for name in _GKE_RESOURCES]}
    text = "GKE documents the preference for allocated CPU, memory and GPUs, not its weights; they are taken as equal"
    remark = document.located(FieldError(_GKE_PROFILE, text))
    data = _configuration(*(_fit_profile(name, strategy) for name in names))
    return replace(document, data=data, positions={}, remarks=(remark,))
