"""The execution of plans against an API server over HTTP; the tests do what controllers and scheduler would do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from core_tests.descheduling.objects import OWNER
from core_tests.descheduling.program.test_app import PODS, LiveCluster
from kubestow.descheduling.defragmentation.plan import DefragmentationPlan, PlannedMove
from kubestow.descheduling.program.plan_execution import (
    CORDON_PERIOD,
    CORDONED,
    ExecutionOptions,
    PlanExecution,
    PlanExecutor,
)
from kubestow.process import WallClock
from kubestow_devcluster.cluster import DevCluster

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
TIMEOUT = 60.0

Act = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """Nothing happens."""


class ActingClock(WallClock):
    """A clock on which something happens instead of each look at the pods; the time in between passes at once."""

    def __init__(self, act: Act) -> None:
        self._act, self._elapsed = act, 0.0

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds > 5:  # of the client, which is closed before
            await super().sleep(seconds)
        self._elapsed += seconds
        if seconds != CORDON_PERIOD:
            await self._act()


class Scene(LiveCluster):
    """Three nodes; w0 and w1 are on b, and leave it by the plan."""

    async def set_up(self) -> None:
        for name in "abc":
            await self.create_node(name)
        for name in ("w0", "w1"):
            await self.create(name, "b")
        moves = [await self.move("w0", "b", "a", 1), await self.move("w1", "b", "c", 2)]
        self.plan = DefragmentationPlan("train", 1, ("b",), tuple(moves))

    async def create(self, name: str, node_name: str) -> None:
        await self.create_pod(name, node_name, terminationGracePeriodSeconds=0)

    async def move(self, name: str, source: str, target: str, step: int) -> PlannedMove:
        uid = (await self.request("GET", f"{PODS}/{name}"))["metadata"]["uid"]
        return PlannedMove(f"default/{name}", source, target, step, uid, f"{OWNER['kind']}/{OWNER['name']}")

    def replacing(self, *targets: str) -> Act:
        """What replaces one pod after the other, as soon as it is gone."""
        left = list(targets)

        async def act() -> None:
            if left and len(await self.names()) < 2:
                number = len(targets) - len(left)
                await self.create(f"new-{number}", left.pop(0))

        return act

    async def carry_out(self, act: Act = nothing, **options: Any) -> PlanExecution:
        ended: list[PlanExecution] = []
        settings = {"cordons": True, "move_timeout": TIMEOUT} | options
        executor = PlanExecutor(self.plan, ExecutionOptions(**settings), clock=ActingClock(act))
        await executor.run(kubeconfig="", master=self.url, on_end=ended.append)
        [execution] = ended
        return execution

    async def cordoned(self) -> list[str]:
        nodes = (await self.request("GET", "/api/v1/nodes"))["items"]
        return [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")]

    async def limit(self, allowed: int) -> None:
        """Let the budget of the pods allow so many disruptions."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        found = (await self.request("GET", BUDGETS))["items"]
        budget = found[0] if found else await self.request("POST", BUDGETS, {"metadata": {"name": "web"}, "spec": spec})
        status = {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
        status["observedGeneration"] = budget["metadata"].get("generation", 0)
        await self.request("PUT", f"{BUDGETS}/web/status", budget | {"status": status})


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with DevCluster(kubelets=False) as server, aiohttp.ClientSession() as session:
        created = Scene(server, session)
        await created.set_up()
        yield created


@pytest.fixture
async def cluster() -> AsyncIterator[Scene]:
    async with scene() as created:
        yield created


def outcomes(execution: PlanExecution) -> list[tuple[str, str, str]]:
    """The moves as pod, state and node."""
    return [(each.move.pod.removeprefix("default/"), each.state.value, each.node) for each in execution.outcomes]


async def test_pods_are_evicted_step_by_step_and_the_nodes_to_be_free_stay_cordoned(cluster: Scene) -> None:
    execution = await cluster.carry_out(cluster.replacing("a", "c"))

    assert outcomes(execution) == [("w0", "Moved", "a"), ("w1", "Moved", "c")]
    assert execution.is_complete
    assert sorted(await cluster.names()) == ["new-0", "new-1"]
    assert await cluster.cordoned() == ["b"]
    events = {event["regarding"]["name"]: event["note"] for event in await cluster.events()}
    assert events["w0"] == "evicted from b by plan/Defragmentation: makes room for train"


async def test_a_replacement_may_get_another_node_than_planned(cluster: Scene) -> None:
    execution = await cluster.carry_out(cluster.replacing("c", "a"))

    assert outcomes(execution) == [("w0", "Moved", "c"), ("w1", "Moved", "a")]
    assert execution.is_complete


async def test_the_second_step_waits_for_the_replacements_of_the_first(cluster: Scene) -> None:
    seen: list[list[str]] = []
    replace_pod = cluster.replacing("a", "c")

    async def act() -> None:
        seen.append(sorted(await cluster.names()))
        await replace_pod()

    await cluster.carry_out(act)

    assert seen == [["w1"], ["new-0"]]


async def test_an_execution_is_resumed_where_it_ended(cluster: Scene) -> None:
    await cluster.request("DELETE", f"{PODS}/w0")
    await cluster.create("new", "a")

    execution = await cluster.carry_out(cluster.replacing("c"))

    assert outcomes(execution) == [("w0", "DoneBefore", ""), ("w1", "Moved", "c")]


async def test_a_resumed_execution_waits_for_pods_without_a_node_first(cluster: Scene) -> None:
    await cluster.request("DELETE", f"{PODS}/w0")
    spec = {"containers": [{"name": "c", "image": "app:1"}]}
    await cluster.request("POST", PODS, {"metadata": {"name": "new", "ownerReferences": [OWNER]}, "spec": spec})

    execution = await cluster.carry_out()

    problem = "default/new of a controller whose pod was moved has no node after 60 s"
    assert (execution.problem, sorted(await cluster.names())) == (problem, ["new", "w1"])


async def test_an_eviction_is_tried_until_its_budget_allows_it(cluster: Scene) -> None:
    await cluster.limit(0)
    replace_pod = cluster.replacing("a", "c")

    async def act() -> None:
        await cluster.limit(1)
        await replace_pod()

    assert (await cluster.carry_out(act)).is_complete


async def test_a_budget_that_allows_no_eviction_is_named(cluster: Scene) -> None:
    await cluster.limit(0)

    execution = await cluster.carry_out()

    assert execution.problem == (
        "the API server does not evict default/w0: Cannot evict pod as it would violate the pod's disruption budget. "
        "(PodDisruptionBudget web)"
    )
    assert outcomes(execution)[0][1] == "Remains"
    assert sorted(await cluster.names()) == ["w0", "w1"]


async def test_a_plan_that_no_longer_holds_ends_before_the_next_eviction(cluster: Scene) -> None:
    await cluster.create("stranger", "b")

    execution = await cluster.carry_out()

    assert execution.problem == "default/stranger is on b, which is to be free"
    assert len(await cluster.names()) == 3


async def test_a_replacement_that_comes_to_a_node_to_be_free_ends_the_execution(cluster: Scene) -> None:
    execution = await cluster.carry_out(cluster.replacing("b"))

    assert execution.problem == "default/new-0 came to b, which is to be free"
    assert sorted(await cluster.names()) == ["new-0", "w1"]


async def test_a_controller_that_replaces_nothing_ends_the_execution_after_a_time(cluster: Scene) -> None:
    execution = await cluster.carry_out()

    assert execution.problem == "ReplicaSet/web has not replaced default/w0 after 60 s"
    assert outcomes(execution) == [("w0", "Evicted", ""), ("w1", "Remains", outcomes(execution)[1][2])]


async def test_a_node_that_is_left_only_for_a_step_is_cordoned_for_it(cluster: Scene) -> None:
    """Nothing but the pod on a moves; w0 and w1 stay on b."""
    await cluster.create("passing", "a")
    passing = await cluster.move("passing", "a", "c", 1)
    staying = (("default/w0", "b"), ("default/w1", "b"))
    cluster.plan = DefragmentationPlan("train", 1, ("b",), (passing,), staying=staying)
    seen: list[list[str]] = []

    async def act() -> None:
        seen.append(await cluster.cordoned())
        await cluster.create("new", "c")

    execution = await cluster.carry_out(act)

    assert execution.is_complete
    assert seen == [["a", "b"]]
    assert await cluster.cordoned() == ["b"]
    annotations = (await cluster.request("GET", "/api/v1/nodes/a"))["metadata"].get("annotations", {})
    assert CORDONED not in annotations


async def test_no_node_is_changed_unless_that_is_asked_for(cluster: Scene) -> None:
    for name in "ac":
        for number in range(2):
            await cluster.create(f"{name}{number}", name)  # so that b is the most attractive node

    execution = await cluster.carry_out(cordons=False)

    assert execution.problem.startswith("the scheduler would put the replacement of default/w0 on b")
    assert await cluster.cordoned() == []
    assert "w0" in await cluster.names()


async def test_a_dry_run_changes_nothing(cluster: Scene) -> None:
    execution = await cluster.carry_out(dry_run=True)

    assert (execution.problem, execution.dry_run) == ("", True)
    assert [state for _, state, _ in outcomes(execution)] == ["Remains", "Remains"]
    assert (sorted(await cluster.names()), await cluster.cordoned()) == (["w0", "w1"], [])
