"""The rules of ``x-kubernetes-validations``: CEL expressions about the values of a custom resource, and its old values.

A rule sees ``self``, the value that its schema describes, and ``oldSelf``, the same value before an update. Rules are
checked with the types of the schema when they are written (:mod:`rule_types`), and evaluated without them. A rule that
needs what the CEL library does not have is not enforced; :func:`unenforced_rules` names it.

All rules of one object together may take :data:`TIME_LIMIT`, one comprehension 10,000 iterations, and an expression may
not be able to build very long strings. This takes the place of kube-apiserver's cost budget, with its message.
"""

from __future__ import annotations

import base64
import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from kubestow_devcluster.apiserver.resources.rule_types import type_error
from kubestow_devcluster.apiserver.schema.structural import Schema
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    invalid_without_value,
    required_value,
    unsupported_value,
)

#: CPU seconds for all rules of one object, which is what kube-apiserver's cost budget amounts to.
TIME_LIMIT = 1.0
_RULES = "x-kubernetes-validations"
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)
#: Errors after which rules are not evaluated: they could not trust the types of the values.
_BLOCKING = ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
#: Bytes of the longest message that an expression may return.
_MAX_MESSAGE = 5 * 1024
#: An expression with more additions could build strings of any length.
_MAX_ADDITIONS = 24
#: The limit on the length of strings that an expression could build, as a power of two, in characters.
_MAX_STRING_BITS = 28
#: Functions whose result can be as long as the product of their arguments' lengths.
_MULTIPLIES = re.compile(r"\b(?:replace|join|format)\s*\(")
#: Macros with which a sum can be an operand of another sum.
_REUSES = re.compile(r"\b(?:bind|map)\s*\(")
#: The path of the whole object in kube-apiserver's messages.
_ROOT = "<nil>"

_RESERVED = frozenset(
    ("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let")
)
_RESERVED |= {"loop", "namespace", "null", "package", "return", "true", "var", "void", "while"}
_ESCAPABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_FIELD_PATH = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")
#: Formats of strings that are times or durations in CEL, which cannot be passed to the library.
_TIME_FORMATS = ("date", "date-time", "datetime", "duration")


# Expressions


@dataclass(frozen=True, slots=True)
class _Expression:
    """A compiled expression, or why there is none: ``error`` for a mistake, ``missing`` for what the library lacks."""

    compiled: Any = None
    uses_old_self: bool = False
    error: str = ""
    missing: str = ""
    #: Whether ``missing`` names a function that the library does not know.
    is_unknown: bool = False
    #: How often strings can be multiplied and doubled in length.
    multiplications: int = 0
    doublings: int = 0

    def fits(self, longest: int) -> bool:
        """Whether the strings it could build are short enough if those and the lists it sees have this length."""
        return (self.multiplications + 1) * longest.bit_length() + self.doublings <= _MAX_STRING_BITS


class _EvaluationError(Exception):
    """An expression failed on a value; ``is_limit`` if it took too long."""

    def __init__(self, problem: str, *, is_limit: bool = False) -> None:
        super().__init__(problem)
        self.is_limit = is_limit


@cache
def _environment(*, with_old_self: bool) -> Any:
    # Imported with the first rule: most servers never see one.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    old = ("oldSelf", "_hasOldSelf", "_previousSelf") if with_old_self else ()
    extensions = (ext_optional.ExtOptional, ext_bindings.ExtBindings, ext_strings.ExtStrings, ext_math.ExtMath)
    variables = dict.fromkeys(("self", *old), cel.Type.DYN)
    return cel.NewEnv(variables=variables, extensions=[extension() for extension in extensions])


@lru_cache(maxsize=1024)
def _compiled(text: str, returns: str, *, optional_old_self: bool = False) -> _Expression:
    """The expression of a rule or a message. ``returns`` is the type of its result: ``bool`` or ``string``."""
    if text.count("+") > _MAX_ADDITIONS:
        return _Expression(missing=f"more than {_MAX_ADDITIONS} additions")
    try:
        try:
            compiled, uses_old_self = _environment(with_old_self=False).compile(text), False
        except RuntimeError as error:
            if "'oldSelf'" not in str(error):
                raise
            if optional_old_self:
                # The library takes no optional values, so the expression makes one of two variables.
                old_self = "_hasOldSelf ? optional.of(_previousSelf) : optional.none()"
                text = f"cel.bind(oldSelf, {old_self}, {text}\n)"
            compiled, uses_old_self = _environment(with_old_self=True).compile(text), True
    except ImportError as error:
        return _Expression(missing=f"no CEL library on this platform: {error}")
    except RuntimeError as error:
        problem = re.sub(r"^[A-Z_]+: (?=ERROR: )| \[[A-Z_]+\]$", "", str(error))
        first_line = problem.partition("\n")[0].removeprefix("ERROR: ")
        if "undeclared reference" in first_line or "found no matching overload" in first_line:
            return _Expression(missing=first_line, is_unknown=True)
        return _Expression(error=f"compilation failed: {problem}")
    multiplications = len(_MULTIPLIES.findall(text))
    doublings = text.count("+") if _REUSES.search(text) else text.count("+").bit_length()
    kind = compiled.return_type().name().lower()
    if kind not in (returns, "dyn"):
        subject = "cel expression" if returns == "bool" else "messageExpression"
        return _Expression(error=f"{subject} must evaluate to a {returns}")
    return _Expression(compiled, uses_old_self, multiplications=multiplications, doublings=doublings)


def _evaluate(compiled: Any, data: Mapping[str, Any]) -> Any:
    """The result of an expression. Raises _EvaluationError."""
    try:
        result = compiled.eval(data=data)
    except RuntimeError as error:
        raise _EvaluationError(str(error), is_limit="budget exceeded" in str(error)) from None
    if result.type().name().lower() == "error":
        raise _EvaluationError(_runtime_problem(str(result.value())))
    return result.value()


def _runtime_problem(problem: str) -> str:
    """The most common errors of the library in the words of Kubernetes' CEL library."""
    if missing := re.search(r'Key not found in map : "?(.*?)"?$', problem):
        return f"no such key: {missing[1]}"
    if index := re.search(r"Index error: index=(-?\d+)", problem):
        return f"index out of bounds: {index[1]}"
    if "No matching overloads found" in problem or "non-message type" in problem:
        return "no such overload"
    return re.sub(r"^[A-Z_]+: ", "", problem).replace("divide by zero", "division by zero")


# Values


def _escaped(name: str) -> str:
    """The name of a property in expressions; empty if expressions cannot name it."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _ESCAPABLE.fullmatch(name):
        return ""
    return re.sub(r"__|[./-]", lambda found: _ESCAPES[found[0]], name)


def _to_cel(value: Any, schema: Schema) -> Any:
    """A value as expressions see it: the fields of the schema by their escaped names, numbers by their type."""
    if isinstance(value, dict):
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            known = ((_escaped(name), item, properties[name]) for name, item in value.items() if name in properties)
            return {name: _to_cel(item, child) for name, item, child in known if name}
        if isinstance(others, dict):
            return {name: _to_cel(item, others) for name, item in value.items()}
        return value if others or schema.get("x-kubernetes-preserve-unknown-fields") else {}
    if isinstance(value, list):
        items = schema.get("items")
        return [_to_cel(item, items if isinstance(items, dict) else {}) for item in value]
    if schema.get("type") == "number" and type(value) is int:
        return float(value)
    if schema.get("type") == "integer" and type(value) is float and value.is_integer():
        return int(value)
    if schema.get("format") == "byte" and isinstance(value, str):
        # Formats are not validated, so the string may be anything; a rule about bytes then fails on it.
        with contextlib.suppress(ValueError):
            return base64.b64decode(value, validate=True)
    return value


def _longest(value: Any) -> int:
    """The length of the longest string, list or map in a value."""
    if isinstance(value, dict):
        return max(len(value), max((max(len(key), _longest(item)) for key, item in value.items()), default=0))
    if isinstance(value, list):
        return max(len(value), max(map(_longest, value), default=0))
    return len(value) if isinstance(value, str) else 0


def _as_root(schema: Schema) -> Schema:
    """The schema of a whole object for expressions, which see the names in its metadata."""
    text = {"type": "string"}
    metadata = {"type": "object", "properties": {"name": text, "generateName": text}}
    known = {"apiVersion": text, "kind": text, "metadata": metadata}
    return {**schema, "properties": {**(schema.get("properties") or {}), **known}}


# Rules


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule of a schema that is enforced."""

    expression: _Expression
    text: str
    message: str
    message_expression: _Expression | None
    reason: str
    field_path: str
    optional_old_self: bool

    @property
    def shown(self) -> str:
        """How errors of the evaluation name the rule."""
        return self.message or self.text


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is: its path, its value before an update if it can be correlated, whether it is unchanged."""

    path: str
    old: Any = None
    is_unchanged: bool = False

    def child(self, path: str, value: Any, old: Any, *, correlates: bool) -> _Place:
        if not correlates:
            return replace(self, path=path, old=None)
        return _Place(path, old, old is not None and value == old)


class ValidationRules:
    """The rules in one schema and the schemas within it."""

    def __init__(self, schema: Schema, *, root: bool = False) -> None:
        self._schema = _as_root(schema) if root else schema
        self._is_root = root

    @cached_property
    def _rules(self) -> list[_Rule]:
        rules = [_rule(one, self._schema) for one in self._schema.get(_RULES) or ()]
        return [rule for rule in rules if rule.expression.compiled is not None]

    @cached_property
    def _properties(self) -> dict[str, ValidationRules]:
        properties = (self._schema.get("properties") or {}).items()
        return {name: ValidationRules(child) for name, child in properties if has_rules(child)}

    @cached_property
    def _others(self) -> ValidationRules | None:
        """The rules of list items or of additional properties."""
        child = self._schema.get("items") or self._schema.get("additionalProperties")
        return ValidationRules(child) if isinstance(child, dict) and has_rules(child) else None

    @cached_property
    def _all_of(self) -> list[ValidationRules]:
        # The schemas in allOf have rules, but no fields of their own.
        base = {key: item for key, item in self._schema.items() if key not in (_RULES, "allOf")}
        parts = [one for one in self._schema.get("allOf") or () if one.get(_RULES)]
        return [ValidationRules({**base, _RULES: one[_RULES]}) for one in parts]

    def validate(
        self, value: Any, old: Any, errors: list[FieldError], *, cpu_time: Callable[[], float] = time.process_time
    ) -> list[FieldError]:
        """The errors of ``value``, which had the value ``old`` before an update, None on create.

        ``errors`` are those that are known: after some of them no rule is evaluated. ``cpu_time`` returns CPU seconds.
        """
        if any(error.reason.removeprefix("FieldValue") in _BLOCKING for error in errors):
            return [invalid_value(_ROOT, None, _NOT_CHECKED)]
        found: list[FieldError] = []
        deadline = cpu_time() + TIME_LIMIT
        place = _Place("", old, value == old)
        for error in self._errors(value, place):
            if error is not None:
                found.append(error)
            if error is not None and _OUT_OF_BUDGET in error.message:
                break
            if cpu_time() > deadline:
                found.append(invalid_value(_ROOT, "object", _OUT_OF_BUDGET))
                break
        return found

    def _errors(self, value: Any, place: _Place) -> Iterator[FieldError | None]:
        """The errors of a value and the values in it; None after each rule, so that the caller can stop."""
        if value is None:
            return
        if self._rules:
            yield from self._evaluated(value, place)
        for part in self._all_of:
            yield from part._evaluated(value, place)
        if isinstance(value, dict):
            old = place.old if isinstance(place.old, dict) else {}
            for name, item in value.items():
                named = self._properties.get(name)
                rules = named or (None if name in (self._schema.get("properties") or ()) else self._others)
                if rules is not None:
                    path = (f"{place.path}.{name}" if place.path else name) if named else f"{place.path}[{name}]"
                    yield from rules._errors(item, place.child(path, item, old.get(name), correlates=True))
        elif isinstance(value, list) and self._others is not None:
            old_item, correlates = _correlated_items(self._schema, place.old)
            for index, item in enumerate(value):
                inner = place.child(f"{place.path}[{index}]", item, old_item(item), correlates=correlates)
                yield from self._others._errors(item, inner)

    def _evaluated(self, value: Any, place: _Place) -> Iterator[FieldError | None]:
        data: dict[str, Any] = {"self": _to_cel(value, self._schema)}
        data["oldSelf"] = data["_previousSelf"] = None if place.old is None else _to_cel(place.old, self._schema)
        data["_hasOldSelf"] = place.old is not None
        longest = max(_longest(value), _longest(place.old))
        for rule in self._rules:
            yield self._error(rule, value, data, place, max(longest, len(rule.text)))

    def _error(self, rule: _Rule, value: Any, data: dict[str, Any], place: _Place, longest: int) -> FieldError | None:
        """``longest`` is the length of the longest string or list in the values and the rule."""
        path, type_ = place.path or _ROOT, self._schema.get("type", "")
        uses_old_self = rule.expression.uses_old_self
        if uses_old_self and place.old is None and not rule.optional_old_self:
            return None
        if not uses_old_self:
            data = {"self": data["self"]}
        if not rule.expression.fits(longest):
            return invalid_value(path, type_, _OUT_OF_BUDGET)
        try:
            if _evaluate(rule.expression.compiled, data) is True:
                return None
        except _EvaluationError as error:
            if error.is_limit:
                return invalid_value(path, type_, _OUT_OF_BUDGET)
            problem = f"{error} evaluating rule: {rule.shown}"
            if str(error) == "no such overload":
                hint = "call arguments did not match a supported operator, function or macro signature"
                problem = f"'{error}': {hint} for rule: {rule.shown}"
            return invalid_value(path, type_, problem)
        if place.is_unchanged and not uses_old_self:
            return None  # a value that was stored before the rule existed can stay
        if rule.field_path:
            path = f"{place.path}{rule.field_path}" if place.path else rule.field_path.lstrip(".")
        message = _message(rule, data, longest)
        if rule.reason == "FieldValueForbidden":
            return forbidden_value(path, message)
        if rule.reason == "FieldValueRequired":
            return required_value(path, message)
        has_value = type_ not in ("object", "array")
        if rule.reason == "FieldValueDuplicate":
            return duplicate_value(path, value) if has_value else FieldError(rule.reason, "Duplicate value", path)
        return invalid_value(path, value, message) if has_value else invalid_without_value(path, message)


def _message(rule: _Rule, data: Mapping[str, Any], longest: int) -> str:
    expression = rule.message_expression
    if expression is not None and expression.compiled is not None and expression.fits(longest):
        seen = data if expression.uses_old_self else {"self": data["self"]}
        try:
            message = _evaluate(expression.compiled, seen)
        except _EvaluationError:
            message = None
        if (
            isinstance(message, str)
            and "\n" not in (text := message.strip())
            and 0 < len(text.encode()) <= _MAX_MESSAGE
        ):
            return text
    return rule.message or f"failed rule: {rule.text}"


def _correlated_items(schema: Schema, old: Any) -> tuple[Callable[[Any], Any], bool]:
    """A function from an item to its old value, and whether items can be correlated: those of lists of type map."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not keys:
        return lambda item: None, False

    def identity(item: Any) -> tuple[Any, ...]:
        return tuple(item.get(key) for key in keys) if isinstance(item, dict) else ()

    items = {identity(item): item for item in old} if isinstance(old, list) else {}
    return lambda item: items.get(identity(item)), True


def _rule(rule: Mapping[str, Any], schema: Schema) -> _Rule:
    optional_old_self = bool(rule.get("optionalOldSelf"))
    text, message_expression = rule["rule"].strip(), (rule.get("messageExpression") or "").strip()
    expression = _compiled(text, "bool", optional_old_self=optional_old_self)
    if (name := _time_field(schema, text)) is not None:
        expression = _Expression(missing=f"{name or 'self'} is a time or duration")
    return _Rule(
        expression,
        text,
        (rule.get("message") or "").strip(),
        _compiled(message_expression, "string", optional_old_self=optional_old_self) if message_expression else None,
        rule.get("reason") or "",
        _normalized_field_path(rule.get("fieldPath") or "", schema) or "",
        optional_old_self,
    )


def _time_field(schema: Schema, rule: str) -> str | None:
    """The name of a time or duration that the rule may use, empty for the value itself; None without any."""
    if schema.get("format") in _TIME_FORMATS and schema.get("type") == "string":
        return ""
    for child in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict) and (found := _time_field(child, rule)) is not None:
            return found
    for name, child in (schema.get("properties") or {}).items():
        if (found := _time_field(child, rule)) is not None and re.search(rf"\b{re.escape(_escaped(name))}\b", rule):
            return found or name
    return None


def _normalized_field_path(path: str, schema: Schema) -> str | None:
    """A field path relative to its schema as error messages write it: ``.a.b[key]``; None if it is not valid."""
    normalized, position = "", 0
    for found in _FIELD_PATH.finditer(path.strip()):
        if found.start() != position:
            return None
        position = found.end()
        name = found[1] if found[1] is not None else re.sub(r"\\(.)", r"\1", found[2])
        if schema.get("properties"):
            if name not in schema["properties"]:
                return None
            normalized, schema = f"{normalized}.{name}", schema["properties"][name]
        elif isinstance(schema.get("additionalProperties"), dict):
            normalized, schema = f"{normalized}[{name}]", schema["additionalProperties"]
        else:
            return None
    return normalized if position == len(path.strip()) else None


# Definitions


def has_rules(schema: Schema) -> bool:
    """Whether a schema or one within it has rules."""
    if schema.get(_RULES) or any(one.get(_RULES) for one in schema.get("allOf") or ()):
        return True
    children = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(isinstance(child, dict) and has_rules(child) for child in children)


def unenforced_rules(schema: Schema) -> Iterator[str]:
    """Why each rule of a schema that is not enforced is not; without those of schemas within it."""
    for index, one in enumerate(schema.get(_RULES) or ()):
        if isinstance(one.get("rule"), str) and (problem := _rule(one, schema).expression.missing):
            yield f"{_RULES}[{index}].rule: kubestow does not enforce this rule: {problem}"


def _type_error(text: str, expression: _Expression, schema: Schema, rule: Mapping[str, Any]) -> str:
    """The error of an expression that compiles only without the types of its schema; empty without one."""
    if expression.compiled is None and not expression.is_unknown:
        return ""
    problem = type_error(text, schema, optional_old_self=bool(rule.get("optionalOldSelf")), escaped=_escaped)
    return f"compilation failed: {problem}" if problem else ""


def rule_errors(schema: Schema, path: str, *, is_root: bool, correlates: bool) -> Iterator[FieldError]:
    """The mistakes in the rules of a schema, ``is_root`` for that of whole objects.

    ``correlates`` says whether its values can be compared to old ones.
    """
    for index, one in enumerate(schema.get(_RULES) or ()):
        place, text, message = f"{path}.{_RULES}[{index}]", one.get("rule", "").strip(), one.get("message", "")
        if not text:
            yield required_value(f"{place}.rule", "rule is not specified")
            continue
        if message and not message.strip():
            yield invalid_value(f"{place}.message", message, "must be non-empty if specified")
        elif "\n" in message.strip():
            yield invalid_value(f"{place}.message", message, "must not contain line breaks")
        elif "\n" in text and not message:
            yield required_value(f"{place}.message", "message must be specified if rule contains line breaks")
        if one.get("reason") and one["reason"] not in _REASONS:
            yield unsupported_value(f"{place}.reason", one["reason"], _REASONS)
        if one.get("fieldPath") and _normalized_field_path(one["fieldPath"], schema) is None:
            yield invalid_value(f"{place}.fieldPath", one["fieldPath"], "must be a valid path")
        rule = _rule(one, schema)
        typed = _as_root(schema) if is_root or schema.get("x-kubernetes-embedded-resource") else schema
        if problem := rule.expression.error or _type_error(rule.text, rule.expression, typed, one):
            yield invalid_value(f"{place}.rule", one, problem)
        if (message_expression := rule.message_expression) is not None:
            source = (one.get("messageExpression") or "").strip()
            if problem := message_expression.error or _type_error(source, message_expression, typed, one):
                prefix = "messageExpression " if problem.startswith("compilation failed") else ""
                yield invalid_value(f"{place}.messageExpression", one, f"{prefix}{problem}")
        if rule.expression.uses_old_self and not correlates:
            problem = "oldSelf cannot be used on the uncorrelatable portion of the schema"
            yield invalid_value(f"{place}.rule", one["rule"], problem)
        if not rule.expression.uses_old_self and "optionalOldSelf" in one and rule.expression.compiled is not None:
            problem = "may not be set if oldSelf is not used in rule"
            yield invalid_value(f"{place}.optionalOldSelf", one["optionalOldSelf"], problem)
