"""Scheduling with one extender in another process: filter and prioritize over HTTP for every node.

    .venv/bin/python benchmarks/extender.py [--nodes 5000] [--pods 200]

The extender responds immediately and rejects no node, so the protocol is measured: with node names, with full nodes,
and without an extender. Prints the elapsed time and the CPU time of this process per pod.
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

from core import CoreBenchmark, node, pod
from kubestow import config
from kubestow.client.http_extender import HTTPExtender
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.extenders.stages import Extenders

#: Bytes of padding that make the JSON of a node as large as that of a real one.
PADDING = 8_000


def serve(connection: Connection) -> None:
    """Run an extender that accepts every node, and send its port."""

    async def verb(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        names = body["NodeNames"] or [item["metadata"]["name"] for item in body["Nodes"]["items"]]
        if request.path == "/prioritize":
            result: Any = [{"Host": name, "Score": 5} for name in names]
        else:
            result = {"Nodes": body["Nodes"], "NodeNames": body["NodeNames"]}
        return web.json_response(result)

    async def run() -> None:
        application = web.Application(client_max_size=2**30)
        application.router.add_post("/{verb}", verb)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        connection.send(runner.addresses[0][1])
        await asyncio.get_running_loop().create_future()

    asyncio.run(run())


def fill_cache(cache: RawObjectCache, nodes: int, pods: int) -> None:
    """Put the objects of the cluster into the raw object cache."""
    padding = msgspec.Raw(json.dumps({"note": "x" * PADDING}).encode())
    for number in range(nodes):
        decoded = node(number)
        manifest = {**msgspec.to_builtins(decoded)}
        manifest["metadata"]["annotations"] = msgspec.json.decode(padding)
        cache.store(NODES, decoded, msgspec.Raw(msgspec.json.encode(manifest)))
    for number in range(pods):
        cache.store(PODS, pod(number), msgspec.Raw(msgspec.json.encode(pod(number))))


async def measure(url: str, nodes: int, pods: int, *, cached: bool) -> None:
    """Schedule pods with the extender, one after another."""
    settings = config.Extender(
        url_prefix=url, filter_verb="filter", prioritize_verb="prioritize", weight=1, node_cache_capable=cached
    )
    cache = RawObjectCache.for_extenders([settings])
    fill_cache(cache, nodes, pods)
    benchmark = CoreBenchmark(nodes)
    infos = [benchmark.cluster.shapes.info(pod(number)) for number in range(pods)]
    async with HTTPExtender(settings, cache) as extender:
        extenders = Extenders(benchmark.cluster, [extender])
        pipeline = DecisionPipeline(benchmark.cluster, benchmark.pipeline.profiles, FirstByName(), extenders)
        await pipeline.decide_with_extenders(infos[0])
        began, began_cpu = time.perf_counter(), time.process_time()
        for info in infos:
            place(benchmark, await pipeline.decide_with_extenders(info))
        report(
            "node names" if cached else "full nodes", pods, time.perf_counter() - began, time.process_time() - began_cpu
        )


def place(benchmark: CoreBenchmark, decision: Decision) -> None:
    assert decision.node_name is not None, decision.message
    benchmark.cluster.assume(decision.pod, decision.node_name)


def without(nodes: int, pods: int) -> None:
    """Schedule the same pods without an extender."""
    benchmark = CoreBenchmark(nodes)
    infos = [benchmark.cluster.shapes.info(pod(number)) for number in range(pods)]
    benchmark.pipeline.decide(infos[0])
    began, began_cpu = time.perf_counter(), time.process_time()
    for info in infos:
        place(benchmark, benchmark.pipeline.decide(info))
    report("no extender", pods, time.perf_counter() - began, time.process_time() - began_cpu)


def report(what: str, pods: int, seconds: float, cpu: float) -> None:
    print(f"{what:12} {seconds / pods * 1e3:8.2f} ms per pod, {cpu / pods * 1e3:8.2f} ms CPU in this process")


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
