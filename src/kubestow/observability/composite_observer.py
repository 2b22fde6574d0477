"""Several observers as one.

Each method of the port becomes the one implementation there is, or a call of all of them in order; a method that no
observer implements stays the one that does nothing. So what is only of interest to one costs one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubestow.framework.observer import PluginObserver
from kubestow.scheduling.observer import Observer

__all__ = ["together"]

_TOLD = (
    "attempted",
    "waited",
    "ended",
    "bound",
    "preempted",
    "evicted",
    "written",
    "claim_created",
    "device_wait_ended",
    "enqueued",
    "hinted",
    "handled",
)


def together(*observers: Observer) -> Observer:
    """An observer that tells all of these; the plugins of a profile are watched by the first who wants to."""
    return _Together(observers)


class _Together(Observer):
    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        for name in _TOLD:
            listening = [
                getattr(observer, name)
                for observer in observers
                if getattr(type(observer), name) is not getattr(Observer, name)
            ]
            if listening:
                setattr(self, name, listening[0] if len(listening) == 1 else _each(listening))

    def of_profile(self, scheduler_name: str) -> PluginObserver | None:
        watching = (observer.of_profile(scheduler_name) for observer in self._observers)
        return next((watcher for watcher in watching if watcher is not None), None)


def _each(listening: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def tell(*told: Any, **named: Any) -> None:
        for listener in listening:
            listener(*told, **named)

    return tell
