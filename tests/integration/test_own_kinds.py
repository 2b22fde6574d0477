"""Plugins that bring kinds of their own along: custom resources wake the pods they refused (semantics 1.5, 4.9, 11.5).

The row of the reference's tests is TestCustomResourceEnqueue, whose plugin registers ``foos.v1.example.com``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.events import Action
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import PostBindPlugin, PreFilterPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage, Troupe
from tests.integration.scripted_plugins import profile, puppet

ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
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
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}},
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
    """A pod needs a license of its product's, with a seat; whom it went to is written into the license."""

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


async def has_been_refused(stage: Stage, troupe: Troupe) -> None:
    await stage.create(USER)
    await stage.refused("new")
    await troupe.until(lambda: troupe.place("new") is Place.UNSCHEDULABLE)


async def test_an_object_of_its_kind_brings_a_pod_back(stage: Stage) -> None:
    await stage.create(node("n"), DEFINITION)
    async with stage.scheduler(**profile(Licensed)) as troupe:
        await has_been_refused(stage, troupe)
        await stage.create(license_of("solver"))
        assert await stage.bound("new") == ["n"]


@pytest.mark.parametrize(("seats", "helps"), [(2, True), (0, False)], ids=["seats", "no seats"])
async def test_hints_see_what_has_changed_about_it(stage: Stage, seats: int, helps: bool) -> None:
    await stage.create(node("n"), DEFINITION, license_of("solver", seats=0))
    async with stage.scheduler(**profile(Licensed)) as troupe:
        await has_been_refused(stage, troupe)
        changes = {"spec": {"seats": seats, "notes": None}}
        await troupe.has_seen(await stage.change(license_of("solver"), changes))
        assert (troupe.place("new") is not Place.UNSCHEDULABLE) is helps


async def test_an_object_that_its_hint_has_no_use_for_leaves_a_pod_alone(stage: Stage) -> None:
    await stage.create(node("n"), DEFINITION)
    async with stage.scheduler(**profile(Licensed)) as troupe:
        await has_been_refused(stage, troupe)
        await troupe.has_seen(await stage.create_one(license_of("painter")))
        assert troupe.place("new") is Place.UNSCHEDULABLE


async def test_what_was_there_before_the_scheduler_is_known_to_its_plugins(stage: Stage) -> None:
    await stage.create(node("n"), DEFINITION, license_of("solver"), USER)
    async with stage.scheduler(**profile(Licensed)):
        assert await stage.bound("new") == ["n"]


async def test_a_plugin_may_write_to_objects_of_its_kind(stage: Stage) -> None:
    await stage.create(node("n"), DEFINITION, license_of("solver"), USER)
    async with stage.scheduler(**profile(Licensed)) as troupe:
        catalog = troupe.scheduler.cluster.catalog(License)
        await troupe.until(lambda: [found.status for found in catalog] == [{"holder": "new"}])


async def test_a_server_that_does_not_serve_the_kind_has_no_such_objects(stage: Stage) -> None:
    await stage.create(node("n"), USER)
    async with stage.scheduler(**profile(Licensed)):
        assert "no license" in (await stage.refused("new"))[0]


class Settings(CustomObject, frozen=True):
    """Config maps as plain data: a kind of the core, with an empty group."""

    resource: ClassVar[str] = "configmaps.v1."
    data: dict[str, Any] = {}


async def test_kinds_of_the_core_can_be_watched_too(stage: Stage) -> None:
    await stage.create(node("n"))
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s", "namespace": "default"}}
    answers = [Status.unresolvable("not yet")]
    waits = puppet(requeues=[on(Settings, Action.ADD)], pre_filter=lambda info: answers.pop() if answers else SUCCESS)
    async with stage.scheduler(**profile(waits)) as troupe:
        await has_been_refused(stage, troupe)
        await stage.create(config_map | {"data": {"a": "b"}})
        await stage.bound("new")
        assert [found.data for found in troupe.scheduler.cluster.catalog(Settings) if found.metadata.name == "s"] == [
            {"a": "b"}
        ]


class Misnamed(CustomObject, frozen=True):
    resource: ClassVar[str] = "foos.example"


async def test_a_name_that_is_none_ends_the_start(stage: Stage) -> None:
    with pytest.raises(
        PluginError, match=r'Misnamed\.resource is "foos.example", expected "<plural>.<version>.<group>"'
    ):
        async with stage.scheduler(**profile(puppet(requeues=[on(Misnamed, Action.ADD)]))):
            pass


async def test_a_resource_is_read_in_one_way(stage: Stage) -> None:
    class Other(CustomObject, frozen=True):
        resource: ClassVar[str] = License.resource

    with pytest.raises(KubestowError, match=r"licenses\.v1\.example\.com is read into both .*License and .*Other"):
        async with stage.scheduler(**profile(Licensed, puppet(requeues=[on(Other, Action.ADD)]))):
            pass
