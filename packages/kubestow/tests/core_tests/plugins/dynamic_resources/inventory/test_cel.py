"""CEL selectors: evaluation, errors, limits and cache (semantics 8.16)."""

from __future__ import annotations

import sys

import pytest

from kubestow.api.formats.quantity import nanos
from kubestow.plugins.dynamic_resources.cel import _STRING, CELDevice, SelectorCache, SelectorError, Version

CACHE = SelectorCache()
GPU = CELDevice(
    driver="gpu.example.com",
    attributes={
        "gpu.example.com": {"model": "a100", "index": 3, "fast": True, "driverVersion": Version.parse("1.10.0-rc.1")}
    },
    capacity={"gpu.example.com": {"memory": nanos("40Gi"), "share": nanos("500m")}},
    allow_multiple_allocations=True,
)
ATTRIBUTES = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'
VERSION = f"{ATTRIBUTES}.driverVersion"


def matches(expression: str) -> bool:
    return CACHE.compile(expression).matches(GPU)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        f'{ATTRIBUTES}.model == "a100" && {ATTRIBUTES}.index % 2 == 1',
        f"has({ATTRIBUTES}.fast) && {ATTRIBUTES}.fast",
        f"!has({ATTRIBUTES}.slow)",
        f'{ATTRIBUTES}.?slow.orValue("no") == "no"',
        f"{ATTRIBUTES}.?index.orValue(99) in [0, 3]",
        f'{ATTRIBUTES}[?"slow"].hasValue() == false',
        f'cel.bind(its, {ATTRIBUTES}, "model" in its && its.model.matches("^[ah]100$"))',
        f'{ATTRIBUTES}.model.startsWith("a") && {ATTRIBUTES}.model.upperAscii() == "A100"',
        f"{ATTRIBUTES}.index < 3.5",
        "device.allowMultipleAllocations",
        '!("example.com" in device.attributes)',
        '"gpu.example.com" in device.attributes',
        'device.attributes.exists(domain, domain == "gpu.example.com")',
        'device.attributes[device.driver].model == "a100"',
    ],
)
def test_expressions_read_attributes(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["example.com"].?numa.orValue(7) == 7',
        'device.capacity["example.com"].?memory.orValue(quantity("0")) == quantity("0")',
        "device.attributes.other.?numa.orValue(7) == 7",
        '!has(device.attributes["example.com"].numa)',
    ],
)
def test_a_domain_without_attributes_is_an_empty_map(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(
    "expression",
    [
        f'{MEMORY}.compareTo(quantity("40960Mi")) == 0',
        f'{MEMORY} == quantity("40960Mi")',
        f'{MEMORY}.isGreaterThan(quantity("20Gi"))',
        f'{MEMORY}.isLessThan(quantity("41Gi"))',
        f'{MEMORY}.add(quantity("1Gi")) == quantity("41Gi")',
        f"{MEMORY}.sub(1).asInteger() == 42949672959",
        f"{MEMORY}.sign() == 1 && {MEMORY}.isInteger()",
        '!device.capacity["gpu.example.com"].share.isInteger()',
        'device.capacity["gpu.example.com"].share.asApproximateFloat() == 0.5',
        'isQuantity("1.5Gi") && !isQuantity("1.5.5")',
    ],
)
def test_quantity_functions(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(
    "expression",
    [
        f'{VERSION}.isGreaterThan(semver("1.9.0"))',
        f'{VERSION}.isLessThan(semver("1.10.0"))',
        f'{VERSION}.compareTo(semver("1.10.0-rc.1+build")) == 0',
        f'{VERSION} == semver("1.10.0-rc.1")',
        f"{VERSION}.major() == 1 && {VERSION}.minor() == 10 && {VERSION}.patch() == 0",
        f'{VERSION}.isLessThan(semver("v1.11", true))',
        'isSemver("1.2.3") && !isSemver("v1.2") && isSemver("v1.2", true)',
    ],
)
def test_semver_functions(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{ATTRIBUTES}.slow", "CEL runtime error: no such key: slow"),
        (f'{ATTRIBUTES}.index < "a"', "CEL runtime error: no such overload"),
        (f"{ATTRIBUTES}.index", "CEL runtime error: the result is of type int, not bool"),
        ("1 / 0 == 1", "CEL runtime error: divide by zero"),
        ('quantity("many") == quantity("1")', 'CEL runtime error: "many" is not a resource quantity'),
        ('semver("1") == semver("1.0.0")', 'CEL runtime error: "1" is not a semantic version'),
        ('quantity("1.5").asInteger() == 1', "CEL runtime error: cannot convert value to integer"),
    ],
)
def test_a_runtime_error_has_a_reason(expression: str, problem: str) -> None:
    with pytest.raises(SelectorError) as failed:
        matches(expression)
    assert str(failed.value).startswith(problem)


@pytest.mark.parametrize(
    "expression",
    ["1 +", "device.name == 'a'", "device.driver == 5", "device.driver", f'{MEMORY} < quantity("1")', "unknown(1)", ""],
)
def test_an_invalid_expression_does_not_compile(expression: str) -> None:
    with pytest.raises(SelectorError, match="CEL compile error: compilation failed"):
        CACHE.compile(expression)


def test_an_error_in_an_irrelevant_operand_is_ignored() -> None:
    assert matches(f"{ATTRIBUTES}.slow || true")


def test_the_number_of_iterations_is_limited() -> None:
    expression = "true"
    for number in range(12):
        expression = f"[0,1,2,3,4,5,6,7,8,9].all(x{number}, {expression})"
    with pytest.raises(SelectorError, match="Iteration budget exceeded"):
        matches(expression)


def test_an_unclosed_string_with_many_escaped_quotes_is_scanned_once() -> None:
    assert len(_STRING.findall('"' + '\\"' * 5000)) == 1


def test_the_length_of_strings_is_limited() -> None:
    doubled = '"abcdefgh"'
    for number in range(30):
        doubled = f"cel.bind(x{number}, {doubled}, x{number} + x{number})"
    with pytest.raises(SelectorError, match="too long"):
        CACHE.compile(f"{doubled}.size() > 0")


def test_the_length_of_strings_that_replacements_build_is_limited() -> None:
    grown = '"a"' + '.replace("a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")' * 5
    with pytest.raises(SelectorError, match="too long"):
        CACHE.compile(f"{grown}.size() > 0")


def test_the_length_of_expressions_is_limited() -> None:
    with pytest.raises(SelectorError, match="are too many"):
        CACHE.compile("true" + " " * 10240)


def test_compile_errors_are_cached_like_selectors() -> None:
    cache = SelectorCache()
    with pytest.raises(SelectorError) as first:
        cache.compile("1 +")
    with pytest.raises(SelectorError) as second:
        cache.compile("1 +")
    assert first.value is second.value
    assert cache.compile("true") is cache.compile("true")


def test_the_oldest_selectors_are_evicted() -> None:
    cache = SelectorCache()
    first = cache.compile("0 == 0")
    for number in range(1024):
        cache.compile(f"{number} == 1")
    assert cache.compile("0 == 0") is not first


def test_a_missing_cel_library_is_a_compile_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(SelectorError, match="no CEL library on this platform"):
        SelectorCache().compile("true")
