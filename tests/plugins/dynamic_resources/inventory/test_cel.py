"""Selectors: what they may ask about a device, and what becomes of those that fail."""

from __future__ import annotations

import sys

import pytest

from kubestow.api.quantity import nanos
from kubestow.plugins.dynamic_resources.inventory.cel import CELDevice, SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.inventory.semver import Version

SELECTORS = SelectorCache()
GPU = CELDevice(
    driver="gpu.example.com",
    attributes={
        "gpu.example.com": {"model": "a100", "index": 3, "fast": True, "driverVersion": Version.parse("1.10.0-rc.1")}
    },
    capacity={"gpu.example.com": {"memory": nanos("40Gi"), "share": nanos("500m")}},
    allow_multiple_allocations=True,
)
ITS = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'
VERSION = f"{ITS}.driverVersion"


def holds(expression: str) -> bool:
    return SELECTORS.compile(expression).matches(GPU)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        f'{ITS}.model == "a100" && {ITS}.index % 2 == 1',
        f"has({ITS}.fast) && {ITS}.fast",
        f"!has({ITS}.slow)",
        f'{ITS}.?slow.orValue("no") == "no"',
        f"{ITS}.?index.orValue(99) in [0, 3]",
        f'{ITS}[?"slow"].hasValue() == false',
        f'cel.bind(its, {ITS}, "model" in its && its.model.matches("^[ah]100$"))',
        f'{ITS}.model.startsWith("a") && {ITS}.model.upperAscii() == "A100"',
        f"{ITS}.index < 3.5",
        "device.allowMultipleAllocations",
        '!("example.com" in device.attributes)',
        '"gpu.example.com" in device.attributes',
        'device.attributes.exists(domain, domain == "gpu.example.com")',
        'device.attributes[device.driver].model == "a100"',
    ],
)
def test_attributes_are_looked_up(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["example.com"].?numa.orValue(7) == 7',
        'device.capacity["example.com"].?memory.orValue(quantity("0")) == quantity("0")',
        "device.attributes.other.?numa.orValue(7) == 7",
        '!has(device.attributes["example.com"].numa)',
    ],
)
def test_a_domain_that_a_device_says_nothing_of_is_empty(expression: str) -> None:
    assert holds(expression)


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
def test_quantities_are_numbers(expression: str) -> None:
    assert holds(expression)


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
def test_versions_are_compared(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{ITS}.slow", "CEL runtime error: no such key: slow"),
        (f'{ITS}.index < "a"', "CEL runtime error: no such overload"),
        (f"{ITS}.index", "CEL runtime error: the result is of type int, not bool"),
        ("1 / 0 == 1", "CEL runtime error: divide by zero"),
        ('quantity("many") == quantity("1")', 'CEL runtime error: "many" is not a resource quantity'),
        ('semver("1") == semver("1.0.0")', 'CEL runtime error: "1" is not a semantic version'),
        ('quantity("1.5").asInteger() == 1', "CEL runtime error: cannot convert value to integer"),
    ],
)
def test_an_expression_that_fails_says_why(expression: str, problem: str) -> None:
    with pytest.raises(SelectorError) as failed:
        holds(expression)
    assert str(failed.value).startswith(problem)


@pytest.mark.parametrize(
    "expression",
    ["1 +", "device.name == 'a'", "device.driver == 5", "device.driver", f'{MEMORY} < quantity("1")', "unknown(1)", ""],
)
def test_an_expression_that_makes_no_sense_does_not_compile(expression: str) -> None:
    with pytest.raises(SelectorError, match="CEL compile error: compilation failed"):
        SELECTORS.compile(expression)


def test_an_error_beside_the_point_is_none() -> None:
    assert holds(f"{ITS}.slow || true")


def test_an_expression_that_would_never_end_is_given_up() -> None:
    expression = "true"
    for number in range(12):
        expression = f"[0,1,2,3,4,5,6,7,8,9].all(x{number}, {expression})"
    with pytest.raises(SelectorError, match="Iteration budget exceeded"):
        holds(expression)


def test_an_expression_that_would_fill_the_memory_does_not_compile() -> None:
    doubled = '"abcdefgh"'
    for number in range(30):
        doubled = f"cel.bind(x{number}, {doubled}, x{number} + x{number})"
    with pytest.raises(SelectorError, match="too long"):
        SELECTORS.compile(f"{doubled}.size() > 0")


def test_an_expression_longer_than_kubernetes_allows_does_not_compile() -> None:
    with pytest.raises(SelectorError, match="are too many"):
        SELECTORS.compile("true" + " " * 10240)


def test_failures_are_remembered_like_successes() -> None:
    selectors = SelectorCache()
    with pytest.raises(SelectorError) as first:
        selectors.compile("1 +")
    with pytest.raises(SelectorError) as second:
        selectors.compile("1 +")
    assert first.value is second.value
    assert selectors.compile("true") is selectors.compile("true")


def test_only_the_latest_expressions_are_remembered() -> None:
    selectors = SelectorCache()
    first = selectors.compile("0 == 0")
    for number in range(1024):
        selectors.compile(f"{number} == 1")
    assert selectors.compile("0 == 0") is not first


def test_a_platform_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(SelectorError, match="no CEL library on this platform"):
        SelectorCache().compile("true")
