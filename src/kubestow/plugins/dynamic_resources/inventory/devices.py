"""Devices as the allocator sees them: a published device with everything derived from it once.

What selectors answer about a device is remembered on it, and goes when its slice is published anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubestow.api.quantity import nanos
from kubestow.api.resource import Device, DeviceAttribute, DeviceCounterConsumption, DeviceSelector, ResourceSlice
from kubestow.cluster.devices.claims import DeviceID
from kubestow.plugins.dynamic_resources.inventory.cel import Attribute, DeviceFacts, SelectorError, Selectors
from kubestow.plugins.dynamic_resources.inventory.semver import Version

__all__ = ["Counters", "PooledDevice"]

#: Amounts in nano units by counter, by counter set.
Counters = Mapping[str, Mapping[str, int]]

_MOST_ANSWERS = 256


class PooledDevice:
    """A device of a pool, with the slice it was published in."""

    __slots__ = ("_answers", "_facts", "capacity", "counters", "device", "id", "slice")

    def __init__(self, source: ResourceSlice, device: Device) -> None:
        """Raises InvalidQuantity for a capacity or counter that cannot be read."""
        self.slice = source
        self.device = device
        self.id = DeviceID(source.spec.driver, source.spec.pool.name, device.name)
        #: What it has of each capacity, in nano units.
        self.capacity = {name: nanos(capacity.value) for name, capacity in device.capacity.items()}
        #: What it takes of its pool's counters while it is allocated.
        self.counters: Counters = _counters(device.consumes_counters)
        self._facts: DeviceFacts | None = None
        self._answers: dict[str, bool | SelectorError] = {}

    def attribute(self, name: str) -> DeviceAttribute | None:
        """An attribute by its fully qualified name; names without a domain are in the driver's."""
        found = self.device.attributes.get(name)
        domain, separator, short = name.partition("/")
        if found is None and separator and domain == self.id.driver:
            return self.device.attributes.get(short)
        return found

    def matches(self, conditions: Sequence[DeviceSelector], selectors: Selectors, *, subject: str) -> bool:
        """Whether all conditions hold. Raises SelectorError that names ``subject`` and the condition at fault."""
        for number, condition in enumerate(conditions):
            expression = condition.cel.expression if condition.cel else ""
            answer = self._answers.get(expression)
            if answer is None:
                answer = self._ask(expression, selectors)
            if isinstance(answer, SelectorError):
                raise SelectorError(f"{subject}: selector #{number}: {answer}")
            if not answer:
                return False
        return True

    def _ask(self, expression: str, selectors: Selectors) -> bool | SelectorError:
        try:
            selector = selectors.compile(expression)
            if self._facts is None:
                self._facts = _facts(self.id.driver, self.device, self.capacity)
            answer: bool | SelectorError = selector.matches(self._facts)
        except SelectorError as error:
            answer = error
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[expression] = answer
        return answer


def _counters(consumptions: Sequence[DeviceCounterConsumption]) -> Counters:
    return {
        consumption.counter_set: {name: nanos(counter.value) for name, counter in consumption.counters.items()}
        for consumption in consumptions
    }


def _facts(driver: str, device: Device, capacity: Mapping[str, int]) -> DeviceFacts:
    attributes: dict[str, dict[str, Attribute]] = {}
    for name, attribute in device.attributes.items():
        domain, short = _qualified(name, driver)
        attributes.setdefault(domain, {})[short] = _value(name, attribute)
    capacities: dict[str, dict[str, int]] = {}
    for name, amount in capacity.items():
        domain, short = _qualified(name, driver)
        capacities.setdefault(domain, {})[short] = amount
    return DeviceFacts(
        driver=driver,
        attributes=attributes,
        capacity=capacities,
        allow_multiple_allocations=device.allow_multiple_allocations,
    )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, separator, short = name.partition("/")
    return (domain, short) if separator else (driver, name)


def _value(name: str, attribute: DeviceAttribute) -> Attribute:
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is None:
        raise SelectorError(f"CEL runtime error: attribute {name}: unsupported attribute value")
    try:
        return Version.parse(attribute.version_value)
    except ValueError as error:
        raise SelectorError(f"CEL runtime error: attribute {name}: {error}") from None
