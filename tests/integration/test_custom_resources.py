"""Plugins that register custom resources, whose events requeue the pods they rejected (semantics 1.5, 4.9, 11.5).

The corresponding test of kube-scheduler is TestCustomResourceEnqueue, whose plugin registers ``foos.v1.example.com``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.changes.events import Action
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import PostBindPlugin, PreFilterPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object, SchedulerProbe
from tests.integration.scripted_plugins import profile, scripted_plugin

ANY_OBJECT: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "licenses.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "licenses", "kind": "License"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": ANY_OBJECT, "status": ANY_OBJECT}}
                },
            }
        ],
    },
}


def license_of(product: str, seats: int = 1) -> Object:
    return {
        "apiVersion": "example.com/v1",
        "kind": "License",
        "metadata": {"name": product, "namespace": "default"},
        "spec": {"seats": seats, "notes": {"anything": ["goes"]}},
    }


class LicenseSpec(APIObject, frozen=True):
    seats: int = 0


class License(CustomObject, frozen=True):
    resource: ClassVar[str] = "licenses.v1.example.com"
    spec: LicenseSpec = LicenseSpec()
    status: dict[str, Any] = {}


class Licensed(PreFilterPlugin, PostBindPlugin):
    """Requires a License with a free seat for the pod's product, and writes the pod into its status."""

    name = "Licensed"

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.events_to_register = (on(License, Action.ADD | Action.UPDATE, hint=self._is_for),)

    def _is_for(self, pod: PodInfo, old: License | None, new: License) -> bool:
        return new.metadata.name == pod.labels["product"] and new.spec.seats > (old.spec.seats if old else 0)

    def _license(self, pod: PodInfo) -> License | None:
        return self.handle.cluster.catalog(License).get(pod.namespace, pod.labels["product"])

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        found = self._license(pod)
        return SUCCESS if found is not None and found.spec.seats > 0 else Status.unresolvable("no license")

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        found = self._license(pod)
        assert found is not None
        await self.handle.patch(found, {"status": {"holder": pod.name}}, subresource="status")


USER = pod("new", labels={"product": "solver"})


async def wait_until_unschedulable(cluster: ClusterFixture, probe: SchedulerProbe) -> None:
    await cluster.create(USER)
    await cluster.pending_messages("new")
    await probe.until(lambda: probe.place("new") is Place.UNSCHEDULABLE)


async def test_a_custom_resource_requeues_a_pod(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), DEFINITION)
    async with cluster.scheduler(**profile(Licensed)) as probe:
        await wait_until_unschedulable(cluster, probe)
        await cluster.create(license_of("solver"))
        assert await cluster.bound("new") == ["n"]


@pytest.mark.parametrize(("seats", "helps"), [(2, True), (0, False)], ids=["seats", "no seats"])
async def test_queueing_hints_get_the_old_and_the_new_object(cluster: ClusterFixture, seats: int, helps: bool) -> None:
    await cluster.create(node("n"), DEFINITION, license_of("solver", seats=0))
    async with cluster.scheduler(**profile(Licensed)) as probe:
        await wait_until_unschedulable(cluster, probe)
        changes = {"spec": {"seats": seats, "notes": None}}
        await probe.observed(await cluster.patch(license_of("solver"), changes))
        assert (probe.place("new") is not Place.UNSCHEDULABLE) is helps


async def test_an_object_that_the_hint_rejects_does_not_requeue_a_pod(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), DEFINITION)
    async with cluster.scheduler(**profile(Licensed)) as probe:
        await wait_until_unschedulable(cluster, probe)
        await probe.observed(await cluster.create_one(license_of("painter")))
        assert probe.place("new") is Place.UNSCHEDULABLE


async def test_existing_custom_resources_are_available_to_plugins_at_start(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), DEFINITION, license_of("solver"), USER)
    async with cluster.scheduler(**profile(Licensed)):
        assert await cluster.bound("new") == ["n"]


async def test_a_plugin_can_patch_custom_resources(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), DEFINITION, license_of("solver"), USER)
    async with cluster.scheduler(**profile(Licensed)) as probe:
        catalog = probe.scheduler.cluster.catalog(License)
        await probe.until(lambda: [found.status for found in catalog] == [{"holder": "new"}])


async def test_a_missing_custom_resource_definition_means_no_objects(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), USER)
    async with cluster.scheduler(**profile(Licensed)):
        assert "no license" in (await cluster.pending_messages("new"))[0]


class Settings(CustomObject, frozen=True):
    """ConfigMaps as plain data: a resource of the core group."""

    resource: ClassVar[str] = "configmaps.v1."
    data: dict[str, Any] = {}


async def test_core_resources_can_be_registered(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"))
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s", "namespace": "default"}}
    results = [Status.unresolvable("not yet")]
    plugin = scripted_plugin(
        requeues=[on(Settings, Action.ADD)], pre_filter=lambda info: results.pop() if results else SUCCESS
    )
    async with cluster.scheduler(**profile(plugin)) as probe:
        await wait_until_unschedulable(cluster, probe)
        await cluster.create(config_map | {"data": {"a": "b"}})
        await cluster.bound("new")
        assert [found.data for found in probe.scheduler.cluster.catalog(Settings) if found.metadata.name == "s"] == [
            {"a": "b"}
        ]


class Misnamed(CustomObject, frozen=True):
    resource: ClassVar[str] = "foos.example"


async def test_a_malformed_resource_name_fails_at_start(cluster: ClusterFixture) -> None:
    with pytest.raises(
        PluginError, match=r'Misnamed\.resource is "foos.example", expected "<plural>.<version>.<group>"'
    ):
        async with cluster.scheduler(**profile(scripted_plugin(requeues=[on(Misnamed, Action.ADD)]))):
            pass


async def test_a_resource_cannot_be_decoded_into_two_types(cluster: ClusterFixture) -> None:
    class Other(CustomObject, frozen=True):
        resource: ClassVar[str] = License.resource

    with pytest.raises(KubestowError, match=r"licenses\.v1\.example\.com is read into both .*License and .*Other"):
        async with cluster.scheduler(**profile(Licensed, scripted_plugin(requeues=[on(Other, Action.ADD)]))):
            pass
