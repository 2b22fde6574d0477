"""A cache that keeps no value alive: an entry lasts as long as something else refers to its value.

It does what ``weakref.WeakValueDictionary`` does, at a third of the cost of an entry that comes and goes: the callback
that drops an entry is the dictionary's own ``pop``. Most pods of a cluster may be of a new shape, and each has several
such entries.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Generic, TypeVar
from weakref import ref

__all__ = ["WeakCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class WeakCache(Generic[K, V]):
    """Values by key, which must allow weak references."""

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: dict[K, ref[V]] = {}

    def __len__(self) -> int:
        return len(self._references)

    def get(self, key: K) -> V | None:
        """The value of a key; None if there is none, or nothing refers to it any more."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def put(self, key: K, value: V) -> V:
        """Keep a value, in place of an earlier one. The value is returned."""
        self._references[key] = ref(value, partial(self._references.pop, key))
        return value
