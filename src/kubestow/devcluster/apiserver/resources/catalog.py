"""Every kind the server serves, as one table, and the look-ups that requests and discovery make in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kubestow.devcluster.apiserver.resources import (
    definitions,
    events,
    nodes,
    pod_groups,
    pods,
    scheduling,
    services,
    volumes,
)
from kubestow.devcluster.apiserver.resources.definitions import priority_of
from kubestow.devcluster.apiserver.resources.kind import REPLICAS, Kind
from kubestow.devcluster.apiserver.resources.workloads import daemon_sets, jobs, stateful_sets
from kubestow.devcluster.apiserver.resources.workloads import replicas as workloads
from kubestow.devcluster.apiserver.storage.database import SelectableFields

__all__ = ["KINDS", "Scheme"]

_ALL = ("all",)
_CREATE = ("create",)
_NO_COLLECTION_DELETE = ("create", "delete", "get", "list", "patch", "update", "watch")
_RBAC, _STORAGE, _DEVICES = "rbac.authorization.k8s.io", "storage.k8s.io", "resource.k8s.io"
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
#: The same fields in the same order under their names in events.k8s.io.
_NEW_EVENT_FIELDS = (
    *(f"regarding.{path.partition('.')[2]}" for path in _EVENT_FIELDS[:7]),
    "reason",
    "reportingController",
    "source",
    "type",
)
_POD_SUBRESOURCES = ("binding", "ephemeralcontainers", "eviction", "log", "resize")

# group, version, kind, plural, namespaced
KINDS: tuple[Kind, ...] = (
    Kind("", "v1", "Binding", "bindings", True, "V1Binding", verbs=_CREATE),
    Kind("", "v1", "ConfigMap", "configmaps", True, "V1ConfigMap", ("cm",), storage_hash="qFsyl6wFWjQ="),
    Kind("", "v1", "Endpoints", "endpoints", True, "V1Endpoints", ("ep",), storage_hash="fWeeMqaN/OA="),
    Kind(
        "", "v1", "Event", "events", True, "CoreV1Event", ("ev",),
        selectable=_EVENT_FIELDS, strategy=events.EventStrategy(), storage_hash="r2yiGXH7wu8=",
    ),
    Kind("", "v1", "LimitRange", "limitranges", True, "V1LimitRange", ("limits",), storage_hash="EBKMFVe6cwo="),
    Kind(
        "", "v1", "Namespace", "namespaces", False, "V1Namespace", ("ns",), status=True, subresources=("finalize",),
        selectable=("status.phase",), strategy=nodes.NamespaceStrategy(), verbs=_NO_COLLECTION_DELETE,
        storage_hash="Q3oi5N2YM8M=",
    ),
    Kind(
        "", "v1", "Node", "nodes", False, "V1Node", ("no",), status=True, selectable=("spec.unschedulable",),
        strategy=nodes.NodeStrategy(), storage_hash="XwShjMxG9Fs=",
    ),
    Kind(
        "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, "V1PersistentVolumeClaim", ("pvc",),
        status=True, strategy=volumes.PersistentVolumeClaimStrategy(), storage_hash="QWTyNDq0dC4=",
    ),
    Kind(
        "", "v1", "PersistentVolume", "persistentvolumes", False, "V1PersistentVolume", ("pv",), status=True,
        strategy=volumes.PersistentVolumeStrategy(), storage_hash="HN/zwEC+JgM=",
    ),
    Kind(
        "", "v1", "Pod", "pods", True, "V1Pod", ("po",), _ALL, status=True, subresources=_POD_SUBRESOURCES,
        selectable=_POD_FIELDS, strategy=pods.PodStrategy(), storage_hash="xPOwRZ+Yhw8=",
    ),
    Kind(
        "", "v1", "PodTemplate", "podtemplates", True, "V1PodTemplate",
        strategy=pods.PodTemplateStrategy(), storage_hash="LIXB2x4IFpk=",
    ),
    Kind(
        "", "v1", "ReplicationController", "replicationcontrollers", True, "V1ReplicationController", ("rc",), _ALL,
        status=True, scale=REPLICAS, selectable=("status.replicas",), storage_hash="Jond2If31h0=",
        strategy=workloads.ReplicationControllerStrategy(),
    ),
    Kind(
        "", "v1", "ResourceQuota", "resourcequotas", True, "V1ResourceQuota", ("quota",), status=True,
        storage_hash="8uhSgffRX6w=",
    ),
    Kind(
        "", "v1", "Secret", "secrets", True, "V1Secret", selectable=("type",), strategy=services.SecretStrategy(),
        storage_hash="S6u1pOWzb84=",
    ),
    Kind("", "v1", "ServiceAccount", "serviceaccounts", True, "V1ServiceAccount", ("sa",), storage_hash="pbx9ZvyFpBE="),
    Kind(
        "", "v1", "Service", "services", True, "V1Service", ("svc",), _ALL, status=True,
        strategy=services.ServiceStrategy(), storage_hash="0/CO1lhkEBI=",
    ),
    Kind(
        "apps", "v1", "ControllerRevision", "controllerrevisions", True, "V1ControllerRevision",
        storage_hash="85nkx63pcBU=",
    ),
    Kind(
        "apps", "v1", "DaemonSet", "daemonsets", True, "V1DaemonSet", ("ds",), _ALL, status=True,
        strategy=daemon_sets.DaemonSetStrategy(), storage_hash="dd7pWHUlMKQ=",
    ),
    Kind(
        "apps", "v1", "Deployment", "deployments", True, "V1Deployment", ("deploy",), _ALL, status=True, scale=REPLICAS,
        strategy=workloads.DeploymentStrategy(), storage_hash="8aSe+NMegvE=",
    ),
    Kind(
        "apps", "v1", "ReplicaSet", "replicasets", True, "V1ReplicaSet", ("rs",), _ALL, status=True, scale=REPLICAS,
        selectable=("status.replicas",), strategy=workloads.ReplicaSetStrategy(), storage_hash="P1RzHs8/mWQ=",
    ),
    Kind(
        "apps", "v1", "StatefulSet", "statefulsets", True, "V1StatefulSet", ("sts",), _ALL, status=True, scale=REPLICAS,
        strategy=stateful_sets.StatefulSetStrategy(), storage_hash="H+vl74LkKdo=",
    ),
    Kind(
        "events.k8s.io", "v1", "Event", "events", True, "EventsV1Event", ("ev",), selectable=_NEW_EVENT_FIELDS,
        strategy=events.NewEventStrategy(), storage_hash="r2yiGXH7wu8=", stored_in="events",
    ),
    Kind(
        "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", False, "V1SelfSubjectReview",
        verbs=_CREATE,
    ),
    Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", False, "V1TokenReview", verbs=_CREATE),
    Kind(
        "authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", True,
        "V1LocalSubjectAccessReview", verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False,
        "V1SelfSubjectAccessReview", verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False,
        "V1SelfSubjectRulesReview", verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False, "V1SubjectAccessReview",
        verbs=_CREATE,
    ),
    Kind(
        "batch", "v1", "CronJob", "cronjobs", True, "V1CronJob", ("cj",), _ALL, status=True,
        strategy=jobs.CronJobStrategy(), storage_hash="sd5LIXh4Fjs=",
    ),
    Kind(
        "batch", "v1", "Job", "jobs", True, "V1Job", (), _ALL, status=True, selectable=("status.successful",),
        strategy=jobs.JobStrategy(), storage_hash="mudhfqk/qZY=",
    ),
    Kind(
        "networking.k8s.io", "v1", "Ingress", "ingresses", True, "V1Ingress", ("ing",), status=True,
        strategy=services.SpecStrategy(), storage_hash="39NQlfNR+bo=",
    ),
    Kind(
        "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, "V1NetworkPolicy", ("netpol",),
        strategy=services.SpecStrategy(), storage_hash="YpfwF18m1G8=",
    ),
    Kind(
        "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, "V1PodDisruptionBudget", ("pdb",),
        status=True, strategy=scheduling.PodDisruptionBudgetStrategy(), storage_hash="EVWiDmWqyJw=",
    ),
    Kind(
        _RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False, "V1ClusterRoleBinding",
        strategy=services.RoleBindingStrategy(), storage_hash="48tpQ8gZHFc=",
    ),
    Kind(
        _RBAC, "v1", "ClusterRole", "clusterroles", False, "V1ClusterRole", strategy=services.RoleStrategy(),
        storage_hash="bYE5ZWDrJ44=",
    ),
    Kind(
        _RBAC, "v1", "RoleBinding", "rolebindings", True, "V1RoleBinding", strategy=services.RoleBindingStrategy(),
        storage_hash="eGsCzGH6b1g=",
    ),
    Kind(_RBAC, "v1", "Role", "roles", True, "V1Role", strategy=services.RoleStrategy(), storage_hash="7FuwZcIIItM="),
    Kind(
        _STORAGE, "v1", "CSIDriver", "csidrivers", False, "V1CSIDriver", strategy=volumes.CSIDriverStrategy(),
        storage_hash="hL6j/rwBV5w=",
    ),
    Kind(
        _STORAGE, "v1", "CSINode", "csinodes", False, "V1CSINode", strategy=volumes.StorageObjectStrategy(),
        storage_hash="Pe62DkZtjuo=",
    ),
    Kind(
        _STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities", True, "V1CSIStorageCapacity",
        storage_hash="xeVl+2Ly1kE=",
    ),
    Kind(
        _STORAGE, "v1", "StorageClass", "storageclasses", False, "V1StorageClass", ("sc",),
        strategy=volumes.StorageClassStrategy(), storage_hash="K+m6uJwbjGY=",
    ),
    Kind(
        _STORAGE, "v1", "VolumeAttachment", "volumeattachments", False, "V1VolumeAttachment", status=True,
        strategy=volumes.StorageObjectStrategy(), storage_hash="tJx/ezt6UDU=",
    ),
    Kind(
        _STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses", False, "V1VolumeAttributesClass", ("vac",),
        strategy=volumes.StorageObjectStrategy(), storage_hash="tIjydgKBC5w=",
    ),
    Kind(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False,
        "V1CustomResourceDefinition", ("crd", "crds"), ("api-extensions",), status=True,
        strategy=definitions.DefinitionStrategy(), storage_hash="jfWCUB31mvA=",
    ),
    Kind(
        "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, "V1PriorityClass", ("pc",),
        strategy=scheduling.PriorityClassStrategy(), storage_hash="1QwjyaZjj3Y=",
    ),
    Kind(
        "scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups", True, "V1alpha2PodGroup", status=True,
        strategy=pod_groups.PodGroupStrategy(),
    ),
    Kind(
        "scheduling.k8s.io", "v1alpha2", "Workload", "workloads", True, "V1alpha2Workload",
        strategy=pod_groups.WorkloadStrategy(),
    ),
    Kind(
        "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", True, "", ("pg", "pgs"), status=True,
        strategy=pod_groups.CustomPodGroupStrategy(),
    ),
    Kind(
        "scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", True, "", ("pg", "podgroup-v1beta1"), status=True,
        strategy=pod_groups.CustomPodGroupStrategy(),
    ),
    Kind(
        "coordination.k8s.io", "v1", "Lease", "leases", True, "V1Lease", strategy=scheduling.LeaseStrategy(),
        storage_hash="gqkMMb/YqFM=",
    ),
    Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False, "V1RuntimeClass", storage_hash="WQTu1GL3T2Q="),
    Kind(
        "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True, "V1EndpointSlice",
        strategy=services.SpecStrategy(), storage_hash="qgS0xkrxYAI=",
    ),
    Kind(
        _DEVICES, "v1", "DeviceClass", "deviceclasses", False, "V1DeviceClass",
        strategy=scheduling.DeviceObjectStrategy(), storage_hash="Yk2PTc1Ybxk=",
    ),
    Kind(
        _DEVICES, "v1", "ResourceClaim", "resourceclaims", True, "ResourceV1ResourceClaim", status=True,
        strategy=scheduling.ResourceClaimStrategy(), storage_hash="wgAZaHcZxUg=",
    ),
    Kind(
        _DEVICES, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", True, "V1ResourceClaimTemplate",
        storage_hash="TuzjC49aUfM=",
    ),
    Kind(
        _DEVICES, "v1", "ResourceSlice", "resourceslices", False, "V1ResourceSlice",
        selectable=("spec.nodeName", "spec.driver"), strategy=scheduling.DeviceObjectStrategy(),
        storage_hash="KsC072WgaEY=",
    ),
)  # fmt: skip


class Scheme:
    """The kinds by (group, version, plural), and by group and version for discovery.

    Custom kinds come and go with their definitions; one of the same name stands in for a kind of the table.
    """

    def __init__(self, kinds: Iterable[Kind] = KINDS) -> None:
        self._built_in = tuple(kinds)
        self._by_resource: dict[str, Kind] = {}
        self._by_name: dict[tuple[str, str], Kind] = {}
        self._custom: dict[str, Sequence[Kind]] = {}
        #: Counts changes; what is made from the catalog is made anew when it has moved.
        self.revision = 0
        self._arrange()

    def define(self, definition: str, kinds: Sequence[Kind]) -> None:
        """Serve these kinds for a definition, instead of those served for it before."""
        if kinds:
            self._custom[definition] = kinds
        else:
            self._custom.pop(definition, None)
        self._arrange()

    def _arrange(self) -> None:
        added = [kind for name in sorted(self._custom) for kind in self._custom[name]]
        added.sort(key=lambda kind: (kind.group, priority_of(kind.version)))
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in (*self._built_in, *added)}
        self._groups: dict[str, list[str]] = {}
        for kind in self:
            versions = self._groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        self._by_resource, self._by_name = {}, {}
        for kind in self:
            self._by_resource.setdefault(kind.resource, kind)
            self._by_name.setdefault((kind.group, kind.name), kind)
        self.revision += 1

    def __contains__(self, resource: str) -> bool:
        return resource in self._by_resource

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def __getitem__(self, resource: str) -> Kind:
        """By resource name, such as ``pods`` or ``leases.coordination.k8s.io``. Raises KeyError."""
        return self._by_resource[resource]

    def kind_for(self, group: str, name: str) -> Kind | None:
        """The kind that an owner reference names, in any version."""
        return self._by_name.get((group, name))

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, preferred first, in the order of the table."""
        return self._groups

    def selectable_fields(self) -> dict[str, SelectableFields]:
        """The selectable fields of every stored resource."""
        return {kind.storage: SelectableFields(kind.selectable, kind.fields_of) for kind in self if not kind.stored_in}

    def served(self, group: str, version: str) -> list[Kind]:
        return [kind for kind in self if (kind.group, kind.version) == (group, version)]
