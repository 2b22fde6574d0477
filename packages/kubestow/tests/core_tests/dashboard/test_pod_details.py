"""One pod: attempts, the results of all plugins, preemption candidates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from core_tests.observability.harness import Observed, observe
from kubestow.dashboard.details import PodDetails
from kubestow.testing import node, pod

Details = dict[str, Any]


def pod_details(observed: Observed) -> PodDetails:
    scheduler, observability = observed.harness.scheduler, observed.observability
    return PodDetails(scheduler, observability.attempts, observability.preemptions, scheduler.environment.clock)


def look(scenario: Callable[[Observed, Callable[[str], Details]], Awaitable[None]], *objects: Any) -> None:
    async def run_scenario(observed: Observed) -> None:
        details = pod_details(observed)

        def of(name: str) -> Details:
            found = details.of("default", name)
            assert found is not None
            return found

        await scenario(observed, of)

    observe(run_scenario, *objects)


def codes(details: Details, plugin: str) -> list[int]:
    return next(f["codes"] for f in details["evaluation"]["filters"] if f["plugin"] == plugin)


def test_a_pod_that_fits_nowhere_shows_the_verdict_of_every_plugin() -> None:
    async def scenario(observed: Observed, details: Callable[[str], Details]) -> None:
        observed.harness.cluster.put(pod("big", cpu="100", node_selector={"disk": "ssd"}))
        await observed.harness.settle()
        found = details("big")
        assert found["evaluation"]["nodes"] == ("a", "b")
        assert codes(found, "NodeAffinity") == [0, 1]
        assert codes(found, "NodeResourcesFit") == [1, 1]
        assert codes(found, "NodePorts") == [-1, -1]
        assert found["evaluation"]["rows"] == []
        assert found["message"].startswith("0/2 nodes are available: ")
        assert found["queue"]["place"] == "unschedulable"
        assert [attempt["number"] for attempt in found["attempts"]] == [1]

    look(scenario, node("a", labels={"disk": "ssd"}), node("b"))


def test_scores_add_up_to_the_totals_and_agree_with_the_decision() -> None:
    async def scenario(observed: Observed, details: Callable[[str], Details]) -> None:
        observed.harness.cluster.put(pod("small", cpu="1"))
        await observed.harness.settle()
        found = details("small")
        evaluation = found["evaluation"]
        sums = [
            sum(score["normalized"][place] * score["weight"] for score in evaluation["scores"])
            for place in range(len(evaluation["rows"]))
        ]
        assert sums == evaluation["totals"] == sorted(sums, reverse=True)
        assert found["node"] == evaluation["nodes"][evaluation["rows"][0]] == "empty"
        assert found["isBound"]

    look(scenario, node("empty", cpu="8"), node("full", cpu="8"), pod("other", cpu="6", node="full"))


def test_a_pod_on_a_node_is_evaluated_as_if_it_was_not_there_and_stays_there() -> None:
    async def scenario(observed: Observed, details: Callable[[str], Details]) -> None:
        observed.harness.cluster.put(pod("only", cpu="3"))
        await observed.harness.settle()
        assert details("only")["evaluation"]["rows"] == [0]
        cluster = observed.harness.scheduler.cluster
        assert cluster.nodes.requested["cpu"].values.tolist() == [3000]
        observed.harness.cluster.put(pod("second", cpu="3"))
        await observed.harness.settle()
        assert observed.harness.node_of("second") == ""

    look(scenario, node("a", cpu="4"))


def test_preemption_candidates_are_in_the_order_of_the_criteria() -> None:
    async def scenario(observed: Observed, details: Callable[[str], Details]) -> None:
        observed.harness.cluster.put(pod("urgent", cpu="4", priority=100, spec={"preemptionPolicy": "Never"}))
        await observed.harness.settle()
        assert details("urgent")["preemption"]["candidates"] == []
        observed.harness.cluster.put(pod("watched", cpu="4", priority=100))
        found = details("watched")["preemption"]
        assert [(c["node"], c["highestPriority"], c["count"]) for c in found["candidates"]] == [
            ("one-low", 1, 1),
            ("two-low", 1, 2),
            ("one-high", 50, 1),
        ]
        assert [victim["pod"] for victim in found["candidates"][0]["victims"]] == ["default/v1"]

    look(
        scenario,
        *(node(name, cpu="4") for name in ("one-high", "two-low", "one-low")),
        pod("v1", cpu="3", priority=1, node="one-low"),
        *(pod(f"w{number}", cpu="2", priority=1, node="two-low") for number in (1, 2)),
        pod("x", cpu="3", priority=50, node="one-high"),
    )


def test_an_attempt_that_preempted_shows_the_victims_when_they_are_gone() -> None:
    async def scenario(observed: Observed, details: Callable[[str], Details]) -> None:
        observed.harness.cluster.put(pod("urgent", cpu="4", priority=100))
        await observed.harness.advance(5)
        found = details("urgent")
        assert (found["node"], "preemption" in found) == ("only", False)
        first, last = found["attempts"]
        assert first["preemption"]["chosen"] == {
            "node": "only",
            "violations": 0,
            "highestPriority": 1,
            "prioritySum": 1,
            "count": 1,
            "earliestStart": None,
            "victims": ({"pod": "default/low", "priority": 1},),
        }
        assert "preemption" not in last

    look(scenario, node("only", cpu="4"), pod("low", cpu="3", priority=1, node="only"))


def test_an_unknown_pod_has_no_details() -> None:
    async def scenario(observed: Observed) -> None:
        details = pod_details(observed)
        assert details.of("default", "none") is None

    observe(scenario, node("a"))


def test_a_pod_of_another_scheduler_is_not_evaluated() -> None:
    async def scenario(observed: Observed, details: Callable[[str], Details]) -> None:
        observed.harness.cluster.put(pod("foreign", scheduler="other"))
        await observed.harness.settle()
        assert "evaluation" not in details("foreign")

    look(scenario, node("a"))
