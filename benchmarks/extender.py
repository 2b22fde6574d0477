"""Decisions with one extender in another process, over HTTP: filter and prioritize, every node asked about.

    .venv/bin/python benchmarks/extender.py [--nodes 5000] [--pods 200]

The extender answers at once and refuses nobody, so what is measured is the protocol: first by names of nodes, then with
the nodes in full, then without an extender. Seconds of this process's CPU beside the time that passes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import msgspec
from aiohttp import web

from core import World, node, pod
from kubestow import config
from kubestow.client.http_extender import HTTPExtender
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.decision.ties import FirstByName
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.extenders.stages import Extenders

#: What makes a node's JSON as large as those of real nodes are, in bytes.
PADDING = 8_000


def serve(told: Connection) -> None:
    """Run an extender that lets everything pass."""

    async def verb(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        names = body["NodeNames"] or [one["metadata"]["name"] for one in body["Nodes"]["items"]]
        if request.path == "/prioritize":
            answer: Any = [{"Host": name, "Score": 5} for name in names]
        else:
            answer = {"Nodes": body["Nodes"], "NodeNames": body["NodeNames"]}
        return web.json_response(answer)

    async def run() -> None:
        application = web.Application(client_max_size=2**30)
        application.router.add_post("/{verb}", verb)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        told.send(runner.addresses[0][1])
        await asyncio.get_running_loop().create_future()

    asyncio.run(run())


def seen(kept: RawObjectCache, nodes: int, pods: int) -> None:
    """Show what is kept for extenders the objects that the world is made of."""
    padding = msgspec.Raw(json.dumps({"note": "x" * PADDING}).encode())
    for number in range(nodes):
        one = node(number)
        whole = {**msgspec.to_builtins(one)}
        whole["metadata"]["annotations"] = msgspec.json.decode(padding)
        kept.store(NODES, one, msgspec.Raw(msgspec.json.encode(whole)))
    for number in range(pods):
        kept.store(PODS, pod(number), msgspec.Raw(msgspec.json.encode(pod(number))))


async def measure(url: str, nodes: int, pods: int, *, cached: bool) -> None:
    """Decide about pods, one after another."""
    settings = config.Extender(
        url_prefix=url, filter_verb="filter", prioritize_verb="prioritize", weight=1, node_cache_capable=cached
    )
    kept = RawObjectCache.for_extenders([settings])
    seen(kept, nodes, pods)
    world = World(nodes)
    infos = [world.cluster.shapes.info(pod(number)) for number in range(pods)]
    async with HTTPExtender(settings, kept) as extender:
        extenders = Extenders(world.cluster, [extender])
        pipeline = DecisionPipeline(world.cluster, world.profiles, FirstByName(), extenders)
        await pipeline.decide_with_extenders(infos[0])
        began, began_cpu = time.perf_counter(), time.process_time()
        for info in infos:
            place(world, await pipeline.decide_with_extenders(info))
        report("by name" if cached else "in full", pods, time.perf_counter() - began, time.process_time() - began_cpu)


def place(world: World, decision: Decision) -> None:
    assert decision.node_name is not None, decision.message
    world.cluster.assume(decision.pod, decision.node_name)


def without(nodes: int, pods: int) -> None:
    """The same pods with nobody else to ask."""
    world = World(nodes)
    infos = [world.cluster.shapes.info(pod(number)) for number in range(pods)]
    world.pipeline.decide(infos[0])
    began, began_cpu = time.perf_counter(), time.process_time()
    for info in infos:
        place(world, world.pipeline.decide(info))
    report("no extender", pods, time.perf_counter() - began, time.process_time() - began_cpu)


def report(what: str, pods: int, seconds: float, cpu: float) -> None:
    print(f"{what:12} {seconds / pods * 1e3:8.2f} ms a pod, {cpu / pods * 1e3:8.2f} ms of CPU here")


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=200)
    options = arguments.parse_args()
    ours, theirs = multiprocessing.Pipe()
    extender = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    extender.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    asyncio.run(measure(url, options.nodes, options.pods, cached=True))
    asyncio.run(measure(url, options.nodes, max(1, options.pods // 20), cached=False))
    without(options.nodes, options.pods)
    extender.terminate()


if __name__ == "__main__":
    main()
