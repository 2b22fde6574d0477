"""ResourceQuota: rejects objects with which a namespace would exceed one of its quotas, and what objects count for.

The quota controller computes the usage in the status of each quota; admission adds what it admits, so that the next
object is checked against it. Pods count while they have not finished; ``count/<resource>`` counts every stored object
of a resource. Devices of resource claims are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.rules.resource_lists import ResourceList, subtracted
from kubestow.rules.resource_quotas import (
    charged,
    has_scope,
    limited,
    matches,
    missing_requirements,
    pod_usage,
    scope_requirements,
)
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import DecodedObjects, Store

#: Resources whose usage can grow by an update.
_CHECKED_UPDATES = ("persistentvolumeclaims", "pods", "services")


class ResourceQuotaAdmission:
    def __init__(self, store: Store) -> None:
        self._collection = store.collection("resourcequotas")
        self._quotas = DecodedObjects(store, "resourcequotas")

    def validate(self, kind: Kind, new: Object, old: Object | None = None) -> list[Object]:
        """The quotas with what a new or updated object adds to their usage, to be written with the object.

        Raises a 403 StatusError when a quota does not allow the object.
        """
        if not len(self._collection) or (old is not None and kind.storage not in _CHECKED_UPDATES):
            return []
        quotas = [
            quota for quota in self._quotas.in_namespace(new["metadata"]["namespace"]) if is_in_scope(quota, kind, new)
        ]
        if kind.storage == "pods":
            for quota in quotas:
                if missing := missing_requirements(new["spec"], _hard(quota)):
                    raise kind.forbidden(new, f"failed quota: {quota['metadata']['name']}: must specify {missing}")
        usage = usage_of(kind, new)
        growth = usage if old is None else subtracted(usage, usage_of(kind, old))
        written = (
            # A quota that the object was out of the scope of before has counted nothing of it.
            _charged(kind, new, quota, growth if old is not None and is_in_scope(quota, kind, old) else usage)
            for quota in quotas
        )
        return [quota for quota in written if quota is not None]


def _charged(kind: Kind, new: Object, quota: Object, usage: ResourceList) -> Object | None:
    """The quota with ``usage`` added to its own; None if it limits nothing that grows. Raises a 403 StatusError."""
    hard, name = _hard(quota), quota["metadata"]["name"]
    requested = limited(usage, hard)
    if not requested:
        return None
    used: ResourceList = (quota.get("status") or {}).get("used") or {}
    unknown = sorted(requested.keys() - used.keys())
    if unknown:
        raise kind.forbidden(new, f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    after, problem = charged(name, hard, used, requested)
    if problem:
        raise kind.forbidden(new, problem)
    return {**quota, "metadata": dict(quota["metadata"]), "status": {**quota["status"], "used": after}}


def _hard(quota: Object) -> ResourceList:
    """The limits that the controller has copied to the status; until then those of the spec."""
    hard: ResourceList = (quota.get("status") or {}).get("hard") or (quota.get("spec") or {}).get("hard") or {}
    return hard


#: Resources that are counted under their own name too.
_COUNTED = frozenset(
    {"configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services"}
)
_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"


def usage_of(kind: Kind, obj: Object) -> ResourceList:
    """What an object of any namespaced kind counts for."""
    usage = {f"count/{kind.storage}": "1"}
    if kind.storage in _COUNTED:
        usage[kind.storage] = "1"
    if kind.storage == "pods":
        usage |= pod_usage(obj)
    elif kind.storage == "persistentvolumeclaims":
        usage |= _claim_usage(obj)
    elif kind.storage == "services":
        usage |= _service_usage(obj["spec"])
    return usage


def is_in_scope(quota: Object, kind: Kind, obj: Object) -> bool:
    """Whether an object has all scopes of a quota. Only pods and volume claims have scopes."""
    requirements = scope_requirements(quota)
    if kind.storage == "pods":
        return all(has_scope(requirement, obj["spec"]) for requirement in requirements)
    if kind.storage == "persistentvolumeclaims":
        return all(_has_volume_scope(requirement, obj) for requirement in requirements)
    return not requirements


def counted_resources(kinds: Iterable[Kind], hard: Iterable[str]) -> list[Kind]:
    """The kinds whose objects count for one of the resources of a quota, one per stored resource."""
    names = set(hard)
    by_storage = {kind.storage: kind for kind in kinds if kind.namespaced and "list" in kind.rest.verbs}
    return [
        kind
        for storage, kind in by_storage.items()
        if f"count/{storage}" in names or storage in names or _may_use(storage, names)
    ]


def _may_use(storage: str, names: set[str]) -> bool:
    """Whether objects of a resource count for something besides their number."""
    match storage:
        case "pods":
            return any(not name.startswith(("count/", "services")) for name in names - _COUNTED)
        case "persistentvolumeclaims":
            return any(name == "requests.storage" or _CLASS_SUFFIX in name for name in names)
        case "services":
            return any(name.startswith("services.") for name in names)
    return False


def _claim_usage(claim: Object) -> ResourceList:
    spec = claim["spec"]
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    usage = {"requests.storage": storage} if storage else {}
    if name := spec.get("storageClassName"):
        usage[f"{name}{_CLASS_SUFFIX}persistentvolumeclaims"] = "1"
        if storage:
            usage[f"{name}{_CLASS_SUFFIX}requests.storage"] = storage
    return usage


def _service_usage(spec: Object) -> ResourceList:
    type_, ports = spec.get("type"), len(spec.get("ports") or ())
    usage = {"services.nodeports": "0", "services.loadbalancers": "0"}
    if type_ == "NodePort" or (type_ == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)):
        usage["services.nodeports"] = str(ports)
    if type_ == "LoadBalancer":
        usage["services.loadbalancers"] = "1"
    return usage


def _has_volume_scope(requirement: Object, claim: Object) -> bool:
    """Whether one of the volume attributes classes that a claim refers to is in the scope."""
    if requirement["scopeName"] != "VolumeAttributesClass":
        return False
    status = claim.get("status") or {}
    names = (
        claim["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return any(matches(requirement, name) for name in [one for one in names if one] or [""])
