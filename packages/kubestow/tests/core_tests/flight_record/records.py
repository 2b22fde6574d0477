"""Small records of a scheduler on a cluster in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from kubestow import config
from kubestow.engine.virtual_time import VirtualClock, VirtualTimeLoop
from kubestow.flight_record import journal
from kubestow.flight_record.entries import End, Header
from kubestow.flight_record.journal import RecordedLoop
from kubestow.flight_record.recording import FlightRecorder
from kubestow.flight_record.segment import Chunk, SegmentEncoder
from kubestow.flight_record.writer import SegmentWriter
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.testing.builders import node, pod
from kubestow.testing.memory_cluster import MemoryCluster


class RecordedVirtualLoop(RecordedLoop, VirtualTimeLoop):
    """Virtual time for recorded schedulers."""


@dataclass
class MemorySink:
    """A record in memory; ``headers`` and ``chunks`` are what it consists of."""

    headers: list[Header] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)

    def begin_segment(self, header: Header) -> None:
        self.headers.append(header)

    def accept(self, chunk: Chunk) -> bool:
        self.chunks.append(chunk)
        return True

    def content(self, *, end: bool = True) -> bytes:
        """The record as a file."""
        encoder = SegmentEncoder()
        frames = [encoder.beginning(self.headers[0]), *map(encoder.chunk, self.chunks)]
        return b"".join((*frames, encoder.end(End()) if end else b""))


def recorded(program: Callable[[MemoryCluster], Awaitable[None]]) -> MemorySink:
    """The record of a scheduler that runs while a program changes its cluster."""
    sink, cluster = MemorySink(), MemoryCluster()
    gates = config.FeatureGates()

    async def run() -> None:
        recorder = FlightRecorder(sink)
        scheduler = recorder.create_scheduler(
            config.default_configuration(gates),
            registry=in_tree_registry(),
            environment=Environment(cluster, VirtualClock(asyncio.get_running_loop()), Random(7), recorder),
            gates=gates,
        )
        running = asyncio.create_task(recorder.run(scheduler))
        await scheduler.started()
        await program(cluster)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with asyncio.Runner(loop_factory=RecordedVirtualLoop) as runner:
        runner.run(run())
    return sink


def small_record() -> MemorySink:
    """Three nodes, ten pods that fit, one that preempts another, and one that fits nowhere."""

    async def program(cluster: MemoryCluster) -> None:
        for number in range(3):
            cluster.put(node(f"node-{number}", cpu="4"))
        for number in range(10):
            cluster.put(pod(f"pod-{number}", cpu="1"))
            await asyncio.sleep(0.5)
        cluster.put(pod("urgent", cpu="3", priority=100))
        cluster.put(pod("large", cpu="100"))
        await asyncio.sleep(30)

    return recorded(program)


def long_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record in several files: three nodes, 40 pods that fit, and one that fits nowhere."""
    monkeypatch.setattr(journal, "_ENTRIES", 16)

    async def program(cluster: MemoryCluster) -> None:
        for number in range(3):
            cluster.put(node(f"node-{number}", cpu="20"))
        for number in range(40):
            cluster.put(pod(f"pod-{number}", cpu="1"))
            await asyncio.sleep(0.5)
        cluster.put(pod("large", cpu="100"))
        await asyncio.sleep(30)

    sink, writer = recorded(program), SegmentWriter.in_folder(folder, 24_000)
    writer.begin_segment(sink.headers[0])
    assert all(writer.accept(chunk) for chunk in sink.chunks)
    writer.close()
