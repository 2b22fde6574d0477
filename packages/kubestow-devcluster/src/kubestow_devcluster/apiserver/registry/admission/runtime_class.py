"""RuntimeClass: the overhead, node selector and tolerations that a pod gets from its runtime class."""

from __future__ import annotations

from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission.rejection import forbidden
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.selectors import DecodedObjects
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["RuntimeClass"]


class RuntimeClass:
    def __init__(self, store: Store) -> None:
        self._classes = DecodedObjects(store, "runtimeclasses.node.k8s.io")

    def admit(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for an unknown class, and for a pod that contradicts its class."""
        spec, name = new["spec"], new["spec"].get("runtimeClassName")
        if name is None and not spec.get("overhead"):
            return
        runtime_class = self._classes.by_key().get(name) if name is not None else {}
        if runtime_class is None:
            raise forbidden(kind, new, f'pod rejected: RuntimeClass "{name}" not found')
        overhead = (runtime_class.get("overhead") or {}).get("podFixed")
        if spec.get("overhead") and overhead is None:
            problem = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise forbidden(kind, new, problem)
        if spec.get("overhead", overhead) != overhead:
            raise forbidden(kind, new, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        if overhead:
            spec["overhead"] = dict(overhead)
        if scheduling := runtime_class.get("scheduling"):
            _set_scheduling(kind, new, scheduling)


def _set_scheduling(kind: Kind, new: Object, scheduling: Object) -> None:
    spec = new["spec"]
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            problem = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value};"
                f" pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise forbidden(kind, new, problem)
    if selector:
        spec["nodeSelector"] = selector
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in scheduling.get("tolerations") or () if one not in tolerations]
    if tolerations:
        spec["tolerations"] = tolerations
