"""Replication controllers do what replica sets do, by a plain map of labels."""

from __future__ import annotations

import pytest

from .client import PODS, pod
from .stories import Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")

CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"


def controller(replicas: int) -> dict[str, object]:
    made = workload(replicas=replicas)
    made["spec"]["selector"] = {"app": "web"}
    return made


def test_as_many_pods_as_wanted_come_and_are_counted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(CONTROLLERS, controller(2))
        await cluster.pass_time(1)
        counts = {"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
        found = (await cluster.get(f"{CONTROLLERS}/web")).json["status"]
        assert found == {**counts, "observedGeneration": 1}
        await cluster.patch(f"{CONTROLLERS}/web/scale", {"spec": {"replicas": 1}})
        await cluster.pass_time(1)
        assert len(await cluster.pods()) == 1
        assert await cluster.reasons() == ["SuccessfulCreate", "SuccessfulCreate", "SuccessfulDelete"]

    told(story)


def test_pods_that_match_are_adopted_and_those_that_cease_to_are_released() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(PODS, pod("mine", labels={"app": "web"}))
        await cluster.post(CONTROLLERS, controller(1))
        await cluster.pass_time(1)
        assert [one["metadata"]["name"] for one in await cluster.pods()] == ["mine"]
        await cluster.patch(f"{PODS}/mine", {"metadata": {"labels": {"app": "other"}}})
        await cluster.pass_time(1)
        owners = {one["metadata"]["name"]: one["metadata"].get("ownerReferences") for one in await cluster.pods()}
        assert len(owners) == 2 and owners["mine"] is None

    told(story)
