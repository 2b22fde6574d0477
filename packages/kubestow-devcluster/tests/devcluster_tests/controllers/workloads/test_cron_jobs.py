"""CronJobs create Jobs at their scheduled times."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.scenarios import JOBS, Cluster, run_scenario

pytestmark = pytest.mark.usefixtures("no_errors_logged")

CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"


def cron_job(schedule: str = "* * * * *", *, duration: str = "10s", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"kubestow.dev/duration": duration}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]},
    }
    job = {"metadata": {"labels": {"schedule": "tick"}}, "spec": {"template": template, "backoffLimit": 0}}
    return {"metadata": {"name": "tick"}, "spec": {"schedule": schedule, "jobTemplate": job, **spec}}


async def status(cluster: Cluster) -> dict[str, Any]:
    status: dict[str, Any] = (await cluster.get(f"{CRON_JOBS}/tick")).json["status"]
    return status


async def scheduled_times(cluster: Cluster) -> list[str]:
    """The scheduled times of all Jobs, as hours and minutes."""
    key = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    return sorted(one["metadata"]["annotations"][key][11:16] for one in await cluster.items(JOBS))


async def pass_minutes(cluster: Cluster, count: float) -> None:
    """Let minutes pass, and bind pods every five seconds."""
    for _ in range(int(count * 12)):
        await cluster.pass_time(4.9, binding=False)
        await cluster.pass_time(0.1)


def test_a_job_is_created_every_minute_and_listed_in_the_status() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job())
        await pass_minutes(cluster, 1.1)
        jobs = await cluster.items(JOBS)
        assert [one["metadata"]["name"] for one in jobs] == ["tick-29453761"]
        assert jobs[0]["metadata"]["labels"]["schedule"] == "tick"
        assert jobs[0]["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        current = await status(cluster)
        assert current["lastScheduleTime"] == "2026-01-01T00:01:00Z"
        assert [one["name"] for one in current["active"]] == ["tick-29453761"]
        await pass_minutes(cluster, 0.7)
        current = await status(cluster)
        assert "active" not in current and current["lastSuccessfulTime"] > current["lastScheduleTime"]
        assert {"SuccessfulCreate", "SawCompletedJob"} <= set(await cluster.reasons())

    run_scenario(scenario)


@pytest.mark.parametrize(("policy", "running"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_the_concurrency_policy_applies_to_long_running_jobs(policy: str, running: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(duration="1h", concurrencyPolicy=policy))
        await pass_minutes(cluster, 3.5)
        latest = "00:01" if policy == "Forbid" else "00:03"
        assert len(await scheduled_times(cluster)) == running and (await scheduled_times(cluster))[-1] == latest
        assert len((await status(cluster))["active"]) == running
        assert ("JobAlreadyActive" in await cluster.reasons()) == (policy == "Forbid")

    run_scenario(scenario)


def test_a_resumed_cron_job_starts_the_latest_missed_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(suspend=True))
        await pass_minutes(cluster, 3.5)
        assert await scheduled_times(cluster) == []
        await cluster.patch(f"{CRON_JOBS}/tick", {"spec": {"suspend": False}})
        await pass_minutes(cluster, 0.2)
        assert await scheduled_times(cluster) == ["00:03"]

    run_scenario(scenario)


def test_a_time_missed_by_more_than_the_starting_deadline_is_skipped() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job("*/5 * * * *", suspend=True, startingDeadlineSeconds=30))
        await pass_minutes(cluster, 6)
        await cluster.patch(f"{CRON_JOBS}/tick", {"spec": {"suspend": False}})
        await pass_minutes(cluster, 1)
        assert await scheduled_times(cluster) == []
        await pass_minutes(cluster, 4)
        assert await scheduled_times(cluster) == ["00:10"]

    run_scenario(scenario)


def test_finished_jobs_beyond_the_history_limit_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(successfulJobsHistoryLimit=2))
        await pass_minutes(cluster, 5.8)
        assert await scheduled_times(cluster) == ["00:04", "00:05"]
        assert "SuccessfulDelete" in await cluster.reasons()

    run_scenario(scenario)


def test_the_schedule_follows_the_time_zone() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job("2 1 * * *", timeZone="Europe/Berlin"))
        await pass_minutes(cluster, 3)
        assert await scheduled_times(cluster) == ["01:02"]
        assert (await status(cluster))["lastScheduleTime"] == "2026-01-01T00:02:00Z"

    run_scenario(scenario)


def test_unexpected_and_missing_jobs_are_recorded_as_events() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(duration="1h"))
        await pass_minutes(cluster, 1.1)
        job = (await cluster.items(JOBS))[0]
        manual = {"name": "by-hand", "ownerReferences": job["metadata"]["ownerReferences"]}
        await cluster.post(JOBS, {"metadata": manual, "spec": cron_job()["spec"]["jobTemplate"]["spec"]})
        await cluster.delete(f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Background"})
        await pass_minutes(cluster, 0.3)
        assert "active" not in await status(cluster)
        reasons = await cluster.reasons()
        assert reasons.count("UnexpectedJob") == 1 == reasons.count("MissingJob")

    run_scenario(scenario)


def test_the_jobs_of_a_deleted_cron_job_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(duration="1h"))
        await pass_minutes(cluster, 1.1)
        await cluster.delete(f"{CRON_JOBS}/tick")
        await pass_minutes(cluster, 0.2)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedule": "every day"}, "spec.schedule"),
        ({"schedule": "TZ=UTC * * * * *"}, "spec.schedule"),
        ({"timeZone": "Mars/Olympus"}, "spec.timeZone"),
        ({"timeZone": "local"}, "spec.timeZone"),
        ({"concurrencyPolicy": "Queue"}, "spec.concurrencyPolicy"),
        ({"startingDeadlineSeconds": -1}, "spec.startingDeadlineSeconds"),
    ],
)
async def test_an_invalid_cron_job_is_rejected(client: Any, spec: dict[str, Any], field: str) -> None:
    invalid = cron_job()
    invalid["spec"] |= spec
    response = await client.post(CRON_JOBS, invalid)
    assert response.status == 422 and response.json["details"]["causes"][0]["field"] == field
