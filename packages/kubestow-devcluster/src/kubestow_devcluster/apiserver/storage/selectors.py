"""Reading the store by label and field selectors, and decoded copies of small resources.

Selectors of list and watch requests are parsed once and matched against stored objects. Error messages are
kube-apiserver's own. Field selectors support ``=``, ``==`` and ``!=`` on the name, the namespace and the selectable
fields of a kind. :func:`matches_label_selector` is for LabelSelector objects in specs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from kubestow.api import selectors
from kubestow.api.selector_text import parse_selector
from kubestow.api.selectors import Selector
from kubestow.errors import InvalidSelector
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject


class SelectionPredicate(NamedTuple):
    """What a list or watch selects: a conjunction of label and field requirements.

    ``fields`` are (index into ``StoredObject.fields``, value, whether it must be equal), ``metadata`` the same for
    ``name`` and ``namespace`` by attribute.
    """

    labels: Selector = selectors.EVERYTHING
    fields: tuple[tuple[int, str, bool], ...] = ()
    metadata: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, stored: StoredObject) -> bool:
        for index, value, equal in self.fields:
            if (stored.fields[index] == value) is not equal:
                return False
        for attribute, value, equal in self.metadata:
            if (getattr(stored, attribute) == value) is not equal:
                return False
        return self.labels.matches(stored.labels)

    def select(self, objects: Sequence[StoredObject]) -> list[StoredObject]:
        if self == EVERYTHING:
            return list(objects)
        return [stored for stored in objects if self.matches(stored)]


EVERYTHING = SelectionPredicate()


def parse_selectors(labels: str, fields: str, selectable: Sequence[str]) -> SelectionPredicate:
    """Parse ``labelSelector`` and ``fieldSelector``. Raises InvalidSelector.

    ``selectable`` are the paths of the values in ``StoredObject.fields``.
    """
    if not labels and not fields:
        return EVERYTHING
    by_field: list[tuple[int, str, bool]] = []
    by_metadata: list[tuple[str, str, bool]] = []
    for term in _field_terms(fields):
        path, value, equal = _field_requirement(term, fields)
        if path in ("metadata.name", "metadata.namespace"):
            by_metadata.append((path[len("metadata.") :], value, equal))
        elif path in selectable:
            by_field.append((selectable.index(path), value, equal))
        else:
            raise InvalidSelector(f"field label not supported: {path}")
    return SelectionPredicate(parse_selector(labels), tuple(by_field), tuple(by_metadata))


def _field_terms(fields: str) -> list[str]:
    """The terms of a field selector; a backslash escapes a comma, an equals sign or a backslash."""
    return [term for term in re.split(r"(?<!\\),", fields) if term]


def _field_requirement(term: str, selector: str) -> tuple[str, str, bool]:
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        path, found, value = term.partition(operator)
        if found:
            return path, re.sub(r"\\(.)", r"\1", value), equal
    raise InvalidSelector(f"invalid selector: '{selector}'; can't understand '{term}'")


def matches_label_selector(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector matches ``labels``. A missing selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches_expression(expression, labels) for expression in selector.get("matchExpressions") or ())


def _matches_expression(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return value is None


class DecodedObjects:
    """The decoded objects of a small resource, cached until one of them changes."""

    def __init__(self, store: Store, resource: str) -> None:
        self._collection = store.collection(resource)
        self._resource_version = -1
        self._by_key: dict[str, Object] = {}
        self._by_namespace: dict[str, list[Object]] = {}

    def by_key(self) -> dict[str, Object]:
        """The objects by key: the name, or namespace and name."""
        self._refresh()
        return self._by_key

    def in_namespace(self, namespace: str) -> list[Object]:
        """The objects of a namespace, sorted by name."""
        self._refresh()
        return self._by_namespace.get(namespace, [])

    def _refresh(self) -> None:
        if self._resource_version == self._collection.resource_version:
            return
        self._resource_version = self._collection.resource_version
        self._by_key, self._by_namespace = dict(self._decoded()), {}
        for _, decoded in sorted(self._by_key.items()):
            self._by_namespace.setdefault(decoded["metadata"].get("namespace", ""), []).append(decoded)

    def _decoded(self) -> Iterator[tuple[str, Object]]:
        for stored in self._collection.snapshot():
            yield stored.key, msgspec.json.decode(stored.data)
