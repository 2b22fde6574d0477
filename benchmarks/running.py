"""What is added to a running scheduler: load-aware plugins, a flight record, traces, an extender, in pairs of runs."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import multiprocessing
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Self

import msgspec
from aiohttp import web

from benchmarks.clusters import Engine, node, pod
from benchmarks.harness import Row, Rows
from benchmarks.measurement import Spent, measured, print_profile
from kubestow import config, gc_tuning
from kubestow.api.formats.timestamps import micro_timestamp
from kubestow.api.meta import convert
from kubestow.client.http_extender import HTTPExtender
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.engine.virtual_time import EPOCH, run
from kubestow.flight_record.journal import new_recorded_loop
from kubestow.flight_record.recording import FlightRecorder
from kubestow.flight_record.writer import DEFAULT_SIZE, SegmentWriter
from kubestow.observability.observability import Observability
from kubestow.observability.tracing.attempt_tracer import AttemptTracer
from kubestow.observability.tracing.record_exporter import RecordExporter
from kubestow.plugins import in_tree_registry
from kubestow.plugins.registry import find_plugins
from kubestow.process import WallClock, new_event_loop
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.extenders.stages import Extenders
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.scheduler_harness import SchedulerHarness, running_scheduler
from kubestow_contrib.koordinator.node_metric import NodeMetric

# -- load-aware plugins ------------------------------------------------------------------------------------------------

_LOAD_AWARE = ("LoadVariationRiskBalancing", "LowRiskOverCommitment", "TargetLoadPacking", "LoadAwareScheduling")
_NONE = "none"
_WARM_UP = 5


def load_aware(
    nodes: int = 5000,
    pods: int = 100,
    pairs: int = 100,
    reports: int = 0,
    cases: Sequence[str] = _LOAD_AWARE,
    plugin: Sequence[str] = (),
    profile: bool = False,
) -> Rows:
    """What load-aware plugins cost: two schedulers in one process, one with the plugin, bind batches of pods in turn.

    Queue, cycle, binding and watch run in memory and in virtual time, and every node has metrics; ``--reports`` of them
    change during a batch, one by one. The median CPU time per pod of the batches without and with the plugin, and the
    median and the quartiles of what the plugin adds, in pairs of batches. The case ``none`` shows how far two equal
    schedulers differ; ``--plugin`` registers others, as module:Class. ``--profile`` prints where the time of the
    scheduler with the plugin goes as well.
    """
    gc_tuning.raise_thresholds()  # as `kubestow run`
    registry = find_plugins(plugin)
    for case in cases:
        added = [] if case == _NONE else [registry[case]]
        profiler = cProfile.Profile() if profile else None
        measured_pairs = run(_pairs(case, added, nodes, pairs, (pods, reports), profiler))
        if profiler is not None:
            print_profile(profiler)
        before, after = (median(each) for each in zip(*measured_pairs, strict=True))
        low, middle, high = quantiles([(b / a - 1) * 100 for a, b in measured_pairs], n=4)
        yield (
            case,
            {
                "µs per pod without": before * 1e6,
                "µs with": after * 1e6,
                "% more": middle,
                "% in the lower quartile": low,
                "% in the upper quartile": high,
            },
        )


async def _pairs(
    plugin: str, added: list[Any], nodes: int, pairs: int, sizes: tuple[int, int], profiler: cProfile.Profile | None
) -> list[tuple[float, float]]:
    """The CPU seconds per pod without and with the plugin, in pairs of batches."""
    inventory, reports = [node(number) for number in range(nodes)], [_node_metric(number) for number in range(nodes)]
    enabled = [] if plugin == _NONE else [{"name": plugin}]
    profiles = [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": enabled}}}]
    async with (
        running_scheduler(inventory, cluster=_MeasuredCluster()) as without,
        running_scheduler(
            [*inventory, *reports], cluster=_MeasuredCluster(), plugins=added, profiles=profiles
        ) as with_plugin,
    ):
        baseline, candidate = _BatchScheduler(without, None), _BatchScheduler(with_plugin, profiler)
        measured_pairs = [
            (await baseline.run_batch(*sizes), await candidate.run_batch(*sizes)) for _ in range(_WARM_UP + pairs)
        ]
    return measured_pairs[_WARM_UP:]


class _MeasuredCluster(MemoryCluster):
    """A cluster that serves metrics.k8s.io."""

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """The metrics of all nodes."""
        timestamp = micro_timestamp(EPOCH)
        return {
            "items": [
                {"metadata": {"name": each.metadata.name}, "timestamp": timestamp, "usage": _usage(number)}
                for number, each in enumerate(self.nodes())
            ]
        }


def _usage(number: int) -> dict[str, str]:
    """The usage of a node: a quarter to a half of it."""
    return {"cpu": f"{1000 + number % 1000}m", "memory": f"{10 + number % 5}Gi"}


def _node_metric(number: int) -> NodeMetric:
    """The NodeMetric of a node (koordinator)."""
    status = {"updateTime": micro_timestamp(EPOCH), "nodeMetric": {"nodeUsage": {"resources": _usage(number)}}}
    return convert(NodeMetric, {"metadata": {"name": f"node-{number:05}"}, "status": status})


class _BatchScheduler:
    """A running scheduler that schedules batches of pods."""

    def __init__(self, harness: SchedulerHarness, profiler: cProfile.Profile | None) -> None:
        self._harness, self._profiler = harness, profiler
        self._created = 0

    async def run_batch(self, pods: int, reports: int) -> float:
        """Create pods and wait until they are bound; the CPU seconds per pod. Reports arrive one by one."""
        created = [pod(self._created + number) for number in range(pods)]
        self._created += pods
        cluster = self._harness.cluster
        bound = len(cluster.bindings)
        if self._profiler is not None:
            self._profiler.enable()
        began = process_time()
        for number, each in enumerate(created):
            cluster.put(each)
            if reports and number % (pods // reports) == 0:
                cluster.put(_node_metric(number))
                await self._harness.settle()
        while len(cluster.bindings) < bound + pods:
            await self._harness.settle()
        seconds = process_time() - began
        if self._profiler is not None:
            self._profiler.disable()
        return seconds / pods


# -- flight record -----------------------------------------------------------------------------------------------------


def flight_record(nodes: int = 500, pods: int = 2000, rounds: int = 5) -> Rows:
    """What a flight record costs: the scheduler on a cluster in memory, with and without, in turn.

    The CPU time per bound pod, of all threads, as the least of the rounds: the machine only ever adds to it. There is
    no HTTP, whose cost is several times that of the rest, so the difference is what counts; compare it with the CPU
    time per bound pod of ``end-to-end``. Results: docs/replay.md.
    """
    gc_tuning.raise_thresholds()  # as `kubestow run`
    without, recorded, sizes = [], [], []
    for _ in range(rounds):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            without.append(runner.run(_bind(nodes, pods, None)))
        with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=new_recorded_loop) as runner:
            recorded.append(runner.run(_bind(nodes, pods, Path(folder))))
            sizes.append(sum(path.stat().st_size for path in Path(folder).iterdir()) / pods)
    least, least_recorded = min(without) * 1e6, min(recorded) * 1e6
    yield "without a flight record", {"µs of CPU per bound pod": least}
    figures = {
        "µs of CPU per bound pod": least_recorded,
        "µs more": least_recorded - least,
        "bytes per pod": min(sizes),
    }
    yield "with one", figures


async def _bind(nodes: int, pods: int, folder: Path | None) -> float:
    """CPU seconds per bound pod; with a flight record in ``folder`` if that is given."""
    cluster, gates = MemoryCluster(), config.FeatureGates()
    for number in range(nodes):
        cluster.put(node(number))
    writer = None if folder is None else SegmentWriter.in_folder(folder, DEFAULT_SIZE)
    recorder = None if writer is None else FlightRecorder(writer)
    observability = Observability(WallClock(), gates, also=() if recorder is None else (recorder,))
    create = Scheduler if recorder is None else recorder.create_scheduler
    scheduler = create(
        config.default_configuration(gates),
        registry=in_tree_registry(),
        environment=Environment(cluster, WallClock(), Random(1), observability.observer),
        gates=gates,
    )
    running = asyncio.create_task(scheduler.run() if recorder is None else recorder.run(scheduler))
    await scheduler.started()
    new = [pod(number) for number in range(pods)]
    gc.collect()
    began = process_time()
    for number, arriving in enumerate(new):
        cluster.put(arriving)
        if number % 20 == 19:
            await asyncio.sleep(0)
    while len(cluster.bindings) < pods:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if writer is not None:
        writer.close()
    return (process_time() - began) / pods


# -- traces ------------------------------------------------------------------------------------------------------------


def tracing(
    nodes: int = 500, pods: int = 1000, pairs: int = 40, sampling: float = 0.1, cases: Sequence[str] = ("traces",)
) -> Rows:
    """What traces cost: two schedulers in one process, one with traces, bind batches of pods in turn.

    Both have all metrics; queue, cycle, binding and watch run in memory. The spans go to a process, and from there to a
    collector that discards them. The CPU time of the scheduler's process per pod, as the medians and the least of the
    batches: other load on the machine only ever adds to it. The case ``none`` shows how far two equal schedulers
    differ. Results: docs/tracing.md.
    """
    gc_tuning.raise_thresholds()  # as `kubestow run`
    for case in cases:
        with _serving_process(_serve_collector) as url, asyncio.Runner(loop_factory=new_event_loop) as runner:
            ratio = 0.0 if case == _NONE else sampling
            results, records = runner.run(_tracing_pairs(url, ratio, nodes, pods, pairs))
        before, after = (median(each) for each in zip(*results, strict=True))
        least, least_traced = (min(each) for each in zip(*results, strict=True))
        yield (
            case,
            {
                "µs per pod without": before * 1e6,
                "µs with": after * 1e6,
                "µs without at least": least * 1e6,
                "µs with at least": least_traced * 1e6,
                "% more of the least": (least_traced / least - 1) * 100,
                "% more in the median pair": median((b / a - 1) * 100 for a, b in results),
                "records per pod": records["exported"] / pods / (pairs + _WARM_UP),
                "records lost": records["failed"] + records["dropped"],
            },
        )


async def _tracing_pairs(
    url: str, ratio: float, nodes: int, pods: int, pairs: int
) -> tuple[list[tuple[float, float]], Counter[str]]:
    """The CPU seconds per pod without and with traces, in pairs of batches; and the records by result."""
    records: Counter[str] = Counter()
    exporter = RecordExporter(f"{url}/v1/traces", clock=WallClock())
    exporter.count = lambda result, number: records.update({result: number})
    tracers = [AttemptTracer(ratio, exporter.export, random=Random(2))] if ratio else []
    async with exporter:
        without, traced = [await _BoundInMemory.start(nodes, also) for also in ((), tracers)]
        results = [(await without.bind(pods), await traced.bind(pods)) for _ in range(_WARM_UP + pairs)]
        await without.stop()
        await traced.stop()
    return results[_WARM_UP:], records


class _BoundInMemory:
    """A running scheduler with metrics on a cluster in memory, in real time."""

    def __init__(self, cluster: MemoryCluster, running: asyncio.Task[None]) -> None:
        self._cluster, self._running = cluster, running

    @classmethod
    async def start(cls, nodes: int, also: Sequence[Observer]) -> Self:
        """Start a scheduler; ``also`` are its further observers."""
        cluster, gates = MemoryCluster(), config.FeatureGates()
        for number in range(nodes):
            cluster.put(node(number))
        environment = Environment(
            cluster, WallClock(), Random(1), Observability(WallClock(), gates, also=also).observer
        )
        scheduler = Scheduler(
            config.default_configuration(gates), registry=in_tree_registry(), environment=environment, gates=gates
        )
        running = asyncio.create_task(scheduler.run())
        await scheduler.started()
        return cls(cluster, running)

    async def bind(self, pods: int) -> float:
        """Create pods, wait until they are bound, and delete them; the CPU seconds per pod until they are bound."""
        cluster, first = self._cluster, len(self._cluster.bindings)
        created = [pod(first + number) for number in range(pods)]
        gc.collect()
        began = process_time()
        for number, each in enumerate(created):
            cluster.put(each)
            if number % 20 == 19:
                await asyncio.sleep(0)
        while len(cluster.bindings) < first + pods:
            if self._running.done():
                self._running.result()
            await asyncio.sleep(0.001)
        seconds = process_time() - began
        for each in created:
            cluster.remove(cluster.pod(each.metadata.name))
        await asyncio.sleep(0.01)
        return seconds / pods

    async def stop(self) -> None:
        """Stop the scheduler."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


def _serve_collector(connection: Connection) -> None:
    """Run a collector that takes traces by OTLP over HTTP and discards them, and send its port."""

    async def export(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(content_type="application/x-protobuf")

    application = web.Application(client_max_size=2**30)
    application.router.add_post("/v1/traces", export)
    asyncio.run(_serve(application, connection))


# -- extender ----------------------------------------------------------------------------------------------------------

#: Bytes of padding that make the JSON of a node as large as that of a real one.
_PADDING = 8_000


async def extender(nodes: int = 5000, pods: int = 200) -> AsyncIterator[Row]:
    """Decisions with one extender in another process: filter and prioritize over HTTP for every node.

    The extender responds immediately and rejects no node, so the protocol is measured: with node names, with full
    nodes, and without an extender. The elapsed time and the CPU time of this process per pod.
    """
    with _serving_process(_serve_extender) as url:
        for case, is_cached, count in (("node names", True, pods), ("full nodes", False, max(1, pods // 20))):
            yield case, _per_pod(await _extended(url, nodes, count, is_cached=is_cached), count)
    engine = Engine(nodes)
    infos = engine.infos(map(pod, range(pods)))
    engine.pipeline.decide_by_plugins(infos[0])
    yield "no extender", _per_pod(engine.schedule(infos), pods)


def _per_pod(spent: Spent, pods: int) -> dict[str, float]:
    return {"ms per pod": spent.elapsed / pods * 1e3, "ms of CPU in this process": spent.cpu / pods * 1e3}


async def _extended(url: str, nodes: int, pods: int, *, is_cached: bool) -> Spent:
    """Schedule pods with the extender, one after another."""
    settings = config.Extender(
        url_prefix=url, filter_verb="filter", prioritize_verb="prioritize", weight=1, node_cache_capable=is_cached
    )
    cache = RawObjectCache.for_extenders([settings])
    for number in range(nodes):
        manifest = msgspec.to_builtins(node(number))
        manifest["metadata"]["annotations"] = {"note": "x" * _PADDING}
        cache.store(NODES, node(number), msgspec.Raw(msgspec.json.encode(manifest)))
    for number in range(pods):
        cache.store(PODS, pod(number), msgspec.Raw(msgspec.json.encode(pod(number))))
    engine = Engine(nodes)
    infos = engine.infos(map(pod, range(pods)))
    async with HTTPExtender(settings, cache) as client:
        extenders = Extenders(engine.cluster, [client])
        pipeline = DecisionPipeline(engine.cluster, engine.pipeline.profiles, FirstByName(), extenders)
        await pipeline.decide(infos[0])
        with measured() as spent:
            for info in infos:
                decision = await pipeline.decide(info)
                assert decision.node_name is not None, decision.message
                engine.cluster.assume(info, decision.node_name)
    return spent


@contextmanager
def _serving_process(serve: Callable[[Connection], None]) -> Iterator[str]:
    """The URL of a server in a process of its own, which sends its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()


def _serve_extender(connection: Connection) -> None:
    """Run an extender that accepts every node, and send its port."""

    async def verb(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        names = body["NodeNames"] or [item["metadata"]["name"] for item in body["Nodes"]["items"]]
        if request.path == "/prioritize":
            return web.json_response([{"Host": name, "Score": 5} for name in names])
        return web.json_response({"Nodes": body["Nodes"], "NodeNames": body["NodeNames"]})

    application = web.Application(client_max_size=2**30)
    application.router.add_post("/{verb}", verb)
    asyncio.run(_serve(application, connection))


async def _serve(application: web.Application, connection: Connection) -> None:
    """Run a server for ever, and send its port."""
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    connection.send(runner.addresses[0][1])
    await asyncio.get_running_loop().create_future()
