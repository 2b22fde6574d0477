"""The debug endpoints: why a pod is pending, the queue, the cache."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core_tests.observability.harness import Observed, observe
from core_tests.observability.test_metrics import WaitOnPermit
from core_tests.scheduling.gangs.groups import TEAMS, gang_scheduling, group, member
from kubestow.errors import APIError
from kubestow.http.messages import HTTPRequest, StatusError
from kubestow.serving.debug import SchedulingDebugger
from kubestow.testing import node, pod

JSONObject = dict[str, Any]


def debug(scenario: Callable[[Observed, SchedulingDebugger], Awaitable[None]], *objects: Any, **options: Any) -> None:
    async def run_scenario(observed: Observed) -> None:
        scheduler = observed.harness.scheduler
        await scenario(observed, SchedulingDebugger(scheduler, observed.observability.attempts, scheduler._clock))

    observe(run_scenario, *objects, **options)


def pod_state(debugger: SchedulingDebugger, name: str, **query: str) -> JSONObject:
    request = HTTPRequest("GET", "/", {key: [value] for key, value in query.items()})
    content: JSONObject = json.loads(debugger.pod("default", name, request).body)
    return content


def test_an_unschedulable_pod_shows_the_reasons_and_the_events_that_requeue_it() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(pod("big", cpu="100"))
        await observed.harness.advance(60)
        content = pod_state(debugger, "big")
        assert content["summary"].startswith("attempt 1 failed: 0/2 nodes are available: 2 Insufficient cpu.")
        assert content["summary"].endswith("It is retried after an event that NodeResourcesFit registered for.")
        assert (content["lastAttempt"]["number"], content["lastAttempt"]["result"]) == (1, "unschedulable")
        assert "NodeAdd" in content["queue"]["requeueEvents"]["NodeResourcesFit"]
        assert content["queue"]["place"] == "unschedulable"
        assert content["now"]["byNode"][0] == {
            "node": "a",
            "plugin": "NodeResourcesFit",
            "code": "UnschedulableAndUnresolvable",
            "reasons": ["Insufficient cpu"],
        }

    debug(scenario, node("a"), node("b"))


def test_a_request_does_not_change_any_state() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(pod("big", cpu="100"))
        await observed.harness.settle()
        before = len(observed.harness.cluster.events)
        assert pod_state(debugger, "big") == pod_state(debugger, "big")
        await observed.harness.settle()
        assert len(observed.harness.cluster.events) == before

    debug(scenario, node("a"))


def test_the_current_filter_result_may_differ_from_the_last_attempt() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(pod("big", cpu="3"))
        await observed.harness.settle()
        observed.harness.scheduler.queue.move_all_to_active_or_backoff = lambda *args, **kwargs: None  # type: ignore[method-assign]
        observed.harness.cluster.put(node("free", cpu="8"))
        content = pod_state(debugger, "big")
        assert content["lastAttempt"]["message"].startswith("0/1 nodes")
        assert content["now"] == {"nodes": 2, "feasible": 1, "feasibleNodes": ["free"]}

    debug(scenario, node("small", cpu="2"))


@pytest.mark.parametrize(
    ("created", "summary"),
    [
        (pod("p", gates=["quota"]), "gated by SchedulingGates: waiting for scheduling gates: [quota]"),
        (
            pod("p", scheduler="another"),
            "spec.schedulerName is another, the profiles of this scheduler are: default-scheduler",
        ),
        (pod("p", node="n"), "bound to node n"),
    ],
)
def test_the_summary_describes_the_state_of_a_pod(created: Any, summary: str) -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(created)
        await observed.harness.settle()
        assert pod_state(debugger, "p")["summary"].startswith(summary)

    debug(scenario, node("n"))


def test_the_summary_of_a_waiting_pod_names_the_permit_plugins() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(pod("waiting"))
        await observed.harness.settle()
        assert pod_state(debugger, "waiting")["summary"] == "assumed on node n, waiting on permit for WaitOnPermit"

    enabled = {"schedulerName": "default-scheduler", "plugins": {"permit": {"enabled": [{"name": "WaitOnPermit"}]}}}
    debug(scenario, node("n"), plugins=[WaitOnPermit], profiles=[enabled])


def test_the_summary_of_a_waiting_pod_names_the_members_of_its_group_that_are_missing() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(group("t", 4, api=TEAMS))
        for name, cpu in (("small", "1"), ("large", "64"), ("larger", "128")):
            observed.harness.cluster.put(pod(name, cpu=cpu, labels={"team": "t"}))
        await observed.harness.settle()
        assert pod_state(debugger, "small")["summary"] == (
            "assumed on node n, waiting on permit for WaitOnPermit; of its pod group default/t, 2 pods have no node"
            " (large, larger) and 1 pod does not exist"
        )

    enabled = {"schedulerName": "default-scheduler", "plugins": {"permit": {"enabled": [{"name": "WaitOnPermit"}]}}}
    debug(scenario, node("n"), plugins=[WaitOnPermit], profiles=[enabled], pod_group_apis=[TEAMS])


def test_the_summary_of_a_pod_whose_group_is_missing_names_the_group() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(member("p", "team-a"))
        await observed.harness.settle()
        summary = 'gated by GangScheduling: waiting for pods\'s pod group "team-a" to appear in scheduling queue'
        assert pod_state(debugger, "p")["summary"] == summary

    debug(scenario, node("n"), **gang_scheduling())


def test_a_pod_whose_binding_failed_is_in_backoff() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.bind_failures.append(APIError(403, "Forbidden", "pods/binding is forbidden"))
        observed.harness.cluster.put(pod("p"))
        await observed.harness.settle()
        content = pod_state(debugger, "p")
        assert "pods/binding is forbidden" in content["summary"]
        assert content["queue"]["place"] == "error backoff"
        assert "backoffExpires" in content["queue"]

    debug(scenario, node("n"))


def test_the_last_attempt_of_a_bound_pod_has_the_node() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(pod("p"))
        await observed.harness.settle()
        assert pod_state(debugger, "p")["lastAttempt"]["node"] == "n"

    debug(scenario, node("n"))


def test_an_unknown_pod_is_not_found() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        with pytest.raises(StatusError, match="default/none is unknown") as caught:
            pod_state(debugger, "none")
        assert caught.value.code == 404

    debug(scenario)


def test_the_queue_is_listed_by_place_and_limit() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        for number in range(3):
            observed.harness.cluster.put(pod(f"big{number}", cpu="100"))
        await observed.harness.settle()
        content = json.loads(debugger.queue(HTTPRequest("GET", "/", {"limit": ["2"], "place": ["unschedulable"]})).body)
        assert content["counts"]["unschedulable"] == 3
        assert [entry["pod"] for entry in content["pods"]] == ["default/big0", "default/big1"]
        for query in ({"place": ["nowhere"]}, {"limit": ["-1"]}, {"limit": ["9" * 400]}):
            with pytest.raises(StatusError) as caught:
                debugger.queue(HTTPRequest("GET", "/", query))
            assert caught.value.code == 400

    debug(scenario, node("n"))


def test_the_cache_is_listed_by_node() -> None:
    async def scenario(observed: Observed, debugger: SchedulingDebugger) -> None:
        observed.harness.cluster.put(pod("p", cpu="1500m"))
        await observed.harness.settle()
        content = json.loads(debugger.cache(HTTPRequest("GET", "/", {"node": ["n"]})).body)
        assert content["byNode"][0]["requested"] == {"cpu": "1500m"}
        assert content["byNode"][0]["podNames"] == ["default/p"]
        with pytest.raises(StatusError, match='"none" is unknown'):
            debugger.cache(HTTPRequest("GET", "/", {"node": ["none"]}))

    debug(scenario, node("n"))
