"""A served kind: its names, scope and subresources, and the strategy that says how its objects come to be and change.

The strategy is where kinds differ: defaults, what a write may touch, validation. Everything else (storage, watch,
patches, discovery, output) is the same for all and asks the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from kubestow.api.names import NameErrors, dns1123_subdomain_errors
from kubestow.devcluster.apiserver.field_errors import Cause
from kubestow.devcluster.apiserver.printing.layout import Layout
from kubestow.devcluster.apiserver.schema import Struct, struct_of
from kubestow.devcluster.apiserver.schema.structural import CustomStruct
from kubestow.devcluster.apiserver.storage.store import StoredObject

__all__ = ["REPLICAS", "Kind", "Object", "Strategy", "value_at"]

Object = dict[str, Any]

#: Where the kinds that make pods have their replicas.
REPLICAS = ("spec.replicas", "status.replicas", "")


class Strategy:
    """How objects of a kind are created and changed. This one does what most kinds do; kinds with more to say derive.

    Hooks get whole objects (without ``kind`` and ``apiVersion``) and may change the new one in place, never the old.
    """

    #: Whether ``metadata.generation`` counts changes of the spec.
    has_generation = False
    #: Whether PUT of an object that is not there creates it; whether PUT may leave resourceVersion out.
    create_on_update = False
    unconditional_update = True
    #: What a successful DELETE answers: the object's last state, or a bare Status.
    delete_returns_object = False
    #: Whether objects are stored in another form than this kind serves.
    converts = False

    def served(self, stored: Object) -> Object:
        """The form this kind serves of an object as it is stored."""
        return stored

    def stored(self, served: Object) -> Object:
        """The opposite of :meth:`served`."""
        return served

    def default(self, new: Object) -> None:
        """Fill in what a client may leave out."""

    def prepare_create(self, new: Object, now: str) -> None:
        """Clear what clients do not decide, set what the server does. ``now`` is the time of the request."""

    def prepare_update(self, new: Object, old: Object, now: str) -> None:
        """Put back what this write may not change."""

    def validate(self, new: Object) -> list[Cause]:
        return []

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return []

    def validate_subresource(self, new: Object, old: Object, subresource: str) -> list[Cause]:
        """What is wrong with an update through a subresource other than ``status``; most are like any other."""
        return self.validate_update(new, old)

    def name_errors(self, name: str) -> NameErrors:
        """What is wrong with this name."""
        return dns1123_subdomain_errors(name)

    def deletion_problem(self, name: str) -> str:
        """Why an object of this name may never be deleted, or the empty string."""
        return ""

    def grace_period(self, old: Object, asked: int | None) -> int | None:
        """Seconds an object lingers after a graceful delete; None for kinds that go at once."""
        return None


@dataclass(frozen=True, eq=False)
class Kind:
    """One resource of one group and version.

    ``model`` names the generated model its schema is read from (empty: schemaless). ``selectable`` are the field paths
    that field selectors may use, ``scale`` the paths of replicas in spec and status and of the selector's text
    (selector: empty where it is a label selector in the spec). ``stored_in`` names the resource whose objects it shows
    (events.k8s.io shows core events). The rest is what only the definition of a custom resource says: its
    schema, columns, names that do not follow from the kind's, and the warning that users of a deprecated version get.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    model: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    scale: tuple[str, str, str] | None = None
    subresources: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    strategy: Strategy = field(default_factory=Strategy)
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    storage_hash: str = ""
    stored_in: str = ""
    singular_name: str = ""
    list_name: str = ""
    custom: CustomStruct | None = None
    layout: Layout | None = None
    warning: str = ""

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """``deployments.apps``: how messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def storage(self) -> str:
        """The collection that holds the objects."""
        return self.stored_in or self.resource

    @cached_property
    def singular(self) -> str:
        return self.singular_name or self.name.lower()

    @cached_property
    def list_kind(self) -> str:
        return self.list_name or f"{self.name}List"

    @cached_property
    def struct(self) -> Struct:
        return self.custom or struct_of(self.model)

    @cached_property
    def head(self) -> bytes:
        """What stands before the stored bytes when an object is sent."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.name.encode(), self.api_version.encode())

    def encode(self, stored: StoredObject) -> bytes:
        """The whole object, as it is sent."""
        return self.head + self.encode_item(stored)[1:]

    def encode_item(self, stored: StoredObject) -> bytes:
        """The object as an item of a list, where kind and apiVersion are left out."""
        if self.strategy.converts:
            return msgspec.json.encode(self.decode(stored))
        return stored.data

    def decode(self, stored: StoredObject) -> Object:
        """The object as this kind serves it, without kind and apiVersion."""
        decoded: Object = msgspec.json.decode(stored.data)
        return self.strategy.served(decoded)

    def key(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name

    def object_reference(self, whole: Object) -> Object:
        """An ObjectReference to this state of an object of the kind."""
        identity = whole["metadata"]
        return {
            "kind": self.name,
            "namespace": identity.get("namespace", "default"),
            "name": identity["name"],
            "uid": identity["uid"],
            "apiVersion": self.api_version,
            "resourceVersion": identity["resourceVersion"],
        }

    def fields(self, new: Object) -> tuple[str, ...]:
        """The values of the selectable fields."""
        return tuple([read(new) for read in self._readers])

    def fields_of(self, data: bytes) -> tuple[str, ...]:
        """The same of a stored object."""
        return self.fields(msgspec.json.decode(data))

    @cached_property
    def _readers(self) -> list[Callable[[Object], str]]:
        return [_reader(_ELSEWHERE.get(path, path).split(".")) for path in self.selectable]


def value_at(whole: Object, path: str) -> Any:
    """What stands at a path such as ``spec.replicas``; None where there is nothing."""
    value: Any = whole if path else None
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


#: A selectable field that is not where its name says.
_ELSEWHERE = {"source": "source.component"}


def _reader(path: list[str]) -> Callable[[Object], str]:
    def read(new: Object) -> str:
        value: Any = new
        for step in path:
            value = value.get(step) if type(value) is dict else None
            if value is None:
                return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
        if value is True or value is False:
            return "true" if value else "false"
        return str(value)

    return read
