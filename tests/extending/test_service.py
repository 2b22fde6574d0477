"""Requests as kube-scheduler sends them, and what comes back."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp
import pytest

from kubestow import config
from kubestow.api.core import Node
from kubestow.errors import APIError, InputError, KubestowError
from kubestow.extending import Opinions, Service
from kubestow.extending.binding import Binding
from kubestow.extending.running import Extending, alone, server_tls
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.events.resources import PODS
from kubestow.testing import MemoryCluster, node, pod
from kubestow.wall_clock import WallClock
from tests.extending.example_plugins import Colour, Failing, Reserving, labelled

#: What Go makes of a v1.Pod: nulls for times, empty structs, resources as texts.
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
    """A v1.Node as Go writes it."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": None, "labels": {"colour": colour}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {"machineID": "", "architecture": "amd64"},
        },
    }


def extending(plugin: type[Plugin] = Colour, *nodes: Node, cached: bool = True, binds: bool = False) -> Extending:
    registry = in_tree_registry() | {plugin.name: plugin}
    profile = config.load(alone([plugin.name]), implements=implements(registry)).profiles[0]
    made = Extending.of(profile, registry, config.FeatureGates(), cached=cached, binds=binds)
    for one in nodes:
        made.mirror.cluster.add_node(one)
    made.mirror.synced = True
    return made


class Asking:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def post(self, verb: str, body: Any) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self._session.post(f"{self._url}/{verb}", data=data) as response:
            return response.status, await response.text()

    async def answer(self, verb: str, body: Any) -> Any:
        status, text = await self.post(verb, body)
        assert status == 200, text
        return json.loads(text)

    async def get(self, path: str) -> int:
        async with self._session.get(f"{self._url}/{path}") as response:
            return response.status


@asynccontextmanager
async def serving(made: Extending, binding: Binding | None = None) -> AsyncIterator[Asking]:
    opinions = Opinions(made.mirror.cluster, made.profile)
    service = Service(opinions, made.mirror, made.offer, None if binding is None else binding.bind)
    async with service.listening("127.0.0.1", 0) as port, aiohttp.ClientSession() as session:
        yield Asking(session, f"http://127.0.0.1:{port}")


RED, BLUE = node("red", labels=labelled("red", 92)), node("blue", labels=labelled("blue", 14))


async def test_names_are_answered_with_names() -> None:
    async with serving(extending(Colour, RED, BLUE)) as asking:
        answer = await asking.answer("filter", {"Pod": POD, "Nodes": None, "NodeNames": ["red", "blue"]})
    assert answer == {
        "Nodes": None,
        "NodeNames": ["red"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"blue": "node(s) had another colour"},
        "Error": "",
    }


async def test_nodes_are_answered_with_the_same_nodes() -> None:
    sent = [go_node("a"), go_node("b", "blue")]
    async with serving(extending(cached=False)) as asking:
        body = {"Pod": POD, "Nodes": {"metadata": {}, "items": sent}, "NodeNames": None}
        answer = await asking.answer("filter", body)
    assert answer["Nodes"]["items"] == sent[:1]
    assert answer["NodeNames"] is None
    assert answer["FailedAndUnresolvableNodes"] == {"b": "node(s) had another colour"}


async def test_without_a_cache_only_the_nodes_of_the_request_are_there() -> None:
    async with serving(made := extending(cached=False)) as asking:
        for items in ([go_node("a"), go_node("b")], [go_node("b", "blue")], []):
            await asking.answer("filter", {"Pod": POD, "Nodes": {"metadata": {}, "items": items or None}})
            assert sorted(made.mirror.cluster.nodes.names) == sorted(item["metadata"]["name"] for item in items)


async def test_keys_may_be_spelled_in_any_case() -> None:
    async with serving(extending(Colour, RED)) as asking:
        assert (await asking.answer("filter", {"pod": POD, "nodenames": ["red"]}))["NodeNames"] == ["red"]


async def test_scores_are_from_0_to_10() -> None:
    async with serving(extending(Colour, RED, BLUE)) as asking:
        scores = await asking.answer("prioritize", {"Pod": POD, "NodeNames": ["blue", "red"]})
    assert sorted(scores, key=lambda one: one["Host"]) == [{"Host": "blue", "Score": 1}, {"Host": "red", "Score": 9}]


@pytest.mark.parametrize("form", ["by uid", "in full"])
async def test_victims_are_understood_in_either_form(form: str) -> None:
    made = extending(Colour, RED)
    for n in range(3):
        made.mirror.cluster.put_pod(made.mirror.cluster.shapes.info(pod(f"v{n}", node="red")))
    uids = [f"uid-default-v{n}" for n in range(2)]
    by_uid = {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 1}
    in_full = {"Pods": [{"metadata": {"name": "v", "uid": uid}} for uid in uids], "NumPDBViolations": 1}
    async with serving(made) as asking:
        body = {
            "Pod": POD,
            "NodeNameToVictims": {"red": in_full} if form == "in full" else None,
            "NodeNameToMetaVictims": {"red": by_uid} if form == "by uid" else None,
        }
        assert await asking.answer("preempt", body) == {"NodeNameToMetaVictims": {"red": by_uid}}


async def test_a_cache_that_is_not_filled_yet_is_not_asked() -> None:
    made = extending(Colour, RED)
    made.mirror.synced = False
    async with serving(made) as asking:
        assert (await asking.post("filter", {"Pod": POD, "NodeNames": ["red"]}))[0] == 503
        assert await asking.get("healthz") == 200
        assert await asking.get("readyz") == 503
        made.mirror.synced = True
        assert await asking.get("readyz") == 200


async def test_only_what_is_offered_is_served() -> None:
    async with serving(extending(Failing, cached=False)) as asking:
        assert [(await asking.post(verb, {}))[0] for verb in ("prioritize", "preempt", "bind")] == [404] * 3


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "the request cannot be read: invalid JSON"),
        (b'{"Pod": ' + b"[" * 100_000, "the request cannot be read: invalid JSON"),
        (b'{"NodeNames": []}', "the request cannot be read: Object missing required field `Pod`"),
        ({"Pod": {"spec": 3}, "NodeNames": []}, "the request cannot be read: spec: Expected `object`, got `int`"),
        ({"Pod": POD, "NodeNames": "red"}, "the request cannot be read: NodeNames: Expected `array | null`, got `str`"),
        (
            {"Pod": POD, "Nodes": {"items": [{}]}},
            "the request cannot be read: Object missing required field `metadata`",
        ),
    ],
)
async def test_a_request_that_cannot_be_read_is_refused(
    body: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(extending(Colour, RED)) as asking:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                status, text = await asking.post("filter", body)
    assert status == 400
    assert text.startswith(problem)
    assert len(caplog.records) == 1


async def test_a_plugin_that_fails_is_an_error_in_the_answer() -> None:
    async with serving(extending(Failing, RED)) as asking:
        answer = await asking.answer("filter", {"Pod": POD, "NodeNames": ["red"]})
    assert answer["Error"] == "plugin 'Failing' failed at Filter: LookupError: no such thing"
    assert answer["NodeNames"] is None or answer["NodeNames"] == []


async def test_names_alone_do_not_help_an_extender_without_a_cache() -> None:
    async with serving(extending(cached=False)) as asking:
        answer = await asking.answer("filter", {"Pod": POD, "NodeNames": ["red"]})
        assert "nodeCacheCapable: false" in answer["Error"]
        assert (await asking.post("prioritize", {"Pod": POD, "NodeNames": ["red"]}))[0] == 500


BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-default-p", "Node": "red"}


def known_pod(made: Extending, cluster: MemoryCluster) -> None:
    cluster.put(pod("p"))
    made.mirror.apply(PODS, "ADDED", cluster.pod("p"))


def binding(made: Extending, cluster: MemoryCluster) -> Binding:
    return Binding(cluster, made.mirror, clock=WallClock(), random=Random(1))


async def test_a_bound_pod_is_on_its_node_at_once() -> None:
    made, cluster = extending(Colour, RED, binds=True), MemoryCluster()
    known_pod(made, cluster)
    async with serving(made, binding(made, cluster)) as asking:
        assert await asking.answer("bind", BIND) == {"Error": ""}
    assert cluster.bindings == [("default/p", "red")]
    assert made.mirror.cluster.is_assumed("uid-default-p")


async def test_a_binding_that_fails_leaves_nothing_behind() -> None:
    made, cluster = extending(Colour, RED, binds=True), MemoryCluster()
    known_pod(made, cluster)
    cluster.bind_failures.append(APIError(409, "Conflict", "taken"))
    async with serving(made, binding(made, cluster)) as asking:
        assert await asking.answer("bind", BIND) == {"Error": "taken"}
    assert made.mirror.cluster.placed_pod("uid-default-p") is None


def test_a_profile_that_neither_filters_nor_scores_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to serve"):
        extending(Reserving)


async def test_an_address_that_is_taken_is_told() -> None:
    made = extending(Colour)
    service = Service(Opinions(made.mirror.cluster, made.profile), made.mirror, made.offer)
    async with service.listening("127.0.0.1", 0) as port:
        with pytest.raises(KubestowError, match=f"cannot listen on 127.0.0.1:{port}: "):
            async with service.listening("127.0.0.1", port):
                pass


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (("", "", "ca"), "--client-ca-file: goes with"),
        (("cert", "", ""), "goes together with --tls-private-key-file"),
        (("/nowhere", "/nowhere", ""), "--tls-cert-file: cannot be read: No such file or directory"),
    ],
)
def test_tls_files_that_cannot_be_used_are_told(files: tuple[str, str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        server_tls(*files)


def test_an_offer_without_a_cache_does_not_judge_preemptions() -> None:
    assert extending(Colour, cached=False).offer.verbs == ["filter", "prioritize"]
    assert extending(Colour, binds=True).offer.verbs == ["filter", "prioritize", "preempt", "bind"]
