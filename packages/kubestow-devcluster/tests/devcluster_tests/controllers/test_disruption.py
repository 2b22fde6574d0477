"""The status of PodDisruptionBudgets, and evictions within it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster_tests.client import PODS, pod
from devcluster_tests.scenarios import DEPLOYMENTS, JOBS, Cluster, run_scenario, workload
from kubestow_devcluster.controllers.disruption import GuardedPods
from kubestow_devcluster.controllers.pod_index import PodView

pytestmark = pytest.mark.usefixtures("no_errors_logged")

TRAINS = "/apis/rail.example.com/v1/namespaces/default/trains"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
READY = {"type": "Ready", "status": "True"}


def budget(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "guard"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


async def status(cluster: Cluster) -> dict[str, Any]:
    status: dict[str, Any] = (await cluster.get(f"{BUDGETS}/guard")).json["status"]
    return status


async def counts(cluster: Cluster) -> tuple[int, int, int, int]:
    """expectedPods, desiredHealthy, currentHealthy and disruptionsAllowed."""
    current = await status(cluster)
    fields = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    expected, desired, healthy, allowed = (current[field] for field in fields)
    return expected, desired, healthy, allowed


async def condition_reason(cluster: Cluster) -> str:
    return str((await status(cluster))["conditions"][0]["reason"])


async def evict(cluster: Cluster, name: str) -> int:
    return (await cluster.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}})).status


async def run_pods(cluster: Cluster, **readiness: bool) -> None:
    """Create running pods, ready or not, that are not bound to a node."""
    for name, ready in readiness.items():
        await cluster.post(PODS, pod(name, labels={"app": "web"}))
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"phase": "Running", "conditions": conditions}
        await cluster.patch(f"{PODS}/{name}/status", {"status": status})
    await cluster.pass_time(1, binding=False)


@pytest.mark.parametrize(
    ("limit", "desired"),
    [
        ({"minAvailable": 2}, 2),
        ({"minAvailable": "50%"}, 3),
        ({"maxUnavailable": 1}, 4),
        ({"maxUnavailable": "25%"}, 3),
        ({"maxUnavailable": 9}, 0),
        ({"minAvailable": 9}, 9),
    ],
)
def test_expected_pods_are_the_scale_of_the_controllers(limit: dict[str, Any], desired: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=5))
        await cluster.post(BUDGETS, budget(**limit))
        await cluster.pass_time(2)
        allowed = max(0, 5 - desired)
        assert await counts(cluster) == (5, desired, 5, allowed)
        assert await condition_reason(cluster) == ("SufficientPods" if allowed else "InsufficientPods")
        assert (await status(cluster))["observedGeneration"] == 1

    run_scenario(scenario)


def test_a_budget_without_pods_allows_no_disruptions() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(BUDGETS, budget(maxUnavailable=1))
        await cluster.pass_time(1)
        assert await counts(cluster) == (0, 0, 0, 0)
        assert await cluster.reasons() == ["NoPods"]

    run_scenario(scenario)


def test_evictions_consume_the_budget_until_replacements_are_ready() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=3))
        await cluster.post(BUDGETS, budget(maxUnavailable=1))
        await cluster.pass_time(2)
        first, second, _ = [one["metadata"]["name"] for one in await cluster.pods()]
        assert [await evict(cluster, first), await evict(cluster, second)] == [201, 429]
        assert first in (await status(cluster))["disruptedPods"]
        await cluster.pass_time(2)
        assert await counts(cluster) == (3, 2, 3, 1) and "disruptedPods" not in await status(cluster)
        assert await evict(cluster, second) == 201

    run_scenario(scenario)


def test_a_changed_budget_is_recomputed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=3))
        await cluster.post(BUDGETS, budget(minAvailable=3))
        await cluster.pass_time(2)
        await cluster.patch(f"{BUDGETS}/guard", {"spec": {"minAvailable": 1}})
        await cluster.pass_time(1)
        assert (await counts(cluster))[3] == 2 and (await status(cluster))["observedGeneration"] == 2

    run_scenario(scenario)


def test_pods_without_a_controller_count_for_an_integer_but_not_for_a_percentage() -> None:
    async def scenario(cluster: Cluster) -> None:
        for name in ("a", "b"):
            await cluster.post(PODS, pod(name, labels={"app": "web"}))
        await cluster.post(BUDGETS, budget(minAvailable=1))
        await cluster.pass_time(1)
        assert await counts(cluster) == (2, 1, 2, 1)
        await cluster.patch(f"{BUDGETS}/guard", {"spec": {"minAvailable": "50%"}})
        await cluster.pass_time(1)
        assert await counts(cluster) == (0, 0, 2, 0)

    run_scenario(scenario)


async def define_trains(cluster: Cluster) -> None:
    """Define a custom resource with the scale subresource."""
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
    """Create a train and its two pods."""
    head = {"apiVersion": "rail.example.com/v1", "kind": "Train"}
    train = (await cluster.post(TRAINS, {**head, "metadata": {"name": "t"}, "spec": spec})).json
    owner = {**head, "name": "t", "uid": train["metadata"]["uid"], "controller": True}
    for name in ("a", "b"):
        car = pod(name, labels={"app": "web"})
        car["metadata"]["ownerReferences"] = [owner]
        await cluster.post(PODS, car)


def test_the_scale_of_a_custom_resource_counts() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.pass_time(1)
        await define_trains(cluster)
        await train_with_cars(cluster, cars=4)
        await cluster.post(BUDGETS, budget(maxUnavailable="50%"))
        await cluster.pass_time(2)
        assert await counts(cluster) == (4, 2, 2, 0)
        await cluster.patch(f"{TRAINS}/t/scale", {"spec": {"replicas": 2}})
        await cluster.pass_time(1)
        assert await counts(cluster) == (2, 1, 2, 1)

    run_scenario(scenario)


def test_a_missing_replicas_field_fails_the_sync() -> None:
    async def scenario(cluster: Cluster) -> None:
        await define_trains(cluster)
        await train_with_cars(cluster)
        await cluster.post(BUDGETS, budget(maxUnavailable=1))
        await cluster.pass_time(2)
        condition = (await status(cluster))["conditions"][0]
        assert condition["message"] == 'the spec replicas field ".spec.cars" does not exist'

    run_scenario(scenario)


def test_a_controller_without_the_scale_subresource_fails_the_sync() -> None:
    async def scenario(cluster: Cluster) -> None:
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

    run_scenario(scenario)


@pytest.mark.parametrize(("labels", "code"), [({"app": "web"}, 429), ({}, 201)])
def test_a_pod_without_labels_is_held_by_no_budget(labels: dict[str, str], code: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(BUDGETS, budget(minAvailable=1, selector={}))
        await cluster.post(PODS, pod("a", labels=labels))
        await cluster.patch(f"{PODS}/a/status", {"status": {"phase": "Running", "conditions": [READY]}})
        await cluster.pass_time(1, binding=False)
        assert await evict(cluster, "a") == code

    run_scenario(scenario)


def test_an_evicted_pod_that_is_not_deleted_counts_as_healthy_again_after_two_minutes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("a", labels={"app": "web"}))
        await cluster.post(BUDGETS, budget(minAvailable=0))
        await cluster.pass_time(1)
        evicted = {"status": {"disruptedPods": {"a": "2026-01-01T00:00:01Z"}}}
        await cluster.patch(f"{BUDGETS}/guard/status", evicted)
        await cluster.pass_time(1)
        assert await counts(cluster) == (1, 0, 0, 0)
        await cluster.pass_time(125)
        assert await counts(cluster) == (1, 0, 1, 1)
        assert await cluster.reasons() == ["NotDeleted"]

    run_scenario(scenario)


@pytest.mark.parametrize(("policy", "code"), [("IfHealthyBudget", 429), ("AlwaysAllow", 201)])
def test_unhealthy_pods_are_evicted_by_the_unhealthy_pod_eviction_policy(policy: str, code: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(BUDGETS, budget(minAvailable=2, unhealthyPodEvictionPolicy=policy))
        await run_pods(cluster, a=False, b=True)
        assert await counts(cluster) == (2, 2, 1, 0)
        assert await evict(cluster, "a") == code

    run_scenario(scenario)


def test_an_unhealthy_pod_can_be_evicted_while_enough_others_are_healthy() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(BUDGETS, budget(minAvailable=1))
        await run_pods(cluster, a=False, b=True)
        assert [await evict(cluster, name) for name in ("b", "a")] == [429, 201]

    run_scenario(scenario)


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
async def test_an_invalid_budget_is_rejected(client: Any, spec: dict[str, Any], field: str) -> None:
    response = await client.post(BUDGETS, budget(**spec))
    assert response.status == 422 and response.json["details"]["causes"][0]["field"] == field


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["gone", "web", "other"]),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "one", "two"]),
    ),
    max_size=30,
)


@given(_CHANGES)
def test_counts_kept_as_pods_change_equal_those_of_a_recount(changes: list[tuple[str, str, bool, bool, str]]) -> None:
    selector = {"matchLabels": {"app": "web"}}
    kept, current = GuardedPods(selector), dict[str, PodView]()
    for name, app, is_ready, is_terminating, controller in changes:
        new = None if app == "gone" else view(name, app, is_ready, is_terminating, controller)
        kept.update(name, new)
        if new is None:
            current.pop(name, None)
        else:
            current[name] = new
    covered = [one for one in current.values() if one.metadata.labels["app"] == "web"]
    assert len(kept) == len(covered)
    assert kept.healthy == sum(one.is_ready and not one.is_terminating for one in covered)
    controllers = {one.controller.uid for one in covered if one.controller is not None}
    per_controller = [one.controller.uid for one in kept.one_per_controller() if one.controller is not None]
    assert sorted(per_controller) == sorted(controllers)


def view(name: str, app: str, is_ready: bool, is_terminating: bool, controller: str) -> PodView:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}
    metadata["creationTimestamp"] = "2026-11-20T19:20:00Z"
    if is_terminating:
        metadata["deletionTimestamp"] = "2026-11-20T19:20:00Z"
    if controller:
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": controller,
            "uid": controller,
            "controller": True,
        }
        metadata["ownerReferences"] = [owner]
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return msgspec.convert({"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}, PodView)
