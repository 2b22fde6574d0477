"""The scheme: the served kinds by resource and by group and kind, for requests and discovery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kubestow_devcluster.apiserver.group_version import version_priority
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.storage.database import SelectableFields


class Scheme:
    """The built-in kinds, and those of custom resources, which are added and removed with their definitions.

    A custom resource with the group, version and name of a built-in kind replaces it.
    """

    def __init__(self, built_in: Iterable[Kind]) -> None:
        self._built_in = tuple(built_in)
        self._by_resource: dict[str, Kind] = {}
        self._by_group_kind: dict[tuple[str, str], Kind] = {}
        self._custom: dict[str, Sequence[Kind]] = {}
        #: Incremented with every change; data derived from the scheme is rebuilt when it differs.
        self.revision = 0
        self._index()

    def set_custom_resource(self, definition: str, kinds: Sequence[Kind]) -> None:
        """Replace the kinds served for a CustomResourceDefinition; an empty sequence removes them."""
        if kinds:
            self._custom[definition] = kinds
        else:
            self._custom.pop(definition, None)
        self._index()

    def _index(self) -> None:
        custom = [kind for name in sorted(self._custom) for kind in self._custom[name]]
        custom.sort(key=lambda kind: (kind.group, version_priority(kind.version)))
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in (*self._built_in, *custom)}
        self._groups: dict[str, list[str]] = {}
        for kind in self:
            versions = self._groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        self._by_resource, self._by_group_kind = {}, {}
        for kind in self:
            self._by_resource.setdefault(kind.resource, kind)
            self._by_group_kind.setdefault((kind.group, kind.name), kind)
        self.revision += 1

    def __contains__(self, resource: str) -> bool:
        return resource in self._by_resource

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def __getitem__(self, resource: str) -> Kind:
        """The kind of a resource such as ``pods`` or ``leases.coordination.k8s.io``. Raises KeyError."""
        return self._by_resource[resource]

    def kind_for(self, group: str, name: str) -> Kind | None:
        """The kind of this group and name, in its preferred version."""
        return self._by_group_kind.get((group, name))

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, preferred first."""
        return self._groups

    def selectable_fields(self) -> dict[str, SelectableFields]:
        """The selectable fields of every stored resource."""
        return {
            kind.storage: SelectableFields(kind.rest.selectable_fields, kind.selectable_values_of)
            for kind in self
            if not kind.rest.stored_in
        }

    def served(self, group: str, version: str) -> list[Kind]:
        """The kinds of one group and version."""
        return [kind for kind in self if (kind.group, kind.version) == (group, version)]
