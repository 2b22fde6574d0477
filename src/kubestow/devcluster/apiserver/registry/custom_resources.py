"""Serving custom resources: the catalog follows the CustomResourceDefinitions in the store.

The registry tells of every write of a definition, and of every instance that goes. A definition that is deleted takes
its instances along and is gone when the last of them is; those with finalizers keep it, terminating, until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubestow.devcluster.apiserver.resources import Kind, Object, Scheme, custom, definitions
from kubestow.devcluster.apiserver.storage.store import Store

if TYPE_CHECKING:
    from kubestow.devcluster.apiserver.registry.registry import Registry

__all__ = ["DEFINITIONS", "Definitions"]

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class Definitions:
    """The definitions of one registry. What the store already holds is served from the start."""

    def __init__(self, registry: Registry, store: Store, scheme: Scheme) -> None:
        self._registry, self._store, self._scheme = registry, store, scheme
        self._kind = scheme[DEFINITIONS]
        for stored in store.collection(DEFINITIONS).snapshot():
            self._scheme.define(stored.name, custom.kinds_of(self._kind.decode(stored)))

    def settle(self, new: Object, now: str) -> None:
        """Decide on the names of a definition that is about to be written."""
        spec, name = new["spec"], new["metadata"]["name"]
        others = [kind for kind in self._scheme if kind.group == spec["group"] and kind.resource != name]
        definitions.accept_names(new, others, now)
        if definitions.is_terminating(new):
            definitions.mark_terminating(new, now)

    def written(self, definition: Object) -> None:
        """Serve a definition as it now is; begin to clean up one that is being deleted."""
        name = definition["metadata"]["name"]
        self._scheme.define(name, custom.kinds_of(definition))
        if definitions.is_terminating(definition):
            self._clean_up(name)

    def removed(self, name: str) -> None:
        self._scheme.define(name, [])

    def instance_removed(self, kind: Kind) -> None:
        """Let a terminating definition go with its last instance."""
        stored = self._store.collection(DEFINITIONS).get(kind.resource)
        if stored is not None and definitions.is_terminating(self._kind.decode(stored)):
            self._finish(kind.resource)

    def _clean_up(self, name: str) -> None:
        kind = next((kind for kind in self._scheme if kind.resource == name), None)
        if kind is not None:
            for stored in self._store.collection(name).snapshot():
                if b'"deletionTimestamp"' not in stored.data:
                    self._registry.remove(kind, stored.namespace, stored.name)
        self._finish(name)

    def _finish(self, name: str) -> None:
        stored = self._store.collection(DEFINITIONS).get(name)
        if stored is None or len(self._store.collection(name)):
            return
        definition = self._kind.decode(stored)
        kept = [one for one in definition["metadata"].get("finalizers") or () if one != definitions.CLEANUP]
        definition["metadata"]["finalizers"] = kept
        if kept:
            if definitions.CLEANUP.encode() in stored.data:
                self._registry.commit(self._kind, definition)
            return
        del definition["metadata"]["finalizers"]
        self._registry.commit_deletion(self._kind, definition)
