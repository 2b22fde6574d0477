"""DaemonSets keep one pod on every eligible node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devcluster_tests.client import NODES, PODS, node
from devcluster_tests.scenarios import Cluster, run_scenario, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

SETS = "/apis/apps/v1/namespaces/default/daemonsets"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"


def daemon(**spec: Any) -> dict[str, Any]:
    new = workload(**spec)
    del new["spec"]["replicas"]
    return new


async def create_nodes(cluster: Cluster, *names: str) -> None:
    """Create nodes in addition to ``n``."""
    for name in names:
        await cluster.post(NODES, node(name, disk="ssd" if name == "a" else "hdd"))


async def pass_time(cluster: Cluster, seconds: float) -> None:
    """Let time pass, and bind pods to the nodes that they were created for."""
    for _ in range(int(seconds * 10)):
        await cluster.pass_time(0.1, binding=False)
        for pod in await cluster.pods():
            if not pod["spec"].get("nodeName"):
                name = pod["metadata"]["name"]
                await cluster.post(
                    f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": target_node(pod)}}
                )


def target_node(pod: dict[str, Any]) -> str:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


async def target_nodes(cluster: Cluster) -> list[str]:
    return sorted(target_node(one) for one in await cluster.pods())


async def images(cluster: Cluster) -> list[str]:
    return sorted(one["spec"]["containers"][0]["image"] for one in await cluster.pods())


async def set_image(cluster: Cluster, image: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    await cluster.patch(f"{SETS}/web", {"spec": {"template": template}}, "strategic-merge-patch+json")


async def daemon_set(cluster: Cluster) -> dict[str, Any]:
    daemon_set: dict[str, Any] = (await cluster.get(f"{SETS}/web")).json
    return daemon_set


def test_every_node_gets_a_pod() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_nodes(cluster, "a", "b")
        await cluster.post(SETS, daemon())
        await pass_time(cluster, 2)
        assert await target_nodes(cluster) == ["a", "b", "n"]
        names = ("currentNumberScheduled", "desiredNumberScheduled", "numberReady", "numberAvailable")
        assert (await daemon_set(cluster))["status"] == {
            **dict.fromkeys((*names, "updatedNumberScheduled"), 3),
            "numberMisscheduled": 0,
            "observedGeneration": 1,
        }
        assert await cluster.reasons() == ["SuccessfulCreate"] * 3

    run_scenario(scenario)


def test_daemon_pods_have_the_daemon_tolerations_and_revision_labels() -> None:
    async def scenario(cluster: Cluster) -> None:
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

    run_scenario(scenario)


def test_pods_are_created_and_deleted_as_nodes_are_added_and_relabelled() -> None:
    async def scenario(cluster: Cluster) -> None:
        new = daemon()
        new["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        await cluster.post(SETS, new)
        await create_nodes(cluster, "a", "b")
        await pass_time(cluster, 1)
        assert await target_nodes(cluster) == ["a"]
        await cluster.patch(f"{NODES}/b", {"metadata": {"labels": {"disk": "ssd"}}})
        await pass_time(cluster, 1)
        assert await target_nodes(cluster) == ["a", "b"]
        await cluster.patch(f"{NODES}/a", {"metadata": {"labels": {"disk": "hdd"}}})
        await pass_time(cluster, 1)
        assert await target_nodes(cluster) == ["b"]

    run_scenario(scenario)


@pytest.mark.parametrize(("effect", "continues"), [("NoSchedule", True), ("NoExecute", False)])
def test_only_a_no_execute_taint_deletes_running_daemon_pods(effect: str, continues: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, daemon())
        await pass_time(cluster, 1)
        await cluster.patch(f"{NODES}/n", {"spec": {"taints": [{"key": "k", "effect": effect}]}})
        await pass_time(cluster, 1)
        assert len(await cluster.pods()) == continues
        status = (await daemon_set(cluster))["status"]
        assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (0, continues)

    run_scenario(scenario)


def test_an_unscheduled_pod_for_a_deleted_node_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, daemon())
        await create_nodes(cluster, "a")
        await cluster.pass_time(1, binding=False)
        await cluster.delete(f"{NODES}/a")
        await cluster.pass_time(1, binding=False)
        assert await target_nodes(cluster) == ["n"]

    run_scenario(scenario)


def test_a_failed_pod_is_replaced_with_back_off() -> None:
    async def scenario(cluster: Cluster) -> None:
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

    run_scenario(scenario)


@pytest.mark.parametrize(("max_unavailable", "min_running"), [(1, 3), ("50%", 2)])
def test_a_rolling_update_respects_max_unavailable(max_unavailable: int | str, min_running: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_nodes(cluster, "a", "b", "c")
        rolling = {"maxUnavailable": max_unavailable}
        await cluster.post(SETS, daemon(updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling}))
        await pass_time(cluster, 2)
        await set_image(cluster, "x:2")
        assert await min_running_max_live(cluster) == (min_running, 4)
        assert await images(cluster) == ["x:2"] * 4
        current = await daemon_set(cluster)
        assert current["status"]["updatedNumberScheduled"] == 4 == current["status"]["numberAvailable"]
        assert current["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "2"}

    run_scenario(scenario)


async def min_running_max_live(cluster: Cluster) -> tuple[int, int]:
    """The minimum of running and the maximum of non-terminating pods over five seconds."""
    running, live = [], []
    for _ in range(50):
        await pass_time(cluster, 0.1)
        pods = [one for one in await cluster.pods() if "deletionTimestamp" not in one["metadata"]]
        live.append(len(pods))
        running.append(sum(one["status"]["phase"] == "Running" for one in pods))
    return min(running), max(live)


def test_with_max_surge_the_new_pod_runs_before_the_old_one_is_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_nodes(cluster, "a", "b")
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        await cluster.post(SETS, daemon(updateStrategy=strategy))
        await pass_time(cluster, 2)
        await set_image(cluster, "x:2")
        assert await min_running_max_live(cluster) == (3, 4)
        assert await images(cluster) == ["x:2"] * 3

    run_scenario(scenario)


def test_with_on_delete_pods_are_updated_when_they_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create_nodes(cluster, "a")
        await cluster.post(SETS, daemon(updateStrategy={"type": "OnDelete"}))
        await pass_time(cluster, 2)
        await set_image(cluster, "x:2")
        await pass_time(cluster, 1)
        assert await images(cluster) == ["x:1", "x:1"]
        await cluster.delete(f"{PODS}/{(await cluster.pods())[0]['metadata']['name']}")
        await pass_time(cluster, 1)
        assert await images(cluster) == ["x:1", "x:2"]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("rolling", "field"),
    [
        ({"maxUnavailable": 1, "maxSurge": 1}, "maxSurge"),
        ({"maxUnavailable": 0}, "maxUnavailable"),
        ({"maxUnavailable": "101%"}, "maxUnavailable"),
    ],
)
async def test_an_invalid_daemon_set_is_rejected(client: Any, rolling: dict[str, Any], field: str) -> None:
    response = await client.post(SETS, daemon(updateStrategy={"rollingUpdate": rolling}))
    assert response.status == 422
    assert response.json["details"]["causes"][0]["field"] == f"spec.updateStrategy.rollingUpdate.{field}"


def test_the_data_of_a_revision_has_sorted_keys() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SETS, daemon())
        await pass_time(cluster, 1)
        (revision,) = await cluster.items(REVISIONS)
        data = revision["data"]
        assert json.dumps(data) == json.dumps(data, sort_keys=True)

    run_scenario(scenario)
