"""The built-in kinds, in the order in which discovery lists their groups."""

from __future__ import annotations

from kubestow_devcluster.apiserver.group_version import GroupVersion
from kubestow_devcluster.apiserver.kinds.kind import (
    Kind,
    KindNames,
    RESTOptions,
    ScalePaths,
    SpecStrategy,
    Subresources,
)
from kubestow_devcluster.apiserver.resources.definitions import DefinitionStrategy
from kubestow_devcluster.apiserver.resources.strategies import autoscaling, core, pods, scheduling, storage, workloads

__all__ = ["BUILT_IN_KINDS", "METRICS_GROUP", "METRICS_KINDS"]

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
_SCHEDULING_ALPHA = GroupVersion("scheduling.k8s.io", "v1alpha2")
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

_HORIZONTAL_POD_AUTOSCALER = KindNames("HorizontalPodAutoscaler", "horizontalpodautoscalers", ("hpa",), categories=_ALL)

BUILT_IN_KINDS: tuple[Kind, ...] = (
    Kind(_CORE, KindNames("Binding", "bindings"), "V1Binding", rest=RESTOptions(verbs=_CREATE)),
    Kind(
        _CORE, KindNames("ConfigMap", "configmaps", ("cm",)), "V1ConfigMap",
        rest=RESTOptions(core.ConfigMapStrategy(), storage_version_hash="qFsyl6wFWjQ="),
    ),
    Kind(
        _CORE, KindNames("Endpoints", "endpoints", ("ep",)), "V1Endpoints",
        rest=RESTOptions(
            storage_version_hash="fWeeMqaN/OA=",
            deprecation_warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ),
    Kind(
        _CORE, KindNames("Event", "events", ("ev",)), "CoreV1Event",
        rest=RESTOptions(selectable_fields=_EVENT_FIELDS, storage_version_hash="r2yiGXH7wu8="),
    ),
    Kind(
        _CORE, KindNames("LimitRange", "limitranges", ("limits",)), "V1LimitRange",
        rest=RESTOptions(core.LimitRangeStrategy(), storage_version_hash="EBKMFVe6cwo="),
    ),
    Kind(
        _CORE, KindNames("Namespace", "namespaces", ("ns",)), "V1Namespace", namespaced=False,
        subresources=Subresources(status=True, others=("finalize",)),
        rest=RESTOptions(
            core.NamespaceStrategy(), verbs=_NO_COLLECTION_DELETE, selectable_fields=("status.phase",),
            storage_version_hash="Q3oi5N2YM8M=",
        ),
    ),
    Kind(
        _CORE, KindNames("Node", "nodes", ("no",)), "V1Node", namespaced=False, subresources=_STATUS,
        rest=RESTOptions(
            core.NodeStrategy(), selectable_fields=("spec.unschedulable",), storage_version_hash="XwShjMxG9Fs=",
        ),
    ),
    Kind(
        _CORE, KindNames("PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",)), "V1PersistentVolumeClaim",
        subresources=_STATUS,
        rest=RESTOptions(storage.PersistentVolumeClaimStrategy(), storage_version_hash="QWTyNDq0dC4="),
    ),
    Kind(
        _CORE, KindNames("PersistentVolume", "persistentvolumes", ("pv",)), "V1PersistentVolume", namespaced=False,
        subresources=_STATUS,
        rest=RESTOptions(storage.PersistentVolumeStrategy(), storage_version_hash="HN/zwEC+JgM="),
    ),
    Kind(
        _CORE, KindNames("Pod", "pods", ("po",), categories=_ALL), "V1Pod",
        subresources=Subresources(status=True, others=_POD_SUBRESOURCES),
        rest=RESTOptions(pods.PodStrategy(), selectable_fields=_POD_FIELDS, storage_version_hash="xPOwRZ+Yhw8="),
    ),
    Kind(
        _CORE, KindNames("PodTemplate", "podtemplates"), "V1PodTemplate",
        rest=RESTOptions(pods.PodTemplateStrategy(), storage_version_hash="LIXB2x4IFpk="),
    ),
    Kind(
        _CORE, KindNames("ReplicationController", "replicationcontrollers", ("rc",), categories=_ALL),
        "V1ReplicationController", subresources=_STATUS_AND_SCALE,
        rest=RESTOptions(
            workloads.ReplicationControllerStrategy(), selectable_fields=("status.replicas",),
            storage_version_hash="Jond2If31h0=",
        ),
    ),
    Kind(
        _CORE, KindNames("ResourceQuota", "resourcequotas", ("quota",)), "V1ResourceQuota", subresources=_STATUS,
        rest=RESTOptions(core.ResourceQuotaStrategy(), storage_version_hash="8uhSgffRX6w="),
    ),
    Kind(
        _CORE, KindNames("Secret", "secrets"), "V1Secret",
        rest=RESTOptions(core.SecretStrategy(), selectable_fields=("type",), storage_version_hash="S6u1pOWzb84="),
    ),
    Kind(
        _CORE, KindNames("ServiceAccount", "serviceaccounts", ("sa",)), "V1ServiceAccount",
        subresources=Subresources(others=("token",)),
        rest=RESTOptions(storage_version_hash="pbx9ZvyFpBE="),
    ),
    Kind(
        _CORE, KindNames("Service", "services", ("svc",), categories=_ALL), "V1Service", subresources=_STATUS,
        rest=RESTOptions(core.ServiceStrategy(), storage_version_hash="0/CO1lhkEBI="),
    ),
    Kind(
        _APPS, KindNames("ControllerRevision", "controllerrevisions"), "V1ControllerRevision",
        rest=RESTOptions(storage_version_hash="85nkx63pcBU="),
    ),
    Kind(
        _APPS, KindNames("DaemonSet", "daemonsets", ("ds",), categories=_ALL), "V1DaemonSet", subresources=_STATUS,
        rest=RESTOptions(workloads.DaemonSetStrategy(), storage_version_hash="dd7pWHUlMKQ="),
    ),
    Kind(
        _APPS, KindNames("Deployment", "deployments", ("deploy",), categories=_ALL), "V1Deployment",
        subresources=_STATUS_AND_SCALE,
        rest=RESTOptions(workloads.DeploymentStrategy(), storage_version_hash="8aSe+NMegvE="),
    ),
    Kind(
        _APPS, KindNames("ReplicaSet", "replicasets", ("rs",), categories=_ALL), "V1ReplicaSet",
        subresources=_STATUS_AND_SCALE,
        rest=RESTOptions(
            workloads.ReplicaSetStrategy(), selectable_fields=("status.replicas",),
            storage_version_hash="P1RzHs8/mWQ=",
        ),
    ),
    Kind(
        _APPS, KindNames("StatefulSet", "statefulsets", ("sts",), categories=_ALL), "V1StatefulSet",
        subresources=_STATUS_AND_SCALE,
        rest=RESTOptions(workloads.StatefulSetStrategy(), storage_version_hash="H+vl74LkKdo="),
    ),
    Kind(
        _EVENTS, KindNames("Event", "events", ("ev",)), "EventsV1Event",
        rest=RESTOptions(
            core.EventsV1Strategy(), selectable_fields=_EVENTS_V1_FIELDS, storage_version_hash="r2yiGXH7wu8=",
            stored_in="events",
        ),
    ),
    Kind(
        _AUTHENTICATION, KindNames("SelfSubjectReview", "selfsubjectreviews"), "V1SelfSubjectReview",
        namespaced=False,
        rest=RESTOptions(verbs=_CREATE),
    ),
    Kind(
        _AUTHENTICATION, KindNames("TokenReview", "tokenreviews"), "V1TokenReview", namespaced=False,
        rest=RESTOptions(verbs=_CREATE),
    ),
    Kind(
        _AUTHORIZATION, KindNames("LocalSubjectAccessReview", "localsubjectaccessreviews"),
        "V1LocalSubjectAccessReview",
        rest=RESTOptions(verbs=_CREATE),
    ),
    Kind(
        _AUTHORIZATION, KindNames("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
        "V1SelfSubjectAccessReview", namespaced=False,
        rest=RESTOptions(verbs=_CREATE),
    ),
    Kind(
        _AUTHORIZATION, KindNames("SelfSubjectRulesReview", "selfsubjectrulesreviews"), "V1SelfSubjectRulesReview",
        namespaced=False,
        rest=RESTOptions(verbs=_CREATE),
    ),
    Kind(
        _AUTHORIZATION, KindNames("SubjectAccessReview", "subjectaccessreviews"), "V1SubjectAccessReview",
        namespaced=False,
        rest=RESTOptions(verbs=_CREATE),
    ),
    Kind(
        _AUTOSCALING, _HORIZONTAL_POD_AUTOSCALER, "V2HorizontalPodAutoscaler", subresources=_STATUS,
        rest=RESTOptions(autoscaling.HorizontalPodAutoscalerStrategy(), storage_version_hash="qwQve8ut294="),
    ),
    Kind(
        _AUTOSCALING_V1, _HORIZONTAL_POD_AUTOSCALER, "V1HorizontalPodAutoscaler", subresources=_STATUS,
        rest=RESTOptions(
            autoscaling.HorizontalPodAutoscalerV1Strategy(), storage_version_hash="qwQve8ut294=",
            stored_in="horizontalpodautoscalers.autoscaling",
        ),
    ),
    Kind(
        _BATCH, KindNames("CronJob", "cronjobs", ("cj",), categories=_ALL), "V1CronJob", subresources=_STATUS,
        rest=RESTOptions(workloads.CronJobStrategy(), storage_version_hash="sd5LIXh4Fjs="),
    ),
    Kind(
        _BATCH, KindNames("Job", "jobs", categories=_ALL), "V1Job", subresources=_STATUS,
        rest=RESTOptions(
            workloads.JobStrategy(), selectable_fields=("status.successful",), storage_version_hash="mudhfqk/qZY=",
        ),
    ),
    Kind(
        _NETWORKING, KindNames("Ingress", "ingresses", ("ing",)), "V1Ingress", subresources=_STATUS,
        rest=RESTOptions(SpecStrategy(), storage_version_hash="39NQlfNR+bo="),
    ),
    Kind(
        _NETWORKING, KindNames("NetworkPolicy", "networkpolicies", ("netpol",)), "V1NetworkPolicy",
        rest=RESTOptions(SpecStrategy(), storage_version_hash="YpfwF18m1G8="),
    ),
    Kind(
        _POLICY, KindNames("PodDisruptionBudget", "poddisruptionbudgets", ("pdb",)), "V1PodDisruptionBudget",
        subresources=_STATUS,
        rest=RESTOptions(workloads.PodDisruptionBudgetStrategy(), storage_version_hash="EVWiDmWqyJw="),
    ),
    Kind(
        _RBAC, KindNames("ClusterRoleBinding", "clusterrolebindings"), "V1ClusterRoleBinding", namespaced=False,
        rest=RESTOptions(core.RoleBindingStrategy(), storage_version_hash="48tpQ8gZHFc="),
    ),
    Kind(
        _RBAC, KindNames("ClusterRole", "clusterroles"), "V1ClusterRole", namespaced=False,
        rest=RESTOptions(core.RoleStrategy(), storage_version_hash="bYE5ZWDrJ44="),
    ),
    Kind(
        _RBAC, KindNames("RoleBinding", "rolebindings"), "V1RoleBinding",
        rest=RESTOptions(core.RoleBindingStrategy(), storage_version_hash="eGsCzGH6b1g="),
    ),
    Kind(
        _RBAC, KindNames("Role", "roles"), "V1Role",
        rest=RESTOptions(core.RoleStrategy(), storage_version_hash="7FuwZcIIItM="),
    ),
    Kind(
        _STORAGE, KindNames("CSIDriver", "csidrivers"), "V1CSIDriver", namespaced=False,
        rest=RESTOptions(storage.CSIDriverStrategy(), storage_version_hash="hL6j/rwBV5w="),
    ),
    Kind(
        _STORAGE, KindNames("CSINode", "csinodes"), "V1CSINode", namespaced=False,
        rest=RESTOptions(storage.StorageObjectStrategy(), storage_version_hash="Pe62DkZtjuo="),
    ),
    Kind(
        _STORAGE, KindNames("CSIStorageCapacity", "csistoragecapacities"), "V1CSIStorageCapacity",
        rest=RESTOptions(storage_version_hash="xeVl+2Ly1kE="),
    ),
    Kind(
        _STORAGE, KindNames("StorageClass", "storageclasses", ("sc",)), "V1StorageClass", namespaced=False,
        rest=RESTOptions(storage.StorageClassStrategy(), storage_version_hash="K+m6uJwbjGY="),
    ),
    Kind(
        _STORAGE, KindNames("VolumeAttachment", "volumeattachments"), "V1VolumeAttachment", namespaced=False,
        subresources=_STATUS,
        rest=RESTOptions(storage.StorageObjectStrategy(), storage_version_hash="tJx/ezt6UDU="),
    ),
    Kind(
        _STORAGE, KindNames("VolumeAttributesClass", "volumeattributesclasses", ("vac",)), "V1VolumeAttributesClass",
        namespaced=False,
        rest=RESTOptions(storage.StorageObjectStrategy(), storage_version_hash="tIjydgKBC5w="),
    ),
    Kind(
        _APIEXTENSIONS,
        KindNames(
            "CustomResourceDefinition", "customresourcedefinitions", ("crd", "crds"), categories=("api-extensions",),
        ),
        "V1CustomResourceDefinition", namespaced=False, subresources=_STATUS,
        rest=RESTOptions(DefinitionStrategy(), storage_version_hash="jfWCUB31mvA="),
    ),
    Kind(
        _SCHEDULING, KindNames("PriorityClass", "priorityclasses", ("pc",)), "V1PriorityClass", namespaced=False,
        rest=RESTOptions(scheduling.PriorityClassStrategy(), storage_version_hash="1QwjyaZjj3Y="),
    ),
    Kind(
        _SCHEDULING_ALPHA, KindNames("PodGroup", "podgroups"), "V1alpha2PodGroup", subresources=_STATUS,
        rest=RESTOptions(scheduling.PodGroupStrategy()),
    ),
    Kind(
        _SCHEDULING_ALPHA, KindNames("Workload", "workloads"), "V1alpha2Workload",
        rest=RESTOptions(scheduling.WorkloadStrategy()),
    ),
    Kind(
        _COSCHEDULING, KindNames("PodGroup", "podgroups", ("pg", "pgs")), subresources=_STATUS,
        rest=RESTOptions(scheduling.CustomPodGroupStrategy()),
    ),
    Kind(
        _VOLCANO, KindNames("PodGroup", "podgroups", ("pg", "podgroup-v1beta1")),
        rest=RESTOptions(scheduling.CustomPodGroupStrategy()),
    ),
    Kind(
        _VOLCANO, KindNames("Queue", "queues", ("q", "queue-v1beta1")), namespaced=False, subresources=_STATUS,
        rest=RESTOptions(scheduling.QueueStrategy()),
    ),
    Kind(
        _COORDINATION, KindNames("Lease", "leases"), "V1Lease",
        rest=RESTOptions(core.LeaseStrategy(), storage_version_hash="gqkMMb/YqFM="),
    ),
    Kind(
        _NODE, KindNames("RuntimeClass", "runtimeclasses"), "V1RuntimeClass", namespaced=False,
        rest=RESTOptions(storage_version_hash="WQTu1GL3T2Q="),
    ),
    Kind(
        _DISCOVERY, KindNames("EndpointSlice", "endpointslices"), "V1EndpointSlice",
        rest=RESTOptions(SpecStrategy(), storage_version_hash="qgS0xkrxYAI="),
    ),
    Kind(
        _RESOURCE, KindNames("DeviceClass", "deviceclasses"), "V1DeviceClass", namespaced=False,
        rest=RESTOptions(SpecStrategy(), storage_version_hash="Yk2PTc1Ybxk="),
    ),
    Kind(
        _RESOURCE, KindNames("ResourceClaim", "resourceclaims"), "ResourceV1ResourceClaim", subresources=_STATUS,
        rest=RESTOptions(scheduling.ResourceClaimStrategy(), storage_version_hash="wgAZaHcZxUg="),
    ),
    Kind(
        _RESOURCE, KindNames("ResourceClaimTemplate", "resourceclaimtemplates"), "V1ResourceClaimTemplate",
        rest=RESTOptions(storage_version_hash="TuzjC49aUfM="),
    ),
    Kind(
        _RESOURCE, KindNames("ResourceSlice", "resourceslices"), "V1ResourceSlice", namespaced=False,
        rest=RESTOptions(
            SpecStrategy(), selectable_fields=("spec.nodeName", "spec.driver"), storage_version_hash="KsC072WgaEY=",
        ),
    ),
)  # fmt: skip

#: Served where usage is simulated, as by an installed metrics-server.
METRICS_KINDS: tuple[Kind, ...] = (
    Kind(_METRICS, KindNames("NodeMetrics", "nodes"), namespaced=False, rest=RESTOptions(verbs=("get", "list"))),
    Kind(_METRICS, KindNames("PodMetrics", "pods"), rest=RESTOptions(verbs=("get", "list"))),
)
