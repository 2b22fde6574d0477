"""Admission: what mutates and validates objects on their way into the store, in kube-apiserver's order.

:class:`AdmissionChain` calls the plugins: those that mutate before the strategy validates an object, those that only
validate after it. Each plugin has the name of kube-apiserver's; small ones are functions. The finalizers of
StorageObjectInUseProtection belong to the strategies of volumes and claims.

Unlike with kube-apiserver, pods get no volume with a token of their service account: no process would read it, and it
would make every pod half as large again. ``kubectl create token`` issues tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kubestow.api.meta import convert
from kubestow.api.storage import StorageClass
from kubestow.errors import InvalidObject
from kubestow.rules.admission import (
    apply_runtime_class,
    default_priority_class,
    joined_violations,
    pod_violations,
    set_container_defaults,
    tolerate_unreachable_nodes,
    violations,
)
from kubestow.rules.volumes import default_storage_class
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.resource_quotas import ResourceQuotaAdmission
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import Collection, DecodedObjects, Store

_TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


_POD_GROUPS = ("podgroups.scheduling.k8s.io", "compositepodgroups.scheduling.k8s.io")


class AdmissionChain:
    """Admits objects to the cluster in ``store``."""

    def __init__(self, store: Store) -> None:
        self._namespaces = store.collection("namespaces")
        self._nodes = store.collection("nodes")
        self._workloads = store.collection("workloads.scheduling.k8s.io")
        self._limit_ranger = LimitRanger(store)
        self._service_accounts = store.collection("serviceaccounts")
        self._priority = PriorityAdmission(store)
        self._runtime_classes = DecodedObjects(store, "runtimeclasses.node.k8s.io")
        self._storage_classes = DecodedObjects(store, "storageclasses.storage.k8s.io")
        self._resource_quota = ResourceQuotaAdmission(store)
        #: Whether pods run as service accounts, which needs the controller that creates them.
        self.has_service_accounts = False

    def admit(self, kind: Kind, new: Object) -> None:
        """Mutate a new object, before the strategy validates it. Raises a 403 or 404 StatusError."""
        if kind.namespaced:
            name = new["metadata"]["namespace"]
            namespace = self._namespaces.get(name)
            if namespace is None:
                message = f'namespaces "{name}" not found'
                raise statuses.StatusError(404, "NotFound", message, details={"name": name, "kind": "namespaces"})
            if namespace.fields[0] == "Terminating":
                problem = f"unable to create new content in namespace {name} because it is being terminated"
                raise kind.forbidden(new, problem)
        if kind.storage == "pods":
            self._limit_ranger.admit_pod(new)
            if self.has_service_accounts:
                _set_service_account(kind, new, self._service_accounts)
            _add_node_selector(kind, new, self._namespaces)
            self._priority.admit_pod(kind, new)
            tolerate_unreachable_nodes(new["spec"])
            _apply_runtime_class(kind, new, self._runtime_classes)
            if new["spec"].get("nodeName") and (labels := self.topology_labels(new["spec"]["nodeName"])):
                new["metadata"]["labels"] = {**(new["metadata"].get("labels") or {}), **labels}
        elif kind.storage == "persistentvolumeclaims" and "storageClassName" not in new["spec"]:
            classes = self._storage_classes.by_key().values()
            default = default_storage_class(convert(StorageClass, one) for one in classes)
            if default is not None:
                new["spec"]["storageClassName"] = default
        elif kind.storage in _POD_GROUPS:
            reference = (
                new["spec"].get("workloadRef") or new["spec"].get("podGroupTemplateRef", {}).get("workload") or {}
            )
            if name := reference.get("workloadName"):
                workload = self._workloads.get(f"{new['metadata']['namespace']}/{name}")
                if workload is None or b'"deletionTimestamp"' in workload.data:
                    raise kind.forbidden(new, f'workload "{name}" does not exist or is being deleted')
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


def _has_deadline(pod: Object) -> bool:
    return pod["spec"].get("activeDeadlineSeconds") is not None


_LIMIT_RANGER_ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRanger:
    def __init__(self, store: Store) -> None:
        self._ranges = DecodedObjects(store, "limitranges")

    def admit_pod(self, new: Object) -> None:
        """Set the default requests and limits of the pod's containers."""
        for limit_range in self._ranges.in_namespace(new["metadata"]["namespace"]):
            if notes := set_container_defaults(new["spec"], limit_range):
                annotations = new["metadata"].setdefault("annotations", {})
                annotations[_LIMIT_RANGER_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"

    def validate_pod(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for a pod outside the bounds."""
        for limit_range in self._ranges.in_namespace(new["metadata"]["namespace"]):
            _raise(kind, new, pod_violations(new["spec"], limit_range))

    def validate_claim(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for a PersistentVolumeClaim outside the bounds."""
        requests = (new["spec"].get("resources") or {}).get("requests") or {}
        for limit_range in self._ranges.in_namespace(new["metadata"]["namespace"]):
            problems: list[str] = []
            for item in (limit_range.get("spec") or {}).get("limits") or ():
                if item["type"] == "PersistentVolumeClaim":
                    bounds = {"type": item["type"], "min": item.get("min"), "max": item.get("max")}
                    problems += violations(bounds, requests, None)
            _raise(kind, new, problems)


def _raise(kind: Kind, new: Object, problems: Iterable[str]) -> None:
    if problem := joined_violations(problems):
        raise kind.forbidden(new, problem)


DEFAULT_ACCOUNT = "default"


def _set_service_account(kind: Kind, new: Object, accounts: Collection) -> None:
    """ServiceAccount: raises a 403 StatusError for an account that does not exist.

    The default account is not checked: kube-apiserver waits for it, because its controller creates it soon after the
    namespace.
    """
    spec, namespace = new["spec"], new["metadata"]["namespace"]
    name = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
    if name != DEFAULT_ACCOUNT and accounts.get(f"{namespace}/{name}") is None:
        problem = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise kind.forbidden(new, problem)
    spec["serviceAccountName"] = spec["serviceAccount"] = name


_NODE_SELECTOR_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"
_MARK = f'"{_NODE_SELECTOR_ANNOTATION}":'.encode()


def _add_node_selector(kind: Kind, new: Object, namespaces: Collection) -> None:
    """PodNodeSelector: raises a 403 StatusError for a pod with another value for one of the labels."""
    namespace = namespaces.get(new["metadata"]["namespace"])
    if namespace is None or _MARK not in namespace.data:
        return
    annotations = msgspec.json.decode(namespace.data)["metadata"].get("annotations") or {}
    own = new["spec"].get("nodeSelector") or {}
    # The annotation is ``key=value,key=value``.
    parts = annotations.get(_NODE_SELECTOR_ANNOTATION, "").split(",")
    pairs = (part.partition("=") for part in parts if part.strip())
    selector = {key.strip(): value.strip() for key, _, value in pairs}
    if any(own.get(key, value) != value for key, value in selector.items()):
        raise kind.forbidden(new, "pod node label selector conflicts with its namespace node label selector")
    if selector:
        new["spec"]["nodeSelector"] = {**own, **selector}


class PriorityAdmission:
    def __init__(self, store: Store) -> None:
        self._classes = DecodedObjects(store, "priorityclasses.scheduling.k8s.io")

    def admit_pod(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for an unknown class, or a priority that differs from that of the class."""
        spec, priority_class = new["spec"], self._priority_class(kind, new)
        value = priority_class["value"] if priority_class is not None else 0
        _check_priority(kind, new, value)
        policy = priority_class["preemptionPolicy"] if priority_class is not None else "PreemptLowerPriority"
        if spec.get("preemptionPolicy", policy) != policy:
            problem = (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec;"
                f" priority admission controller computed {policy} from the given PriorityClass name"
            )
            raise kind.forbidden(new, problem)
        spec["priority"], spec["preemptionPolicy"] = value, policy

    def admit_pod_update(self, new: Object, old: Object) -> None:
        """Keep the priority and the preemption policy if the update leaves them out."""
        for field in ("priority", "preemptionPolicy"):
            if field not in new["spec"] and field in old["spec"]:
                new["spec"][field] = old["spec"][field]

    def admit_pod_group(self, kind: Kind, new: Object) -> None:
        """A group without a priority class has no priority, which counts as 0. Raises a 403 StatusError."""
        priority_class = self._priority_class(kind, new)
        _check_priority(kind, new, priority_class["value"] if priority_class is not None else 0)
        if priority_class is not None:
            new["spec"]["priority"] = priority_class["value"]

    def validate_class(self, kind: Kind, new: Object) -> None:
        """Only one class can be the default. Raises a 403 StatusError."""
        default = self._default_class() if new.get("globalDefault") else None
        if default is not None and default["metadata"]["name"] != new["metadata"].get("name"):
            problem = (
                f"PriorityClass {default['metadata']['name']} is already marked as default. Only one default can exist"
            )
            raise kind.forbidden(new, problem)

    def _priority_class(self, kind: Kind, new: Object) -> Object | None:
        """The priority class of an object, by its name or the default one, whose name is set in the spec."""
        spec = new["spec"]
        if name := spec.get("priorityClassName", ""):
            priority_class = self._classes.by_key().get(name)
            if priority_class is None:
                raise kind.forbidden(new, f"no PriorityClass with name {name} was found")
            return priority_class
        priority_class = self._default_class()
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        return priority_class

    def _default_class(self) -> Object | None:
        return default_priority_class(self._classes.by_key().values())


def _check_priority(kind: Kind, new: Object, value: int) -> None:
    requested = new["spec"].get("priority")
    if requested is not None and requested != value:
        subject = "pod group" if kind.storage in _POD_GROUPS else "pod"
        problem = (
            f"the integer value of priority ({requested}) must not be provided in {subject} spec; priority admission"
            f" controller computed {value} from the given PriorityClass name"
        )
        raise kind.forbidden(new, problem)


def _apply_runtime_class(kind: Kind, new: Object, classes: DecodedObjects) -> None:
    """RuntimeClass: raises a 403 StatusError for an unknown class, and for a pod that contradicts its class."""
    spec, name = new["spec"], new["spec"].get("runtimeClassName")
    if name is None and not spec.get("overhead"):
        return
    runtime_class = classes.by_key().get(name) if name is not None else {}
    if runtime_class is None:
        raise kind.forbidden(new, f'pod rejected: RuntimeClass "{name}" not found')
    try:
        apply_runtime_class(spec, runtime_class)
    except InvalidObject as error:
        raise kind.forbidden(new, error.problem) from None
