"""CEL expressions that select devices.

The only module that knows the CEL library, which is loaded when the first selector is compiled. Kubernetes' own types
are lowered to what the library can pass through functions: a quantity is a map, a version a list of strings, both in
canonical form, so that ``==`` compares values and ``<`` is refused.

An evaluation ends: the library bounds the iterations of comprehensions, regular expressions take linear time, and an
expression that could build very long strings does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubestow.api.quantity import NANOS, nanos
from kubestow.errors import InvalidQuantity
from kubestow.plugins.dynamic_resources.inventory.semver import Version

__all__ = ["DeviceFacts", "Selector", "SelectorError", "Selectors"]

Attribute = int | bool | str | Version

#: The key under which a quantity's nano units stand in the map that it is lowered to.
_NANOS = "nanos"
_MOST_REMEMBERED = 1024
#: Kubernetes' own limit on the length of an expression.
_LONGEST = 10 * 1024
#: Strings that could grow beyond this many characters, as a power of two, are not built.
_LARGEST_STRING_BITS = 24
_INT64 = range(-(2**63), 2**63)


class SelectorError(Exception):
    """A selector that does not compile, or that fails on a device; the text begins with which of the two."""


class DeviceFacts:
    """What selectors may ask about a device: attributes and capacities (nano units) by domain, then by name."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver")

    def __init__(
        self,
        *,
        driver: str,
        attributes: Mapping[str, Mapping[str, Attribute]],
        capacity: Mapping[str, Mapping[str, int]],
        allow_multiple_allocations: bool,
    ) -> None:
        self.driver = driver
        self.attributes = {
            domain: {name: _lowered(value) for name, value in values.items()} for domain, values in attributes.items()
        }
        self.capacity = {
            domain: {name: _quantity(value) for name, value in values.items()} for domain, values in capacity.items()
        }
        self.allow_multiple_allocations = allow_multiple_allocations


class Selector:
    """A compiled expression."""

    __slots__ = ("_compiled", "_domains", "_failure")

    def __init__(self, compiled: Any, domains: frozenset[str] | None, failure: Any) -> None:
        self._compiled = compiled
        self._domains = domains
        self._failure = failure

    def matches(self, device: DeviceFacts) -> bool:
        """Whether a device is selected. Raises SelectorError when the expression fails on it."""
        # A domain that a device says nothing of is empty, not missing.
        domains = () if self._domains is None else (device.driver, *self._domains)
        nothing: dict[str, Any] = {domain: {} for domain in domains}
        data = {
            "device.driver": device.driver,
            "device.attributes": nothing | device.attributes,
            "device.capacity": nothing | device.capacity,
            "device.allowMultipleAllocations": device.allow_multiple_allocations,
        }
        try:
            result = self._compiled.eval(data=data)
        except RuntimeError as error:
            raise _runtime_error(str(error)) from None
        value = result.value()
        if result.type() == self._failure:
            raise _runtime_error(str(value))
        if not isinstance(value, bool):
            raise _runtime_error(f"the result is of type {result.type().name().lower()}, not bool")
        return value


class Selectors:
    """Compiles each expression once and remembers the latest, failures too."""

    def __init__(self) -> None:
        self._by_expression: dict[str, Selector | SelectorError] = {}
        self._environment: Any = None

    def compile(self, expression: str) -> Selector:
        """The selector of an expression. Raises SelectorError when it does not compile."""
        known = self._by_expression.get(expression)
        if known is None:
            try:
                known = self._compile(expression)
            except SelectorError as error:
                known = error
            while len(self._by_expression) >= _MOST_REMEMBERED:
                del self._by_expression[next(iter(self._by_expression))]
            self._by_expression[expression] = known
        if isinstance(known, SelectorError):
            raise known
        return known

    def _compile(self, expression: str) -> Selector:
        try:
            from cel_expr_python import cel
        except ImportError as error:
            raise _compile_error(f"no CEL library on this platform: {error}") from None
        if self._environment is None:
            self._environment = _environment(cel)
        if len(expression) > _LONGEST:
            raise _compile_error(f"{len(expression)} characters are too many, at most {_LONGEST} are allowed")
        if _largest_string_bits(expression) > _LARGEST_STRING_BITS:
            raise _compile_error("the strings it could build are too long")
        try:
            compiled = self._environment.compile(expression)
        except RuntimeError as error:
            raise _compile_error(_first_line(str(error))) from None
        if (kind := compiled.return_type()) not in (cel.Type.BOOL, cel.Type.DYN):
            raise _compile_error(f"must evaluate to bool or the unknown type, not {kind.name().lower()}")
        return Selector(compiled, _domains(expression), cel.Type.ERROR)


# -- errors ------------------------------------------------------------------------------------------------------------


def _compile_error(problem: str) -> SelectorError:
    return SelectorError(f"CEL compile error: compilation failed: {problem}")


def _runtime_error(problem: str) -> SelectorError:
    """With the library's commonest texts in the words that Kubernetes users know."""
    missing = re.search(r'Key not found in map : "?(.*?)"?$', problem)
    if missing:
        problem = f"no such key: {missing[1]}"
    elif "No matching overloads found" in problem:
        problem = f"no such overload{problem.partition('No matching overloads found')[2]}"
    else:
        problem = re.sub(r"^[A-Z_]+: ", "", _first_line(problem))
    return SelectorError(f"CEL runtime error: {problem}")


def _first_line(text: str) -> str:
    return re.sub(r"^[A-Z_]+: (?=ERROR: )| \[[A-Z_]+\]$", "", text.partition("\n")[0])


# -- what can be told from an expression's text ------------------------------------------------------------------------

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'')
#: ``device.attributes.domain``, and ``device.attributes`` without a domain: the map as a whole.
_NAMED_DOMAIN = re.compile(r"\bdevice\s*\.\s*(?:attributes|capacity)\s*\.\s*\??(\w+)")
_WHOLE_MAP = re.compile(r"\bdevice\s*\.\s*(?:attributes|capacity)\b(?!\s*\[)(?!\s*\.\s*\??\w+\s*(?![\w\s(]))")


def _domains(expression: str) -> frozenset[str] | None:
    """The domains an expression could ask for: any of its strings. None when it looks at all domains together."""
    if _WHOLE_MAP.search(expression):
        return None
    strings = (double or single for double, single in _STRING.findall(expression))
    return frozenset((*strings, *_NAMED_DOMAIN.findall(expression)))


def _largest_string_bits(expression: str) -> int:
    """The length of the longest string an expression could build, as a power of two, seen generously."""
    code = _STRING.sub('""', expression)
    doublings = code.count("+")
    multiplications = len(re.findall(r"\b(?:replace|join|format)\b", code))
    if not doublings and not multiplications:
        return 0
    return doublings + (multiplications + 1) * max(6, len(expression).bit_length())


# -- Kubernetes' types and functions -----------------------------------------------------------------------------------


def _quantity(value: int) -> dict[str, str]:
    return {_NANOS: str(value)}


def _nanos(lowered: Mapping[str, str]) -> int:
    return int(lowered[_NANOS])


def _version(lowered: Sequence[str]) -> Version:
    major, minor, patch, *prerelease = lowered
    return Version(int(major), int(minor), int(patch), tuple(prerelease))


def _lowered(value: Attribute) -> Any:
    if isinstance(value, Version):
        return [str(value.major), str(value.minor), str(value.patch), *value.prerelease]
    return value


def _parse_quantity(text: str) -> dict[str, str]:
    try:
        return _quantity(nanos(text))
    except InvalidQuantity as error:
        raise ValueError(str(error)) from None


def _parse_version(text: str, normalize: bool = False) -> Any:
    return _lowered(Version.parse_loosely(text) if normalize else Version.parse(text))


def _is_parsed_by(parse: Callable[..., Any]) -> Callable[..., bool]:
    def is_parsed(*arguments: Any) -> bool:
        try:
            parse(*arguments)
        except ValueError:
            return False
        return True

    return is_parsed


def _as_integer(lowered: Mapping[str, str]) -> int:
    whole, rest = divmod(_nanos(lowered), NANOS)
    if rest or whole not in _INT64:
        raise ValueError("cannot convert value to integer")
    return whole


def _is_integer(lowered: Mapping[str, str]) -> bool:
    return _is_parsed_by(_as_integer)(lowered)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _compare_quantities(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    return _sign(_nanos(one) - _nanos(other))


def _compare_versions(one: Sequence[str], other: Sequence[str]) -> int:
    left, right = _version(one).order, _version(other).order
    return (left > right) - (left < right)


def _environment(cel: Any) -> Any:
    """The variables and functions of a device selector, checked when it is compiled."""
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    kind = cel.Type
    attributes = kind.Map(kind.STRING, kind.Map(kind.STRING, kind.DYN))
    capacity = kind.Map(kind.STRING, kind.Map(kind.STRING, kind.Map(kind.STRING, kind.STRING)))
    return cel.NewEnv(
        variables={
            "device.driver": kind.STRING,
            "device.attributes": attributes,
            "device.capacity": capacity,
            "device.allowMultipleAllocations": kind.BOOL,
        },
        extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings(), ext_strings.ExtStrings()],
        functions=_functions(cel),
    )


def _functions(cel: Any) -> list[Any]:
    kind = cel.Type
    quantity, version = kind.Map(kind.STRING, kind.STRING), kind.List(kind.STRING)

    def function(name: str, *overloads: tuple[Any, list[Any], Callable[..., Any]], member: bool = True) -> Any:
        declared = [
            cel.Overload(f"{name}_{number}", return_type=returns, parameters=parameters, is_member=member, impl=impl)
            for number, (returns, parameters, impl) in enumerate(overloads)
        ]
        return cel.FunctionDecl(name, declared)

    def comparison(name: str, returns: Any, of: Callable[[int], Any]) -> Any:
        return function(
            name,
            (returns, [quantity, quantity], lambda one, other: of(_compare_quantities(one, other))),
            (returns, [version, version], lambda one, other: of(_compare_versions(one, other))),
        )

    def arithmetic(name: str, sign: int) -> Any:
        return function(
            name,
            (quantity, [quantity, quantity], lambda one, other: _quantity(_nanos(one) + sign * _nanos(other))),
            (quantity, [quantity, kind.INT], lambda one, other: _quantity(_nanos(one) + sign * other * NANOS)),
        )

    is_version = _is_parsed_by(_parse_version)
    return [
        function("quantity", (quantity, [kind.STRING], _parse_quantity), member=False),
        function("isQuantity", (kind.BOOL, [kind.STRING], _is_parsed_by(_parse_quantity)), member=False),
        function(
            "semver",
            (version, [kind.STRING], _parse_version),
            (version, [kind.STRING, kind.BOOL], _parse_version),
            member=False,
        ),
        function(
            "isSemver",
            (kind.BOOL, [kind.STRING], is_version),
            (kind.BOOL, [kind.STRING, kind.BOOL], is_version),
            member=False,
        ),
        comparison("compareTo", kind.INT, int),
        comparison("isGreaterThan", kind.BOOL, lambda order: order > 0),
        comparison("isLessThan", kind.BOOL, lambda order: order < 0),
        arithmetic("add", +1),
        arithmetic("sub", -1),
        function("sign", (kind.INT, [quantity], lambda lowered: _sign(_nanos(lowered)))),
        function("isInteger", (kind.BOOL, [quantity], _is_integer)),
        function("asInteger", (kind.INT, [quantity], _as_integer)),
        function("asApproximateFloat", (kind.DOUBLE, [quantity], lambda lowered: _nanos(lowered) / NANOS)),
        function("major", (kind.INT, [version], lambda lowered: _version(lowered).major)),
        function("minor", (kind.INT, [version], lambda lowered: _version(lowered).minor)),
        function("patch", (kind.INT, [version], lambda lowered: _version(lowered).patch)),
    ]
