"""Cron jobs start jobs when they are due."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.scenarios import JOBS, Cluster, told

pytestmark = pytest.mark.usefixtures("no_errors_logged")

CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"


def cron_job(schedule: str = "* * * * *", *, duration: str = "10s", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"kubestow.dev/duration": duration}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]},
    }
    job = {"metadata": {"labels": {"of": "tick"}}, "spec": {"template": template, "backoffLimit": 0}}
    return {"metadata": {"name": "tick"}, "spec": {"schedule": schedule, "jobTemplate": job, **spec}}


async def status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{CRON_JOBS}/tick")).json["status"]
    return found


async def due(cluster: Cluster) -> list[str]:
    """The times that the jobs there are were due at, as hours and minutes."""
    key = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    return sorted(one["metadata"]["annotations"][key][11:16] for one in await cluster.items(JOBS))


async def minutes(cluster: Cluster, count: float) -> None:
    """Let minutes pass, with pods bound only now and then."""
    for _ in range(int(count * 12)):
        await cluster.pass_time(4.9, binding=False)
        await cluster.pass_time(0.1)


def test_a_job_is_started_every_minute_and_counted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job())
        await minutes(cluster, 1.1)
        jobs = await cluster.items(JOBS)
        assert [one["metadata"]["name"] for one in jobs] == ["tick-29453761"]
        assert jobs[0]["metadata"]["labels"]["of"] == "tick"
        assert jobs[0]["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        found = await status(cluster)
        assert found["lastScheduleTime"] == "2026-01-01T00:01:00Z"
        assert [one["name"] for one in found["active"]] == ["tick-29453761"]
        await minutes(cluster, 0.7)
        found = await status(cluster)
        assert "active" not in found and found["lastSuccessfulTime"] > found["lastScheduleTime"]
        assert {"SuccessfulCreate", "SawCompletedJob"} <= set(await cluster.reasons())

    told(story)


@pytest.mark.parametrize(("policy", "running"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_jobs_that_take_long_run_beside_each_other_or_not(policy: str, running: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(duration="1h", concurrencyPolicy=policy))
        await minutes(cluster, 3.5)
        latest = "00:01" if policy == "Forbid" else "00:03"
        assert len(await due(cluster)) == running and (await due(cluster))[-1] == latest
        assert len((await status(cluster))["active"]) == running
        assert ("JobAlreadyActive" in await cluster.reasons()) == (policy == "Forbid")

    told(story)


def test_a_suspended_cron_job_makes_up_for_the_last_time_it_missed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(suspend=True))
        await minutes(cluster, 3.5)
        assert await due(cluster) == []
        await cluster.patch(f"{CRON_JOBS}/tick", {"spec": {"suspend": False}})
        await minutes(cluster, 0.2)
        assert await due(cluster) == ["00:03"]

    told(story)


def test_a_time_missed_by_more_than_the_deadline_is_left_out() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job("*/5 * * * *", suspend=True, startingDeadlineSeconds=30))
        await minutes(cluster, 6)
        await cluster.patch(f"{CRON_JOBS}/tick", {"spec": {"suspend": False}})
        await minutes(cluster, 1)
        assert await due(cluster) == []
        await minutes(cluster, 4)
        assert await due(cluster) == ["00:10"]

    told(story)


def test_only_so_many_finished_jobs_are_kept() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(successfulJobsHistoryLimit=2))
        await minutes(cluster, 5.8)
        assert await due(cluster) == ["00:04", "00:05"]
        assert "SuccessfulDelete" in await cluster.reasons()

    told(story)


def test_the_clock_is_that_of_the_time_zone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job("2 1 * * *", timeZone="Europe/Berlin"))
        await minutes(cluster, 3)
        assert await due(cluster) == ["01:02"]
        assert (await status(cluster))["lastScheduleTime"] == "2026-01-01T00:02:00Z"

    told(story)


def test_a_job_started_by_hand_is_told_of_and_one_that_is_gone_is_dropped() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(duration="1h"))
        await minutes(cluster, 1.1)
        job = (await cluster.items(JOBS))[0]
        manual = {"name": "by-hand", "ownerReferences": job["metadata"]["ownerReferences"]}
        await cluster.post(JOBS, {"metadata": manual, "spec": cron_job()["spec"]["jobTemplate"]["spec"]})
        await cluster.delete(f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Background"})
        await minutes(cluster, 0.3)
        assert "active" not in await status(cluster)
        reasons = await cluster.reasons()
        assert reasons.count("UnexpectedJob") == 1 == reasons.count("MissingJob")

    told(story)


def test_a_deleted_cron_job_takes_its_jobs_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CRON_JOBS, cron_job(duration="1h"))
        await minutes(cluster, 1.1)
        await cluster.delete(f"{CRON_JOBS}/tick")
        await minutes(cluster, 0.2)
        assert await cluster.items(JOBS) == [] == await cluster.pods()

    told(story)


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
async def test_an_impossible_cron_job_is_refused(client: Any, spec: dict[str, Any], field: str) -> None:
    wrong = cron_job()
    wrong["spec"] |= spec
    response = await client.post(CRON_JOBS, wrong)
    assert response.status == 422 and response.json["details"]["causes"][0]["field"] == field
