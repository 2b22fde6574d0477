"""Label and field selectors of list and watch requests, parsed once and matched against stored objects.

Error messages are kube-apiserver's own. Field selectors support ``=``, ``==`` and ``!=`` on the name, the namespace and
the selectable fields of a kind. :func:`matches_label_selector` is for LabelSelector objects in specs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kubestow.devcluster.apiserver.storage.store import StoredObject
from kubestow.errors import InvalidSelector

__all__ = ["EVERYTHING", "SelectionPredicate", "matches_label_selector", "parse_selectors"]

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SYMBOLS = frozenset(["=", "==", "!=", "!", "(", ")", ",", "<", ">"])

LabelRequirement = Callable[[dict[str, str]], bool]


class SelectionPredicate(NamedTuple):
    """What a list or watch selects: a conjunction of label and field requirements.

    ``fields`` are (index into ``StoredObject.fields``, value, whether it must be equal), ``metadata`` the same for
    ``name`` and ``namespace`` by attribute.
    """

    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[tuple[int, str, bool], ...] = ()
    metadata: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, stored: StoredObject) -> bool:
        for index, value, equal in self.fields:
            if (stored.fields[index] == value) is not equal:
                return False
        for attribute, value, equal in self.metadata:
            if (getattr(stored, attribute) == value) is not equal:
                return False
        return all(requirement(stored.labels) for requirement in self.labels)

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
    return SelectionPredicate(tuple(_label_requirements(labels)), tuple(by_field), tuple(by_metadata))


def _field_terms(fields: str) -> list[str]:
    """The terms of a field selector; a backslash escapes a comma, an equals sign or a backslash."""
    return [term for term in re.split(r"(?<!\\),", fields) if term]


def _field_requirement(term: str, selector: str) -> tuple[str, str, bool]:
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        path, found, value = term.partition(operator)
        if found:
            return path, re.sub(r"\\(.)", r"\1", value), equal
    raise InvalidSelector(f"invalid selector: '{selector}'; can't understand '{term}'")


def _label_requirements(text: str) -> list[LabelRequirement]:
    tokens = _Tokens(text)
    requirements: list[LabelRequirement] = []
    if tokens.peek() == "":
        return requirements
    while True:
        requirements.append(_label_requirement(tokens))
        separator = tokens.next()
        if separator == "":
            return requirements
        if separator != ",":
            raise InvalidSelector(f"found '{separator}', expected: ',' or 'end of string'")
        if tokens.peek() in ("", ","):
            raise InvalidSelector(f"found '{tokens.peek()}', expected: identifier after ','")


class _Tokens:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._position = 0

    def peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._position += 1
        return token


def _label_requirement(tokens: _Tokens) -> LabelRequirement:
    if tokens.peek() == "!":
        tokens.next()
        key = _key(tokens, "identifier")
        return lambda labels: key not in labels
    if tokens.peek() in _SYMBOLS:
        raise InvalidSelector(f"found '{tokens.peek()}', expected: !, identifier, or 'end of string'")
    key = _key(tokens, "identifier")
    operator = tokens.peek()
    if operator in ("", ","):
        return lambda labels: key in labels
    tokens.next()
    if operator in ("=", "=="):
        value = _value(tokens)
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        value = _value(tokens)
        return lambda labels: labels.get(key) != value
    if operator in ("in", "notin"):
        values = _values(tokens)
        return (
            (lambda labels: labels.get(key) in values)
            if operator == "in"
            else (lambda labels: labels.get(key) not in values)
        )
    if operator in ("<", ">"):
        return _comparison(key, operator, _value(tokens))
    raise InvalidSelector(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _comparison(key: str, operator: str, bound: str) -> LabelRequirement:
    if not bound.lstrip("-").isdigit():
        raise InvalidSelector("for 'Gt', 'Lt' operators, the value must be an integer")
    limit = int(bound)

    def compare(labels: dict[str, str]) -> bool:
        value = labels.get(key, "")
        return value.lstrip("-").isdigit() and (int(value) > limit if operator == ">" else int(value) < limit)

    return compare


def _key(tokens: _Tokens, expected: str) -> str:
    key = tokens.next()
    if key in _SYMBOLS or not key:
        raise InvalidSelector(f"unable to parse requirement: found '{key}', expected: {expected}")
    if not _KEY.fullmatch(key):
        problem = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
            " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
            " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
        raise InvalidSelector(f'unable to parse requirement: <nil>: Invalid value: "{key}": {problem}')
    return key


def _value(tokens: _Tokens) -> str:
    if tokens.peek() in ("", ","):
        return ""
    value = tokens.next()
    if value in _SYMBOLS:
        raise InvalidSelector(f"unable to parse requirement: found '{value}', expected: identifier")
    if not _VALUE.fullmatch(value):
        problem = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
            " start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used"
            " for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
        raise InvalidSelector(f'unable to parse requirement: values[0][]: Invalid value: "{value}": {problem}')
    return value


def _values(tokens: _Tokens) -> frozenset[str]:
    opening = tokens.next()
    if opening != "(":
        raise InvalidSelector(f"unable to parse requirement: found '{opening}' expected: '('")
    values: set[str] = set()
    while True:
        token = tokens.next()
        if token == ")":
            return frozenset(values or {""})
        if token == "":
            raise InvalidSelector("unable to parse requirement: found '', expected: ',' or ')'")
        if token != ",":
            values.add(token)


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
