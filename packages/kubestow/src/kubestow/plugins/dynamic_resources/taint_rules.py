"""DeviceTaintRules: the slices of the cluster with the taints that rules add to their devices (semantics 8.16).

A rule names a driver, a pool and a device, or any of them; until 1.34 also a device class and CEL selectors. Rules and
slices are indexed by driver and pool, so a change of a rule costs what it selects, and a change of a slice its devices
and the rules that select some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from kubestow.api.resource import (
    Device,
    DeviceClass,
    DeviceSelector,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
)
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.errors import InvalidQuantity
from kubestow.framework.interface import Handle
from kubestow.plugins.dynamic_resources.cel import SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.pools import PooledDevice
from kubestow.plugins.dynamic_resources.requests import Features
from kubestow.rules.minors import Behaviour

#: Driver and pool; None for any.
_Scope = tuple[str | None, str | None]

K = TypeVar("K")
V = TypeVar("V")

_EVERYTHING = DeviceTaintSelector()
_SLICE_UPDATE = ClusterEvent(EventResource.RESOURCE_SLICE, Action.UPDATE)


class TaintedSlices:
    """Implements :class:`~kubestow.plugins.dynamic_resources.pools.Slices` for a cluster with taint rules.

    A rule that changes the taints of any device is reported as an update of a ResourceSlice.
    """

    def __init__(self, handle: Handle, features: Features) -> None:
        cluster = handle.cluster
        self._handle = handle
        self._catalog, self._classes = cluster.catalog(ResourceSlice), cluster.catalog(DeviceClass)
        self._reads_selectors = not features.emulates(Behaviour.DEVICE_TAINT_RULES_SELECT_BY_NAME)
        self._selectors = SelectorCache(multiple_allocations=features.consumable_capacity)
        self.version = 0
        #: By name: each slice as it is published, and with the taints of rules.
        self._slices: dict[str, tuple[ResourceSlice, ResourceSlice]] = {}
        self._names: dict[_Scope, dict[str, None]] = {}
        #: By scope, then by the name of the device, None for any, then by the name of the rule.
        self._rules: dict[_Scope, dict[str | None, dict[str, DeviceTaintRule]]] = {}
        #: The rules that name a device class, by its name.
        self._rules_of_class: dict[str, dict[str, DeviceTaintRule]] = {}
        rules = cluster.catalog(DeviceTaintRule)
        rules.subscribe(self._rule_changed)  # first, so that slices get the taints of existing rules at once
        self._catalog.subscribe(self._slice_changed)
        if self._reads_selectors:
            self._classes.subscribe(self._class_changed)

    def __iter__(self) -> Iterator[ResourceSlice]:
        return (self._slices[source.metadata.name][1] for source in self._catalog)

    # -- changes -----------------------------------------------------------------------------------------------------

    def _slice_changed(self, before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        self.version += 1
        if before is not None:
            self._slices.pop(before.metadata.name, None)
            for scope in _scopes(before):
                _discard(self._names, scope, before.metadata.name)
        if after is not None:
            self._slices[after.metadata.name] = after, self._tainted(after)
            for scope in _scopes(after):
                self._names.setdefault(scope, {})[after.metadata.name] = None

    def _rule_changed(self, before: DeviceTaintRule | None, after: DeviceTaintRule | None) -> None:
        if before is not None and after is not None and before.spec == after.spec:
            return  # its status reports evictions
        affected: dict[str, None] = {}
        for rule in filter(None, (before, after)):
            scope, selector = _scope(rule), _selector(rule)
            if rule is before:
                of_scope = self._rules.get(scope, {})
                _discard(of_scope, selector.device, rule.metadata.name)
                if not of_scope:
                    self._rules.pop(scope, None)
                if selector.device_class_name is not None:
                    _discard(self._rules_of_class, selector.device_class_name, rule.metadata.name)
            else:
                of_device = self._rules.setdefault(scope, {}).setdefault(selector.device, {})
                of_device[rule.metadata.name] = rule
                if selector.device_class_name is not None:
                    self._rules_of_class.setdefault(selector.device_class_name, {})[rule.metadata.name] = rule
            affected |= self._names.get(scope, {})
        self._taint_anew(affected)

    def _class_changed(self, before: DeviceClass | None, after: DeviceClass | None) -> None:
        changed = after or before
        affected: dict[str, None] = {}
        for rule in self._rules_of_class.get(changed.metadata.name, {}).values() if changed is not None else ():
            affected |= self._names.get(_scope(rule), {})
        self._taint_anew(affected)

    def _taint_anew(self, names: dict[str, None]) -> None:
        is_changed = False
        for name in names:
            source, former = self._slices[name]
            tainted = self._tainted(source)
            if [device.taints for device in tainted.spec.devices] != [device.taints for device in former.spec.devices]:
                self._slices[name] = source, tainted
                is_changed = True
        if is_changed:
            self.version += 1
            self._handle.report_change(_SLICE_UPDATE)

    # -- devices -----------------------------------------------------------------------------------------------------

    def _tainted(self, source: ResourceSlice) -> ResourceSlice:
        """A slice with the taints of rules after those of its devices, in the order of the rules' names."""
        by_device = [self._rules[scope] for scope in _scopes(source) if scope in self._rules]
        if not by_device:
            return source
        devices = [self._with_taints(source, device, by_device) for device in source.spec.devices]
        if all(device is former for device, former in zip(devices, source.spec.devices, strict=True)):
            return source
        return msgspec.structs.replace(source, spec=msgspec.structs.replace(source.spec, devices=devices))

    def _with_taints(
        self, source: ResourceSlice, device: Device, by_device: list[dict[str | None, dict[str, DeviceTaintRule]]]
    ) -> Device:
        rules = [
            rule
            for of_scope in by_device
            for name in (None, device.name)
            for rule in of_scope.get(name, {}).values()
            if not self._reads_selectors or self._is_selected(source, device, _selector(rule))
        ]
        if not rules:
            return device
        rules.sort(key=lambda rule: rule.metadata.name)
        return msgspec.structs.replace(device, taints=[*device.taints, *(rule.spec.taint for rule in rules)])

    def _is_selected(self, source: ResourceSlice, device: Device, selector: DeviceTaintSelector) -> bool:
        """Whether a device satisfies a device class and CEL selectors. One that fails selects no device."""
        selectors: list[DeviceSelector] = []
        if selector.device_class_name is not None:
            device_class = self._classes.get("", selector.device_class_name)
            if device_class is None:
                return False
            selectors += device_class.spec.selectors
        selectors += selector.selectors
        if not (selectors := [each for each in selectors if each.cel is not None]):
            return True
        try:
            return PooledDevice(source, device).matches(selectors, self._selectors, subject="")
        except (SelectorError, InvalidQuantity):
            return False


def _selector(rule: DeviceTaintRule) -> DeviceTaintSelector:
    """The selector of a rule. QUIRK (semantics 8.16): without a selector it selects all devices, not none."""
    return rule.spec.device_selector or _EVERYTHING


def _scope(rule: DeviceTaintRule) -> _Scope:
    """The driver and the pool that a rule names."""
    selector = _selector(rule)
    return selector.driver, selector.pool


def _scopes(source: ResourceSlice) -> tuple[_Scope, ...]:
    """The scopes of the rules that may select devices of a slice."""
    driver, pool = source.spec.driver, source.spec.pool.name
    return (driver, pool), (driver, None), (None, pool), (None, None)


def _discard(index: dict[K, dict[str, V]], key: K, name: str) -> None:
    """Remove an entry of an index, and the key with its last entry."""
    entries = index.get(key, {})
    entries.pop(name, None)
    if not entries:
        index.pop(key, None)
