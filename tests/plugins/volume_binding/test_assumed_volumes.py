"""VolumeBinding's promises: assumed at once, written in the binding cycle, waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kubestow.api.storage import BIND_COMPLETED, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubestow.errors import APIError, KubestowError
from kubestow.framework.interface import Plugin
from kubestow.plugins.volume_binding.assumed_volumes import AssumedVolumes
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.testing import World, node, pod
from kubestow.testing.storage import DRIVER, claim, csi_node, mounting, storage_class, volume
from tests.plugins.volumes import put, world
from tests.scheduling.running import Living, in_virtual_time

PROBE = pod("p", spec=mounting("data"))
STATIC = (node("a"), storage_class(), claim(), volume("pv", size="1Gi"), volume("pv-2", size="2Gi"))
DYNAMIC = (node("a"), storage_class(provisioner=DRIVER), claim())
SOON: dict[str, Any] = {"profiles": [{"pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 10}}]}]}


def plugin_of(there: World) -> Any:
    plugin: Plugin = next(p for p in there.profiles["default-scheduler"].plugins if p.name == "VolumeBinding")
    return plugin


def reserve(there: World) -> Decision:
    decision = there.schedule(PROBE)
    assert decision.node_name is not None, decision.message
    status = plugin_of(there).reserve(decision.state, decision.pod, decision.node_name)
    assert status is None, status
    return decision


# -- assuming ------------------------------------------------------------------------------------------------------


def test_a_promised_volume_is_no_longer_free() -> None:
    there = world(*STATIC, claim("other"))
    reserve(there)
    promised = there.cluster.catalog(PersistentVolume).get("", "pv")
    assert promised is not None and promised.spec.claim_ref is not None
    assert promised.spec.claim_ref.uid == "uid-default-data"
    decision = there.decide(pod("q", spec=mounting("other")))
    put(there, volume("pv-2", phase="Failed"))
    assert decision.node_name == "a"
    assert there.feasible(pod("q", spec=mounting("other"))) == set()


def test_a_promised_claim_belongs_to_its_node() -> None:
    there = world(*DYNAMIC, node("b"))
    reserve(there)
    selecting = there.cluster.catalog(PersistentVolumeClaim).get("default", "data")
    assert selecting is not None and selecting.metadata.annotations[SELECTED_NODE] == "a"
    assert there.feasible(pod("q", spec=mounting("data"))) == {"a"}


@pytest.mark.parametrize("objects", [STATIC, DYNAMIC])
def test_unreserve_takes_promises_back_however_often(objects: tuple[Any, ...]) -> None:
    there = world(*objects)
    decision = reserve(there)
    for _ in range(2):
        plugin_of(there).unreserve(decision.state, decision.pod, "a")
    assert there.cluster.catalog(PersistentVolume).assumed() == []
    assert there.cluster.catalog(PersistentVolumeClaim).assumed() == []
    assert there.feasible(pod("q", spec=mounting("data"))) == {"a"}


def test_news_of_a_volume_end_what_was_assumed_of_it() -> None:
    there = world(*STATIC)
    reserve(there)
    put(there, volume("pv", metadata={"resourceVersion": "2"}))
    assert there.cluster.catalog(PersistentVolume).assumed() == []


def test_the_same_news_again_end_nothing() -> None:
    there = world(*STATIC)
    reserve(there)
    put(there, volume("pv"))
    assert [pv.metadata.name for pv in there.cluster.catalog(PersistentVolume).assumed()] == ["pv"]


def test_an_object_that_changed_or_went_cannot_be_assumed() -> None:
    catalog = world(*STATIC).cluster.catalog(PersistentVolume)
    with pytest.raises(KubestowError, match="PersistentVolume pv has changed, so can't be assumed"):
        catalog.assume(volume("pv", metadata={"resourceVersion": "0"}))
    with pytest.raises(KubestowError, match="PersistentVolume gone is gone, so can't be assumed"):
        catalog.assume(volume("gone"))


def test_when_one_promise_fails_none_is_kept() -> None:
    cluster = world(*STATIC).cluster
    promises = AssumedVolumes([(volume("pv"), claim())], [claim("gone")])
    with pytest.raises(KubestowError):
        promises.assume(cluster)
    assert cluster.catalog(PersistentVolume).assumed() == []


def test_there_is_nothing_to_bind_for_bound_volumes() -> None:
    there = world(node("a"), claim(volume="pv"), volume("pv"))
    decision = reserve(there)
    flight = plugin_of(there).pre_bind_pre_flight(decision.state, decision.pod, "a")
    assert flight.code.value == "Skip"
    assert asyncio.run(plugin_of(there).pre_bind(decision.state, decision.pod, "a")) is None


def test_a_pod_without_claims_reserves_nothing() -> None:
    there = world(*STATIC)
    decision = there.schedule(pod("plain"))
    assert plugin_of(there).reserve(decision.state, decision.pod, "a") is None
    plugin_of(there).unreserve(decision.state, decision.pod, "a")


# -- writing and waiting, on a living scheduler ---------------------------------------------------------------------


def seen(living: Living, kind: type[Any], name: str, namespace: str = "") -> Any:
    return living.scheduler.cluster.catalog(kind).as_observed(namespace, name)


def complete(living: Living, volume_name: str) -> None:
    """The volume controller completes the binding of the claim."""
    current = seen(living, PersistentVolumeClaim, "data", "default")
    annotations = current.metadata.annotations | {BIND_COMPLETED: "yes"}
    living.cluster.put(
        msgspec.structs.replace(
            current,
            metadata=msgspec.structs.replace(current.metadata, annotations=annotations),
            spec=msgspec.structs.replace(current.spec, volume_name=volume_name),
        )
    )


def test_a_pod_is_bound_once_its_volume_is() -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.passes(5)
        assert seen(living, PersistentVolume, "pv").spec.claim_ref.name == "data"
        assert living.node_of("p") == ""
        complete(living, "pv")
        await living.settles()
        assert living.node_of("p") == "a"

    in_virtual_time(story, *STATIC)


def test_a_pod_is_bound_once_its_volume_has_been_provided() -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.passes(5)
        assert seen(living, PersistentVolumeClaim, "data", "default").metadata.annotations[SELECTED_NODE] == "a"
        complete(living, "new")
        await living.settles()
        assert living.node_of("p") == ""  # the volume itself has yet to be seen
        living.cluster.put(volume("new", claim="data"))
        await living.settles()
        assert living.node_of("p") == "a"

    in_virtual_time(story, *DYNAMIC)


def failing(living: Living) -> list[str]:
    return [event.note for event in living.cluster.events if event.reason == "FailedScheduling"]


def test_a_binding_that_takes_too_long_is_given_up() -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.passes(9)
        assert failing(living) == []
        await living.passes(1.5)
        assert failing(living) == ['running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded']

    in_virtual_time(story, *STATIC, **SOON)


def changed(living: Living, what: str) -> None:
    """Something goes wrong while a binding is waited for."""
    match what:
        case "released":
            living.cluster.put(volume("pv"))
        case "moved":
            living.cluster.put(volume("pv", claim="data", claim_uid="uid-default-data", zone="far"))
        case "moved migrated":
            living.cluster.put(csi_node("a", migrated=["kubernetes.io/cinder"]))
            disk = {"cinder": {"volumeID": "x"}}
            living.cluster.put(volume("pv", claim="data", claim_uid="uid-default-data", zone="far", source=disk))
        case "volume gone":
            living.cluster.remove(seen(living, PersistentVolume, "pv"))
        case "claim gone":
            living.cluster.remove(seen(living, PersistentVolumeClaim, "data", "default"))
        case "node gone":
            living.cluster.remove(node("a"))
        case "pod gone":
            living.cluster.remove(PROBE)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("released", 'ClaimRef got reset for pv "pv"'),
        ("moved", 'pv "pv" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        ("moved migrated", 'pv "pv" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        ("volume gone", 'failed to check binding: could not find v1.PersistentVolume "pv"'),
        ("claim gone", 'failed to check binding: could not find v1.PersistentVolumeClaim "default/data"'),
        ("node gone", 'failed to get node "a": node "a" not found'),
    ],
)
def test_a_binding_that_comes_to_nothing_is_given_up(what: str, problem: str) -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.settles()
        changed(living, what)
        await living.settles()
        assert failing(living)[0] == f'running PreBind plugin "VolumeBinding": binding volumes: {problem}'

    in_virtual_time(story, *STATIC)


def test_a_deleted_pod_is_not_bound() -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.settles()
        changed(living, "pod gone")
        await living.settles()
        assert living.cluster.bindings == []
        assert living.scheduler.cluster.catalog(PersistentVolume).assumed() == []

    in_virtual_time(story, *STATIC)


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [({}, 'selectedNode annotation reset for PVC "data"'), ({"x": "y"}, 'provisioning failed for PVC "data"')],
)
def test_a_provisioner_that_gives_up_sends_the_pod_back(annotations: dict[str, str], problem: str) -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.settles()
        living.cluster.put(claim(metadata={"annotations": annotations}))
        await living.settles()
        assert failing(living)[0] == f'running PreBind plugin "VolumeBinding": binding volumes: {problem}'

    in_virtual_time(story, *DYNAMIC)


def test_a_provided_volume_out_of_reach_sends_the_pod_back() -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.settles()
        living.cluster.put(volume("new", claim="data", zone="far"))
        complete(living, "new")
        await living.settles()
        assert 'pv "new" node affinity' in failing(living)[0]

    in_virtual_time(story, *DYNAMIC)


def test_a_claim_that_vanishes_while_it_is_provided_sends_the_pod_back() -> None:
    async def story(living: Living) -> None:
        living.cluster.put(PROBE)
        await living.settles()
        changed(living, "claim gone")
        await living.settles()
        assert "failed to check provisioning pvc" in failing(living)[0]

    in_virtual_time(story, *DYNAMIC)


def test_a_conflicting_write_sends_the_pod_back_and_the_next_try_succeeds() -> None:
    async def story(living: Living) -> None:
        conflict = APIError(409, "Conflict", 'persistentvolumes "pv" has been modified')
        living.cluster.patch_failures.append(conflict)
        living.cluster.put(PROBE)
        await living.settles()
        assert failing(living) == ['running PreBind plugin "VolumeBinding": persistentvolumes "pv" has been modified']
        await living.passes(5)
        complete(living, "pv")
        await living.settles()
        assert living.node_of("p") == "a"

    in_virtual_time(story, *STATIC)
