"""The versions in which API servers of older minor versions serve devices and claims."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from core_tests.client.clocks import AutoAdvancingClock, ManualClock
from core_tests.client.scripted_server import ScriptedServer, failure, response
from core_tests.client.subscribers import NODES, PODS, RESOURCE_CLAIMS, RecordingSubscriber, bookmark, event
from kubestow.api.conversion import DEVICE_TAINT_RULES
from kubestow.api.meta import ObjectMeta
from kubestow.api.resource import DeviceTaintRule
from kubestow.api.scheduling import PodGroup
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.reflector import Reflector
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.client.served_versions import ServedVersions
from kubestow.scheduling.events.resources import WATCHED, resource_of
from kubestow.scheduling.interfaces import ObjectReference

GROUP = "/apis/resource.k8s.io"
FORMER_CLAIM = {
    "apiVersion": "resource.k8s.io/v1beta1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default", "uid": "uid-c", "resourceVersion": "3"},
    "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}},
}


def serve(server: ScriptedServer, *versions: str, plurals: dict[str, list[str]] | None = None) -> None:
    """Answer discovery of resource.k8s.io once, as a server with these versions; ``plurals`` are those of a version."""
    group = {"kind": "APIGroup", "name": "resource.k8s.io", "versions": [{"version": name} for name in versions]}
    server.respond("GET", GROUP, response(200, group))
    for version, names in (plurals or {}).items():
        listed = {"kind": "APIResourceList", "resources": [{"name": name} for name in names]}
        server.respond("GET", f"{GROUP}/{version}", response(200, listed))


def former(version: str) -> dict[str, list[str]]:
    return {version: ["resourceclaims", "resourceclaims/status", "resourceslices", "deviceclasses"]}


async def discovered(transport: Transport) -> ServedVersions:
    versions = ServedVersions(transport)
    await versions.discover()
    return versions


@pytest.mark.parametrize(
    ("versions", "served", "prefix"),
    [
        (["v1", "v1beta2", "v1beta1"], {}, f"{GROUP}/v1"),
        (["v1beta2", "v1beta1"], former("v1beta2") | former("v1beta1"), f"{GROUP}/v1beta2"),
        (["v1beta1", "v1alpha3"], former("v1beta1") | {"v1alpha3": ["devicetaintrules"]}, f"{GROUP}/v1beta1"),
        (["v1alpha3"], former("v1alpha3"), f"{GROUP}/v1alpha3"),
        (["v1alpha3"], {"v1alpha3": ["devicetaintrules"]}, f"{GROUP}/v1"),
        (["v1alpha2"], {}, f"{GROUP}/v1"),
    ],
)
async def test_the_newest_version_that_has_a_resource_is_used(
    server: ScriptedServer,
    transport: Transport,
    versions: list[str],
    served: dict[str, list[str]],
    prefix: str,
) -> None:
    serve(server, *versions, plurals=served)
    assert (await discovered(transport)).addressed(RESOURCE_CLAIMS).prefix == prefix


async def test_resources_of_other_groups_stay_where_they_are(server: ScriptedServer, transport: Transport) -> None:
    serve(server, "v1beta1", plurals=former("v1beta1"))
    versions = await discovered(transport)
    moved = [resource.kind for resource in WATCHED if versions.addressed(resource) != resource]
    assert sorted(moved) == ["DeviceClass", "ResourceClaim", "ResourceSlice"]
    assert versions.addressed(PODS) is PODS


async def test_pod_groups_of_1_36_are_found_when_they_are_missing_in_v1beta1(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    path = "/apis/scheduling.k8s.io"
    spec = {"disruptionMode": "PodGroup", "schedulingPolicy": {"gang": {"minCount": 2}}}
    metadata = {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "3"}
    obj = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    server.respond("GET", f"{path}/v1beta1/podgroups", failure(404, "NotFound"))
    server.respond("GET", path, response(200, {"versions": [{"version": "v1"}, {"version": "v1alpha2"}]}))
    server.respond("GET", f"{path}/v1alpha2", response(200, {"resources": [{"name": "podgroups"}]}))
    server.respond(
        "GET", f"{path}/v1alpha2/podgroups", server.watch(event("ADDED", obj), bookmark(4, initial_end=True))
    )
    pod_groups = resource_of(PodGroup)
    subscriber = RecordingSubscriber()
    versions = ServedVersions(transport)
    reflector = Reflector(transport, pod_groups, subscriber, clock=clock, random=Random(1), versions=versions)
    await run_until_seen(reflector, subscriber, 1)
    assert subscriber.objects["g"].spec.is_disrupted_as_a_whole
    assert versions.addressed(pod_groups).prefix == f"{path}/v1alpha2"
    assert versions.sent(pod_groups, {"status": {}}) == {"status": {}}


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ({"v1": ["resourceclaims"], "v1beta2": ["devicetaintrules"], "v1alpha3": ["devicetaintrules"]}, "v1beta2"),
        ({"v1": ["resourceclaims"], "v1beta1": [], "v1alpha3": ["devicetaintrules"]}, "v1alpha3"),
        ({"v1": ["devicetaintrules"], "v1beta2": ["devicetaintrules"]}, "v1"),
        ({"v1": ["resourceclaims"]}, "v1"),
    ],
)
async def test_device_taint_rules_are_found_where_v1_has_other_kinds_only(
    server: ScriptedServer, transport: Transport, served: dict[str, list[str]], expected: str
) -> None:
    serve(server, *served, plurals={version: names for version, names in served.items() if version != "v1beta1"})
    versions = ServedVersions(transport)
    await versions.discover(DEVICE_TAINT_RULES)
    assert versions.addressed(resource_of(DeviceTaintRule)).prefix == f"{GROUP}/{expected}"
    assert versions.addressed(RESOURCE_CLAIMS).prefix == f"{GROUP}/v1"


async def test_device_taint_rules_of_a_former_version_are_watched(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    spec = {"deviceSelector": {"device": "d0"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    metadata = {"name": "r", "uid": "u", "resourceVersion": "3"}
    obj = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}
    server.respond("GET", f"{GROUP}/v1/devicetaintrules", failure(404, "NotFound"))
    serve(server, "v1", "v1beta2", plurals={"v1": ["resourceclaims"], "v1beta2": ["devicetaintrules"]})
    watch = server.watch(event("ADDED", obj), bookmark(4, initial_end=True))
    server.respond("GET", f"{GROUP}/v1beta2/devicetaintrules", watch)
    subscriber, versions = RecordingSubscriber(), ServedVersions(transport)
    resource = resource_of(DeviceTaintRule)
    reflector = Reflector(transport, resource, subscriber, clock=clock, random=Random(1), versions=versions)
    await run_until_seen(reflector, subscriber, 1)
    assert subscriber.objects["r"].spec.device_selector.device == "d0"


async def test_a_server_without_the_group_is_no_problem(
    server: ScriptedServer, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    server.respond("GET", GROUP, failure(404, "NotFound"))
    with caplog.at_level(logging.INFO, "kubestow"):
        versions = await discovered(transport)
    assert versions.addressed(RESOURCE_CLAIMS) == RESOURCE_CLAIMS
    assert [record for record in caplog.records if record.name.startswith("kubestow")] == []


@pytest.mark.parametrize("answer", [failure(403, "Forbidden"), response(200, {"versions": "none"})])
async def test_discovery_that_fails_is_one_warning(
    server: ScriptedServer, transport: Transport, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    server.respond("GET", GROUP, answer)
    versions = await discovered(transport)
    assert versions.addressed(RESOURCE_CLAIMS) == RESOURCE_CLAIMS
    (record,) = caplog.records
    assert record.getMessage().startswith("cannot discover the versions of resource.k8s.io, continuing with v1: ")


async def run_until_seen(reflector: Reflector, subscriber: RecordingSubscriber, count: int) -> list[tuple[Any, ...]]:
    running = asyncio.create_task(reflector.run())
    try:
        return await subscriber.wait_until_seen(count)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_claims_of_a_former_version_are_watched_as_those_of_v1(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    serve(server, "v1beta1", plurals=former("v1beta1"))
    versions = await discovered(transport)
    watch = server.watch(event("ADDED", FORMER_CLAIM), bookmark(4, initial_end=True), event("MODIFIED", FORMER_CLAIM))
    server.respond("GET", f"{GROUP}/v1beta1/resourceclaims", watch)
    subscriber = RecordingSubscriber()
    reflector = Reflector(transport, RESOURCE_CLAIMS, subscriber, clock=clock, random=Random(1), versions=versions)
    assert await run_until_seen(reflector, subscriber, 2) == [("replace", ["c"]), ("MODIFIED", "c")]
    (request,) = subscriber.objects["c"].spec.devices.requests
    assert request.exactly is not None
    assert request.exactly.device_class_name == "gpu"


async def test_a_version_that_the_server_no_longer_has_is_discovered_anew(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    """Nothing waits: an upgraded API server serves v1, where the claims are listed at once."""
    serve(server, "v1beta1", plurals=former("v1beta1"))
    versions = await discovered(transport)
    server.respond("GET", f"{GROUP}/v1beta1/resourceclaims", failure(404, "NotFound"))
    serve(server, "v1", "v1beta2")
    claim = {"metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "3"}}
    server.respond(
        "GET", f"{GROUP}/v1/resourceclaims", server.watch(event("ADDED", claim), bookmark(4, initial_end=True))
    )
    subscriber = RecordingSubscriber()
    reflector = Reflector(transport, RESOURCE_CLAIMS, subscriber, clock=clock, random=Random(1), versions=versions)
    assert await run_until_seen(reflector, subscriber, 1) == [("replace", ["c"])]
    assert clock.slept == []


async def test_claims_are_written_in_the_version_of_the_server(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    serve(server, "v1beta1", plurals=former("v1beta1"))
    claims = f"{GROUP}/v1beta1/namespaces/default/resourceclaims"
    server.respond("POST", claims, response(201, FORMER_CLAIM))
    server.respond("GET", f"{claims}/c", response(200, FORMER_CLAIM))
    server.respond("PATCH", f"{claims}/c/status", response(200, FORMER_CLAIM))
    server.respond("PATCH", f"{claims}/c", response(200, FORMER_CLAIM))
    server.respond("DELETE", f"{claims}/c", response())
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    reference = ObjectReference("ResourceClaim", "default", "c", "uid-c", resource_version="3")
    async with ClusterClient(Credentials(server.url), clock=manual_clock, random=Random(1), host="h") as cluster:
        await cluster.versions.discover()
        writer = cluster.resource_claims
        created = await writer.create("default", manifest)
        read = await writer.read("default", "c")
        await writer.patch(read, {"status": {"reservedFor": []}}, subresource="status")
        await cluster.patch(RESOURCE_CLAIMS, reference, {"metadata": {"labels": {"a": "b"}}})
        await writer.delete(read)
    assert created == read
    assert created.metadata == ObjectMeta(name="c", namespace="default", uid="uid-c", resource_version="3")
    (request,) = created.spec.devices.requests
    assert request.exactly is not None
    posted = next(request for request in server.requests if request.method == "POST").json
    assert posted["apiVersion"] == "resource.k8s.io/v1beta1"
    assert posted["spec"]["devices"]["requests"] == [{"name": "r", "deviceClassName": "gpu"}]


async def test_names_are_listed_at_the_version_of_the_server(server: ScriptedServer, manual_clock: ManualClock) -> None:
    serve(server, "v1alpha3", plurals=former("v1alpha3"))
    server.respond("GET", f"{GROUP}/v1alpha3/resourceclaims", response(200, {"items": [FORMER_CLAIM]}))
    server.respond("GET", "/api/v1/nodes", response(200, {"items": []}))
    async with ClusterClient(Credentials(server.url), clock=manual_clock, random=Random(1), host="h") as cluster:
        await cluster.versions.discover()
        assert await cluster.list_names(RESOURCE_CLAIMS) == {"uid-c": "default/c"}
        assert await cluster.list_names(NODES) == {}
