"""ResourceQuota: rejects objects with which a namespace would exceed one of its quotas.

The quota controller computes the usage in the status of each quota; admission adds what it admits, so that the next
object is checked against it.
"""

from __future__ import annotations

from kubestow.api.formats.quantity import nanos
from kubestow.rules.resource_lists import (
    ResourceList,
    added,
    exceeding,
    formatted,
    subtracted,
)
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission.quota_usage import is_in_scope, missing_requirements, usage_of
from kubestow_devcluster.apiserver.registry.admission.rejection import forbidden
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.selectors import DecodedObjects
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["ResourceQuota"]

#: Resources whose usage can grow by an update.
_CHECKED_UPDATES = ("persistentvolumeclaims", "pods", "services")


class ResourceQuota:
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
            _check_requirements(kind, new, quotas)
        usage = usage_of(kind, new)
        growth = usage if old is None else subtracted(usage, usage_of(kind, old))
        charges = (
            # A quota that the object was out of the scope of before has counted nothing of it.
            _charged(kind, new, quota, growth if old is not None and is_in_scope(quota, kind, old) else usage)
            for quota in quotas
        )
        return [charged for charged in charges if charged is not None]


def _check_requirements(kind: Kind, new: Object, quotas: list[Object]) -> None:
    for quota in quotas:
        if missing := missing_requirements(new["spec"], _hard(quota)):
            raise forbidden(kind, new, f"failed quota: {quota['metadata']['name']}: must specify {missing}")


def _charged(kind: Kind, new: Object, quota: Object, usage: ResourceList) -> Object | None:
    """The quota with ``usage`` added to its own; None if it limits nothing that grows. Raises a 403 StatusError."""
    hard, name = _hard(quota), quota["metadata"]["name"]
    requested = {resource: amount for resource, amount in usage.items() if resource in hard and nanos(amount) > 0}
    if not requested:
        return None
    used: ResourceList = (quota.get("status") or {}).get("used") or {}
    unknown = sorted(requested.keys() - used.keys())
    if unknown:
        raise forbidden(kind, new, f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    charged = used | {resource: added(used, requested)[resource] for resource in requested}
    if exceeded := exceeding({resource: charged[resource] for resource in requested}, hard):
        problem = (
            f"exceeded quota: {name}, requested: {formatted(requested, exceeded)}, used: {formatted(used, exceeded)},"
            f" limited: {formatted(hard, exceeded)}"
        )
        raise forbidden(kind, new, problem)
    return {**quota, "metadata": dict(quota["metadata"]), "status": {**quota["status"], "used": charged}}


def _hard(quota: Object) -> ResourceList:
    """The limits that the controller has copied to the status; until then those of the spec."""
    hard: ResourceList = (quota.get("status") or {}).get("hard") or (quota.get("spec") or {}).get("hard") or {}
    return hard
