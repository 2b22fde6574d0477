"""The HTTP server of the extender protocol, with requests as kube-scheduler sends them."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp
import pytest

from core_tests.extender.example_plugins import Colour, Failing, Reserving, labelled
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.extender import BindingArgs
from kubestow.api.meta import convert
from kubestow.errors import APIError, InputError, KubestowError
from kubestow.extender import ExtenderServer, ProfileExtender
from kubestow.extender import extender_server as server_module
from kubestow.extender.binder import ExtenderBinder
from kubestow.extender.extender_app import ExtenderApp, minimal_configuration, server_tls
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock
from kubestow.scheduling.events.resources import PODS
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.virtual_time import VirtualClock, run

#: A v1.Pod as encoded by Go: nulls for times, empty structs, quantities as strings.
POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "default",
        "uid": "uid-p",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"colour": "red"},
    },
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "priority": 0,
    },
    "status": {"phase": "Pending", "qosClass": "Burstable"},
}


def go_node(name: str, colour: str = "red") -> dict[str, Any]:
    """A v1.Node as encoded by Go."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": None, "labels": {"colour": colour}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {"machineID": "", "architecture": "amd64"},
        },
    }


def extending(
    plugin: type[Plugin] = Colour, *nodes: Node, node_cache_capable: bool = True, binds: bool = False
) -> ExtenderApp:
    registry = in_tree_registry() | {plugin.name: plugin}
    profile = config.load(minimal_configuration([plugin.name]), implements=implements(registry)).profiles[0]
    app = ExtenderApp.of(profile, registry, config.FeatureGates(), node_cache_capable=node_cache_capable, binds=binds)
    for added in nodes:
        app.cache.cluster.add_node(added)
    app.cache.synced = True
    return app


class ExtenderClient:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def post(self, verb: str, body: Any, **options: Any) -> tuple[int, str]:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        async with self._session.post(f"{self._url}/{verb}", data=data, **options) as response:
            return response.status, await response.text()

    async def call(self, verb: str, body: Any) -> Any:
        status, text = await self.post(verb, body)
        assert status == 200, text
        return json.loads(text)

    async def get(self, path: str) -> int:
        async with self._session.get(f"{self._url}/{path}") as response:
            return response.status


@asynccontextmanager
async def serving(app: ExtenderApp, binder: ExtenderBinder | None = None) -> AsyncIterator[ExtenderClient]:
    extender = ProfileExtender(app.cache.cluster, app.profile)
    server = ExtenderServer(extender, app.cache, app.capabilities, None if binder is None else binder.bind)
    async with server.listen("127.0.0.1", 0) as port, aiohttp.ClientSession() as session:
        yield ExtenderClient(session, f"http://127.0.0.1:{port}")


RED, BLUE = node("red", labels=labelled("red", 92)), node("blue", labels=labelled("blue", 14))


async def test_a_request_with_node_names_gets_node_names() -> None:
    async with serving(extending(Colour, RED, BLUE)) as client:
        result = await client.call("filter", {"Pod": POD, "Nodes": None, "NodeNames": ["red", "blue"]})
    assert result == {
        "Nodes": None,
        "NodeNames": ["red"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"blue": "node(s) had another colour"},
        "Error": "",
    }


async def test_a_request_with_nodes_gets_the_same_nodes() -> None:
    sent = [go_node("a"), go_node("b", "blue")]
    async with serving(extending(node_cache_capable=False)) as client:
        body = {"Pod": POD, "Nodes": {"metadata": {}, "items": sent}, "NodeNames": None}
        result = await client.call("filter", body)
    assert result["Nodes"]["items"] == sent[:1]
    assert result["NodeNames"] is None
    assert result["FailedAndUnresolvableNodes"] == {"b": "node(s) had another colour"}


async def test_without_a_cache_only_the_nodes_of_the_request_are_known() -> None:
    async with serving(app := extending(node_cache_capable=False)) as client:
        for items in ([go_node("a"), go_node("b")], [go_node("b", "blue")], []):
            await client.call("filter", {"Pod": POD, "Nodes": {"metadata": {}, "items": items or None}})
            assert sorted(app.cache.cluster.nodes.names) == sorted(item["metadata"]["name"] for item in items)


async def test_keys_are_case_insensitive() -> None:
    async with serving(extending(Colour, RED)) as client:
        assert (await client.call("filter", {"pod": POD, "nodenames": ["red"]}))["NodeNames"] == ["red"]


async def test_scores_are_from_0_to_10() -> None:
    async with serving(extending(Colour, RED, BLUE)) as client:
        scores = await client.call("prioritize", {"Pod": POD, "NodeNames": ["blue", "red"]})
    assert sorted(scores, key=lambda priority: priority["Host"]) == [
        {"Host": "blue", "Score": 1},
        {"Host": "red", "Score": 9},
    ]


@pytest.mark.parametrize("form", ["by uid", "in full"])
async def test_victims_are_accepted_in_either_form(form: str) -> None:
    app = extending(Colour, RED)
    for n in range(3):
        app.cache.cluster.put_pod(app.cache.cluster.shapes.info(pod(f"v{n}", node="red")))
    uids = [f"uid-default-v{n}" for n in range(2)]
    by_uid = {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 1}
    in_full = {"Pods": [{"metadata": {"name": "v", "uid": uid}} for uid in uids], "NumPDBViolations": 1}
    async with serving(app) as client:
        body = {
            "Pod": POD,
            "NodeNameToVictims": {"red": in_full} if form == "in full" else None,
            "NodeNameToMetaVictims": {"red": by_uid} if form == "by uid" else None,
        }
        assert await client.call("preempt", body) == {"NodeNameToMetaVictims": {"red": by_uid}}


async def test_requests_fail_until_the_cache_is_synced() -> None:
    app = extending(Colour, RED)
    app.cache.synced = False
    async with serving(app) as client:
        assert (await client.post("filter", {"Pod": POD, "NodeNames": ["red"]}))[0] == 503
        assert await client.get("healthz") == 200
        assert await client.get("readyz") == 503
        app.cache.synced = True
        assert await client.get("readyz") == 200


async def test_only_capable_verbs_are_served() -> None:
    async with serving(extending(Failing, node_cache_capable=False)) as client:
        assert [(await client.post(verb, {}))[0] for verb in ("prioritize", "preempt", "bind")] == [404] * 3


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "invalid request: invalid JSON"),
        (b'{"Pod": ' + b"[" * 100_000, "invalid request: invalid JSON"),
        (b'{"NodeNames": []}', "invalid request: Object missing required field `Pod`"),
        ({"Pod": {"spec": 3}, "NodeNames": []}, "invalid request: spec: Expected `object`, got `int`"),
        ({"Pod": POD, "NodeNames": "red"}, "invalid request: NodeNames: Expected `array | null`, got `str`"),
        (
            {"Pod": POD, "Nodes": {"items": [{}]}},
            "invalid request: Object missing required field `metadata`",
        ),
    ],
)
async def test_an_invalid_request_is_rejected(body: Any, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(extending(Colour, RED)) as client:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                status, text = await client.post("filter", body)
    assert status == 400
    assert text.startswith(problem)
    assert len(caplog.records) == 1


async def test_a_failing_plugin_is_an_error_in_the_result() -> None:
    async with serving(extending(Failing, RED)) as client:
        result = await client.call("filter", {"Pod": POD, "NodeNames": ["red"]})
    assert result["Error"] == "plugin 'Failing' failed at Filter: LookupError: no such thing"
    assert result["NodeNames"] is None or result["NodeNames"] == []


async def test_node_names_without_a_cache_are_an_error() -> None:
    async with serving(extending(node_cache_capable=False)) as client:
        result = await client.call("filter", {"Pod": POD, "NodeNames": ["red"]})
        assert "nodeCacheCapable: false" in result["Error"]
        assert (await client.post("prioritize", {"Pod": POD, "NodeNames": ["red"]}))[0] == 500


BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-default-p", "Node": "red"}


def known_pod(app: ExtenderApp, cluster: MemoryCluster) -> None:
    cluster.put(pod("p"))
    app.cache.apply(PODS, "ADDED", cluster.pod("p"))


def binder(app: ExtenderApp, cluster: MemoryCluster) -> ExtenderBinder:
    return ExtenderBinder(cluster, app.cache, clock=WallClock(), random=Random(1))


async def test_a_bound_pod_is_assumed_immediately() -> None:
    app, cluster = extending(Colour, RED, binds=True), MemoryCluster()
    known_pod(app, cluster)
    async with serving(app, binder(app, cluster)) as client:
        assert await client.call("bind", BIND) == {"Error": ""}
    assert cluster.bindings == [("default/p", "red")]
    assert app.cache.cluster.is_assumed("uid-default-p")


async def test_a_failed_binding_is_forgotten() -> None:
    app, cluster = extending(Colour, RED, binds=True), MemoryCluster()
    known_pod(app, cluster)
    cluster.bind_failures.append(APIError(409, "Conflict", "taken"))
    async with serving(app, binder(app, cluster)) as client:
        assert await client.call("bind", BIND) == {"Error": "taken"}
    assert app.cache.cluster.placed_pod("uid-default-p") is None


@pytest.mark.parametrize(
    ("node_name", "place", "logged"),
    [
        ("red", "red", "The watch has not shown the binding of pod default/p for half a minute"),
        ("", None, "The binding of pod default/p to node red had succeeded; it is not bound"),
        ("blue", "blue", "The binding of pod default/p to node red had succeeded; it is on node blue"),
        (None, None, "The binding of pod default/p to node red had succeeded; it is gone"),
    ],
)
def test_a_pod_whose_binding_the_watch_does_not_confirm_is_read(
    node_name: str | None, place: str | None, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    class UnfaithfulCluster(MemoryCluster):
        async def bind(self, pod: ObjectReference, node_name: str) -> None:
            """Success without effect."""

        async def read_pod(self, read: ObjectReference) -> Pod | None:
            return None if node_name is None else pod("p", node=node_name)

    async def main() -> None:
        app, cluster = extending(Colour, RED, binds=True), UnfaithfulCluster()
        known_pod(app, cluster)
        clock = VirtualClock(asyncio.get_running_loop())
        binding = ExtenderBinder(cluster, app.cache, clock=clock, random=Random(1))
        await binding.bind(convert(BindingArgs, BIND))
        await asyncio.sleep(29)
        assert not caplog.records
        assert placed(app) == "red"
        await asyncio.sleep(2)
        assert placed(app) == place

    def placed(app: ExtenderApp) -> str | None:
        found = app.cache.cluster.placed_pod("uid-default-p")
        return None if found is None else found.node_name

    with caplog.at_level(logging.INFO):
        run(main())
    assert [record.message for record in caplog.records] == [logged]


def test_a_pod_whose_binding_the_watch_confirms_is_not_read() -> None:
    class UnreadableCluster(MemoryCluster):
        async def read_pod(self, read: ObjectReference) -> Pod | None:
            raise AssertionError("read")

    async def main() -> None:
        app, cluster = extending(Colour, RED, binds=True), UnreadableCluster()
        known_pod(app, cluster)
        clock = VirtualClock(asyncio.get_running_loop())
        binding = ExtenderBinder(cluster, app.cache, clock=clock, random=Random(1))
        await binding.bind(convert(BindingArgs, BIND))
        app.cache.apply(PODS, "MODIFIED", pod("p", node="red"))
        await asyncio.sleep(100)
        assert not app.cache.cluster.is_assumed("uid-default-p")

    run(main())


def test_a_profile_without_filter_and_score_plugins_is_rejected() -> None:
    with pytest.raises(InputError, match="nothing to serve"):
        extending(Reserving)


async def test_an_address_in_use_is_reported() -> None:
    app = extending(Colour)
    server = ExtenderServer(ProfileExtender(app.cache.cluster, app.profile), app.cache, app.capabilities)
    async with server.listen("127.0.0.1", 0) as port:
        with pytest.raises(KubestowError, match=f"cannot listen on 127.0.0.1:{port}: "):
            async with server.listen("127.0.0.1", port):
                pass


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (("", "", "ca"), "--client-ca-file: requires"),
        (("cert", "", ""), "--tls-cert-file, --tls-private-key-file: must be set together"),
        (("/nowhere", "/nowhere", ""), "--tls-cert-file: cannot be read: No such file or directory"),
    ],
)
def test_invalid_tls_files_are_reported(files: tuple[str, str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        server_tls(*files)


def test_preempt_requires_a_cache() -> None:
    assert extending(Colour, node_cache_capable=False).capabilities.verbs == ["filter", "prioritize"]
    assert extending(Colour, binds=True).capabilities.verbs == ["filter", "prioritize", "preempt", "bind"]


async def test_a_request_over_the_limit_is_rejected_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MAX_REQUEST_SIZE", 4096)
    async with serving(extending(Colour, RED)) as client:
        status, text = await client.post("filter", b"x" * 5000)
        assert (status, text) == (413, "the request exceeds 4096 bytes\n")
        assert (await client.call("filter", {"Pod": POD, "NodeNames": ["red"]}))["NodeNames"] == ["red"]


async def test_the_requests_in_progress_are_limited_in_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MAX_TOTAL_SIZE", 8000)
    first_part, finish = asyncio.Event(), asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield b" " * 6000
        first_part.set()
        await finish.wait()
        yield json.dumps({"Pod": POD, "NodeNames": ["red"]}).encode()

    async with serving(extending(Colour, RED)) as client:
        slow = asyncio.create_task(client.post("filter", slow_body()))
        await first_part.wait()
        refused = await client.post("filter", b" " * 6000)
        while refused[0] != 503:  # the server may not have received the first part yet
            refused = await client.post("filter", b" " * 6000)
        assert refused[1] == "the requests in progress exceed 8000 bytes\n"
        finish.set()
        assert (await slow)[0] == 200
        assert (await client.call("filter", {"Pod": POD, "NodeNames": ["red"]}))["NodeNames"] == ["red"]


async def test_a_request_that_does_not_arrive_in_time_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_RECEIVE_SECONDS", 0.05)
    never = asyncio.Event()

    async def stalled_body() -> AsyncIterator[bytes]:
        yield b" "
        await never.wait()

    async with serving(extending(Colour, RED)) as client:
        assert (await client.post("filter", stalled_body()))[0] == 408


async def test_a_compressed_body_is_not_expanded() -> None:
    async with serving(extending(Colour, RED)) as client:
        bomb = gzip.compress(b" " * 10_000_000)
        status, _ = await client.post("filter", bomb, headers={"Content-Encoding": "gzip"})
    assert status == 400
