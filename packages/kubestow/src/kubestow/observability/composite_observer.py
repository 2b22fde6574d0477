"""Several observers as one.

A method of the composite is that of the only observer that implements it, or calls all implementations in order. A
method that none implements stays the no-op of the base class, so an event costs one call per interested observer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubestow.framework.plugin_caller import PluginObserver
from kubestow.scheduling.observer import Observer

__all__ = ["CompositeObserver"]

_METHODS = (
    "decision_made",
    "permit_wait_ended",
    "attempt_ended",
    "pod_bound",
    "preemption_started",
    "evictions_ended",
    "api_call_ended",
    "claim_created",
    "device_wait_ended",
    "pod_enqueued",
    "event_handled",
)


class CompositeObserver(Observer):
    """Calls all ``observers`` in order. The plugins of a profile have one observer: the first that is not None."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        for name in _METHODS:
            implementations = [
                getattr(observer, name)
                for observer in observers
                if getattr(type(observer), name) is not getattr(Observer, name)
            ]
            if implementations:
                setattr(self, name, implementations[0] if len(implementations) == 1 else _call_all(implementations))

    def plugin_observer(self, scheduler_name: str) -> PluginObserver | None:
        plugin_observers = (observer.plugin_observer(scheduler_name) for observer in self._observers)
        return next((observer for observer in plugin_observers if observer is not None), None)


def _call_all(implementations: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        for implementation in implementations:
            implementation(*args, **kwargs)

    return call
