"""A served kind: its names, scope, schema, subresources and strategy, and how its objects are stored.

Kinds differ in their schema and their strategy: how objects are defaulted, prepared and validated on create, update and
delete. Everything else (storage, watch, patches, discovery, responses) is generic and takes the kind as a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import msgspec

from kubestow.api.formats.names import NameErrors, dns1123_subdomain_errors
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.group_version import GroupResource, GroupVersion, version_priority
from kubestow_devcluster.apiserver.printers.table import Printer
from kubestow_devcluster.apiserver.schema.structural import StructuralType
from kubestow_devcluster.apiserver.schema.type_table import has_protobuf
from kubestow_devcluster.apiserver.schema.types import Object, Struct, struct_of
from kubestow_devcluster.apiserver.statuses import FieldError
from kubestow_devcluster.apiserver.storage.database import SelectableFields
from kubestow_devcluster.apiserver.storage.store import StoredObject

#: The metadata that clients set.
ALL_CLIENT_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")


class RESTStrategy:
    """The default strategy, which suits most kinds; others override the hooks in which they differ.

    Hooks receive objects without ``kind`` and ``apiVersion``. They may modify the new object in place, never the old.
    """

    #: Whether ``metadata.generation`` counts changes to the spec.
    has_generation = False
    #: Whether it counts changes to the annotations too.
    counts_annotations = False
    #: Whether PUT of a missing object creates it.
    allow_create_on_update = False
    #: Whether PUT may omit resourceVersion.
    allow_unconditional_update = True
    #: Whether the response to DELETE is the last state of the object instead of a Status.
    returns_deleted_object = False
    #: The propagation policy of a delete without one; empty: Background.
    default_propagation_policy = ""
    #: Fields of the metadata that a write of the status does not change, beside those that only the server sets.
    kept_by_status_writes: ClassVar[tuple[str, ...]] = ()
    #: Whether stored objects differ from those that this kind serves.
    needs_conversion = False
    #: The values of fields that a client may omit, by their dotted paths.
    defaults: ClassVar[Mapping[str, Any]] = {}
    #: The status of every new object; None: what the client wrote.
    initial_status: ClassVar[Mapping[str, Any] | None] = None
    #: Whether updates are validated as new objects are, or not at all.
    validates_updates_as_new = False

    def from_storage(self, stored: Object) -> Object:
        """Convert an object from its stored version to the served one."""
        return stored

    def to_storage(self, served: Object) -> Object:
        """Convert an object from the served version to the stored one."""
        return served

    def set_defaults(self, new: Object) -> None:
        """Set the fields that a client may omit."""
        set_defaults_at(new, self.defaults)

    def prepare_for_create(self, new: Object, now: str) -> None:
        """Clear the fields that clients cannot set, and set those that the server sets at ``now``."""
        if self.initial_status is not None:
            new["status"] = deepcopy(dict(self.initial_status))

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        """Restore the fields that clients cannot change."""

    def warnings(self, new: Object) -> list[str]:
        """Warnings for the client that writes this object, which is not validated yet."""
        return []

    def validate(self, new: Object) -> list[FieldError]:
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new) if self.validates_updates_as_new else []

    def validate_status_update(self, new: Object, old: Object) -> list[FieldError]:
        return []

    def validate_subresource_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        """Validate an update through a subresource other than ``status``; by default like any update."""
        return self.validate_update(new, old)

    def validate_name(self, name: str) -> NameErrors:
        """The errors in a name."""
        return dns1123_subdomain_errors(name)

    def validate_delete(self, name: str) -> str:
        """Why the object of this name cannot be deleted, or the empty string."""
        return ""

    def graceful_deletion_period(self, old: Object, requested: int | None) -> int | None:
        """The grace period in seconds of a delete; None for kinds without graceful deletion."""
        return None


class SpecStrategy(RESTStrategy):
    """Kinds with a spec whose changes ``metadata.generation`` counts, and no other rules."""

    has_generation = True


ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class KindNames(NamedTuple):
    """The names of a kind, as in a CustomResourceDefinition."""

    kind: str
    plural: str
    singular: str
    list_kind: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class ScalePaths(NamedTuple):
    """The fields behind the scale subresource.

    ``selector`` is the path of a serialized selector; empty where the selector is ``spec.selector``.
    """

    spec_replicas: str
    status_replicas: str
    selector: str


class Subresources(NamedTuple):
    """The subresources of a kind; ``others`` by name."""

    status: bool = False
    scale: ScalePaths | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class RESTOptions:
    """How the objects of a kind are written, stored and selected.

    ``selectable_fields`` are the paths that field selectors can use. ``stored_in`` is the resource that stores the
    objects of a kind which shares storage with another (events.k8s.io with core events). ``deprecation_warning`` is
    sent with every response about a deprecated kind. ``disabled_fields`` are the paths that a write cannot set, because
    they belong to features that are off.
    """

    strategy: RESTStrategy = field(default_factory=RESTStrategy)
    verbs: tuple[str, ...] = ALL_VERBS
    selectable_fields: tuple[str, ...] = ()
    storage_version_hash: str = ""
    stored_in: str = ""
    deprecation_warning: str = ""
    disabled_fields: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class CustomResource:
    """What only the definition of a custom resource has: its schema and columns."""

    schema: StructuralType
    printer: Printer


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind in one version. ``model`` names its type in the type table; it is empty for kinds without a schema."""

    group_version: GroupVersion
    names: KindNames
    model: str = ""
    namespaced: bool = True
    subresources: Subresources = field(default_factory=Subresources)
    rest: RESTOptions = field(default_factory=RESTOptions)
    custom: CustomResource | None = None

    # Each is computed once; the server reads some of them in every request.

    @cached_property
    def group(self) -> str:
        return self.group_version.group

    @cached_property
    def version(self) -> str:
        return self.group_version.version

    @cached_property
    def api_version(self) -> str:
        return str(self.group_version)

    @cached_property
    def name(self) -> str:
        """``Deployment``."""
        return self.names.kind

    @cached_property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.names.plural)

    @cached_property
    def resource(self) -> str:
        """``deployments.apps``."""
        return str(self.group_resource)

    @cached_property
    def storage(self) -> str:
        """The collection that stores the objects."""
        return self.rest.stored_in or self.resource

    @cached_property
    def strategy(self) -> RESTStrategy:
        return self.rest.strategy

    @cached_property
    def struct(self) -> Struct:
        return struct_of(self.model) if self.custom is None else self.custom.schema

    @cached_property
    def has_protobuf(self) -> bool:
        """Whether objects have a protobuf encoding; custom resources have none."""
        return self.custom is None and has_protobuf(self.model)

    @cached_property
    def type_meta(self) -> bytes:
        """The start of an encoded object: ``kind`` and ``apiVersion``, up to the first member of the stored bytes."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.name.encode(), self.api_version.encode())

    def encode(self, stored: StoredObject) -> bytes:
        """The object with kind and apiVersion."""
        return self.type_meta + self.encode_item(stored)[1:]

    def encode_item(self, stored: StoredObject) -> bytes:
        """The object as a list item, which has no kind and apiVersion."""
        if self.rest.strategy.needs_conversion:  # faster than the cached property; a list calls this for every object
            return msgspec.json.encode(self.decode(stored))
        return stored.data

    def decode(self, stored: StoredObject) -> Object:
        """The object in the served version, without kind and apiVersion."""
        decoded: Object = msgspec.json.decode(stored.data)
        return self.strategy.from_storage(decoded)

    def key(self, namespace: str, name: str) -> str:
        """The key of an object in its collection."""
        return f"{namespace}/{name}" if self.namespaced else name

    def object_reference(self, obj: Object) -> Object:
        """An ObjectReference to an object of this kind at its current resourceVersion."""
        metadata = obj["metadata"]
        return {
            "kind": self.name,
            "namespace": metadata.get("namespace", "default"),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": self.api_version,
            "resourceVersion": metadata["resourceVersion"],
        }

    def forbidden(self, obj: Object, problem: str) -> statuses.StatusError:
        """The 403 error of an object that admission rejects."""
        return statuses.forbidden(self.group_resource, obj["metadata"].get("name", ""), problem)

    def selectable_values(self, obj: Object) -> tuple[str, ...]:
        """The values of the selectable fields of an object."""
        return tuple([read(obj) for read in self._field_readers])

    def selectable_values_of(self, data: bytes) -> tuple[str, ...]:
        """The values of the selectable fields of an encoded object."""
        return self.selectable_values(msgspec.json.decode(data))

    @cached_property
    def _field_readers(self) -> list[Callable[[Object], str]]:
        return [_field_reader(_FIELD_PATHS.get(path, path).split(".")) for path in self.rest.selectable_fields]


def value_at(obj: Object, path: str) -> Any:
    """The value at a path such as ``spec.replicas``; None if there is none."""
    value: Any = obj if path else None
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def set_defaults_at(obj: Object, values: Mapping[str, Any]) -> None:
    """Set the values at these dotted paths where there are none; objects on the way are created."""
    for path, value in values.items():
        *parents, field_name = path.split(".")
        parent = obj
        for step in parents:
            parent = parent.setdefault(step, {})
        parent.setdefault(field_name, deepcopy(value))


def with_value_at(obj: Object, path: str, value: Any) -> Object:
    """A copy of ``obj`` with ``value`` at a path such as ``spec.replicas``."""
    step, _, rest = path.partition(".")
    return {**obj, step: with_value_at(obj.get(step) or {}, rest, value) if rest else value}


#: The paths of selectable fields that differ from their label.
_FIELD_PATHS = {"source": "source.component"}


def _field_reader(path: list[str]) -> Callable[[Object], str]:
    def read(obj: Object) -> str:
        value: Any = obj
        for step in path:
            value = value.get(step) if type(value) is dict else None
            if value is None:
                return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
        if value is True or value is False:
            return "true" if value else "false"
        return str(value)

    return read


class Scheme:
    """The built-in kinds of a minor version, and custom resources, which are added and removed with their definitions.

    A custom resource with the group, version and name of a built-in kind replaces it. The ``hub_kinds`` are not served:
    objects are stored in them, and the server's own controllers use them.
    """

    def __init__(
        self, built_in: Iterable[Kind], *, minor: Minor = DEFAULT_MINOR, hub_kinds: Iterable[Kind] = ()
    ) -> None:
        self.minor = minor
        self._built_in, self.hub_kinds = tuple(built_in), tuple(hub_kinds)
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

    def is_custom(self, kind: Kind) -> bool:
        """Whether a kind is served for a CustomResourceDefinition."""
        return any(kind is each for kinds in self._custom.values() for each in kinds)

    def _index(self) -> None:
        custom = [kind for name in sorted(self._custom) for kind in self._custom[name]]
        custom.sort(key=lambda kind: (kind.group, version_priority(kind.version)))
        self._kinds = {(kind.group, kind.version, kind.names.plural): kind for kind in (*self._built_in, *custom)}
        self._groups: dict[str, list[str]] = {}
        for kind in self:
            versions = self._groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        self._by_resource, self._by_group_kind = {}, {}
        for kind in (*self.hub_kinds, *self):
            self._by_resource.setdefault(kind.resource, kind)
            self._by_group_kind.setdefault((kind.group, kind.name), kind)
        self.revision += 1

    def __contains__(self, resource: str) -> bool:
        return resource in self._by_resource

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The served kind of a path."""
        return self._kinds.get((group, version, plural))

    def __getitem__(self, resource: str) -> Kind:
        """The kind of a resource such as ``pods`` or ``leases.coordination.k8s.io``. Raises KeyError.

        It is the one that stores the objects where that is not served.
        """
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
            for kind in (*self.hub_kinds, *self)
            if not kind.rest.stored_in
        }

    def served(self, group: str, version: str) -> list[Kind]:
        """The kinds of one group and version."""
        return [kind for kind in self if (kind.group, kind.version) == (group, version)]
