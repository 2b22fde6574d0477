"""The claims of pods are deleted or released with them, and replacements get claims of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from core_tests.engine.input.manifests import Object, arrivals, cluster, node, pod, workload
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.descheduling.dry_run.rescheduling import PredictedState, Rescheduler
from kubestow.engine.cluster_api.replacements import claims_of, with_own_claims
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.manifests import resulting_objects
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.simulation.simulation_result import SimulationResult
from kubestow_lab.what_if.node_removal import drain, lose
from kubestow_lab.what_if.pod_fates import Fate

DEVICES = "resource.k8s.io/v1"
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}


def devices(*nodes: str) -> Iterable[Object]:
    """The class gpu, a template for a claim of one, and one device on each node."""
    yield {"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    template = {"apiVersion": DEVICES, "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"}}
    yield {**template, "spec": {"spec": REQUESTS}}
    for name in nodes:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": [{"name": "gpu-0"}]}
        yield {"apiVersion": DEVICES, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


OWN_CLAIM: Object = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
OWN_CLAIMS: Object = OWN_CLAIM | {
    "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}]
}
SHARED_CLAIM: Object = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}
SHARED = {"apiVersion": DEVICES, "kind": "ResourceClaim", "metadata": {"name": "shared"}, "spec": REQUESTS}


def run(within: ClusterObjects, found: Arrivals) -> SimulationResult:
    return Simulation(within, found).run()


def after(tmp_path: Path, within: ClusterObjects, *objects: Object) -> ClusterObjects:
    """A cluster once some objects have been simulated in it."""
    found = arrivals(tmp_path, *objects, within=within)
    result = run(within, found)
    assert not result.count(OutcomeState.PENDING)
    return cluster(tmp_path, *resulting_objects(result.api, within, found))


def owners(found: Any, kind: type[Any]) -> Counter[str]:
    """The pods that claims were created for."""
    return Counter(claim.metadata.controller.name for claim in found.api.objects(kind).values())


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_pod_with_claims_of_its_own_comes_back_on_another_node(tmp_path: Path, kind: str) -> None:
    within = cluster(tmp_path, node("a"), node("b"), *devices("a", "b"))
    within = after(tmp_path, within, workload(kind, "train", pod_spec=OWN_CLAIMS))
    [trained] = within.pods
    [other] = {"a", "b"} - {trained.spec.node_name}
    for removal in (
        lose(within, frozenset({trained.spec.node_name})),
        drain(within, frozenset({trained.spec.node_name})),
    ):
        [fate] = removal.pods
        assert (fate.fate, fate.new_node) == (Fate.RESCHEDULED, other)


def test_a_pod_that_shares_a_claim_comes_back_with_its_devices_released(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"), node("b"), *devices("a", "b"))
    within = after(tmp_path, within, SHARED, workload("Deployment", "train", pod_spec=SHARED_CLAIM))
    [trained] = within.pods
    [fate] = drain(within, frozenset({trained.spec.node_name})).pods
    assert fate.fate is Fate.RESCHEDULED


@pytest.mark.parametrize("claim", [OWN_CLAIMS, SHARED_CLAIM])
def test_a_pod_that_ends_frees_its_devices(tmp_path: Path, claim: Object) -> None:
    first, second = pod("first", **claim), pod("second", **OWN_CLAIM)
    first["metadata"]["annotations"] = {"kubestow.dev/duration": "60s"}
    second["metadata"]["annotations"] = {"kubestow.dev/arrival": "10s"}
    within = cluster(tmp_path, node("a"), *devices("a"))
    result = run(within, arrivals(tmp_path, SHARED, first, second, within=within))
    states = {outcome.name: outcome.state for outcome in result.outcomes}
    assert states == {"first": OutcomeState.COMPLETED, "second": OutcomeState.RUNNING}
    assert not owners(result, PersistentVolumeClaim)


@pytest.mark.parametrize("claims", [OWN_CLAIMS, SHARED_CLAIM])
def test_an_eviction_on_trial_frees_the_claims_until_it_is_undone(tmp_path: Path, claims: Object) -> None:
    within = cluster(tmp_path, node("a"), *devices("a"))
    within = after(tmp_path, within, SHARED, workload("Deployment", "train", pod_spec=claims))
    [trained] = within.pods
    second = cluster(tmp_path, node("b"), *devices("b"))
    within = within.altered(
        nodes=[with_cordon(within.nodes[0]), *second.nodes],
        objects=[*within.objects, *(obj for obj in second.objects if obj.metadata.name == "b")],
    )
    rescheduler = Rescheduler(within, SchedulerOptions(), now=datetime(2026, 7, 1, tzinfo=UTC), ties=FirstByName())
    for _ in range(2):
        trial = rescheduler.evict(trained.metadata.uid)
        assert (trial.prediction.state, trial.prediction.node) == (PredictedState.MOVED, "b")
        rescheduler.undo(trial)
    rescheduler.commit(rescheduler.evict(trained.metadata.uid))


def with_cordon(cordoned: Node) -> Node:
    return structs.replace(cordoned, spec=structs.replace(cordoned.spec, unschedulable=True))


def test_the_replacement_of_an_evicted_pod_has_claims_instead_of_it(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="1"), *devices("a"))
    low = workload("Deployment", "low", cpu="1", pod_spec=OWN_CLAIMS)
    high = pod("high", cpu="1", priorityClassName="system-cluster-critical")
    high["metadata"]["annotations"] = {"kubestow.dev/arrival": "10s"}
    result = run(within, arrivals(tmp_path, low, high, within=within))
    assert result.count(OutcomeState.PREEMPTED) == 1
    [replacement] = (outcome.name for outcome in result.outcomes if outcome.state is OutcomeState.PENDING)
    assert owners(result, ResourceClaim) == owners(result, PersistentVolumeClaim) == {replacement: 1}
    [claim] = result.api.objects(ResourceClaim).values()
    assert claim.status.allocation is None


# -- single claims -----------------------------------------------------------------------------------------------------


def _owned(kind: type[Any], name: str, owner: str) -> Any:
    reference = {"kind": "Pod", "name": owner, "uid": owner, "controller": True}
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "labels": {"own": "yes"}}
    return convert(kind, {"metadata": metadata | {"ownerReferences": [reference]}, "status": {"phase": "Bound"}})


def test_claims_of_a_replacement_are_new_ones_like_the_former() -> None:
    former = convert(
        Pod,
        {
            "metadata": {"name": "web", "namespace": "n", "uid": "old"},
            "spec": {"volumes": [{"name": "scratch", "ephemeral": {}}, {"name": "none"}]},
            "status": {
                "resourceClaimStatuses": [
                    {"name": "own", "resourceClaimName": "of-web"},
                    {"name": "shared", "resourceClaimName": "shared"},
                    {"name": "absent"},
                ]
            },
        },
    )
    claims: dict[tuple[Any, str, str], Any] = {
        (ResourceClaim, "n", "of-web"): _owned(ResourceClaim, "of-web", "old"),
        (ResourceClaim, "n", "shared"): _owned(ResourceClaim, "shared", "another"),
        (PersistentVolumeClaim, "n", "web-scratch"): _owned(PersistentVolumeClaim, "web-scratch", "old"),
    }
    metadata = structs.replace(former.metadata, name="web-2", uid="new")

    def find(kind: type[Any], namespace: str, name: str) -> Any:
        return claims.get((kind, namespace, name))

    created, found = with_own_claims(structs.replace(former, metadata=metadata), former, find)

    own, scratch = found
    names = [status.resource_claim_name for status in created.status.resource_claim_statuses]
    assert names == [own.metadata.name, "shared", None]
    assert own.metadata.name.startswith("web-2-own-")
    assert scratch.metadata.name == "web-2-scratch"
    assert [each.metadata.uid for each in found] == [
        f"resourceclaim/new/{own.metadata.name}",
        "persistentvolumeclaim/new/web-2-scratch",
    ]
    for each in found:
        assert (each.metadata.controller.name, each.metadata.controller.uid) == ("web-2", "new")
        assert (each.metadata.namespace, each.metadata.labels) == ("n", {"own": "yes"})
    assert list(claims_of(former, find)) == [
        claims[ResourceClaim, "n", "of-web"],
        claims[ResourceClaim, "n", "shared"],
        claims[PersistentVolumeClaim, "n", "web-scratch"],
    ]
