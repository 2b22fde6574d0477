"""DefaultStorageClass: claims without a class get the default one."""

from __future__ import annotations

from kubestow.devcluster.apiserver.schema import Object
from kubestow.devcluster.apiserver.storage.decoded_objects import DecodedObjects
from kubestow.devcluster.apiserver.storage.store import Store

__all__ = ["IS_DEFAULT_STORAGE_CLASS", "DefaultStorageClass"]

#: The annotation of the default storage class.
IS_DEFAULT_STORAGE_CLASS = "storageclass.kubernetes.io/is-default-class"


class DefaultStorageClass:
    def __init__(self, store: Store) -> None:
        self._classes = DecodedObjects(store, "storageclasses.storage.k8s.io")

    def admit(self, new: Object) -> None:
        if "storageClassName" in new["spec"]:
            return
        defaults = [
            one
            for one in self._classes.by_key().values()
            if (one["metadata"].get("annotations") or {}).get(IS_DEFAULT_STORAGE_CLASS) == "true"
        ]
        if defaults:
            newest = max(defaults, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))
            new["spec"]["storageClassName"] = newest["metadata"]["name"]
