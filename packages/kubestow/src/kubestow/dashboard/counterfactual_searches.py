"""The changes that would make a pod fit, searched for on request, in a process of its own.

The search decides about the pod again and again in a copy of the cluster, which takes seconds in a large one: in the
scheduler's own process nothing would be scheduled meanwhile. The objects are pickled in small steps, so that
scheduling goes on while they are sent. There is one process at a time; results are kept for a short while.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import msgspec

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates, KubeSchedulerConfiguration
from kubestow.errors import KubestowError
from kubestow.framework.interface import Plugin
from kubestow.plugins.registry import find_plugins
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.scheduler import Scheduler

_TIMEOUT = 45.0
#: Searches that wait for the one that is running, and for how many seconds and pods results are kept.
_MAX_WAITING, _RESULT_SECONDS, _MAX_RESULTS = 4, 30.0, 64
#: Objects that are pickled between two turns of the event loop.
_BATCH = 200

_CHILD = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from kubestow.dashboard.counterfactual_searches import main
main()
"""


class SearchFailed(KubestowError):
    """A search did not take place, or ended without a result."""


class _Search(msgspec.Struct, frozen=True):
    """The pods that wait for the same reason, and with which scheduler."""

    pods: list[str]
    configuration: KubeSchedulerConfiguration
    gates: FeatureGates
    plugins: list[type[Plugin]]


class CounterfactualSearches:
    """Searches for the pods of one scheduler, whose configuration and feature gates are given."""

    def __init__(
        self, scheduler: Scheduler, configuration: KubeSchedulerConfiguration, gates: FeatureGates, clock: Clock
    ) -> None:
        self._scheduler, self._configuration, self._gates, self._clock = scheduler, configuration, gates, clock
        self._lock = asyncio.Lock()
        self._waiting = 0
        #: When each result was found, in seconds of the clock, and the result; by uid or group.
        self._results: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()

    async def search(self, infos: Sequence[PodInfo], group: str = "") -> dict[str, Any]:
        """The counterfactuals of the first of some pods, as plain data: those that help most pods first.

        For one pod these are the smallest changes. ``group`` is the id of their reason. Raises SearchFailed.
        """
        if self._waiting >= _MAX_WAITING:
            raise SearchFailed("other searches are in progress; try again in a few seconds")
        self._waiting += 1
        try:
            async with self._lock:
                return await self._search(infos, group or infos[0].uid)
        finally:
            self._waiting -= 1

    async def _search(self, infos: Sequence[PodInfo], subject: str) -> dict[str, Any]:
        found_at, result = self._results.get(subject, (0.0, None))
        if result is not None and self._clock.monotonic() - found_at < _RESULT_SECONDS:
            return result
        result = await _run(self._encoded(infos))
        self._results[subject] = self._clock.monotonic(), result
        self._results.move_to_end(subject)
        if len(self._results) > _MAX_RESULTS:
            self._results.popitem(last=False)
        return result

    def _encoded(self, infos: Sequence[PodInfo]) -> Iterator[bytes]:
        """The input of the process: the search, then nodes, pods and other objects, each with the number of bytes."""
        cluster = self._scheduler.cluster
        plugins = {type(plugin) for profile in self._scheduler.profiles.values() for plugin in profile.plugins}
        others = sorted(plugins - set(find_plugins(minor=self._gates.minor).values()), key=lambda plugin: plugin.name)
        search = _Search([info.key for info in infos], self._configuration, self._gates, others)
        objects = [obj for catalog in cluster.catalogs() for obj in catalog]
        # The objects are immutable, so these lists are the cluster as it is now, however long sending takes.
        collections = (list(cluster.nodes.objects), self._pods(infos), objects)
        yield _framed(search)
        for number, collection in enumerate(collections):
            for start in range(0, len(collection), _BATCH):
                yield _framed((number, collection[start : start + _BATCH]))

    def _pods(self, explained: Sequence[PodInfo]) -> list[Any]:
        """The pods that count: those that are explained, those on nodes, and those nominated for one."""
        cluster, wanted = self._scheduler.cluster, {info.uid for info in explained}
        found = []
        for info in self._scheduler.pods.pods():
            placed_pod = cluster.placed_pod(info.uid)
            if info.uid in wanted or info.spec.node_name or cluster.nomination(info.uid):
                found.append(info.pod)
            elif placed_pod is not None:
                found.append(info.on(placed_pod.node_name).pod)
        return found


def _framed(value: Any) -> bytes:
    try:
        content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SearchFailed(
            f"the search runs in a process of its own, to which this cannot be passed: {error}"
        ) from None
    return len(content).to_bytes(8, "big") + content


async def _run(messages: Iterator[bytes]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CHILD, json.dumps(sys.path)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await _communicate(process, messages)
    except TimeoutError:
        raise SearchFailed(f"the search was ended after {_TIMEOUT:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _communicate(process: Process, messages: Iterator[bytes]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended, without a result
        for message in messages:
            process.stdin.write(message)
            await process.stdin.drain()
            await asyncio.sleep(0)
        process.stdin.close()
    output = await process.stdout.read()
    await process.wait()
    if not output:
        raise SearchFailed(f"the process of the search ended with status {process.returncode}")
    result: dict[str, Any] = msgspec.json.decode(output)
    if "error" in result:
        raise SearchFailed(result["error"])
    return result


# The process


def main() -> None:
    """The process of one search: pickled objects on standard input, the result on standard output in JSON."""
    os.nice(10)  # the scheduler goes first
    try:
        result = _explain(sys.stdin.buffer)
    except KubestowError as error:
        result = {"error": str(error)}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.buffer.write(msgspec.json.encode(result))


def _explain(stream: BinaryIO) -> dict[str, Any]:
    from kubestow.engine.explanation.explain import explain_pods
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions

    messages = _read(stream)
    search: _Search = next(messages)
    collections: tuple[list[Any], ...] = ([], [], [])
    for number, batch in messages:
        collections[number].extend(batch)
    options = SchedulerOptions(search.configuration, search.plugins, search.gates)
    explanation = explain_pods(ClusterObjects.of(*collections), search.pods, options)
    return {
        "pod": explanation.first.pod,
        "pods": len(search.pods),
        "summary": explanation.first.summary(),
        "feasible": explanation.first.feasible,
        "counterfactuals": [
            found.document() | {"text": found.text, "helped": helped} for found, helped in explanation.helpful
        ],
        "remarks": list(explanation.first.remarks),
    }


def _read(stream: BinaryIO) -> Iterator[Any]:
    while header := stream.read(8):
        yield pickle.loads(stream.read(int.from_bytes(header, "big")))
