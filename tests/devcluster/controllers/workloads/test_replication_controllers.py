"""Replication controllers do what replica sets do, by a plain map of labels."""

from __future__ import annotations

import pytest

from tests.devcluster.scenarios import REPLICATION_CONTROLLERS, Cluster, told, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")


def controller(replicas: int) -> dict[str, object]:
    made = workload(replicas=replicas)
    made["spec"]["selector"] = {"app": "web"}
    return made


def test_as_many_pods_as_wanted_come_and_are_counted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.post(REPLICATION_CONTROLLERS, controller(2))
        await cluster.pass_time(1)
        counts = {"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
        found = (await cluster.get(f"{REPLICATION_CONTROLLERS}/web")).json["status"]
        assert found == {**counts, "observedGeneration": 1}
        await cluster.patch(f"{REPLICATION_CONTROLLERS}/web/scale", {"spec": {"replicas": 1}})
        await cluster.pass_time(1)
        assert len(await cluster.pods()) == 1
        assert await cluster.reasons() == ["SuccessfulCreate", "SuccessfulCreate", "SuccessfulDelete"]

    told(story)
