"""RuntimeClass: the overhead, node selector and tolerations that a pod gets from its runtime class."""

from __future__ import annotations

from kubestow.errors import InvalidObject
from kubestow.rules.admission import apply_runtime_class
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
        try:
            apply_runtime_class(spec, runtime_class)
        except InvalidObject as error:
            raise forbidden(kind, new, error.problem) from None
