"""PodNodeSelector: pods get the node selector that an annotation of their namespace contains."""

from __future__ import annotations

import msgspec

from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission.rejection import forbidden
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["PodNodeSelector"]

_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"
_MARK = f'"{_ANNOTATION}":'.encode()


class PodNodeSelector:
    def __init__(self, store: Store) -> None:
        self._namespaces = store.collection("namespaces")

    def admit(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for a pod with another value for one of the labels."""
        namespace = self._namespaces.get(new["metadata"]["namespace"])
        if namespace is None or _MARK not in namespace.data:
            return
        annotations = msgspec.json.decode(namespace.data)["metadata"].get("annotations") or {}
        own = new["spec"].get("nodeSelector") or {}
        selector = _labels(annotations.get(_ANNOTATION, ""))
        if any(own.get(key, value) != value for key, value in selector.items()):
            raise forbidden(kind, new, "pod node label selector conflicts with its namespace node label selector")
        if selector:
            new["spec"]["nodeSelector"] = {**own, **selector}


def _labels(text: str) -> dict[str, str]:
    """The labels of ``key=value,key=value``."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}
