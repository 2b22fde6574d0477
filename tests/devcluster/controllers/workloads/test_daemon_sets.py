"""Daemon sets have a pod on every node that they fit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.client import NODES, PODS, node
from tests.devcluster.scenarios import Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

SETS = "/apis/apps/v1/namespaces/default/daemonsets"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"


def daemon(**spec: Any) -> dict[str, Any]:
    made = workload(**spec)
    del made["spec"]["replicas"]
    return made


async def nodes(cluster: Cluster, *names: str) -> None:
    """Nodes beside ``n``, which is there."""
    for name in names:
        await cluster.post(NODES, node(name, disk="ssd" if name == "a" else "hdd"))


async def pass_time(cluster: Cluster, seconds: float) -> None:
    """Let time pass, with pods bound to the nodes that they were made for."""
    for _ in range(int(seconds * 10)):
        await cluster.pass_time(0.1, binding=False)
        for pod in await cluster.pods():
            if not pod["spec"].get("nodeName"):
                name = pod["metadata"]["name"]
                await cluster.post(
                    f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": target(pod)}}
                )


def target(pod: dict[str, Any]) -> str:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


async def places(cluster: Cluster) -> list[str]:
    return sorted(target(one) for one in await cluster.pods())


async def images(cluster: Cluster) -> list[str]:
    return sorted(one["spec"]["containers"][0]["image"] for one in await cluster.pods())


async def set_image(cluster: Cluster, image: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    await cluster.patch(f"{SETS}/web", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def daemon_set(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{SETS}/web")).json
    return found


def test_every_node_gets_a_pod_and_the_status_counts_them() -> None:
    async def story(cluster: Cluster) -> None:
        await nodes(cluster, "a", "b")
        await cluster.post(SETS, daemon())
        await pass_time(cluster, 2)
        assert await places(cluster) == ["a", "b", "n"]
        names = ("currentNumberScheduled", "desiredNumberScheduled", "numberReady", "numberAvailable")
        assert (await daemon_set(cluster))["status"] == {
            **dict.fromkeys((*names, "updatedNumberScheduled"), 3),
            "numberMisscheduled": 0,
            "observedGeneration": 1,
        }
        assert await cluster.reasons() == ["SuccessfulCreate"] * 3

    told(story)


def test_daemon_pods_tolerate_what_keeps_others_away() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.patch(f"{NODES}/n", {"spec": {"unschedulable": True}})
        await cluster.post(SETS, daemon())
        await pass_time(cluster, 1)
        pod = (await cluster.pods())[0]
        assert {one["key"].partition("/")[2]: one["effect"] for one in pod["spec"]["tolerations"]} == {
            **dict.fromkeys(("not-ready", "unreachable"), "NoExecute"),
            **dict.fromkeys(("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"), "NoSchedule"),
        }
        revision = (await cluster.items(REVISIONS))[0]
        hash_ = revision["metadata"]["labels"]["controller-revision-hash"]
        assert revision["metadata"]["name"] == f"web-{hash_}"
        assert pod["metadata"]["labels"] == {
            "app": "web",
            "controller-revision-hash": hash_,
            "pod-template-generation": "1",
        }

    told(story)


def test_pods_follow_nodes_as_they_come_change_and_go() -> None:
    async def story(cluster: Cluster) -> None:
        made = daemon()
        made["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        await cluster.post(SETS, made)
        await nodes(cluster, "a", "b")
        await pass_time(cluster, 1)
        assert await places(cluster) == ["a"]
        await cluster.patch(f"{NODES}/b", {"metadata": {"labels": {"disk": "ssd"}}})
        await pass_time(cluster, 1)
        assert await places(cluster) == ["a", "b"]
        await cluster.patch(f"{NODES}/a", {"metadata": {"labels": {"disk": "hdd"}}})
        await pass_time(cluster, 1)
        assert await places(cluster) == ["b"]

    told(story)


@pytest.mark.parametrize(("effect", "stays"), [("NoSchedule", True), ("NoExecute", False)])
def test_a_taint_keeps_new_pods_off_and_only_noexecute_takes_old_ones_away(effect: str, stays: bool) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, daemon())
        await pass_time(cluster, 1)
        await cluster.patch(f"{NODES}/n", {"spec": {"taints": [{"key": "k", "effect": effect}]}})
        await pass_time(cluster, 1)
        assert len(await cluster.pods()) == stays
        status = (await daemon_set(cluster))["status"]
        assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (0, stays)

    told(story)


def test_a_pod_on_its_way_to_a_node_that_is_gone_is_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, daemon())
        await nodes(cluster, "a")
        await cluster.pass_time(1, binding=False)
        await cluster.delete(f"{NODES}/a")
        await cluster.pass_time(1, binding=False)
        assert await places(cluster) == ["n"]

    told(story)


def test_a_failed_pod_is_replaced_ever_more_slowly() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(SETS, daemon())
        replaced = []
        for _ in range(3):
            await pass_time(cluster, 1)
            pod = (await cluster.pods())[0]["metadata"]["name"]
            await cluster.patch(f"{PODS}/{pod}/status", {"status": {"phase": "Failed"}})
            await pass_time(cluster, 0.5)
            replaced.append((await cluster.pods())[0]["metadata"]["name"] != pod)
        assert replaced == [True, True, False]
        await pass_time(cluster, 3)
        assert (await daemon_set(cluster))["status"]["numberReady"] == 1
        assert "FailedDaemonPod" in await cluster.reasons()

    told(story)


@pytest.mark.parametrize(("unavailable", "least"), [(1, 3), ("50%", 2)])
def test_an_update_has_no_more_pods_unavailable_than_may_be(unavailable: int | str, least: int) -> None:
    async def story(cluster: Cluster) -> None:
        await nodes(cluster, "a", "b", "c")
        rolling = {"maxUnavailable": unavailable}
        await cluster.post(SETS, daemon(updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling}))
        await pass_time(cluster, 2)
        await set_image(cluster, "x:2")
        assert await extremes(cluster) == (least, 4)
        assert await images(cluster) == ["x:2"] * 4
        found = await daemon_set(cluster)
        assert found["status"]["updatedNumberScheduled"] == 4 == found["status"]["numberAvailable"]
        assert found["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "2"}

    told(story)


async def extremes(cluster: Cluster) -> tuple[int, int]:
    """The fewest running and the most living pods in the next five seconds."""
    running, living = [], []
    for _ in range(50):
        await pass_time(cluster, 0.1)
        alive = [one for one in await cluster.pods() if "deletionTimestamp" not in one["metadata"]]
        living.append(len(alive))
        running.append(sum(one["status"]["phase"] == "Running" for one in alive))
    return min(running), max(living)


def test_with_a_surge_the_new_pod_runs_before_the_old_one_goes() -> None:
    async def story(cluster: Cluster) -> None:
        await nodes(cluster, "a", "b")
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        await cluster.post(SETS, daemon(updateStrategy=strategy))
        await pass_time(cluster, 2)
        await set_image(cluster, "x:2")
        assert await extremes(cluster) == (3, 4)
        assert await images(cluster) == ["x:2"] * 3

    told(story)


def test_pods_are_updated_on_deletion_when_the_strategy_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        await nodes(cluster, "a")
        await cluster.post(SETS, daemon(updateStrategy={"type": "OnDelete"}))
        await pass_time(cluster, 2)
        await set_image(cluster, "x:2")
        await pass_time(cluster, 1)
        assert await images(cluster) == ["x:1", "x:1"]
        await cluster.delete(f"{PODS}/{(await cluster.pods())[0]['metadata']['name']}")
        await pass_time(cluster, 1)
        assert await images(cluster) == ["x:1", "x:2"]

    told(story)


@pytest.mark.parametrize(
    ("rolling", "field"),
    [
        ({"maxUnavailable": 1, "maxSurge": 1}, "maxSurge"),
        ({"maxUnavailable": 0}, "maxUnavailable"),
        ({"maxUnavailable": "101%"}, "maxUnavailable"),
    ],
)
async def test_an_impossible_daemon_set_is_refused(client: Any, rolling: dict[str, Any], field: str) -> None:
    response = await client.post(SETS, daemon(updateStrategy={"rollingUpdate": rolling}))
    assert response.status == 422
    assert response.json["details"]["causes"][0]["field"] == f"spec.updateStrategy.rollingUpdate.{field}"
