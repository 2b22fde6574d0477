"""Label selectors written as text: ``app=web,tier in (front,back),!canary``, as in ``kubectl get -l``.

The error messages are those of Kubernetes' parser.
"""

from __future__ import annotations

import re

from kubestow.api.formats.names import label_value_errors, qualified_name_errors
from kubestow.api.selectors import Requirement, Selector, go_int64
from kubestow.errors import InvalidSelector

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_SYMBOLS = frozenset(["=", "==", "!=", "!", "(", ")", ",", "<", ">"])
_EQUALITY = {"=": "In", "==": "In", "!=": "NotIn"}
_SET = {"in": "In", "notin": "NotIn"}
_COMPARISON = {">": "Gt", "<": "Lt"}


def parse_selector(text: str) -> Selector:
    """Parse a label selector; an empty text selects everything. Raises InvalidSelector."""
    tokens = _Tokens(text)
    requirements: list[Requirement] = []
    if tokens.peek() == "":
        return Selector()
    while True:
        requirements.append(_requirement(tokens))
        separator = tokens.next()
        if separator == "":
            return Selector().with_requirements(requirements)
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


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.next()
        return Requirement(_key(tokens), "DoesNotExist")
    if tokens.peek() in _SYMBOLS:
        raise InvalidSelector(f"found '{tokens.peek()}', expected: !, identifier, or 'end of string'")
    key = _key(tokens)
    operator = tokens.peek()
    if operator in ("", ","):
        return Requirement(key, "Exists")
    tokens.next()
    if operator in _EQUALITY:
        return Requirement(key, _EQUALITY[operator], frozenset({_value(tokens)}))
    if operator in _SET:
        return Requirement(key, _SET[operator], _values(tokens))
    if operator in _COMPARISON:
        bound = _value(tokens)
        if go_int64(bound) is None:
            raise InvalidSelector("for 'Gt', 'Lt' operators, the value must be an integer")
        return Requirement(key, _COMPARISON[operator], frozenset({bound}))
    raise InvalidSelector(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _key(tokens: _Tokens) -> str:
    key = tokens.next()
    if key in _SYMBOLS or not key:
        raise InvalidSelector(f"unable to parse requirement: found '{key}', expected: identifier")
    if errors := qualified_name_errors(key):
        raise InvalidSelector(f'unable to parse requirement: <nil>: Invalid value: "{key}": {"; ".join(errors)}')
    return key


def _value(tokens: _Tokens) -> str:
    if tokens.peek() in ("", ","):
        return ""
    value = tokens.next()
    if value in _SYMBOLS:
        raise InvalidSelector(f"unable to parse requirement: found '{value}', expected: identifier")
    if errors := label_value_errors(value):
        problem = "; ".join(errors)
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
