"""DefaultStorageClass: claims without a class get the default one."""

from __future__ import annotations

from kubestow.api.meta import convert
from kubestow.api.storage import StorageClass
from kubestow.rules.volumes import default_storage_class
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.selectors import DecodedObjects
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["DefaultStorageClass"]


class DefaultStorageClass:
    def __init__(self, store: Store) -> None:
        self._classes = DecodedObjects(store, "storageclasses.storage.k8s.io")

    def admit(self, new: Object) -> None:
        if "storageClassName" in new["spec"]:
            return
        name = default_storage_class(convert(StorageClass, one) for one in self._classes.by_key().values())
        if name is not None:
            new["spec"]["storageClassName"] = name
