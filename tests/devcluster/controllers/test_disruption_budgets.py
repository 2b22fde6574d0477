"""Disruption budgets are counted, and evictions spend what they allow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.client import PODS, pod
from tests.devcluster.scenarios import DEPLOYMENTS, JOBS, Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

TRAINS = "/apis/rail.example.com/v1/namespaces/default/trains"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def budget(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "guard"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


async def status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{BUDGETS}/guard")).json["status"]
    return found


async def counts(cluster: Cluster) -> tuple[int, int, int, int]:
    """Expected, desired and healthy pods, and the disruptions allowed."""
    found = await status(cluster)
    fields = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    expected, desired, healthy, allowed = (found[field] for field in fields)
    return expected, desired, healthy, allowed


async def why(cluster: Cluster) -> str:
    return str((await status(cluster))["conditions"][0]["reason"])


async def evict(cluster: Cluster, name: str) -> int:
    return (await cluster.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}})).status


async def run(cluster: Cluster, **readiness: bool) -> None:
    """Pods that run, ready or not, and that no kubelet looks after."""
    for name, ready in readiness.items():
        await cluster.post(PODS, pod(name, labels={"app": "web"}))
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"phase": "Running", "conditions": conditions}
        await cluster.patch(f"{PODS}/{name}/status", {"status": status})
    await cluster.pass_time(1, binding=False)


@pytest.mark.parametrize(
    ("bound", "desired"),
    [
        ({"minAvailable": 2}, 2),
        ({"minAvailable": "50%"}, 3),
        ({"maxUnavailable": 1}, 4),
        ({"maxUnavailable": "25%"}, 3),
        ({"maxUnavailable": 9}, 0),
        ({"minAvailable": 9}, 9),
    ],
)
def test_pods_are_counted_over_the_scale_of_their_controllers(bound: dict[str, Any], desired: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=5))
        await cluster.post(BUDGETS, budget(**bound))
        await cluster.pass_time(2)
        allowed = max(0, 5 - desired)
        assert await counts(cluster) == (5, desired, 5, allowed)
        assert await why(cluster) == ("SufficientPods" if allowed else "InsufficientPods")
        assert (await status(cluster))["observedGeneration"] == 1

    told(story)


def test_a_budget_without_pods_allows_nothing_and_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(BUDGETS, budget(maxUnavailable=1))
        await cluster.pass_time(1)
        assert await counts(cluster) == (0, 0, 0, 0)
        assert await cluster.reasons() == ["NoPods"]

    told(story)


def test_evictions_spend_the_budget_until_replacements_are_ready() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=3))
        await cluster.post(BUDGETS, budget(maxUnavailable=1))
        await cluster.pass_time(2)
        first, second, _ = [one["metadata"]["name"] for one in await cluster.pods()]
        assert [await evict(cluster, first), await evict(cluster, second)] == [201, 429]
        assert first in (await status(cluster))["disruptedPods"]
        await cluster.pass_time(2)
        assert await counts(cluster) == (3, 2, 3, 1) and "disruptedPods" not in await status(cluster)
        assert await evict(cluster, second) == 201

    told(story)


def test_a_changed_budget_is_counted_anew() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=3))
        await cluster.post(BUDGETS, budget(minAvailable=3))
        await cluster.pass_time(2)
        await cluster.patch(f"{BUDGETS}/guard", {"spec": {"minAvailable": 1}})
        await cluster.pass_time(1)
        assert (await counts(cluster))[3] == 2 and (await status(cluster))["observedGeneration"] == 2

    told(story)


def test_pods_without_a_controller_count_for_a_number_and_not_for_a_share() -> None:
    async def story(cluster: Cluster) -> None:
        for name in ("a", "b"):
            await cluster.post(PODS, pod(name, labels={"app": "web"}))
        await cluster.post(BUDGETS, budget(minAvailable=1))
        await cluster.pass_time(1)
        assert await counts(cluster) == (2, 1, 2, 1)
        await cluster.patch(f"{BUDGETS}/guard", {"spec": {"minAvailable": "50%"}})
        await cluster.pass_time(1)
        assert await counts(cluster) == (0, 0, 2, 0)

    told(story)


async def define_trains(cluster: Cluster) -> None:
    """A kind of other people's making, with a scale."""
    scale = {"specReplicasPath": ".spec.cars", "statusReplicasPath": ".status.cars"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"scale": scale},
    }
    names = {"plural": "trains", "kind": "Train"}
    spec = {"group": "rail.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "trains.rail.example.com"}, "spec": spec}
    await cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)


async def train_with_cars(cluster: Cluster, **spec: Any) -> None:
    """A train and its two pods."""
    head = {"apiVersion": "rail.example.com/v1", "kind": "Train"}
    train = (await cluster.post(TRAINS, {**head, "metadata": {"name": "t"}, "spec": spec})).json
    owner = {**head, "name": "t", "uid": train["metadata"]["uid"], "controller": True}
    for name in ("a", "b"):
        car = pod(name, labels={"app": "web"})
        car["metadata"]["ownerReferences"] = [owner]
        await cluster.post(PODS, car)


def test_kinds_that_were_defined_later_are_counted_by_their_own_scale() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.pass_time(1)
        await define_trains(cluster)
        await train_with_cars(cluster, cars=4)
        await cluster.post(BUDGETS, budget(maxUnavailable="50%"))
        await cluster.pass_time(2)
        assert await counts(cluster) == (4, 2, 2, 0)
        await cluster.patch(f"{TRAINS}/t/scale", {"spec": {"replicas": 2}})
        await cluster.pass_time(1)
        assert await counts(cluster) == (2, 1, 2, 1)

    told(story)


def test_a_scale_that_is_not_there_leaves_a_share_uncountable() -> None:
    async def story(cluster: Cluster) -> None:
        await define_trains(cluster)
        await train_with_cars(cluster)
        await cluster.post(BUDGETS, budget(maxUnavailable=1))
        await cluster.pass_time(2)
        condition = (await status(cluster))["conditions"][0]
        assert condition["message"] == 'the spec replicas field ".spec.cars" does not exist'

    told(story)


def test_controllers_without_a_scale_leave_a_share_uncountable() -> None:
    async def story(cluster: Cluster) -> None:
        template = workload()["spec"]["template"]
        template["spec"]["restartPolicy"] = "Never"
        template["metadata"]["annotations"] = {"kubestow.dev/duration": "1h"}
        await cluster.post(JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}})
        await cluster.post(BUDGETS, budget(maxUnavailable=1))
        await cluster.pass_time(2)
        condition = (await status(cluster))["conditions"][0]
        assert condition["reason"] == "SyncFailed"
        assert condition["message"] == "jobs.batch does not implement the scale subresource"
        assert "CalculateExpectedPodCountFailed" in await cluster.reasons()

    told(story)


def test_an_eviction_that_comes_to_nothing_is_forgotten_after_two_minutes() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("a", labels={"app": "web"}))
        await cluster.post(BUDGETS, budget(minAvailable=0))
        await cluster.pass_time(1)
        noted = {"status": {"disruptedPods": {"a": "2026-01-01T00:00:01Z"}}}
        await cluster.patch(f"{BUDGETS}/guard/status", noted)
        await cluster.pass_time(1)
        assert await counts(cluster) == (1, 0, 0, 0)
        await cluster.pass_time(125)
        assert await counts(cluster) == (1, 0, 1, 1)
        assert await cluster.reasons() == ["NotDeleted"]

    told(story)


@pytest.mark.parametrize(("policy", "answer"), [("IfHealthyBudget", 429), ("AlwaysAllow", 201)])
def test_a_pod_that_is_not_ready_goes_by_the_policy_of_its_budget(policy: str, answer: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(BUDGETS, budget(minAvailable=2, unhealthyPodEvictionPolicy=policy))
        await run(cluster, a=False, b=True)
        assert await counts(cluster) == (2, 2, 1, 0)
        assert await evict(cluster, "a") == answer

    told(story)


def test_a_pod_that_is_not_ready_may_go_while_enough_others_are() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(BUDGETS, budget(minAvailable=1))
        await run(cluster, a=False, b=True)
        assert [await evict(cluster, name) for name in ("b", "a")] == [429, 201]

    told(story)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minAvailable": "half"}, "spec.minAvailable"),
        ({"maxUnavailable": "101%"}, "spec.maxUnavailable"),
        ({"maxUnavailable": -1}, "spec.maxUnavailable"),
        ({"minAvailable": 1, "maxUnavailable": 1}, "spec"),
        ({"unhealthyPodEvictionPolicy": "Never"}, "spec.unhealthyPodEvictionPolicy"),
    ],
)
async def test_an_impossible_budget_is_refused(client: Any, spec: dict[str, Any], field: str) -> None:
    response = await client.post(BUDGETS, budget(**spec))
    assert response.status == 422 and response.json["details"]["causes"][0]["field"] == field
