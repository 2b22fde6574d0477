"""Jobs run pods until enough of them have succeeded or too many have failed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.client import PODS
from tests.devcluster.scenarios import JOBS, Cluster, run_scenario

pytestmark = pytest.mark.usefixtures("no_errors_logged")


def job(*, duration: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"annotations": {"kubestow.dev/duration": duration}} if duration else {}
    template = {
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]},
    }
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


async def status(cluster: Cluster) -> dict[str, Any]:
    status: dict[str, Any] = (await cluster.get(f"{JOBS}/j")).json["status"]
    return status


async def condition_reasons(cluster: Cluster) -> dict[str, str]:
    return {one["type"]: one["reason"] for one in (await status(cluster)).get("conditions", ())}


async def fail_running(cluster: Cluster) -> int:
    """Fail every running pod; how many there were."""
    running = [pod for pod in await cluster.pods() if pod["status"]["phase"] == "Running"]
    for pod in running:
        await cluster.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
    return len(running)


def test_a_complete_job_has_removed_the_finalizers_of_its_pods() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job())
        await cluster.pass_time(3)
        current = await status(cluster)
        assert (current["succeeded"], current.get("active"), current["ready"]) == (1, None, 0)
        assert await condition_reasons(cluster) == dict.fromkeys(
            ("SuccessCriteriaMet", "Complete"), "CompletionsReached"
        )
        assert current["startTime"] < current["completionTime"]
        pods = await cluster.pods()
        assert [one["status"]["phase"] for one in pods] == ["Succeeded"]
        assert "finalizers" not in pods[0]["metadata"]
        assert await cluster.reasons() == ["SuccessfulCreate", "Completed"]

    run_scenario(scenario)


def test_the_number_of_active_pods_does_not_exceed_the_parallelism() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(completions=5, parallelism=2))
        for _ in range(80):
            await cluster.pass_time(0.1)
            assert sum(pod["status"]["phase"] in ("Pending", "Running") for pod in await cluster.pods()) <= 2
        assert (await status(cluster))["succeeded"] == 5 == len(await cluster.pods())

    run_scenario(scenario)


def test_an_indexed_job_has_one_success_per_index() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(completions=3, parallelism=3, completionMode="Indexed"))
        await cluster.pass_time(4)
        assert (await status(cluster))["completedIndexes"] == "0-2"
        key = "batch.kubernetes.io/job-completion-index"
        pods = await cluster.pods()
        assert sorted(one["metadata"]["labels"][key] for one in pods) == ["0", "1", "2"]
        assert pods[0]["spec"]["containers"][0]["env"][-1] == {"name": "JOB_COMPLETION_INDEX", "value": "0"}

    run_scenario(scenario)


def test_failed_pods_are_replaced_with_back_off_up_to_the_limit() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", backoffLimit=1))
        await cluster.pass_time(1)
        assert await fail_running(cluster) == 1
        await cluster.pass_time(5)
        assert len(await cluster.pods()) == 1, "the back-off is ten seconds"
        await cluster.pass_time(7)
        assert await fail_running(cluster) == 1
        await cluster.pass_time(2)
        assert (await condition_reasons(cluster))["Failed"] == "BackoffLimitExceeded" and (await status(cluster))[
            "failed"
        ] == 2

    run_scenario(scenario)


def test_a_job_past_its_active_deadline_fails_and_its_pods_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", activeDeadlineSeconds=30))
        await cluster.pass_time(20)
        assert (await status(cluster))["active"] == 1
        await cluster.pass_time(15)
        assert (await condition_reasons(cluster))["Failed"] == "DeadlineExceeded"
        assert await cluster.pods() == []

    run_scenario(scenario)


def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(suspend=True))
        await cluster.pass_time(2)
        assert await cluster.pods() == [] and await condition_reasons(cluster) == {"Suspended": "JobSuspended"}
        await cluster.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        await cluster.pass_time(4)
        assert (await status(cluster))["succeeded"] == 1

    run_scenario(scenario)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_the_pods_of_a_deleted_job_are_deleted(propagation: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", completions=2, parallelism=2))
        await cluster.pass_time(2)
        await cluster.delete(f"{JOBS}/j", {"propagationPolicy": propagation})
        await cluster.pass_time(3)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    run_scenario(scenario)


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(ttlSecondsAfterFinished=60))
        await cluster.pass_time(30)
        assert (await condition_reasons(cluster))["Complete"]
        await cluster.pass_time(40)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    run_scenario(scenario)
