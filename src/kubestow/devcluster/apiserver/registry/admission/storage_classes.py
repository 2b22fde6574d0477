"""DefaultStorageClass: claims without a class get the default one."""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.devcluster.apiserver.schema import Object
from kubestow.devcluster.apiserver.storage.decoded_objects import DecodedObjects
from kubestow.devcluster.apiserver.storage.store import Store

__all__ = ["IS_DEFAULT_STORAGE_CLASS", "DefaultStorageClass", "default_storage_class"]

#: The annotation of the default storage class.
IS_DEFAULT_STORAGE_CLASS = "storageclass.kubernetes.io/is-default-class"


class DefaultStorageClass:
    def __init__(self, store: Store) -> None:
        self._classes = DecodedObjects(store, "storageclasses.storage.k8s.io")

    def admit(self, new: Object) -> None:
        if "storageClassName" in new["spec"]:
            return
        name = default_storage_class(self._classes.by_key().values())
        if name is not None:
            new["spec"]["storageClassName"] = name


def default_storage_class(classes: Iterable[Object]) -> str | None:
    """The name of the default class: of several the newest, of these the first by name. None without any."""
    defaults = [
        one["metadata"]
        for one in classes
        if (one["metadata"].get("annotations") or {}).get(IS_DEFAULT_STORAGE_CLASS) == "true"
    ]
    newest = max((metadata["creationTimestamp"] for metadata in defaults), default=None)
    return min((metadata["name"] for metadata in defaults if metadata["creationTimestamp"] == newest), default=None)
