"""The decisions section: a timeline from the recent attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from core_tests.observability.harness import Observed, observe
from kubestow.dashboard.sections import DecisionsSection
from kubestow.testing import node, pod


def look(scenario: Callable[[Observed, DecisionsSection], Awaitable[None]], *objects: Any) -> None:
    async def run_scenario(observed: Observed) -> None:
        clock = observed.harness.scheduler.environment.clock
        await scenario(observed, DecisionsSection(observed.observability.attempts, clock))

    observe(run_scenario, *objects)


def total(section: DecisionsSection, result: str) -> int:
    return sum(point[result] for point in section.content()["points"])


def test_attempts_before_the_first_viewer_are_on_the_timeline() -> None:
    async def scenario(observed: Observed, section: DecisionsSection) -> None:
        for number in range(3):
            observed.harness.cluster.put(pod(f"small-{number}", cpu="100m"))
            await observed.harness.advance(1)
        observed.harness.cluster.put(pod("big", cpu="100"))
        await observed.harness.settle()
        section.refresh()
        assert (total(section, "scheduled"), total(section, "unschedulable"), total(section, "error")) == (3, 1, 0)
        assert section.content()["points"][-1]["reasons"] == {"Insufficient cpu": 1}
        newest = section.content()["attempts"][0]
        assert (newest["pod"], newest["result"], newest["number"]) == ("default/big", "unschedulable", 1)

    look(scenario, node("a"))


def test_a_second_in_progress_is_sent_again_until_it_is_over() -> None:
    async def scenario(observed: Observed, section: DecisionsSection) -> None:
        section.refresh()
        for number in range(2):
            observed.harness.cluster.put(pod(f"small-{number}", cpu="100m"))
            await observed.harness.settle()
            change = section.refresh()
            assert change is not None
            assert [point["scheduled"] for point in change["points"]] == [number + 1]
        assert total(section, "scheduled") == 2
        assert section.refresh() is None

    look(scenario, node("a"))


def test_the_timeline_is_bounded() -> None:
    async def scenario(observed: Observed, section: DecisionsSection) -> None:
        observed.harness.cluster.put(pod("small", cpu="100m"))
        await observed.harness.settle()
        section.refresh()
        assert total(section, "scheduled") == 1
        await observed.harness.advance(400)
        section.refresh()
        assert section.content()["points"] == []

    look(scenario, node("a"))
