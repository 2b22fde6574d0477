"""Jobs that wait in queues: submitted at their times, created when admitted, deleted when preempted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubestow.api.core import Node
from kubestow.api.meta import OwnerReference, convert
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.job_admission import JobPods, JobStart, JobState, JobStop, Owner, RunningJob
from kubestow.errors import InvalidObject
from kubestow.testing import node, pod
from kubestow_lab.reports import simulation_report
from kubestow_lab.simulation.arrivals import Arrivals, ArrivingJob
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.simulation.simulation_result import SimulationResult


class OneAtATime:
    """Queues that admit one job at a time; one named ``urgent`` stops the other."""

    def __init__(self, now: float, running: Sequence[RunningJob] = ()) -> None:
        self.start = now
        self.remarks: Sequence[str] = ("one job at a time",)
        self._running = list(running)
        self._waiting: list[dict[str, Any]] = []
        self._jobs: dict[str, dict[str, Any]] = {}
        self._admitted = [one.job for one in running]
        self.decisions: list[float] = []

    def submit(self, job: dict[str, Any], now: float) -> str:
        if job["metadata"]["name"] == "invalid":
            raise InvalidObject("is not valid", path="spec")
        self._waiting.append(job)
        self._jobs[job["metadata"]["name"]] = job
        return str(job["metadata"]["name"])

    def decide(self, now: float) -> list[JobStart | JobStop]:
        self.decisions.append(now - self.start)
        changes: list[JobStart | JobStop] = []
        urgent = [job for job in self._waiting if job["metadata"]["name"] == "urgent"]
        if urgent and self._admitted:
            stopped = self._admitted.pop()
            changes.append(JobStop(stopped))
            if stopped in self._jobs:
                self._waiting.append(self._jobs[stopped])
        if not self._admitted and self._waiting:
            job = (urgent or self._waiting)[0]
            self._waiting.remove(job)
            name = job["metadata"]["name"]
            self._admitted.append(name)
            manifest = {
                "metadata": {
                    "namespace": "default",
                    "annotations": {"kubestow.dev/duration": job["duration"]},
                    "ownerReferences": [{"kind": "Job", "name": name, "uid": name, "controller": True}],
                },
                "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
            }
            names = [(f"{name}-{number}", {"number": str(number)}) for number in range(job["pods"])]
            changes.append(JobStart(name, "queue", [JobPods(manifest, names)], ["fast"]))
        return changes

    def end(self, job: str, now: float) -> None:
        self._admitted.remove(job)

    def withdraw(self, nodes: Collection[str], now: float) -> list[str]:
        return []

    def next_decision(self) -> float | None:
        return None

    def running(self) -> list[RunningJob]:
        return self._running

    def states(self) -> list[JobState]:
        waiting = [
            JobState(
                one["metadata"]["name"],
                Owner("Job", "default", one["metadata"]["name"]),
                "queue",
                one["pods"],
                False,
                (),
                "not yet",
            )
            for one in self._waiting
        ]
        return [
            JobState(one.job, one.owner, "queue", 1, True) for one in self._running if one.job in self._admitted
        ] + waiting

    def why(self, owner: Owner) -> list[str]:
        return []

    def forecast(self, owner: Owner) -> None:
        return None


def job(name: str, time: float, *, pods: int = 2, duration: str = "100s") -> ArrivingJob:
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "pods": pods,
        "duration": duration,
    }
    return ArrivingJob(manifest, time)


def simulated(
    *jobs: ArrivingJob, running: Sequence[RunningJob] = (), pods: Sequence[Any] = (), **options: Any
) -> SimulationResult:
    nodes: list[Node] = [node("a", cpu="4")]
    simulation = Simulation(
        ClusterObjects.of(nodes, pods),
        Arrivals(jobs=list(jobs)),
        options=SimulationOptions(**options),
        admission=lambda now: OneAtATime(now, running),
    )
    return simulation.run()


DRIVERS = pytest.mark.parametrize("driver", ["auto", "scheduler"])


@DRIVERS
def test_a_job_starts_when_the_one_before_it_has_ended(driver: str) -> None:
    result = simulated(job("first", 5.0), job("second", 10.0), driver=driver)
    assert [(one.name, one.state) for one in result.jobs] == [("first", "Completed"), ("second", "Completed")]
    first, second = result.jobs
    assert (first.arrived, first.admitted) == (5.0, 5.0)
    assert first.ended == pytest.approx(105, abs=0.1)
    assert second.admitted == first.ended
    assert (first.queue, list(first.flavors), first.pods) == ("queue", ["fast"], 2)
    assert [outcome.state for outcome in result.outcomes] == [OutcomeState.COMPLETED] * 4
    assert "one job at a time" in result.remarks


@DRIVERS
def test_a_preempted_job_begins_anew(driver: str) -> None:
    result = simulated(job("slow", 0.0), job("urgent", 50.0), driver=driver)
    slow, urgent = result.jobs
    assert (slow.preemptions, slow.state, urgent.state) == (1, "Completed", "Completed")
    assert urgent.admitted == pytest.approx(50)
    assert slow.ended == pytest.approx(250, abs=0.1)
    states = [outcome.state for outcome in result.outcomes]
    assert states.count(OutcomeState.PREEMPTED) == 2
    assert states.count(OutcomeState.COMPLETED) == 4


def test_a_job_that_runs_from_the_start_ends_with_its_pods() -> None:
    owner = {"kind": "Job", "name": "old", "uid": "old", "controller": True}
    placed = pod("old-0", cpu="4", node="a")
    placed = msgspec.structs.replace(
        placed, metadata=msgspec.structs.replace(placed.metadata, owner_references=[convert(OwnerReference, owner)])
    )
    start = 1767225600.0
    running = RunningJob("old", Owner("Job", "default", "old"), start + 30)
    result = simulated(job("next", 0.0), running=[running], pods=[placed])
    old, following = result.jobs
    assert old.state == "Completed"
    assert old.ended == pytest.approx(30, abs=0.1)
    assert following.admitted == old.ended
    assert {outcome.name: outcome.state for outcome in result.outcomes}["old-0"] is OutcomeState.COMPLETED


def test_jobs_that_wait_at_the_end_and_invalid_ones() -> None:
    result = simulated(job("first", 0.0), job("second", 1.0, pods=7), job("invalid", 2.0), departures=False)
    assert [(one.name, one.state, one.message) for one in result.jobs] == [
        ("first", "Admitted", ""),
        ("second", "Waiting", "not yet"),
    ]
    assert result.waiting_pods == 7
    assert [str(one) for one in result.refused] == ["Job default/invalid: 1 pod refused: spec: is not valid"]
    document = result.as_json()
    assert [one["state"] for one in document["jobs"]] == ["Admitted", "Waiting"]
    assert "not yet" in simulation_report(result)
    assert any("second" in str(row) for block in result.blocks() for row in getattr(block, "rows", ()))


def test_a_job_without_pods_ends_at_once() -> None:
    (only,) = simulated(job("empty", 3.0, pods=0)).jobs
    assert (only.state, only.ended) == ("Completed", 3.0)


def test_the_same_input_gives_the_same_result() -> None:
    results = [simulated(job("a", 0.0), job("urgent", 20.0), job("b", 30.0)).as_json() for _ in range(2)]
    assert results[0] == results[1]


def test_workloads_that_are_queued_are_kept_as_jobs(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: batch/v1\nkind: Job\n"
        "metadata: {name: a, annotations: {kubestow.dev/arrival: 90s}}\nspec: {template: {}}\n"
    )
    arrivals = Arrivals.load(path, cluster=ClusterObjects.of([node("a")]), queued=lambda workload: True)
    assert not arrivals.pods
    (only,) = arrivals.jobs
    assert (only.time, only.manifest["metadata"]["namespace"]) == (90.0, "default")
