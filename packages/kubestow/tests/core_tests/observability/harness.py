"""A running scheduler with metrics, which are parsed as Prometheus parses them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kubestow.config import FeatureGates
from kubestow.observability.observability import Observability
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.testing.scheduler_harness import SchedulerHarness, running_scheduler
from kubestow.testing.virtual_time import VirtualClock, run

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Observed:
    """A running scheduler and its observability."""

    def __init__(self, harness: SchedulerHarness, observability: Observability) -> None:
        self.harness, self.observability = harness, observability

    def samples(self) -> Samples:
        """All samples of a scrape by name and labels."""
        return samples(self.observability.scrape()[0])

    def value(self, name: str, /, **labels: str) -> float:
        """The sum of all samples of this name that have these labels."""
        wanted = labels.items()
        return sum(value for (sample, its), value in self.samples().items() if sample == name and wanted <= set(its))


def samples(exposition: bytes) -> Samples:
    """The samples of a scrape."""
    families = text_string_to_metric_families(exposition.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def observe(
    scenario: Callable[[Observed], Awaitable[None]], *objects: Any, minor: Minor = DEFAULT_MINOR, **options: Any
) -> None:
    """Run a scenario with an observed scheduler, in virtual time."""

    async def run_scenario() -> None:
        observability = Observability(VirtualClock(asyncio.get_running_loop()), FeatureGates(minor=minor))
        async with running_scheduler(objects, observer=observability.observer, minor=minor, **options) as harness:
            observability.attach(harness.scheduler)
            await scenario(Observed(harness, observability))

    run(run_scenario())
