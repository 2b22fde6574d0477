"""Stateful sets number their pods, and make, update and take them away in order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.client import PODS
from tests.devcluster.scenarios import Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

SETS = "/apis/apps/v1/namespaces/default/statefulsets"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"


async def stateful_set(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{SETS}/web")).json
    return found


async def names(cluster: Cluster) -> list[str]:
    return sorted(one["metadata"]["name"] for one in await cluster.pods())


async def images(cluster: Cluster) -> dict[str, str]:
    """By pod, the number of its image ``x:N``."""
    pods = {one["metadata"]["name"]: one["spec"]["containers"][0]["image"][2:] for one in await cluster.pods()}
    return dict(sorted(pods.items()))


async def set_image(cluster: Cluster, image: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    await cluster.patch(f"{SETS}/web", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def sightings(cluster: Cluster, seconds: float) -> list[tuple[str, ...]]:
    """Which pods there were at any time, in the order of the changes."""
    seen: list[tuple[str, ...]] = []
    for _ in range(int(seconds * 10)):
        now = tuple(await names(cluster))
        if not seen or seen[-1] != now:
            seen.append(now)
        await cluster.pass_time(0.1)
    return seen


def test_pods_come_one_after_the_other_and_are_known_by_their_names() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=3, serviceName="db"))
        assert [len(seen) for seen in await sightings(cluster, 4)] == [0, 1, 2, 3]
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

    told(story)


def test_the_status_counts_pods_and_names_revisions() -> None:
    async def story(cluster: Cluster) -> None:
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

    told(story)


def test_parallel_sets_do_not_wait() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=3, podManagementPolicy="Parallel", ordinals={"start": 5}))
        await cluster.pass_time(0.1, binding=False)
        assert await names(cluster) == ["web-5", "web-6", "web-7"]
        await cluster.pass_time(1)
        await cluster.patch(f"{SETS}/web/scale", {"spec": {"replicas": 1}})
        await cluster.pass_time(1)
        assert await names(cluster) == ["web-5"]

    told(story)


def test_an_ordered_set_shrinks_from_the_highest_number_one_at_a_time() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=4))
        await cluster.pass_time(4)
        await cluster.patch(f"{SETS}/web/scale", {"spec": {"replicas": 1}})
        seen = await sightings(cluster, 3)
        assert [len(pods) for pods in seen] == [4, 3, 2, 1] and seen[-1] == ("web-0",)

    told(story)


def test_a_set_that_wants_more_than_can_be_begins_all_the_same() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2**31 - 1))
        await cluster.pass_time(0.5)
        assert (await names(cluster))[:1] == ["web-0"]

    told(story)


def test_a_lost_or_failed_pod_comes_back_under_its_name() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2))
        await cluster.pass_time(3)
        first = (await cluster.get(f"{PODS}/web-0")).json["metadata"]["uid"]
        await cluster.delete(f"{PODS}/web-0")
        await cluster.patch(f"{PODS}/web-1/status", {"status": {"phase": "Failed"}})
        await cluster.pass_time(3)
        assert await names(cluster) == ["web-0", "web-1"]
        assert (await cluster.get(f"{PODS}/web-0")).json["metadata"]["uid"] != first
        assert (await stateful_set(cluster))["status"]["readyReplicas"] == 2

    told(story)


def test_an_update_replaces_pods_from_the_highest_number_down() -> None:
    async def story(cluster: Cluster) -> None:
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

    told(story)


def test_a_partition_keeps_the_lower_pods_at_the_old_revision() -> None:
    async def story(cluster: Cluster) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        await cluster.post(SETS, workload(replicas=3, updateStrategy=strategy))
        await cluster.pass_time(4)
        await set_image(cluster, "x:2")
        await cluster.pass_time(3)
        await cluster.delete(f"{PODS}/web-0")
        await cluster.pass_time(3)
        assert await images(cluster) == {"web-0": "1", "web-1": "1", "web-2": "2"}

    told(story)


def test_no_more_pods_are_missing_than_may_be() -> None:
    async def story(cluster: Cluster) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
        await cluster.post(SETS, workload(replicas=5, updateStrategy=strategy, podManagementPolicy="Parallel"))
        await cluster.pass_time(2)
        await set_image(cluster, "x:2")
        least = 5
        for _ in range(40):
            await cluster.pass_time(0.1)
            alive = [one for one in await cluster.pods() if "deletionTimestamp" not in one["metadata"]]
            least = min(least, sum(one["status"]["phase"] == "Running" for one in alive))
        assert least == 3 and set((await images(cluster)).values()) == {"2"}

    told(story)


def test_pods_are_updated_on_deletion_when_the_strategy_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2, updateStrategy={"type": "OnDelete"}))
        await cluster.pass_time(3)
        await set_image(cluster, "x:2")
        await cluster.pass_time(2)
        assert await images(cluster) == {"web-0": "1", "web-1": "1"}
        await cluster.delete(f"{PODS}/web-0")
        await cluster.pass_time(2)
        assert await images(cluster) == {"web-0": "2", "web-1": "1"}

    told(story)


def test_going_back_takes_the_old_revision_under_a_new_number() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=1, revisionHistoryLimit=1))
        for number in ("1", "2", "3", "4", "3"):
            await set_image(cluster, f"x:{number}")
            await cluster.pass_time(3)
        numbers = {
            one["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: one["revision"]
            for one in await cluster.items(REVISIONS)
        }
        assert numbers == {"x:4": 4, "x:3": 5}

    told(story)


def test_a_deleted_set_takes_pods_and_revisions_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, workload(replicas=2))
        await cluster.pass_time(3)
        await cluster.delete(f"{SETS}/web")
        await cluster.pass_time(2)
        assert await cluster.pods() == [] == await cluster.items(REVISIONS)

    told(story)


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
async def test_an_impossible_stateful_set_is_refused(client: Any, spec: dict[str, Any], field: str) -> None:
    response = await client.post(SETS, workload(**spec))
    assert response.status == 422 and response.json["details"]["causes"][0]["field"] == field


async def test_most_fields_of_a_stateful_set_do_not_change(client: Any) -> None:
    await client.post(SETS, workload())
    response = await client.patch(f"{SETS}/web", {"spec": {"serviceName": "other"}})
    assert response.status == 422 and response.message.endswith("and 'minReadySeconds' are forbidden")
