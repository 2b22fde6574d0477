"""Planting faults into the scheduler: what is wrong with it for as long as a context lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from kubestow.rules.minors import DEFAULT_MINOR, MINORS, Minor
from kubestow_lab.fault_simulation.faults import RATES, Fault
from kubestow_lab.fault_simulation.scenario import Part, Scenario, draw

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class PlantedFault:
    """A fault: what is wrong, and what plants it.

    ``required`` are the parts without which it cannot show; only where stalls are among them does a scenario have any,
    because they take long to simulate. ``often`` are the kinds of injected faults without which it cannot show, which
    are frequent then. ``minor`` is the version whose code it is in, None for that which a seed draws.
    ``flushes``: pods are tried again after five minutes, which hides that they were not requeued. Without it no pod has
    constraints on others, whose hints are incomplete.
    ``is_crowded``: there are more pods than few nodes have room for, so that they preempt each other.
    """

    name: str
    plant: Plant
    required: tuple[Part, ...] = ()
    often: tuple[Fault, ...] = ()
    flushes: bool = True
    minor: Minor | None = None
    is_crowded: bool = False

    def scenario(self, seed: int) -> Scenario:
        """The scenario of a seed."""
        scenario, _ = draw(seed, self.required)
        if Part.STALLS not in self.required:
            scenario = scenario.without(Part.STALLS)
        scenario = replace(scenario, rates=dict.fromkeys(self.often, max(RATES)))
        if self.is_crowded:
            scenario = replace(scenario, nodes=2, pods=40)
        if self.minor is not None:
            scenario = replace(scenario.without(Part.DEVICES), minor=str(self.minor))
        if self.flushes:
            return scenario
        return replace(scenario, flushes=False, pod_constraints=False, minor=str(self.minor or DEFAULT_MINOR))

    @property
    def condition(self) -> str:
        """What its seeds have in common that other seeds need not have."""
        parts = [part.value for part in self.required] + [fault.value for fault in self.often]
        parts += ["too many pods"] if self.is_crowded else []
        return ", ".join(parts if self.minor is None else [*parts, f"v{self.minor}"])


def of_units(name: str, plant: Plant) -> PlantedFault:
    """A fault in the code of pod groups that are entities of the queue."""
    return PlantedFault(name, plant, required=(Part.GANGS,), minor=MINORS[-1])


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""
    return


async def nothing_async(*_: Any, **__: Any) -> None:
    """Does nothing."""
    return


def left_out(owner: Any, *methods: str) -> Plant:
    """Methods that do nothing."""

    @contextmanager
    def plant() -> Iterator[None]:
        with ExitStack() as stack:
            for method in methods:
                stack.enter_context(patch.object(owner, method, nothing))
            yield

    return plant


def replaced(owner: Any, method: str, substitute: Any) -> Plant:
    """Something else in place of a method."""
    return lambda: patch.object(owner, method, substitute)


def around(owner: Any, method: str, wrap: Callable[[Any], Any]) -> Plant:
    """In place of a method what ``wrap`` makes of it."""
    return lambda: patch.object(owner, method, wrap(getattr(owner, method)))


def both(first: Plant, second: Plant) -> Plant:
    """Two changes at once."""

    @contextmanager
    def plant() -> Iterator[None]:
        with first(), second():
            yield

    return plant


def every(count: int, substitute: Callable[..., Any] = nothing) -> Callable[[Any], Any]:
    """Every so many calls of a method do something else."""

    def wrap(method: Any) -> Any:
        calls = [0]

        def changed(*arguments: Any, **keywords: Any) -> Any:
            calls[0] += 1
            return (substitute if calls[0] % count == 0 else method)(*arguments, **keywords)

        return changed

    return wrap


def unless(is_left_out: Callable[..., bool]) -> Callable[[Any], Any]:
    """Calls of a method of which the arguments meet a condition are left out."""

    def wrap(method: Any) -> Any:
        def changed(*arguments: Any, **keywords: Any) -> Any:
            return None if is_left_out(*arguments, **keywords) else method(*arguments, **keywords)

        return changed

    return wrap


def errors_ignored(result: Any = None) -> Callable[[Any], Any]:
    """What a coroutine raises counts as a success."""

    def wrap(method: Callable[..., Awaitable[Any]]) -> Any:
        async def changed(*arguments: Any, **keywords: Any) -> Any:
            try:
                return await method(*arguments, **keywords)
            except Exception:
                return result

        return changed

    return wrap
