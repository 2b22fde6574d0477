"""CEL expressions that select devices (semantics 8.16).

This is the only module that uses the CEL library; it is imported when the first selector is compiled. Kubernetes' own
types are converted to types that the library can pass through functions: a quantity is a map, a version a list of
strings, both in canonical form, so that ``==`` compares values and ``<`` does not compile.

Evaluation is bounded: the library limits the iterations of comprehensions, regular expressions take linear time, and an
expression that could build very long strings does not compile.

Semantic versions 2.0.0 are parsed as strictly as Kubernetes does, with numbers of at most 64 bits. Only the CEL
function ``semver(text, true)`` normalizes a version before parsing it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kubestow.api.formats.quantity import NANOS, nanos
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.errors import InvalidQuantity

_NUMBER = r"(?:0|[1-9]\d*)"
_LABEL = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SYNTAX = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_LABEL}(?:\.{_LABEL})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_UINT64 = range(2**64)


@dataclass(frozen=True, slots=False)
class Version:
    """A version without build metadata, which is relevant neither for order nor for equality."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Version:
        """Parse "1.2.3-rc.1+build". Raises ValueError for anything but a complete version."""
        match = _SYNTAX.fullmatch(text)
        if match is None or any(int(number) not in _UINT64 for number in match.group(1, 2, 3)):
            raise ValueError(f'"{text}" is not a semantic version (expected major.minor.patch, such as "1.2.3")')
        major, minor, patch, prerelease = match.groups()
        return cls(int(major), int(minor), int(patch), tuple(prerelease.split(".")) if prerelease else ())

    @classmethod
    def parse_normalized(cls, text: str) -> Version:
        """Parse "v1.2" and "01.2.3" too: drops a leading v and leading zeros, and adds missing numbers.

        Raises ValueError if that does not give a version.
        """
        core, separator, rest = text.removeprefix("v").partition(next((c for c in text if c in "-+"), "-"))
        numbers = core.split(".")
        if len(numbers) > 3 or not all(number.isascii() and number.isdigit() for number in numbers):
            return cls.parse(text)
        numbers += ["0"] * (3 - len(numbers))
        return cls.parse(".".join(number.lstrip("0") or "0" for number in numbers) + separator + rest)

    @cached_property
    def sort_key(self) -> tuple[object, ...]:
        """Orders versions by precedence: a prerelease before its release, numeric labels before others."""
        labels = tuple((0, int(label), "") if label.isdigit() else (1, 0, label) for label in self.prerelease)
        return (self.major, self.minor, self.patch, not labels, labels)


AttributeValue = int | bool | str | Version

#: The key of the nano units in the map that a quantity is converted to.
_NANOS = "nanos"
_MAX_CACHED_SELECTORS = 1024
#: Kubernetes' limit on the length of an expression, in characters.
_MAX_EXPRESSION_LENGTH = 10 * 1024
#: The limit on the length of strings that an expression could build, as a power of two, in characters.
_MAX_STRING_BITS = 24
_INT64 = range(-(2**63), 2**63)


class SelectorError(Exception):
    """A selector is invalid or fails on a device; the text begins with "CEL compile error" or "CEL runtime error"."""


class CELDevice:
    """The variable ``device`` of an expression: attributes and capacities (nano units) by domain, then by name."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver")

    def __init__(
        self,
        *,
        driver: str,
        attributes: Mapping[str, Mapping[str, AttributeValue]],
        capacity: Mapping[str, Mapping[str, int]],
        allow_multiple_allocations: bool,
    ) -> None:
        self.driver = driver
        self.attributes = {
            domain: {name: _to_cel(value) for name, value in values.items()} for domain, values in attributes.items()
        }
        self.capacity = {
            domain: {name: _quantity(value) for name, value in values.items()} for domain, values in capacity.items()
        }
        self.allow_multiple_allocations = allow_multiple_allocations


class CompiledSelector:
    """A compiled expression."""

    __slots__ = ("_compiled", "_domains", "_error_type")

    def __init__(self, compiled: Any, domains: frozenset[str] | None, error_type: Any) -> None:
        self._compiled = compiled
        self._domains = domains
        self._error_type = error_type

    def matches(self, device: CELDevice) -> bool:
        """Whether the expression is true for a device. Raises SelectorError if the evaluation fails."""
        # A domain without attributes is an empty map, not a missing key.
        domains = () if self._domains is None else (device.driver, *self._domains)
        empty: dict[str, Any] = {domain: {} for domain in domains}
        data = {
            "device.driver": device.driver,
            "device.attributes": empty | device.attributes,
            "device.capacity": empty | device.capacity,
            "device.allowMultipleAllocations": device.allow_multiple_allocations,
        }
        try:
            result = self._compiled.eval(data=data)
        except RuntimeError as error:
            raise _runtime_error(str(error)) from None
        value = result.value()
        if result.type() == self._error_type:
            raise _runtime_error(str(value))
        if not isinstance(value, bool):
            raise _runtime_error(f"the result is of type {result.type().name().lower()}, not bool")
        return value


class SelectorCache:
    """Compiles expressions and caches the latest ones, compile errors included.

    Without ``multiple_allocations``, ``device.allowMultipleAllocations`` does not compile.
    """

    def __init__(self, *, multiple_allocations: bool = True) -> None:
        self._multiple_allocations = multiple_allocations
        self._by_expression: BoundedCache[str, CompiledSelector | SelectorError] = BoundedCache(_MAX_CACHED_SELECTORS)
        self._environment: Any = None

    def compile(self, expression: str) -> CompiledSelector:
        """The selector of an expression. Raises SelectorError if it does not compile."""
        cached = self._by_expression.get(expression)
        if cached is None:
            try:
                cached = self._compile(expression)
            except SelectorError as error:
                cached = error
            self._by_expression.put(expression, cached)
        if isinstance(cached, SelectorError):
            raise cached
        return cached

    def _compile(self, expression: str) -> CompiledSelector:
        try:
            from cel_expr_python import cel
        except ImportError as error:
            raise _compile_error(f"no CEL library on this platform: {error}") from None
        if self._environment is None:
            self._environment = _environment(cel, multiple_allocations=self._multiple_allocations)
        if len(expression) > _MAX_EXPRESSION_LENGTH:
            problem = f"{len(expression)} characters are too many, at most {_MAX_EXPRESSION_LENGTH} are allowed"
            raise _compile_error(problem)
        if _max_string_bits(expression) > _MAX_STRING_BITS:
            raise _compile_error("the strings it could build are too long")
        try:
            compiled = self._environment.compile(expression)
        except RuntimeError as error:
            raise _compile_error(_first_line(str(error))) from None
        if (kind := compiled.return_type()) not in (cel.Type.BOOL, cel.Type.DYN):
            raise _compile_error(f"must evaluate to bool or the unknown type, not {kind.name().lower()}")
        return CompiledSelector(compiled, _domains(expression), cel.Type.ERROR)


# -- errors --------------------------------------------------------------------------------------------------------


def _compile_error(problem: str) -> SelectorError:
    return SelectorError(f"CEL compile error: compilation failed: {problem}")


def _runtime_error(problem: str) -> SelectorError:
    """An error with the most common texts of the library replaced by those of Kubernetes' CEL library."""
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


# -- static checks of an expression's text -------------------------------------------------------------------------

#: The last string may be unclosed: otherwise the search would start anew at each quote in it, in quadratic time.
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"?|\'((?:[^\'\\]|\\.)*+)\'?', re.DOTALL)
#: ``device.attributes.domain``, and ``device.attributes`` without a domain, that is the whole map.
_NAMED_DOMAIN = re.compile(r"\bdevice\s*\.\s*(?:attributes|capacity)\s*\.\s*\??(\w+)")
_WHOLE_MAP = re.compile(r"\bdevice\s*\.\s*(?:attributes|capacity)\b(?!\s*\[)(?!\s*\.\s*\??\w+\s*(?![\w\s(]))")


def _domains(expression: str) -> frozenset[str] | None:
    """The domains that an expression can look up, any of its strings; None if it uses the whole map of domains."""
    if _WHOLE_MAP.search(expression):
        return None
    strings = (double or single for double, single in _STRING.findall(expression))
    return frozenset((*strings, *_NAMED_DOMAIN.findall(expression)))


def _max_string_bits(expression: str) -> int:
    """An upper bound of the length of strings that an expression could build, as a power of two.

    Operators within string literals count, too: to tell them apart takes a parser of raw and triple-quoted strings.
    """
    doublings = expression.count("+")
    multiplications = len(re.findall(r"\b(?:replace|join|format)\b", expression))
    if not doublings and not multiplications:
        return 0
    return doublings + (multiplications + 1) * max(6, len(expression).bit_length())


# -- Kubernetes' types and functions -------------------------------------------------------------------------------


def _quantity(amount: int) -> dict[str, str]:
    """A quantity in nano units as CEL's type."""
    return {_NANOS: str(amount)}


def _nanos(quantity: Mapping[str, str]) -> int:
    return int(quantity[_NANOS])


def _version(value: Sequence[str]) -> Version:
    major, minor, patch, *prerelease = value
    return Version(int(major), int(minor), int(patch), tuple(prerelease))


def _to_cel(value: AttributeValue) -> Any:
    """An attribute value as CEL's type."""
    if isinstance(value, Version):
        return [str(value.major), str(value.minor), str(value.patch), *value.prerelease]
    return value


def _parse_quantity(text: str) -> dict[str, str]:
    try:
        return _quantity(nanos(text))
    except InvalidQuantity as error:
        raise ValueError(str(error)) from None


def _parse_version(text: str, normalize: bool = False) -> Any:
    return _to_cel(Version.parse_normalized(text) if normalize else Version.parse(text))


def _accepted_by(parse: Callable[..., Any]) -> Callable[..., bool]:
    def is_accepted(*arguments: Any) -> bool:
        try:
            parse(*arguments)
        except ValueError:
            return False
        return True

    return is_accepted


def _as_integer(value: Mapping[str, str]) -> int:
    whole, rest = divmod(_nanos(value), NANOS)
    if rest or whole not in _INT64:
        raise ValueError("cannot convert value to integer")
    return whole


def _order(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _environment(cel: Any, *, multiple_allocations: bool) -> Any:
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
            **({"device.allowMultipleAllocations": kind.BOOL} if multiple_allocations else {}),
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
        def compared(key: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
            return lambda one, other: of(_order(key(one), key(other)))

        quantities = (returns, [quantity, quantity], compared(_nanos))
        return function(name, quantities, (returns, [version, version], compared(lambda v: _version(v).sort_key)))

    def arithmetic(name: str, sign: int) -> Any:
        return function(
            name,
            (quantity, [quantity, quantity], lambda one, other: _quantity(_nanos(one) + sign * _nanos(other))),
            (quantity, [quantity, kind.INT], lambda one, other: _quantity(_nanos(one) + sign * other * NANOS)),
        )

    is_version = _accepted_by(_parse_version)
    return [
        function("quantity", (quantity, [kind.STRING], _parse_quantity), member=False),
        function("isQuantity", (kind.BOOL, [kind.STRING], _accepted_by(_parse_quantity)), member=False),
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
        function("sign", (kind.INT, [quantity], lambda value: _order(_nanos(value), 0))),
        function("isInteger", (kind.BOOL, [quantity], _accepted_by(_as_integer))),
        function("asInteger", (kind.INT, [quantity], _as_integer)),
        function("asApproximateFloat", (kind.DOUBLE, [quantity], lambda value: _nanos(value) / NANOS)),
        function("major", (kind.INT, [version], lambda value: _version(value).major)),
        function("minor", (kind.INT, [version], lambda value: _version(value).minor)),
        function("patch", (kind.INT, [version], lambda value: _version(value).patch)),
    ]
