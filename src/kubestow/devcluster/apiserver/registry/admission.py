"""Admission of new objects: the built-in admission plugins that depend on other objects in the cluster.

NamespaceLifecycle, Priority, DefaultTolerationSeconds, PodTopologyLabels, DefaultStorageClass and
PodGroupWorkloadExists, each a method or function named after it.
"""

from __future__ import annotations

import msgspec

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.resources.kind import Kind
from kubestow.devcluster.apiserver.schema import Object
from kubestow.devcluster.apiserver.storage.store import Store

__all__ = ["IS_DEFAULT_STORAGE_CLASS", "Admission"]

#: The annotation of the default storage class.
IS_DEFAULT_STORAGE_CLASS = "storageclass.kubernetes.io/is-default-class"
_TOLERATION_SECONDS = 300
_TOLERATED_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


class Admission:
    """Admits objects to the cluster in ``store``."""

    def __init__(self, store: Store) -> None:
        self._namespaces = store.collection("namespaces")
        self._nodes = store.collection("nodes")
        self._workloads = store.collection("workloads.scheduling.k8s.io")
        self._priority_classes = _DecodedObjects(store, "priorityclasses.scheduling.k8s.io")
        self._storage_classes = _DecodedObjects(store, "storageclasses.storage.k8s.io")

    def admit(self, kind: Kind, new: Object) -> None:
        """Mutate and validate a new object. Raises a 403 or 404 StatusError."""
        if kind.namespaced:
            self._namespace_lifecycle(kind, new)
        if kind.storage == "pods":
            self._priority(kind, new)
            _default_toleration_seconds(new["spec"])
            if new["spec"].get("nodeName") and (labels := self.topology_labels(new["spec"]["nodeName"])):
                new["metadata"]["labels"] = {**(new["metadata"].get("labels") or {}), **labels}
        elif kind.storage == "persistentvolumeclaims":
            self._default_storage_class(new["spec"])
        elif kind.storage == "podgroups.scheduling.k8s.io":
            self._pod_group_workload_exists(kind, new)
            self._pod_group_priority(kind, new)

    def topology_labels(self, node_name: str) -> dict[str, str]:
        """The labels that a pod gets from its node (PodTopologyLabels)."""
        node = self._nodes.get(node_name)
        if node is None:
            return {}
        return {key: node.labels[key] for key in _TOPOLOGY_LABELS if key in node.labels}

    def _namespace_lifecycle(self, kind: Kind, new: Object) -> None:
        name = new["metadata"]["namespace"]
        namespace = self._namespaces.get(name)
        if namespace is None:
            message = f'namespaces "{name}" not found'
            raise statuses.StatusError(404, "NotFound", message, details={"name": name, "kind": "namespaces"})
        if namespace.fields[0] == "Terminating":
            problem = f"unable to create new content in namespace {name} because it is being terminated"
            raise _forbidden(kind, new, problem)

    def _pod_group_workload_exists(self, kind: Kind, new: Object) -> None:
        reference = new["spec"].get("podGroupTemplateRef", {}).get("workload") or {}
        if name := reference.get("workloadName"):
            workload = self._workloads.get(f"{new['metadata']['namespace']}/{name}")
            if workload is None or b'"deletionTimestamp"' in workload.data:
                raise _forbidden(kind, new, f'workload "{name}" does not exist or is being deleted')

    def _priority_class(self, kind: Kind, new: Object) -> Object | None:
        """The priority class of an object, by its name or the default one, whose name is set in the spec."""
        spec = new["spec"]
        name = spec.get("priorityClassName", "")
        classes = self._priority_classes.by_name()
        if name:
            priority_class = classes.get(name)
            if priority_class is None:
                raise _forbidden(kind, new, f"no PriorityClass with name {name} was found")
            return priority_class
        defaults = [one for one in classes.values() if one.get("globalDefault")]
        priority_class = min(defaults, key=lambda one: int(one["value"]), default=None)
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        return priority_class

    def _pod_group_priority(self, kind: Kind, new: Object) -> None:
        """A group without a priority class has no priority, which counts as 0."""
        spec, priority_class = new["spec"], self._priority_class(kind, new)
        requested, value = spec.get("priority"), priority_class["value"] if priority_class is not None else 0
        if requested is not None and requested != value:
            problem = (
                f"the integer value of priority ({requested}) must not be provided in pod group spec; priority"
                f" admission controller computed {value} from the given PriorityClass name"
            )
            raise _forbidden(kind, new, problem)
        if priority_class is not None:
            spec["priority"] = value

    def _priority(self, kind: Kind, new: Object) -> None:
        spec, priority_class = new["spec"], self._priority_class(kind, new)
        value = priority_class["value"] if priority_class is not None else 0
        if spec.get("priority", value) != value:
            problem = (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority"
                f" admission controller computed {value} from the given PriorityClass name"
            )
            raise _forbidden(kind, new, problem)
        policy = priority_class["preemptionPolicy"] if priority_class is not None else "PreemptLowerPriority"
        if spec.get("preemptionPolicy", policy) != policy:
            problem = (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec;"
                f" priority admission controller computed {policy} from the given PriorityClass name"
            )
            raise _forbidden(kind, new, problem)
        spec["priority"], spec["preemptionPolicy"] = value, policy

    def _default_storage_class(self, spec: Object) -> None:
        if "storageClassName" in spec:
            return
        defaults = [
            one
            for one in self._storage_classes.by_name().values()
            if (one["metadata"].get("annotations") or {}).get(IS_DEFAULT_STORAGE_CLASS) == "true"
        ]
        if defaults:
            newest = max(defaults, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))
            spec["storageClassName"] = newest["metadata"]["name"]


def _forbidden(kind: Kind, new: Object, problem: str) -> statuses.StatusError:
    return statuses.forbidden(kind.group_resource, new["metadata"].get("name", ""), problem)


def _default_toleration_seconds(spec: Object) -> None:
    tolerations: list[Object] = list(spec.get("tolerations") or ())
    for key in _TOLERATED_TAINTS:
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
            )
    spec["tolerations"] = tolerations


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


class _DecodedObjects:
    """The decoded objects of a small resource, cached until one of them changes."""

    def __init__(self, store: Store, resource: str) -> None:
        self._collection = store.collection(resource)
        self._resource_version = -1
        self._objects: dict[str, Object] = {}

    def by_name(self) -> dict[str, Object]:
        if self._resource_version != self._collection.resource_version:
            self._resource_version = self._collection.resource_version
            self._objects = {stored.name: msgspec.json.decode(stored.data) for stored in self._collection.snapshot()}
        return self._objects
