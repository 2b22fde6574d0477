"""Pods under rules: pulls that fail by image, crash loops, delays, and Stages of KWOK."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from devcluster_tests.client import PODS, Client, pod
from devcluster_tests.kubelet_scenarios import observed_states, phase, run_pod, run_scenario, run_simple_pod, status_of
from kubestow_devcluster.behaviour.pod_behaviour import START
from kubestow_devcluster.behaviour.stages import Stages, read_stages

RULES = """
apiVersion: kubestow.dev/v1alpha1
kind: PodBehaviour
spec:
  selector: {images: ["registry.example/*"]}
  pullError: manifest unknown
---
apiVersion: kubestow.dev/v1alpha1
kind: PodBehaviour
spec:
  selector: {matchLabels: {app: crashing}}
  duration: 2s
  exitCodes: [1]
---
apiVersion: kubestow.dev/v1alpha1
kind: PodBehaviour
spec: {start: 5s, ready: 10s, duration: 1h}
"""
STAGE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: evict-when-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {app: fragile}
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: In, values: ["True"]}
  delay: {durationMilliseconds: 30000}
  next:
    event: {type: Warning, reason: DiskFull, message: the disk is full}
    statusTemplate: |
      phase: Failed
      reason: Evicted
"""


@pytest.fixture
def stages(tmp_path: Path, request: pytest.FixtureRequest) -> Stages:
    path = tmp_path / "stages.yaml"
    path.write_text(request.param)
    return read_stages(path)


def labelled(app: str) -> dict[str, Any]:
    new = pod("p")
    new["metadata"]["labels"] = {"app": app}
    return new


@pytest.mark.parametrize("stages", [RULES], indirect=True)
def test_only_the_containers_with_a_matching_image_cannot_pull_it(stages: Stages) -> None:
    async def scenario(client: Client) -> None:
        new = pod("p")
        new["spec"]["containers"] = [
            {"name": "good", "image": "nginx"},
            {"name": "bad", "image": "registry.example/app:2"},
        ]
        await run_pod(client, new)
        await asyncio.sleep(7)
        good, bad = (one["state"] for one in (await status_of(client))["containerStatuses"])
        assert "running" in good
        assert bad["waiting"] == {"reason": "ErrImagePull", "message": "manifest unknown"}
        await asyncio.sleep(11)
        _, bad = (one["state"] for one in (await status_of(client))["containerStatuses"])
        assert bad["waiting"]["reason"] == "ImagePullBackOff"

    run_scenario(scenario, stages)


@pytest.mark.parametrize("stages", [RULES], indirect=True)
def test_a_rule_makes_pods_crash_and_back_off(stages: Stages) -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, labelled("crashing"))
        states = await observed_states(client, 60)
        assert states[-1] == "CrashLoopBackOff 0/1"
        assert (await status_of(client))["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1

    run_scenario(scenario, stages)


@pytest.mark.parametrize("stages", [RULES], indirect=True)
def test_a_rule_delays_start_and_readiness_unless_an_annotation_does(stages: Stages) -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client)
        await run_simple_pod(client, "annotated", **{START: "1s"})
        await asyncio.sleep(4)
        assert (await phase(client), await phase(client, "annotated")) == ("Pending", "Running")
        await asyncio.sleep(4)
        assert not (await status_of(client))["containerStatuses"][0]["ready"]
        await asyncio.sleep(10)
        assert (await status_of(client))["containerStatuses"][0]["ready"]
        await asyncio.sleep(3600)
        assert await phase(client) == "Succeeded"

    run_scenario(scenario, stages)


@pytest.mark.parametrize("stages", [STAGE], indirect=True)
def test_a_stage_of_kwok_changes_a_pod_some_time_after_it_matches(stages: Stages) -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, labelled("fragile"))
        await asyncio.sleep(29)
        assert await phase(client) == "Running"
        await asyncio.sleep(5)
        status = await status_of(client)
        assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
        events = (await client.get("/api/v1/events?fieldSelector=reason=DiskFull")).json["items"]
        assert [event["message"] for event in events] == ["the disk is full"]

    run_scenario(scenario, stages)


@pytest.mark.parametrize("stages", [STAGE], indirect=True)
def test_a_stage_does_not_change_pods_that_it_does_not_select(stages: Stages) -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, labelled("sturdy"))
        await asyncio.sleep(60)
        assert await phase(client) == "Running"

    run_scenario(scenario, stages)


CLEANUP = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
spec:
  resourceRef: {kind: Pod}
  selector:
    matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]
  delay: {durationMilliseconds: 5000, jitterDurationMilliseconds: 6000}
  next: {finalizers: {empty: true}}
"""


@pytest.mark.parametrize("stages", [CLEANUP], indirect=True)
def test_a_stage_removes_finalizers_of_a_deleted_pod(stages: Stages) -> None:
    async def scenario(client: Client) -> None:
        new = pod("p")
        new["metadata"]["finalizers"] = ["example.com/one"]
        await client.post(PODS, new)
        await client.post("/api/v1/nodes", {"metadata": {"name": "n"}})
        await client.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
        await asyncio.sleep(3)
        await client.delete(f"{PODS}/p")
        await asyncio.sleep(3)
        assert await phase(client) != "deleted"
        await asyncio.sleep(10)
        assert await phase(client) == "deleted"

    run_scenario(scenario, stages)
