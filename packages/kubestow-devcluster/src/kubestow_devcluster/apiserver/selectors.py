"""Label and field selectors of list and watch requests, parsed once and matched against stored objects.

Error messages are kube-apiserver's own. Field selectors support ``=``, ``==`` and ``!=`` on the name, the namespace and
the selectable fields of a kind. :func:`matches_label_selector` is for LabelSelector objects in specs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from kubestow.api import selectors
from kubestow.api.selector_text import parse_selector
from kubestow.api.selectors import Selector
from kubestow.errors import InvalidSelector
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["EVERYTHING", "SelectionPredicate", "matches_label_selector", "parse_selectors"]


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
