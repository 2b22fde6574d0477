"""VolumeBinding from Reserve to PreBind: volumes are assumed, written and bound (semantics 8.12)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from core_tests.plugins.volumes import plugin_harness, put
from kubestow.api.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from kubestow.errors import APIError, KubestowError
from kubestow.framework.interface import Plugin
from kubestow.plugins.volume_binding.volume_binding import AssumedVolumes
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from kubestow.testing.storage import DRIVER, claim, csi_node, mounting, storage_class, volume

PROBE = pod("p", spec=mounting("data"))
STATIC = (node("a"), storage_class(), claim(), volume("pv", size="1Gi"), volume("pv-2", size="2Gi"))
DYNAMIC = (node("a"), storage_class(provisioner=DRIVER), claim())
SHORT_TIMEOUT: dict[str, Any] = {
    "profiles": [{"pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 10}}]}]
}


def plugin_of(harness: PluginHarness) -> Any:
    plugin: Plugin = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == "VolumeBinding")
    return plugin


def reserve(harness: PluginHarness) -> Decision:
    decision = harness.schedule(PROBE)
    assert decision.node_name is not None, decision.message
    status = plugin_of(harness).reserve(decision.state, decision.pod, decision.node_name)
    assert status is None, status
    return decision


# -- Reserve -------------------------------------------------------------------------------------------------------


def test_an_assumed_volume_is_not_available_to_other_claims() -> None:
    harness = plugin_harness(*STATIC, claim("other"))
    reserve(harness)
    assumed = harness.cluster.catalog(PersistentVolume).get("", "pv")
    assert assumed is not None and assumed.spec.claim_ref is not None
    assert assumed.spec.claim_ref.uid == "uid-default-data"
    decision = harness.decide(pod("q", spec=mounting("other")))
    put(harness, volume("pv-2", phase="Failed"))
    assert decision.node_name == "a"
    assert harness.feasible(pod("q", spec=mounting("other"))) == set()


def test_an_assumed_claim_is_restricted_to_its_selected_node() -> None:
    harness = plugin_harness(*DYNAMIC, node("b"))
    reserve(harness)
    assumed = harness.cluster.catalog(PersistentVolumeClaim).get("default", "data")
    assert assumed is not None and assumed.metadata.annotations[SELECTED_NODE] == "a"
    assert harness.feasible(pod("q", spec=mounting("data"))) == {"a"}


@pytest.mark.parametrize("objects", [STATIC, DYNAMIC])
def test_unreserve_is_idempotent(objects: tuple[Any, ...]) -> None:
    harness = plugin_harness(*objects)
    decision = reserve(harness)
    for _ in range(2):
        plugin_of(harness).unreserve(decision.state, decision.pod, "a")
    assert harness.cluster.catalog(PersistentVolume).assumed() == []
    assert harness.cluster.catalog(PersistentVolumeClaim).assumed() == []
    assert harness.feasible(pod("q", spec=mounting("data"))) == {"a"}


def test_a_newer_watch_event_replaces_an_assumed_volume() -> None:
    harness = plugin_harness(*STATIC)
    reserve(harness)
    put(harness, volume("pv", metadata={"resourceVersion": "2"}))
    assert harness.cluster.catalog(PersistentVolume).assumed() == []


def test_a_repeated_watch_event_does_not_replace_an_assumed_volume() -> None:
    harness = plugin_harness(*STATIC)
    reserve(harness)
    put(harness, volume("pv"))
    assert [pv.metadata.name for pv in harness.cluster.catalog(PersistentVolume).assumed()] == ["pv"]


def test_an_outdated_or_deleted_object_cannot_be_assumed() -> None:
    catalog = plugin_harness(*STATIC).cluster.catalog(PersistentVolume)
    with pytest.raises(KubestowError, match="PersistentVolume pv has changed, so can't be assumed"):
        catalog.assume(volume("pv", metadata={"resourceVersion": "0"}))
    with pytest.raises(KubestowError, match="PersistentVolume gone is gone, so can't be assumed"):
        catalog.assume(volume("gone"))


def test_if_one_object_cannot_be_assumed_none_is() -> None:
    cluster = plugin_harness(*STATIC).cluster
    assumed = AssumedVolumes([(volume("pv"), claim())], [claim("gone")])
    with pytest.raises(KubestowError):
        assumed.assume(cluster)
    assert cluster.catalog(PersistentVolume).assumed() == []


def test_pre_bind_is_skipped_for_bound_claims() -> None:
    harness = plugin_harness(node("a"), claim(volume="pv"), volume("pv"))
    decision = reserve(harness)
    pre_flight = plugin_of(harness).pre_bind_pre_flight(decision.state, decision.pod, "a")
    assert pre_flight.code.value == "Skip"
    assert asyncio.run(plugin_of(harness).pre_bind(decision.state, decision.pod, "a")) is None


def test_reserve_does_nothing_for_a_pod_without_claims() -> None:
    harness = plugin_harness(*STATIC)
    decision = harness.schedule(pod("plain"))
    assert plugin_of(harness).reserve(decision.state, decision.pod, "a") is None
    plugin_of(harness).unreserve(decision.state, decision.pod, "a")


# -- PreBind, with a running scheduler -----------------------------------------------------------------------------


def observed(harness: SchedulerHarness, kind: type[Any], name: str, namespace: str = "") -> Any:
    return harness.scheduler.cluster.catalog(kind).as_observed(namespace, name)


def complete(harness: SchedulerHarness, volume_name: str, *, phase: str = "Bound") -> None:
    """The volume controller completes the binding of the claim; it writes the phase in a second request."""
    current = observed(harness, PersistentVolumeClaim, "data", "default")
    annotations = current.metadata.annotations | {BIND_COMPLETED: "yes"}
    harness.cluster.put(
        msgspec.structs.replace(
            current,
            metadata=msgspec.structs.replace(current.metadata, annotations=annotations),
            spec=msgspec.structs.replace(current.spec, volume_name=volume_name),
            status=msgspec.structs.replace(current.status, phase=phase),
        )
    )


def test_a_pod_is_bound_after_its_volume() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.advance(5)
        assert observed(harness, PersistentVolume, "pv").spec.claim_ref.name == "data"
        assert harness.node_of("p") == ""
        complete(harness, "pv")
        await harness.settle()
        assert harness.node_of("p") == "a"

    in_virtual_time(scenario, *STATIC)


def test_a_volume_names_its_claim_and_who_has_chosen_it() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.advance(5)
        written = observed(harness, PersistentVolume, "pv")
        assert written.spec.claim_ref == ClaimReference(
            kind="PersistentVolumeClaim", api_version="v1", namespace="default", name="data", uid="uid-default-data"
        )
        assert written.metadata.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}

    in_virtual_time(scenario, *STATIC)


def test_a_pod_is_bound_after_its_volume_is_provisioned() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.advance(5)
        assert observed(harness, PersistentVolumeClaim, "data", "default").metadata.annotations[SELECTED_NODE] == "a"
        complete(harness, "new")
        await harness.settle()
        assert harness.node_of("p") == ""  # the volume has not been observed yet
        harness.cluster.put(volume("new", claim="data"))
        await harness.settle()
        assert harness.node_of("p") == "a"

    in_virtual_time(scenario, *DYNAMIC)


def failures(harness: SchedulerHarness) -> list[str]:
    return [event.note for event in harness.cluster.events if event.reason == "FailedScheduling"]


def test_a_binding_fails_after_the_bind_timeout() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.advance(9)
        assert failures(harness) == []
        await harness.advance(1.5)
        assert failures(harness) == [
            'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        ]

    in_virtual_time(scenario, *STATIC, **SHORT_TIMEOUT)


def change(harness: SchedulerHarness, kind: str) -> None:
    """Change or delete an object while PreBind waits."""
    match kind:
        case "released":
            harness.cluster.put(volume("pv"))
        case "moved":
            harness.cluster.put(volume("pv", claim="data", claim_uid="uid-default-data", zone="far"))
        case "moved migrated":
            harness.cluster.put(csi_node("a", migrated=["kubernetes.io/cinder"]))
            disk = {"cinder": {"volumeID": "x"}}
            harness.cluster.put(volume("pv", claim="data", claim_uid="uid-default-data", zone="far", source=disk))
        case "volume gone":
            harness.cluster.remove(observed(harness, PersistentVolume, "pv"))
        case "claim gone":
            harness.cluster.remove(observed(harness, PersistentVolumeClaim, "data", "default"))
        case "node gone":
            harness.cluster.remove(node("a"))
        case "pod gone":
            harness.cluster.remove(PROBE)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("released", 'ClaimRef got reset for pv "pv"'),
        ("moved", 'pv "pv" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        ("moved migrated", 'pv "pv" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        ("volume gone", 'failed to check binding: could not find v1.PersistentVolume "pv"'),
        ("claim gone", 'failed to check binding: could not find v1.PersistentVolumeClaim "default/data"'),
        ("node gone", 'failed to get node "a": node "a" not found'),
    ],
)
def test_a_binding_fails_when_an_object_changes_or_is_deleted(kind: str, problem: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.settle()
        change(harness, kind)
        await harness.settle()
        assert failures(harness)[0] == f'running PreBind plugin "VolumeBinding": binding volumes: {problem}'

    in_virtual_time(scenario, *STATIC)


def test_a_deleted_pod_is_not_bound() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.settle()
        change(harness, "pod gone")
        await harness.settle()
        assert harness.cluster.bindings == []
        assert harness.scheduler.cluster.catalog(PersistentVolume).assumed() == []

    in_virtual_time(scenario, *STATIC)


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [({}, 'selectedNode annotation reset for PVC "data"'), ({"x": "y"}, 'provisioning failed for PVC "data"')],
)
def test_a_binding_fails_when_the_provisioner_resets_the_selected_node(
    annotations: dict[str, str], problem: str
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.settle()
        harness.cluster.put(claim(metadata={"annotations": annotations}))
        await harness.settle()
        assert failures(harness)[0] == f'running PreBind plugin "VolumeBinding": binding volumes: {problem}'

    in_virtual_time(scenario, *DYNAMIC)


def test_a_binding_fails_when_the_provisioned_volume_does_not_match_the_node() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.settle()
        harness.cluster.put(volume("new", claim="data", zone="far"))
        complete(harness, "new")
        await harness.settle()
        assert 'pv "new" node affinity' in failures(harness)[0]

    in_virtual_time(scenario, *DYNAMIC)


def test_a_binding_fails_when_a_claim_is_deleted_during_provisioning() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.settle()
        change(harness, "claim gone")
        await harness.settle()
        assert "failed to check provisioning pvc" in failures(harness)[0]

    in_virtual_time(scenario, *DYNAMIC)


def test_a_pod_is_retried_after_a_conflicting_patch() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        conflict = APIError(409, "Conflict", 'persistentvolumes "pv" has been modified')
        harness.cluster.patch_failures.append(conflict)
        harness.cluster.put(PROBE)
        await harness.settle()
        assert failures(harness) == ['running PreBind plugin "VolumeBinding": persistentvolumes "pv" has been modified']
        await harness.advance(5)
        complete(harness, "pv")
        await harness.settle()
        assert harness.node_of("p") == "a"

    in_virtual_time(scenario, *STATIC)


@pytest.mark.parametrize("phase", ["Pending", "Bound"])
def test_a_claim_of_an_existing_volume_is_bound_by_its_annotation_whatever_its_phase(phase: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.settle()
        current = observed(harness, PersistentVolumeClaim, "data", "default")
        harness.cluster.put(
            msgspec.structs.replace(
                current,
                spec=msgspec.structs.replace(current.spec, volume_name="pv"),
                status=msgspec.structs.replace(current.status, phase=phase),
            )
        )
        await harness.settle()
        assert harness.node_of("p") == ""  # not even in phase Bound
        complete(harness, "pv")
        await harness.settle()
        assert harness.node_of("p") == "a"

    in_virtual_time(scenario, *STATIC)


def test_a_claim_to_provision_is_bound_when_its_phase_is() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(PROBE)
        await harness.settle()
        harness.cluster.put(volume("pv", claim="default/data"))
        complete(harness, "pv", phase="Pending")
        await harness.settle()
        assert harness.node_of("p") == ""
        complete(harness, "pv")
        await harness.settle()
        assert harness.node_of("p") == "a"

    in_virtual_time(scenario, *DYNAMIC)


def test_a_failed_binding_is_reported_after_the_bindings_before_it_have_completed() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", spec=mounting("data", "new")))
        await harness.settle()
        harness.cluster.remove(observed(harness, PersistentVolumeClaim, "new", "default"))
        await harness.settle()
        assert failures(harness) == []
        complete(harness, "pv")
        await harness.settle()
        assert (
            'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "default/new"'
            in failures(harness)[0]
        )

    in_virtual_time(
        scenario, *STATIC, storage_class("provisioned", provisioner=DRIVER), claim("new", storage_class="provisioned")
    )
