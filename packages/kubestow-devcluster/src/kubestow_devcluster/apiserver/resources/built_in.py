"""The built-in kinds, in the order in which discovery lists their groups."""

from __future__ import annotations

from kubestow_devcluster.apiserver.group_version import GroupVersion
from kubestow_devcluster.apiserver.kinds.kind import (
    ALL_VERBS,
    Kind,
    KindNames,
    RESTOptions,
    RESTStrategy,
    ScalePaths,
    SpecStrategy,
    Subresources,
)
from kubestow_devcluster.apiserver.resources.definitions import DefinitionStrategy
from kubestow_devcluster.apiserver.resources.strategies import autoscaling, core, pods, scheduling, workloads

_CORE = GroupVersion("", "v1")
_APPS = GroupVersion("apps", "v1")
_EVENTS = GroupVersion("events.k8s.io", "v1")
_AUTHENTICATION = GroupVersion("authentication.k8s.io", "v1")
_AUTHORIZATION = GroupVersion("authorization.k8s.io", "v1")
_AUTOSCALING = GroupVersion("autoscaling", "v2")
_AUTOSCALING_V1 = GroupVersion("autoscaling", "v1")
_BATCH = GroupVersion("batch", "v1")
_NETWORKING = GroupVersion("networking.k8s.io", "v1")
_POLICY = GroupVersion("policy", "v1")
_RBAC = GroupVersion("rbac.authorization.k8s.io", "v1")
_STORAGE = GroupVersion("storage.k8s.io", "v1")
_APIEXTENSIONS = GroupVersion("apiextensions.k8s.io", "v1")
_SCHEDULING = GroupVersion("scheduling.k8s.io", "v1")
_SCHEDULING_BETA = GroupVersion("scheduling.k8s.io", "v1beta1")
_SCHEDULING_ALPHA = GroupVersion("scheduling.k8s.io", "v1alpha3")
_SCHEDULING_ALPHA_2 = GroupVersion("scheduling.k8s.io", "v1alpha2")
_SCHEDULING_ALPHA_1 = GroupVersion("scheduling.k8s.io", "v1alpha1")
_COSCHEDULING = GroupVersion("scheduling.x-k8s.io", "v1alpha1")
_VOLCANO = GroupVersion("scheduling.volcano.sh", "v1beta1")
_COORDINATION = GroupVersion("coordination.k8s.io", "v1")
_NODE = GroupVersion("node.k8s.io", "v1")
_DISCOVERY = GroupVersion("discovery.k8s.io", "v1")
_RESOURCE = GroupVersion("resource.k8s.io", "v1")
METRICS_GROUP = "metrics.k8s.io"
_METRICS = GroupVersion(METRICS_GROUP, "v1beta1")

_ALL = ("all",)
_CREATE = ("create",)
_NO_COLLECTION_DELETE = ("create", "delete", "get", "list", "patch", "update", "watch")
_NO_SUBRESOURCES = Subresources()
_STATUS = Subresources(status=True)
_STATUS_AND_SCALE = Subresources(status=True, scale=ScalePaths("spec.replicas", "status.replicas", ""))
_POD_SUBRESOURCES = ("binding", "ephemeralcontainers", "eviction", "log", "resize")
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    *(
        f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
#: The same fields in the same order, as events.k8s.io names them: both versions share stored objects.
_EVENTS_V1_FIELDS = (
    *(f"regarding.{path.partition('.')[2]}" for path in _EVENT_FIELDS[:7]),
    "reason",
    "reportingController",
    "source",
    "type",
)


def _kind(
    group_version: GroupVersion,
    name: str,
    names: str,
    version_hash: str = "",
    strategy: RESTStrategy | None = None,
    *,
    model: str | None = None,
    namespaced: bool = True,
    subresources: Subresources = _NO_SUBRESOURCES,
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL_VERBS,
    selectable_fields: tuple[str, ...] = (),
    stored_in: str = "",
    deprecation_warning: str = "",
) -> Kind:
    """``names`` are the plural and the short names. ``version_hash`` is that of the
    storage version, in discovery. The model is by default that of the version and the name.
    """
    plural, *short_names = names.split()
    return Kind(
        group_version,
        KindNames(name, plural, name.lower(), f"{name}List", tuple(short_names), categories),
        f"V{group_version.version[1:]}{name}" if model is None else model,
        namespaced=namespaced,
        subresources=subresources,
        rest=RESTOptions(
            strategy or RESTStrategy(), verbs, selectable_fields, version_hash, stored_in, deprecation_warning
        ),
    )


BUILT_IN_KINDS: tuple[Kind, ...] = (
    _kind(_CORE, "Binding", "bindings", verbs=_CREATE),
    _kind(_CORE, "ConfigMap", "configmaps cm", "qFsyl6wFWjQ=", core.ConfigMapStrategy()),
    _kind(_CORE, "Endpoints", "endpoints ep", "fWeeMqaN/OA=",
          deprecation_warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    _kind(_CORE, "Event", "events ev", "r2yiGXH7wu8=", model="CoreV1Event", selectable_fields=_EVENT_FIELDS),
    _kind(_CORE, "LimitRange", "limitranges limits", "EBKMFVe6cwo=", core.LimitRangeStrategy()),
    _kind(_CORE, "Namespace", "namespaces ns", "Q3oi5N2YM8M=", core.NamespaceStrategy(), namespaced=False,
          subresources=Subresources(status=True, others=("finalize",)), verbs=_NO_COLLECTION_DELETE,
          selectable_fields=("status.phase",)),
    _kind(_CORE, "Node", "nodes no", "XwShjMxG9Fs=", core.NodeStrategy(), namespaced=False, subresources=_STATUS,
          selectable_fields=("spec.unschedulable",)),
    _kind(_CORE, "PersistentVolumeClaim", "persistentvolumeclaims pvc", "QWTyNDq0dC4=",
          core.PersistentVolumeClaimStrategy(), subresources=_STATUS),
    _kind(_CORE, "PersistentVolume", "persistentvolumes pv", "HN/zwEC+JgM=", core.PersistentVolumeStrategy(),
          namespaced=False, subresources=_STATUS),
    _kind(_CORE, "Pod", "pods po", "xPOwRZ+Yhw8=", pods.PodStrategy(),
          subresources=Subresources(status=True, others=_POD_SUBRESOURCES), categories=_ALL,
          selectable_fields=_POD_FIELDS),
    _kind(_CORE, "PodTemplate", "podtemplates", "LIXB2x4IFpk=", pods.PodTemplateStrategy()),
    _kind(_CORE, "ReplicationController", "replicationcontrollers rc", "Jond2If31h0=",
          workloads.ReplicationControllerStrategy(), subresources=_STATUS_AND_SCALE, categories=_ALL,
          selectable_fields=("status.replicas",)),
    _kind(_CORE, "ResourceQuota", "resourcequotas quota", "8uhSgffRX6w=", core.ResourceQuotaStrategy(),
          subresources=_STATUS),
    _kind(_CORE, "Secret", "secrets", "S6u1pOWzb84=", core.SecretStrategy(), selectable_fields=("type",)),
    _kind(_CORE, "ServiceAccount", "serviceaccounts sa", "pbx9ZvyFpBE=", subresources=Subresources(others=("token",))),
    _kind(_CORE, "Service", "services svc", "0/CO1lhkEBI=", core.ServiceStrategy(), subresources=_STATUS,
          categories=_ALL),
    _kind(_APPS, "ControllerRevision", "controllerrevisions", "85nkx63pcBU="),
    _kind(_APPS, "DaemonSet", "daemonsets ds", "dd7pWHUlMKQ=", workloads.DaemonSetStrategy(), subresources=_STATUS,
          categories=_ALL),
    _kind(_APPS, "Deployment", "deployments deploy", "8aSe+NMegvE=", workloads.DeploymentStrategy(),
          subresources=_STATUS_AND_SCALE, categories=_ALL),
    _kind(_APPS, "ReplicaSet", "replicasets rs", "P1RzHs8/mWQ=", workloads.ReplicaSetStrategy(),
          subresources=_STATUS_AND_SCALE, categories=_ALL, selectable_fields=("status.replicas",)),
    _kind(_APPS, "StatefulSet", "statefulsets sts", "H+vl74LkKdo=", workloads.StatefulSetStrategy(),
          subresources=_STATUS_AND_SCALE, categories=_ALL),
    _kind(_EVENTS, "Event", "events ev", "r2yiGXH7wu8=", core.EventsV1Strategy(), model="EventsV1Event",
          selectable_fields=_EVENTS_V1_FIELDS, stored_in="events"),
    _kind(_AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=_CREATE),
    _kind(_AUTHENTICATION, "TokenReview", "tokenreviews", namespaced=False, verbs=_CREATE),
    _kind(_AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=_CREATE),
    _kind(_AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False, verbs=_CREATE),
    _kind(_AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False, verbs=_CREATE),
    _kind(_AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", namespaced=False, verbs=_CREATE),
    _kind(_AUTOSCALING, "HorizontalPodAutoscaler", "horizontalpodautoscalers hpa", "qwQve8ut294=",
          autoscaling.HorizontalPodAutoscalerStrategy(), subresources=_STATUS, categories=_ALL),
    _kind(_AUTOSCALING_V1, "HorizontalPodAutoscaler", "horizontalpodautoscalers hpa", "qwQve8ut294=",
          autoscaling.HorizontalPodAutoscalerV1Strategy(), subresources=_STATUS, categories=_ALL,
          stored_in="horizontalpodautoscalers.autoscaling"),
    _kind(_BATCH, "CronJob", "cronjobs cj", "sd5LIXh4Fjs=", workloads.CronJobStrategy(), subresources=_STATUS,
          categories=_ALL),
    _kind(_BATCH, "Job", "jobs", "mudhfqk/qZY=", workloads.JobStrategy(), subresources=_STATUS, categories=_ALL,
          selectable_fields=("status.successful",)),
    _kind(_NETWORKING, "Ingress", "ingresses ing", "39NQlfNR+bo=", SpecStrategy(), subresources=_STATUS),
    _kind(_NETWORKING, "NetworkPolicy", "networkpolicies netpol", "YpfwF18m1G8=", SpecStrategy()),
    _kind(_POLICY, "PodDisruptionBudget", "poddisruptionbudgets pdb", "EVWiDmWqyJw=",
          workloads.PodDisruptionBudgetStrategy(), subresources=_STATUS),
    _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", "48tpQ8gZHFc=", core.RoleBindingStrategy(),
          namespaced=False),
    _kind(_RBAC, "ClusterRole", "clusterroles", "bYE5ZWDrJ44=", core.RoleStrategy(), namespaced=False),
    _kind(_RBAC, "RoleBinding", "rolebindings", "eGsCzGH6b1g=", core.RoleBindingStrategy()),
    _kind(_RBAC, "Role", "roles", "7FuwZcIIItM=", core.RoleStrategy()),
    _kind(_STORAGE, "CSIDriver", "csidrivers", "hL6j/rwBV5w=", core.CSIDriverStrategy(), namespaced=False),
    _kind(_STORAGE, "CSINode", "csinodes", "Pe62DkZtjuo=", core.StorageObjectStrategy(), namespaced=False),
    _kind(_STORAGE, "CSIStorageCapacity", "csistoragecapacities", "xeVl+2Ly1kE="),
    _kind(_STORAGE, "StorageClass", "storageclasses sc", "K+m6uJwbjGY=", core.StorageClassStrategy(),
          namespaced=False),
    _kind(_STORAGE, "VolumeAttachment", "volumeattachments", "tJx/ezt6UDU=", core.StorageObjectStrategy(),
          namespaced=False, subresources=_STATUS),
    _kind(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses vac", "tIjydgKBC5w=",
          core.StorageObjectStrategy(), namespaced=False),
    _kind(_APIEXTENSIONS, "CustomResourceDefinition", "customresourcedefinitions crd crds", "jfWCUB31mvA=",
          DefinitionStrategy(), namespaced=False, subresources=_STATUS, categories=("api-extensions",)),
    _kind(_SCHEDULING, "PriorityClass", "priorityclasses pc", "1QwjyaZjj3Y=", scheduling.PriorityClassStrategy(),
          namespaced=False),
    _kind(_SCHEDULING_BETA, "PodGroup", "podgroups", strategy=scheduling.PodGroupStrategy(), subresources=_STATUS),
    _kind(_SCHEDULING_BETA, "Workload", "workloads", strategy=scheduling.WorkloadStrategy()),
    _kind(_SCHEDULING_ALPHA, "CompositePodGroup", "compositepodgroups", subresources=_STATUS,
          strategy=scheduling.CompositePodGroupStrategy()),
    # Of 1.36: later versions do not read what is stored in v1alpha2.
    _kind(_SCHEDULING_ALPHA_2, "PodGroup", "podgroups", strategy=scheduling.PodGroupAlphaStrategy(),
          subresources=_STATUS),
    _kind(_SCHEDULING_ALPHA_2, "Workload", "workloads", strategy=scheduling.WorkloadAlphaStrategy()),
    # Of 1.35, where pods name a workload.
    _kind(_SCHEDULING_ALPHA_1, "Workload", "workloads", strategy=scheduling.WorkloadOfPodsStrategy()),
    _kind(_COSCHEDULING, "PodGroup", "podgroups pg pgs", strategy=scheduling.CustomPodGroupStrategy(), model="",
          subresources=_STATUS),
    _kind(_VOLCANO, "PodGroup", "podgroups pg podgroup-v1beta1", strategy=scheduling.CustomPodGroupStrategy(),
          model=""),
    _kind(_VOLCANO, "Queue", "queues q queue-v1beta1", strategy=scheduling.QueueStrategy(), model="", namespaced=False,
          subresources=_STATUS),
    _kind(_COORDINATION, "Lease", "leases", "gqkMMb/YqFM=", core.LeaseStrategy()),
    _kind(_NODE, "RuntimeClass", "runtimeclasses", "WQTu1GL3T2Q=", namespaced=False),
    _kind(_DISCOVERY, "EndpointSlice", "endpointslices", "qgS0xkrxYAI=", SpecStrategy()),
    _kind(_RESOURCE, "DeviceClass", "deviceclasses", "Yk2PTc1Ybxk=", SpecStrategy(), namespaced=False),
    _kind(_RESOURCE, "DeviceTaintRule", "devicetaintrules", strategy=scheduling.DeviceTaintRuleStrategy(),
          namespaced=False, subresources=_STATUS),
    _kind(_RESOURCE, "ResourceClaim", "resourceclaims", "wgAZaHcZxUg=", scheduling.ResourceClaimStrategy(),
          model="ResourceV1ResourceClaim", subresources=_STATUS),
    _kind(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates", "TuzjC49aUfM="),
    _kind(_RESOURCE, "ResourceSlice", "resourceslices", "KsC072WgaEY=", SpecStrategy(), namespaced=False,
          selectable_fields=("spec.nodeName", "spec.driver")),
)  # fmt: skip

#: Served where usage is simulated, as by an installed metrics-server.
METRICS_KINDS: tuple[Kind, ...] = (
    _kind(_METRICS, "NodeMetrics", "nodes", model="", namespaced=False, verbs=("get", "list")),
    _kind(_METRICS, "PodMetrics", "pods", model="", verbs=("get", "list")),
)
