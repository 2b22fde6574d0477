"""Devices of resource pools, with the quantities and attributes that the allocator needs parsed once.

The results of CEL selectors are cached on the device, so they are dropped with it when its slice changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubestow.api.formats.quantity import nanos
from kubestow.api.resource import Device, DeviceAttribute, DeviceCounterConsumption, DeviceSelector, ResourceSlice
from kubestow.cluster.devices.claims import DeviceID
from kubestow.plugins.dynamic_resources.inventory.cel import AttributeValue, CELDevice, SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.inventory.semver import Version

__all__ = ["CounterAmounts", "PooledDevice"]

#: Nano units by counter, by counter set.
CounterAmounts = Mapping[str, Mapping[str, int]]

_MAX_CACHED_MATCHES = 256


class PooledDevice:
    """A device of a pool, with the slice that publishes it."""

    __slots__ = ("_cel_device", "_matches", "capacity", "consumes_counters", "device", "id", "slice")

    def __init__(self, source: ResourceSlice, device: Device) -> None:
        """Raises InvalidQuantity for an invalid capacity or counter."""
        self.slice = source
        self.device = device
        self.id = DeviceID(source.spec.driver, source.spec.pool.name, device.name)
        #: Nano units by capacity.
        self.capacity = {name: nanos(capacity.value) for name, capacity in device.capacity.items()}
        #: What the device consumes of its pool's shared counters while it is allocated.
        self.consumes_counters: CounterAmounts = _counter_amounts(device.consumes_counters)
        self._cel_device: CELDevice | None = None
        self._matches: dict[str, bool | SelectorError] = {}

    def attribute(self, name: str) -> DeviceAttribute | None:
        """An attribute by its fully qualified name; attributes without a domain belong to the driver's."""
        attribute = self.device.attributes.get(name)
        domain, separator, short_name = name.partition("/")
        if attribute is None and separator and domain == self.id.driver:
            return self.device.attributes.get(short_name)
        return attribute

    def matches(self, selectors: Sequence[DeviceSelector], compiled: SelectorCache, *, subject: str) -> bool:
        """Whether all selectors match. Raises SelectorError with ``subject`` and the number of the failed selector."""
        for number, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel else ""
            result = self._matches.get(expression)
            if result is None:
                result = self._evaluate(expression, compiled)
            if isinstance(result, SelectorError):
                raise SelectorError(f"{subject}: selector #{number}: {result}")
            if not result:
                return False
        return True

    def _evaluate(self, expression: str, compiled: SelectorCache) -> bool | SelectorError:
        try:
            selector = compiled.compile(expression)
            if self._cel_device is None:
                self._cel_device = _cel_device(self.id.driver, self.device, self.capacity)
            result: bool | SelectorError = selector.matches(self._cel_device)
        except SelectorError as error:
            result = error
        if len(self._matches) >= _MAX_CACHED_MATCHES:
            self._matches.clear()
        self._matches[expression] = result
        return result


def _counter_amounts(consumptions: Sequence[DeviceCounterConsumption]) -> CounterAmounts:
    return {
        consumption.counter_set: {name: nanos(counter.value) for name, counter in consumption.counters.items()}
        for consumption in consumptions
    }


def _cel_device(driver: str, device: Device, capacity: Mapping[str, int]) -> CELDevice:
    attributes: dict[str, dict[str, AttributeValue]] = {}
    for name, attribute in device.attributes.items():
        domain, short_name = _qualified(name, driver)
        attributes.setdefault(domain, {})[short_name] = _value(name, attribute)
    capacities: dict[str, dict[str, int]] = {}
    for name, amount in capacity.items():
        domain, short_name = _qualified(name, driver)
        capacities.setdefault(domain, {})[short_name] = amount
    return CELDevice(
        driver=driver,
        attributes=attributes,
        capacity=capacities,
        allow_multiple_allocations=device.allow_multiple_allocations,
    )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, separator, short_name = name.partition("/")
    return (domain, short_name) if separator else (driver, name)


def _value(name: str, attribute: DeviceAttribute) -> AttributeValue:
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is None:
        raise SelectorError(f"CEL runtime error: attribute {name}: unsupported attribute value")
    try:
        return Version.parse(attribute.version_value)
    except ValueError as error:
        raise SelectorError(f"CEL runtime error: attribute {name}: {error}") from None
