"""Admission: what the server adds to new objects, or refuses, by looking at others in the cluster.

Namespaces must exist; pods get the priority of their class and the two default tolerations; claims get the default
storage class; a bound pod learns its node's zone and region; pod groups name workloads that exist, and get the
priority of their class.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.storage.store import Store

__all__ = ["IS_DEFAULT_STORAGE_CLASS", "Admission"]

_UNREACHABLE_SECONDS = 300
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
IS_DEFAULT_STORAGE_CLASS = "storageclass.kubernetes.io/is-default-class"
_TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


class Admission:
    """Admits objects to the cluster that ``store`` holds."""

    def __init__(self, store: Store) -> None:
        self._namespaces = store.collection("namespaces")
        self._nodes = store.collection("nodes")
        self._workloads = store.collection("workloads.scheduling.k8s.io")
        self._priorities = _Decoded(store, "priorityclasses.scheduling.k8s.io")
        self._storage_classes = _Decoded(store, "storageclasses.storage.k8s.io")

    def admit(self, kind: Kind, new: Object) -> None:
        """Complete a new object in place. Raises a 403 or 404 Failure."""
        if kind.namespaced:
            self._check_namespace(kind, new)
        if kind.storage == "pods":
            self._resolve_priority(kind, new)
            _add_tolerations(new["spec"])
            if new["spec"].get("nodeName") and (labels := self.topology_labels(new["spec"]["nodeName"])):
                new["metadata"]["labels"] = {**(new["metadata"].get("labels") or {}), **labels}
        elif kind.storage == "persistentvolumeclaims":
            self._choose_storage_class(new["spec"])
        elif kind.storage == "podgroups.scheduling.k8s.io":
            self._check_workload(kind, new)
            self._resolve_group_priority(kind, new)

    def topology_labels(self, node_name: str) -> dict[str, str]:
        """The labels that a pod takes over from the node it is bound to."""
        node = self._nodes.get(node_name)
        if node is None:
            return {}
        return {key: node.labels[key] for key in _TOPOLOGY_LABELS if key in node.labels}

    def _check_namespace(self, kind: Kind, new: Object) -> None:
        name = new["metadata"]["namespace"]
        namespace = self._namespaces.get(name)
        if namespace is None:
            message = f'namespaces "{name}" not found'
            raise statuses.StatusError(404, "NotFound", message, details={"name": name, "kind": "namespaces"})
        if namespace.fields[0] == "Terminating":
            problem = f"unable to create new content in namespace {name} because it is being terminated"
            raise statuses.forbidden(kind, new["metadata"].get("name", ""), problem)

    def _check_workload(self, kind: Kind, new: Object) -> None:
        """A pod group that names the template it was made from names one that exists."""
        reference = new["spec"].get("podGroupTemplateRef", {}).get("workload") or {}
        if name := reference.get("workloadName"):
            workload = self._workloads.get(f"{new['metadata']['namespace']}/{name}")
            if workload is None or b'"deletionTimestamp"' in workload.data:
                problem = f'workload "{name}" does not exist or is being deleted'
                raise statuses.forbidden(kind, new["metadata"].get("name", ""), problem)

    def _priority_class(self, kind: Kind, new: Object) -> Object | None:
        """The priority class that an object names, or else the default one; the object names it from now on."""
        spec = new["spec"]
        name = spec.get("priorityClassName", "")
        classes = self._priorities.by_name()
        if name:
            chosen = classes.get(name)
            if chosen is None:
                raise statuses.forbidden(
                    kind, new["metadata"].get("name", ""), f"no PriorityClass with name {name} was found"
                )
        else:
            defaults = [one for one in classes.values() if one.get("globalDefault")]
            chosen = min(defaults, key=lambda one: int(one["value"]), default=None)
            if chosen is not None:
                spec["priorityClassName"] = chosen["metadata"]["name"]
        return chosen

    def _resolve_group_priority(self, kind: Kind, new: Object) -> None:
        """A group has the priority of its class; without any it has none, which is 0."""
        spec, chosen = new["spec"], self._priority_class(kind, new)
        given, value = spec.get("priority"), chosen["value"] if chosen is not None else 0
        if given is not None and given != value:
            problem = (
                f"the integer value of priority ({given}) must not be provided in pod group spec; priority admission"
                f" controller computed {value} from the given PriorityClass name"
            )
            raise statuses.forbidden(kind, new["metadata"].get("name", ""), problem)
        if chosen is not None:
            spec["priority"] = value

    def _resolve_priority(self, kind: Kind, new: Object) -> None:
        spec, chosen = new["spec"], self._priority_class(kind, new)
        value = chosen["value"] if chosen is not None else 0
        if spec.get("priority", value) != value:
            problem = (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority"
                f" admission controller computed {value} from the given PriorityClass name"
            )
            raise statuses.forbidden(kind, new["metadata"].get("name", ""), problem)
        policy = chosen["preemptionPolicy"] if chosen is not None else "PreemptLowerPriority"
        if spec.get("preemptionPolicy", policy) != policy:
            problem = (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec;"
                f" priority admission controller computed {policy} from the given PriorityClass name"
            )
            raise statuses.forbidden(kind, new["metadata"].get("name", ""), problem)
        spec["priority"], spec["preemptionPolicy"] = value, policy

    def _choose_storage_class(self, spec: Object) -> None:
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


def _add_tolerations(spec: Object) -> None:
    tolerations: list[Object] = list(spec.get("tolerations") or ())
    for key in _TOLERATED:
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _UNREACHABLE_SECONDS}
            )
    spec["tolerations"] = tolerations


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


class _Decoded:
    """The few objects of one resource, decoded once per change of any of them."""

    def __init__(self, store: Store, resource: str) -> None:
        self._collection = store.collection(resource)
        self._version = -1
        self._objects: dict[str, dict[str, Any]] = {}

    def by_name(self) -> dict[str, dict[str, Any]]:
        if self._version != self._collection.resource_version:
            self._version = self._collection.resource_version
            self._objects = {stored.name: msgspec.json.decode(stored.data) for stored in self._collection.snapshot()}
        return self._objects
