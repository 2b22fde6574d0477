"""A living scheduler whose metrics are read like Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kubestow.config import FeatureGates
from kubestow.observability.observability import Observability
from kubestow.testing.living import Living, living
from kubestow.testing.virtual_time import VirtualClock, run

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Watched:
    """A world and what is observed of it."""

    def __init__(self, world: Living, observability: Observability) -> None:
        self.world, self.observability = world, observability

    def samples(self) -> Samples:
        """Every sample of a scrape, by name and labels."""
        return samples(self.observability.scrape()[0])

    def value(self, name: str, /, **labels: str) -> float:
        """The sum of all samples of a name that have these labels."""
        wanted = labels.items()
        return sum(value for (found, its), value in self.samples().items() if found == name and wanted <= set(its))


def samples(exposition: bytes) -> Samples:
    """What Prometheus makes of a scrape."""
    families = text_string_to_metric_families(exposition.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def watching(story: Callable[[Watched], Awaitable[None]], *objects: Any, **configured: Any) -> None:
    """Tell a story of a scheduler that is watched, in virtual time."""

    async def told() -> None:
        observability = Observability(VirtualClock(asyncio.get_running_loop()), FeatureGates())
        async with living(objects, observer=observability.observer, **configured) as world:
            observability.attach(world.scheduler)
            await story(Watched(world, observability))

    run(told())
