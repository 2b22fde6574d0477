"""An index of rejected pods by what their plugins wait for, so that an event costs what it may change.

A plugin may declare keys of its rejected pods, and of events (:meth:`kubestow.framework.interface.Plugin.hint_keys`): a
hint can say Queue only for a pod and an event that have a key in common. With a key may come amounts, such as requests
of a pod and free resources of a node: then none of the pod's may exceed that of the event. They are kept in arrays, so
that an event with thousands of candidates under one key is compared with all of them at once.

The index never decides: what it finds is a superset of what an event helps, and the hints are called for that.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

import numpy as np

Amounts = tuple[int, ...]
"""Amounts that come with a key, each of int64; empty without any."""

KeysByPlugin = Mapping[str, Mapping[Hashable, Amounts] | None]
"""The hint keys of pods or of an event by plugin; None where there are no keys to compare."""

W = TypeVar("W", bound=Hashable)
K = TypeVar("K", bound=Hashable)

#: An array of amounts has room for at least so many waiters.
_MIN_ROOM = 16


class HintIndex(Generic[W]):
    """What waits, by the plugins that it waits for and their hint keys. Its size is that of all keys of what waits."""

    def __init__(self) -> None:
        #: All that wait for a plugin, and those of them without keys; the dictionaries are ordered sets.
        self._by_plugin: dict[str, dict[W, None]] = {}
        self._without_keys: dict[str, dict[W, None]] = {}
        #: Those with a key without amounts, and those with amounts, by their number.
        self._by_key: dict[tuple[str, Hashable], dict[W, None]] = {}
        self._by_amounts: dict[tuple[str, Hashable], dict[int, _AmountTable[W]]] = {}

    @property
    def plugins(self) -> Collection[str]:
        """The plugins that anything waits for."""
        return self._by_plugin.keys()

    def add(self, waiter: W, plugins: KeysByPlugin) -> None:
        """Add a waiter, which waits for these plugins, with its keys."""
        for plugin, keys in plugins.items():
            self._by_plugin.setdefault(plugin, {})[waiter] = None
            if keys is None:
                self._without_keys.setdefault(plugin, {})[waiter] = None
                continue
            for key, amounts in keys.items():
                if amounts:
                    tables = self._by_amounts.setdefault((plugin, key), {})
                    if len(amounts) not in tables:
                        tables[len(amounts)] = _AmountTable(len(amounts))
                    tables[len(amounts)].add(waiter, amounts)
                else:
                    self._by_key.setdefault((plugin, key), {})[waiter] = None

    def remove(self, waiter: W, plugins: KeysByPlugin) -> None:
        """Remove a waiter that was added with the same plugins and keys."""
        for plugin, keys in plugins.items():
            _remove_from(self._by_plugin, plugin, waiter)
            if keys is None:
                _remove_from(self._without_keys, plugin, waiter)
                continue
            for key, amounts in keys.items():
                if amounts:
                    tables = self._by_amounts[plugin, key]
                    tables[len(amounts)].remove(waiter)
                    if not tables[len(amounts)]:
                        del tables[len(amounts)]
                    if not tables:
                        del self._by_amounts[plugin, key]
                else:
                    _remove_from(self._by_key, (plugin, key), waiter)

    def find(self, plugins: KeysByPlugin) -> list[W]:
        """What waits for one of the plugins and has one of the event's keys for it, each once."""
        found: dict[W, None] = {}
        for plugin, keys in plugins.items():
            if plugin not in self._by_plugin:
                continue
            if keys is None:
                found.update(self._by_plugin[plugin])
                continue
            found.update(self._without_keys.get(plugin, {}))
            for key, limits in keys.items():
                found.update(self._by_key.get((plugin, key), {}))
                for width, table in self._by_amounts.get((plugin, key), {}).items():
                    found.update(dict.fromkeys(table.within(limits) if len(limits) == width else table))
        return list(found)


class _AmountTable(Generic[W]):
    """Waiters with as many amounts each; int64 of shape (amounts, waiters)."""

    __slots__ = ("_amounts", "_positions", "_waiters")

    def __init__(self, width: int) -> None:
        self._amounts = np.empty((width, _MIN_ROOM), np.int64)
        self._waiters: list[W] = []
        self._positions: dict[W, int] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[W]:
        return iter(self._waiters)

    def add(self, waiter: W, amounts: Amounts) -> None:
        position = self._positions[waiter] = len(self._waiters)
        self._waiters.append(waiter)
        if position == self._amounts.shape[1]:
            self._resize()
        self._amounts[:, position] = amounts

    def remove(self, waiter: W) -> None:
        """Remove a waiter; the last one takes its position."""
        position, last = self._positions.pop(waiter), self._waiters.pop()
        if position < len(self._waiters):
            self._waiters[position], self._positions[last] = last, position
            self._amounts[:, position] = self._amounts[:, len(self._waiters)]
        if _MIN_ROOM < self._amounts.shape[1] > 4 * len(self._waiters):
            self._resize()

    def within(self, limits: Amounts) -> list[W]:
        """The waiters none of whose amounts exceeds its limit."""
        exceeds_none = (self._amounts[:, : len(self._waiters)] <= np.array(limits, np.int64)[:, None]).all(axis=0)
        return [self._waiters[position] for position in np.flatnonzero(exceeds_none).tolist()]

    def _resize(self) -> None:
        """Make room for twice as many as there are; full or three quarters empty the array is too small or large."""
        width, room = self._amounts.shape
        number = len(self._waiters)
        resized = np.empty((width, max(_MIN_ROOM, 2 * number)), np.int64)
        kept = min(room, number)
        resized[:, :kept] = self._amounts[:, :kept]
        self._amounts = resized


def _remove_from(index: dict[K, dict[W, None]], key: K, waiter: W) -> None:
    waiters = index[key]
    del waiters[waiter]
    if not waiters:
        del index[key]
