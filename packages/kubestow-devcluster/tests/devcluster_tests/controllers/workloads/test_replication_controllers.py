"""ReplicationControllers behave like ReplicaSets with a map of labels as selector."""

from __future__ import annotations

import pytest

from devcluster_tests.scenarios import REPLICATION_CONTROLLERS, Cluster, run_scenario, workload

pytestmark = pytest.mark.usefixtures("no_errors_logged")


def controller(replicas: int) -> dict[str, object]:
    new = workload(replicas=replicas)
    new["spec"]["selector"] = {"app": "web"}
    return new


def test_the_desired_number_of_pods_is_created_and_counted_in_the_status() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(REPLICATION_CONTROLLERS, controller(2))
        await cluster.pass_time(1)
        counts = {"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
        status = (await cluster.get(f"{REPLICATION_CONTROLLERS}/web")).json["status"]
        assert status == {**counts, "observedGeneration": 1}
        await cluster.patch(f"{REPLICATION_CONTROLLERS}/web/scale", {"spec": {"replicas": 1}})
        await cluster.pass_time(1)
        assert len(await cluster.pods()) == 1
        assert await cluster.reasons() == ["SuccessfulCreate", "SuccessfulCreate", "SuccessfulDelete"]

    run_scenario(scenario)
