"""Simulations with queues: jobs wait and start in virtual time, and the report has queues, waits and reservations."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contrib_tests.queues.jobs_of_pods import profile
from core_tests.engine.input.manifests import Object, node, workload, write
from kubestow.cli import main


def job(name: str, pods: int, queue: str, arrival: str, duration: str) -> Object:
    """A batch Job that arrives and runs so long."""
    made = workload("Job", name, cpu="1", parallelism=pods, completions=pods)
    made["spec"]["template"]["metadata"]["annotations"] = {
        "kubestow.dev/queue": queue,
        "kubestow.dev/arrival": arrival,
        "kubestow.dev/duration": duration,
    }
    return made


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Simulate jobs on two nodes of four cores; the document of the result, and the page."""

    def run(*jobs: Object, until: int | None = None, **args: Any) -> tuple[dict[str, Any], str]:
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        path = tmp_path / "queues.yaml"
        path.write_text(json.dumps(config | {"profiles": profile(("a", "b"), **args)}))
        cluster = write(tmp_path, node("n1", cpu="4"), node("n2", cpu="4"), name="cluster.json")
        jobs_path = write(tmp_path, *jobs, name="jobs.json")
        page = tmp_path / "report.html"
        arguments = ["simulate", "--cluster", str(cluster), "--workload", str(jobs_path), "--config", str(path)]
        arguments += ["-o", "json", "-o", f"html={page}"] + ([f"--until={until}"] if until else [])
        with pytest.raises(SystemExit) as exited:
            main(arguments)
        assert not exited.value.code
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document, page.read_text()

    return run


def test_jobs_start_by_their_reservations(simulate: Any) -> None:
    document, page = simulate(
        job("first", 4, "a", "0s", "100s"),
        job("whole", 8, "a", "10s", "100s"),
        job("long", 4, "a", "20s", "300s"),
        job("short", 4, "a", "30s", "60s"),
    )
    ended = {each["job"].rpartition("/")[2]: each for each in document["plugins"]["JobQueues"]["ended"]}
    assert ended["first"]["started"] < 3
    assert 30 <= ended["short"]["started"] < 33
    assert 100 <= ended["whole"]["started"] < 104
    assert ended["whole"]["started"] <= ended["whole"]["reserved"] + 1
    assert ended["long"]["started"] > 200
    assert "Reservations" in page
    assert "Waits of jobs" in page


def test_jobs_that_wait_at_the_end_have_positions_and_reserved_starts(simulate: Any) -> None:
    document, page = simulate(
        job("first", 6, "a", "0s", "1000s"),
        job("second", 4, "b", "10s", "10s"),
        job("third", 9, "b", "20s", "10s"),
        until=60,
    )
    found = {each["job"].rpartition("/")[2]: each for each in document["plugins"]["JobQueues"]["jobs"]}
    assert (found["second"]["state"], found["second"]["position"]) == ("waiting", 1)
    assert 1000 <= found["second"]["reserved"] < 1004
    assert (found["third"]["position"], found["third"]["reserved"]) == (2, None)
    messages = {group["owner"]: group["message"] for group in document["pending"]}
    assert "too little is free; it is expected to start at" in messages["Job/second"]
    assert "would not fit even if all jobs had ended" in messages["Job/third"]
    assert "default/second" in page


def test_the_deadline_of_a_job_is_what_is_planned_with(simulate: Any) -> None:
    first, second = job("first", 8, "a", "0s", "1000s"), job("second", 8, "a", "10s", "10s")
    for each, seconds in ((first, 300), (second, 60)):
        each["spec"]["activeDeadlineSeconds"] = seconds
    document, page = simulate(first, second, until=60)
    waiting = next(each for each in document["plugins"]["JobQueues"]["jobs"] if each["job"] == "job/default/second")
    assert 300 <= waiting["reserved"] < 304
    # What a simulated pod runs is known, too.
    assert waiting["runTime"] == {"seconds": 10, "source": "annotation kubestow.dev/duration"}
    assert "annotation kubestow.dev/duration" in page


def test_evicted_jobs_wait_again_with_their_age(simulate: Any) -> None:
    urgent = job("urgent", 8, "a", "50s", "20s")
    urgent["spec"]["template"]["spec"]["priority"] = 10
    document, _ = simulate(
        job("low", 8, "a", "0s", "100s"), urgent, job("later", 8, "a", "60s", "10s"), preemption={"withinQueue": True}
    )
    ended = [each["job"].rpartition("/")[2] for each in document["plugins"]["JobQueues"]["ended"]]
    assert ended == ["urgent", "low", "later"]
    low = document["plugins"]["JobQueues"]["ended"][1]
    assert low["arrived"] == 0
    assert len(document["preemptions"]) == 1
    assert document["preemptions"][0]["victims"] == 8


@pytest.mark.parametrize("mode", ["easy", "conservative"])
def test_all_jobs_start_whole_and_by_their_first_reservation(mode: str, simulate: Any) -> None:
    random = Random(3)
    jobs = [
        job(f"j{n}", random.randint(1, 8), random.choice("ab"), f"{10 * n}s", f"{random.randint(20, 200)}s")
        for n in range(25)
    ]
    document, _ = simulate(*jobs, fairShare={"enabled": False}, backfill={"mode": mode}, interval="7s")
    bound: dict[str, list[float]] = {}
    for each in document["pods"]:
        bound.setdefault(each["owner"], []).append(each["bound"])
    assert len(bound) == 25
    assert all(max(times) - min(times) < 1 for times in bound.values())
    ended = document["plugins"]["JobQueues"]["ended"]
    reserved = [each for each in ended if each["reserved"] is not None]
    assert len(reserved) > 5
    assert all(each["started"] <= each["reserved"] + 7 + 1 for each in reserved)
