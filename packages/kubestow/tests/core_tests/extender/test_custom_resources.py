"""A plugin of an extender reads its custom resources."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import ClassVar

import aiohttp
import numpy as np

from kubestow import config
from kubestow.api.custom import CustomObject
from kubestow.cluster.changes.events import Action
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.extender.extender_app import ExtenderApp, minimal_configuration
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.profile import implements
from kubestow.framework.status import Status, Verdict
from kubestow.plugins import in_tree_registry
from kubestow_devcluster.cluster import DevCluster


class Closures(CustomObject, frozen=True):
    """A ConfigMap with the names of closed nodes."""

    resource: ClassVar[str] = "configmaps.v1."
    data: dict[str, str] = {}


class Open(FilterPlugin):
    """Rejects closed nodes."""

    name = "Open"
    events_to_register = (on(Closures, Action.ADD | Action.UPDATE | Action.DELETE),)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        found = self.handle.cluster.catalog(Closures).get("default", "closures")
        closed = set(found.data) if found is not None else set()
        return Verdict.rejecting(
            np.array([name in closed for name in nodes.names], np.bool_), Status.unresolvable("no")
        )


def served() -> ExtenderApp:
    registry = in_tree_registry() | {"Open": Open}
    profile = config.load(minimal_configuration(["Open"]), implements=implements(registry)).profiles[0]
    return ExtenderApp.of(profile, registry, config.FeatureGates(), node_cache_capable=True, seed=1)


async def test_a_filter_reads_custom_resources() -> None:
    closures = {"metadata": {"name": "closures"}, "data": {"a": "for repairs"}}
    ready, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with DevCluster() as server, aiohttp.ClientSession() as session:
        for name in ("a", "b"):
            await session.post(f"{server.url}/api/v1/nodes", json={"metadata": {"name": name}})
        await session.post(f"{server.url}/api/v1/namespaces/default/configmaps", json=closures)
        running = asyncio.create_task(
            served().run(
                host="127.0.0.1",
                port=0,
                tls=None,
                kubeconfig="",
                master=server.url,
                on_listening=port.set_result,
                on_ready=ready.set,
            )
        )
        await ready.wait()
        request = {"Pod": {"metadata": {"name": "p", "namespace": "default"}, "spec": {}}, "NodeNames": ["a", "b"]}
        async with session.post(f"http://127.0.0.1:{await port}/filter", json=request) as response:
            result = await response.json(content_type=None)
        assert result["NodeNames"] == ["b"]
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
