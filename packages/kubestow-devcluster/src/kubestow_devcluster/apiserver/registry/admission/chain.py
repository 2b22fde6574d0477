"""The admission plugins in kube-apiserver's order.

Small plugins are functions of this module: NamespaceLifecycle, DefaultTolerationSeconds, PodTopologyLabels and
PodGroupWorkloadExists. The finalizers of StorageObjectInUseProtection belong to the strategies of volumes and claims.
"""

from __future__ import annotations

from kubestow.rules.admission import tolerate_unreachable_nodes
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission.limit_ranger import LimitRanger
from kubestow_devcluster.apiserver.registry.admission.pod_node_selector import PodNodeSelector
from kubestow_devcluster.apiserver.registry.admission.priority import Priority
from kubestow_devcluster.apiserver.registry.admission.rejection import forbidden
from kubestow_devcluster.apiserver.registry.admission.resource_quota import ResourceQuota
from kubestow_devcluster.apiserver.registry.admission.runtime_class import RuntimeClass
from kubestow_devcluster.apiserver.registry.admission.service_accounts import ServiceAccounts
from kubestow_devcluster.apiserver.registry.admission.storage_classes import DefaultStorageClass
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["Admission"]

_TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


class Admission:
    """Admits objects to the cluster in ``store``."""

    def __init__(self, store: Store) -> None:
        self._namespaces = store.collection("namespaces")
        self._nodes = store.collection("nodes")
        self._workloads = store.collection("workloads.scheduling.k8s.io")
        self._limit_ranger = LimitRanger(store)
        self._service_accounts = ServiceAccounts(store)
        self._pod_node_selector = PodNodeSelector(store)
        self._priority = Priority(store)
        self._runtime_class = RuntimeClass(store)
        self._default_storage_class = DefaultStorageClass(store)
        self._resource_quota = ResourceQuota(store)
        #: Whether pods run as service accounts, which needs the controller that creates them.
        self.has_service_accounts = False

    def admit(self, kind: Kind, new: Object) -> None:
        """Mutate a new object, before the strategy validates it. Raises a 403 or 404 StatusError."""
        if kind.namespaced:
            self._namespace_lifecycle(kind, new)
        if kind.storage == "pods":
            self._admit_pod(kind, new)
        elif kind.storage == "persistentvolumeclaims":
            self._default_storage_class.admit(new)
        elif kind.storage == "podgroups.scheduling.k8s.io":
            self._pod_group_workload_exists(kind, new)
            self._priority.admit_pod_group(kind, new)

    def admit_update(self, kind: Kind, new: Object, old: Object) -> None:
        """Mutate an updated object: a pod keeps what admission has set if the update leaves it out."""
        if kind.storage == "pods":
            self._priority.admit_pod_update(new, old)
            tolerate_unreachable_nodes(new["spec"])

    def validate(self, kind: Kind, new: Object, old: Object | None = None, subresource: str = "") -> list[Object]:
        """Validate an object that is complete, or an update of ``old``. Raises a 403 StatusError.

        Returns the resource quotas that are to be written with the object. Of the updates of a pod only ``resize``
        changes what it requests, and only a deadline moves it into the scope of other quotas.
        """
        if subresource == "status":
            return []
        if old is not None and kind.storage == "pods" and subresource != "resize":
            return self._resource_quota.validate(kind, new, old) if _has_deadline(new) != _has_deadline(old) else []
        if kind.storage == "pods":
            self._limit_ranger.validate_pod(kind, new)
        elif kind.storage == "persistentvolumeclaims":
            self._limit_ranger.validate_claim(kind, new)
        elif kind.storage == "priorityclasses.scheduling.k8s.io":
            self._priority.validate_class(kind, new)
        return self._resource_quota.validate(kind, new, old) if kind.namespaced else []

    def topology_labels(self, node_name: str) -> dict[str, str]:
        """The labels that a pod gets from its node (PodTopologyLabels)."""
        node = self._nodes.get(node_name)
        if node is None:
            return {}
        return {key: node.labels[key] for key in _TOPOLOGY_LABELS if key in node.labels}

    def _admit_pod(self, kind: Kind, new: Object) -> None:
        self._limit_ranger.admit_pod(new)
        if self.has_service_accounts:
            self._service_accounts.admit(kind, new)
        self._pod_node_selector.admit(kind, new)
        self._priority.admit_pod(kind, new)
        tolerate_unreachable_nodes(new["spec"])
        self._runtime_class.admit(kind, new)
        if new["spec"].get("nodeName") and (labels := self.topology_labels(new["spec"]["nodeName"])):
            new["metadata"]["labels"] = {**(new["metadata"].get("labels") or {}), **labels}

    def _namespace_lifecycle(self, kind: Kind, new: Object) -> None:
        name = new["metadata"]["namespace"]
        namespace = self._namespaces.get(name)
        if namespace is None:
            message = f'namespaces "{name}" not found'
            raise statuses.StatusError(404, "NotFound", message, details={"name": name, "kind": "namespaces"})
        if namespace.fields[0] == "Terminating":
            problem = f"unable to create new content in namespace {name} because it is being terminated"
            raise forbidden(kind, new, problem)

    def _pod_group_workload_exists(self, kind: Kind, new: Object) -> None:
        reference = new["spec"].get("podGroupTemplateRef", {}).get("workload") or {}
        if name := reference.get("workloadName"):
            workload = self._workloads.get(f"{new['metadata']['namespace']}/{name}")
            if workload is None or b'"deletionTimestamp"' in workload.data:
                raise forbidden(kind, new, f'workload "{name}" does not exist or is being deleted')


def _has_deadline(pod: Object) -> bool:
    return pod["spec"].get("activeDeadlineSeconds") is not None
