"""Jobs run pods until enough have succeeded or too many have failed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.client import PODS
from tests.devcluster.scenarios import JOBS, Cluster, told

pytestmark = pytest.mark.usefixtures("no_errors_logged")


def job(*, duration: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"annotations": {"kubestow.dev/duration": duration}} if duration else {}
    template = {
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]},
    }
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


async def status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{JOBS}/j")).json["status"]
    return found


async def ends(cluster: Cluster) -> dict[str, str]:
    return {one["type"]: one["reason"] for one in (await status(cluster)).get("conditions", ())}


async def fail_running(cluster: Cluster) -> int:
    """Have every running pod fail; how many did."""
    running = [pod for pod in await cluster.pods() if pod["status"]["phase"] == "Running"]
    for pod in running:
        await cluster.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
    return len(running)


def test_a_job_completes_and_leaves_its_pods_without_finalizers() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job())
        await cluster.pass_time(3)
        found = await status(cluster)
        assert (found["succeeded"], found.get("active"), found["ready"]) == (1, None, 0)
        assert await ends(cluster) == dict.fromkeys(("SuccessCriteriaMet", "Complete"), "CompletionsReached")
        assert found["startTime"] < found["completionTime"]
        pods = await cluster.pods()
        assert [one["status"]["phase"] for one in pods] == ["Succeeded"]
        assert "finalizers" not in pods[0]["metadata"]
        assert await cluster.reasons() == ["SuccessfulCreate", "Completed"]

    told(story)


def test_no_more_pods_run_at_a_time_than_the_parallelism() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(completions=5, parallelism=2))
        for _ in range(80):
            await cluster.pass_time(0.1)
            assert sum(pod["status"]["phase"] in ("Pending", "Running") for pod in await cluster.pods()) <= 2
        assert (await status(cluster))["succeeded"] == 5 == len(await cluster.pods())

    told(story)


def test_an_indexed_job_has_one_success_per_index() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(completions=3, parallelism=3, completionMode="Indexed"))
        await cluster.pass_time(4)
        assert (await status(cluster))["completedIndexes"] == "0-2"
        key = "batch.kubernetes.io/job-completion-index"
        pods = await cluster.pods()
        assert sorted(one["metadata"]["labels"][key] for one in pods) == ["0", "1", "2"]
        assert pods[0]["spec"]["containers"][0]["env"][-1] == {"name": "JOB_COMPLETION_INDEX", "value": "0"}

    told(story)


def test_failed_pods_are_replaced_ever_more_slowly_until_the_limit() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", backoffLimit=1))
        await cluster.pass_time(1)
        assert await fail_running(cluster) == 1
        await cluster.pass_time(5)
        assert len(await cluster.pods()) == 1, "the second waits for ten seconds"
        await cluster.pass_time(7)
        assert await fail_running(cluster) == 1
        await cluster.pass_time(2)
        assert (await ends(cluster))["Failed"] == "BackoffLimitExceeded" and (await status(cluster))["failed"] == 2

    told(story)


def test_a_job_over_its_deadline_fails_and_stops_its_pods() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", activeDeadlineSeconds=30))
        await cluster.pass_time(20)
        assert (await status(cluster))["active"] == 1
        await cluster.pass_time(15)
        assert (await ends(cluster))["Failed"] == "DeadlineExceeded"
        assert await cluster.pods() == []

    told(story)


def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(suspend=True))
        await cluster.pass_time(2)
        assert await cluster.pods() == [] and await ends(cluster) == {"Suspended": "JobSuspended"}
        await cluster.patch(f"{JOBS}/j", {"spec": {"suspend": False}})
        await cluster.pass_time(4)
        assert (await status(cluster))["succeeded"] == 1

    told(story)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_job_deleted_while_it_runs_leaves_nothing(propagation: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(duration="1h", completions=2, parallelism=2))
        await cluster.pass_time(2)
        await cluster.delete(f"{JOBS}/j", {"propagationPolicy": propagation})
        await cluster.pass_time(3)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    told(story)


def test_a_finished_job_goes_after_its_time_to_live() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(JOBS, job(ttlSecondsAfterFinished=60))
        await cluster.pass_time(30)
        assert (await ends(cluster))["Complete"]
        await cluster.pass_time(40)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    told(story)
