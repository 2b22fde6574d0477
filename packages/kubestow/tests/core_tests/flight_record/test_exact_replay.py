"""Exact replay: equal decisions, and the first difference where something was changed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from core_tests.flight_record.records import MemorySink, recorded, small_record
from kubestow.config import FeatureGates
from kubestow.errors import APIError, Unreachable
from kubestow.flight_record.entries import Answered, Called, Changed, Decided, Header
from kubestow.flight_record.exact_replay import ReplayResult, recorded_gates, replay
from kubestow.flight_record.segment import Chunk, Segment
from kubestow.rules.minors import Minor
from kubestow.testing.builders import node, pod
from kubestow.testing.memory_cluster import MemoryCluster


@pytest.fixture(scope="module")
def sink() -> MemorySink:
    return small_record()


def replayed(sink: MemorySink, path: Path) -> ReplayResult:
    path.write_bytes(sink.content())
    return replay(Segment(path))


def test_decisions_ties_and_victims_are_the_same(sink: MemorySink, tmp_path: Path) -> None:
    result = replayed(sink, tmp_path / "record.bin")
    decisions = [entry for chunk in sink.chunks for entry in chunk.entries if isinstance(entry, Decided)]
    assert (result.divergence, result.damage) == (None, None)
    assert result.decisions == len(decisions)
    assert any(decision.victims for decision in decisions)
    assert {decision.node for decision in decisions} >= {"node-0", "node-1", "node-2"}


def test_a_replay_does_not_depend_on_string_hashing(sink: MemorySink, tmp_path: Path) -> None:
    path = tmp_path / "record.bin"
    path.write_bytes(sink.content())
    program = (
        "import sys; from pathlib import Path; from kubestow.flight_record.exact_replay import replay;"
        "from kubestow.flight_record.segment import Segment;"
        "print(replay(Segment(Path(sys.argv[1]))).divergence)"
    )
    for number in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": number, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", program, str(path)]
        assert subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout == "None\n"


def with_header(sink: MemorySink, **changes: object) -> MemorySink:
    return replace(sink, headers=[structs.replace(sink.headers[0], **changes)])


def changed(sink: MemorySink, kind: type, change: dict[str, object]) -> MemorySink:
    """The record with its first entry of a kind changed."""
    chunks, done = [], False
    for chunk in sink.chunks:
        entries = list(chunk.entries)
        for position, entry in enumerate(entries):
            if isinstance(entry, kind) and not done:
                entries[position], done = structs.replace(entry, **change), True
        chunks.append(Chunk(entries, chunk.monotonic, chunk.wall, chunk.order))
    return replace(sink, chunks=chunks)


def test_another_seed_diverges_at_the_first_tie(sink: MemorySink, tmp_path: Path) -> None:
    state = list(sink.headers[0].random)
    state[1] = [*state[1][1:-1], state[1][0], state[1][-1]]
    divergence = replayed(with_header(sink, random=state), tmp_path / "record.bin").divergence
    assert divergence is not None
    assert divergence.recorded.startswith("decides to place pod default/pod-")
    assert divergence.replayed.startswith("decides to place pod default/pod-")
    assert divergence.recorded != divergence.replayed


def test_another_configuration_diverges(sink: MemorySink, tmp_path: Path) -> None:
    strategy = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeResourcesFit", "args": strategy}]}
    configuration = {key: sink.headers[0].configuration[key] for key in ("apiVersion", "kind")} | {
        "profiles": [profile]
    }
    divergence = replayed(with_header(sink, configuration=configuration), tmp_path / "record.bin").divergence
    assert divergence is not None


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Decided, {"node": "elsewhere"}),
        (Called, {"method": "other"}),
        (Answered, {"call": 99}),
        (Changed, {"steps": 10**6}),
        (Changed, {"readings": 10**6}),
        (Changed, {"resource": 99}),
        (Changed, {"object": {"metadata": 7}}),
    ],
)
def test_a_changed_entry_is_the_first_difference(
    sink: MemorySink, tmp_path: Path, kind: type, change: dict[str, object]
) -> None:
    divergence = replayed(changed(sink, kind, change), tmp_path / "record.bin").divergence
    assert divergence is not None
    assert divergence.recorded or divergence.replayed


def test_lost_responses_and_refused_bindings_are_replayed(tmp_path: Path) -> None:
    async def program(cluster: MemoryCluster) -> None:
        cluster.bind_failures = [APIError(409, "Conflict", "in conflict"), Unreachable("server", "cut off")]
        cluster.lost_responses = [Unreachable("server", "cut off")]
        cluster.patch_failures = [APIError(500, "InternalError", "failed", retry_after=2.0)]
        cluster.put(node("node"))
        for number in range(4):
            cluster.put(pod(f"pod-{number}"))
        await asyncio.sleep(20)

    sink = recorded(program)
    result = replayed(sink, tmp_path / "record.bin")
    assert result.divergence is None
    assert sum(isinstance(e, Answered) and e.failure is not None for c in sink.chunks for e in c.entries) >= 3


def test_the_header_has_no_secrets_of_extenders() -> None:
    header: Header = small_record().headers[0]
    assert "kubeconfig" not in header.configuration.get("clientConnection", {})
    assert header.configuration.get("extenders", []) == []


@pytest.mark.parametrize(
    ("header", "minor"),
    [
        ({"emulated_version": "1.33"}, "1.33"),
        ({"emulated_version": ""}, "1.36"),
        ({"emulated_version": "", "has_scheduler": False, "server_version": "v1.34.1+k3s1"}, "1.34"),
    ],
)
def test_a_record_is_decided_as_the_version_that_it_tells(
    sink: MemorySink, header: dict[str, object], minor: str
) -> None:
    assert sink.headers[0].emulated_version == "1.36"
    gates = recorded_gates(structs.replace(sink.headers[0], gates={}, **header))
    assert gates == FeatureGates(minor=Minor.parse(minor, subject="test"))
