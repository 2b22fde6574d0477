"""StatefulSets create, update and delete pods in the order of their ordinals."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import PODS
from devcluster_tests.scenarios import Cluster, run_scenario, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

SETS = "/apis/apps/v1/namespaces/default/statefulsets"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"


async def stateful_set(cluster: Cluster) -> dict[str, Any]:
    stateful_set: dict[str, Any] = (await cluster.get(f"{SETS}/web")).json
    return stateful_set


async def names(cluster: Cluster) -> list[str]:
    return sorted(one["metadata"]["name"] for one in await cluster.pods())


async def images(cluster: Cluster) -> dict[str, str]:
    """The tag of each pod's image."""
    pods = {one["metadata"]["name"]: one["spec"]["containers"][0]["image"][2:] for one in await cluster.pods()}
    return dict(sorted(pods.items()))


async def set_image(cluster: Cluster, image: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    await cluster.patch(f"{SETS}/web", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def observe_pods(cluster: Cluster, seconds: float) -> list[tuple[str, ...]]:
    """The distinct sets of pods over time."""
    seen: list[tuple[str, ...]] = []
    for _ in range(int(seconds * 10)):
        now = tuple(await names(cluster))
        if not seen or seen[-1] != now:
            seen.append(now)
        await cluster.pass_time(0.1)
    return seen


def test_pods_are_created_in_order_with_their_identity() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=3, serviceName="db"))
        assert [len(seen) for seen in await observe_pods(cluster, 4)] == [0, 1, 2, 3]
        pod = (await cluster.get(f"{PODS}/web-1")).json
        revision = (await stateful_set(cluster))["status"]["currentRevision"]
        assert pod["metadata"]["labels"] == {
            "app": "web",
            "apps.kubernetes.io/pod-index": "1",
            "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": "web-1",
        }
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-1", "db")
        assert "generateName" not in pod["metadata"]

    run_scenario(scenario)


def test_the_status_has_pod_counts_and_revisions() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2))
        await cluster.pass_time(3)
        status = (await stateful_set(cluster))["status"]
        revision = (await cluster.items(REVISIONS))[0]["metadata"]["name"]
        counts = dict.fromkeys(
            ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"), 2
        )
        assert status == {
            "observedGeneration": 1,
            **counts,
            "currentRevision": revision,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        assert await cluster.reasons() == ["SuccessfulCreate", "SuccessfulCreate"]

    run_scenario(scenario)


def test_parallel_pod_management_creates_and_deletes_all_pods_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=3, podManagementPolicy="Parallel", ordinals={"start": 5}))
        await cluster.pass_time(0.1, binding=False)
        assert await names(cluster) == ["web-5", "web-6", "web-7"]
        await cluster.pass_time(1)
        await cluster.patch(f"{SETS}/web/scale", {"spec": {"replicas": 1}})
        await cluster.pass_time(1)
        assert await names(cluster) == ["web-5"]

    run_scenario(scenario)


def test_an_ordered_set_scales_down_one_at_a_time_from_the_highest_ordinal() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=4))
        await cluster.pass_time(4)
        await cluster.patch(f"{SETS}/web/scale", {"spec": {"replicas": 1}})
        seen = await observe_pods(cluster, 3)
        assert [len(pods) for pods in seen] == [4, 3, 2, 1] and seen[-1] == ("web-0",)

    run_scenario(scenario)


def test_a_set_with_the_most_replicas_possible_starts_to_create_pods() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2**31 - 1))
        await cluster.pass_time(0.5)
        assert (await names(cluster))[:1] == ["web-0"]

    run_scenario(scenario)


def test_a_deleted_or_failed_pod_is_recreated_under_its_name() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2))
        await cluster.pass_time(3)
        first = (await cluster.get(f"{PODS}/web-0")).json["metadata"]["uid"]
        await cluster.delete(f"{PODS}/web-0")
        await cluster.patch(f"{PODS}/web-1/status", {"status": {"phase": "Failed"}})
        await cluster.pass_time(3)
        assert await names(cluster) == ["web-0", "web-1"]
        assert (await cluster.get(f"{PODS}/web-0")).json["metadata"]["uid"] != first
        assert (await stateful_set(cluster))["status"]["readyReplicas"] == 2

    run_scenario(scenario)


def test_a_rolling_update_replaces_pods_from_the_highest_ordinal_down() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=3))
        await cluster.pass_time(4)
        await set_image(cluster, "x:2")
        await cluster.pass_time(0.7)
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "2"}
        status = (await stateful_set(cluster))["status"]
        assert status["currentRevision"] != status["updateRevision"] and status["updatedReplicas"] == 1
        await cluster.pass_time(3)
        assert set((await images(cluster)).values()) == {"2"}
        status = (await stateful_set(cluster))["status"]
        assert status["currentRevision"] == status["updateRevision"] and status["currentReplicas"] == 3

    run_scenario(scenario)


def test_pods_below_the_partition_keep_the_current_revision() -> None:
    async def scenario(cluster: Cluster) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        await cluster.post(SETS, workload(replicas=3, updateStrategy=strategy))
        await cluster.pass_time(4)
        await set_image(cluster, "x:2")
        await cluster.pass_time(3)
        await cluster.delete(f"{PODS}/web-0")
        await cluster.pass_time(3)
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "2"}

    run_scenario(scenario)


def test_a_rolling_update_respects_max_unavailable() -> None:
    async def scenario(cluster: Cluster) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
        await cluster.post(SETS, workload(replicas=5, updateStrategy=strategy, podManagementPolicy="Parallel"))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        min_running = 5
        for _ in range(40):
            await cluster.pass_time(0.1)
            live = [one for one in await cluster.pods() if "deletionTimestamp" not in one["metadata"]]
            min_running = min(min_running, sum(one["status"]["phase"] == "Running" for one in live))
        assert min_running == 3 and set((await images(cluster)).values()) == {"2"}

    run_scenario(scenario)


def test_with_on_delete_pods_are_updated_when_they_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2, updateStrategy={"type": "OnDelete"}))
        await cluster.pass_time(3)
        await set_image(cluster, "x:2")
        await cluster.pass_time(2)
        assert await images(cluster) == {"web-0": "1", "web-1": "1"}
        await cluster.delete(f"{PODS}/web-0")
        await cluster.pass_time(2)
        assert await images(cluster) == {"web-0": "2", "web-1": "1"}

    run_scenario(scenario)


def test_a_rollback_renumbers_the_old_revision() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=1, revisionHistoryLimit=1))
        for number in ("1", "2", "3", "4", "3"):
            await set_image(cluster, f"x:{number}")
            await cluster.pass_time(3)
        numbers = {
            one["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: one["revision"]
            for one in await cluster.items(REVISIONS)
        }
        assert numbers == {"x:4": 4, "x:3": 5}

    run_scenario(scenario)


def test_the_pods_and_revisions_of_a_deleted_set_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2))
        await cluster.pass_time(3)
        await cluster.delete(f"{SETS}/web")
        await cluster.pass_time(2)
        assert await cluster.pods() == [] == await cluster.items(REVISIONS)

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"podManagementPolicy": "Random"}, "spec.podManagementPolicy"),
        ({"ordinals": {"start": -1}}, "spec.ordinals.start"),
        ({"updateStrategy": {"type": "Recreate"}}, "spec.updateStrategy"),
        ({"updateStrategy": {"rollingUpdate": {"partition": -1}}}, "spec.updateStrategy.rollingUpdate.partition"),
        (
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}},
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
        ),
        ({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}}, "spec.updateStrategy.rollingUpdate"),
        ({"minReadySeconds": -1}, "spec.minReadySeconds"),
    ],
)
async def test_an_invalid_stateful_set_is_rejected(client: Any, spec: dict[str, Any], field: str) -> None:
    response = await client.post(SETS, workload(**spec))
    assert response.status == 422 and response.json["details"]["causes"][0]["field"] == field


async def test_most_fields_of_a_stateful_set_are_immutable(client: Any) -> None:
    await client.post(SETS, workload())
    response = await client.patch(f"{SETS}/web", {"spec": {"serviceName": "other"}})
    assert response.status == 422 and response.message.endswith("and 'minReadySeconds' are forbidden")
