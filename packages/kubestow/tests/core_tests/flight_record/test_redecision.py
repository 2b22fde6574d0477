"""Re-decision: the recorded arrivals under another configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core_tests.flight_record.records import MemorySink, long_record, recorded, small_record
from core_tests.scheduling.gangs.groups import TEAMS, group, members
from kubestow import config
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.flight_record.entries import End
from kubestow.flight_record.exact_replay import replay
from kubestow.flight_record.recording import ClusterRecorder
from kubestow.flight_record.redecision import Redecision, redecide
from kubestow.flight_record.segment import Segment
from kubestow.flight_record.writer import segment_paths
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import PreFilterPlugin
from kubestow.framework.status import Status
from kubestow.plugins import in_tree_registry
from kubestow.plugins.configuration_file import read_configuration
from kubestow.plugins.registry import find_plugins
from kubestow.scheduling.events.resources import with_custom
from kubestow.testing.builders import node, pod
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.virtual_time import VirtualClock, run

GATES = config.FeatureGates()
REGISTRY = in_tree_registry()


def redecided(sink: MemorySink, path: Path, *disabled: str, **profile: Any) -> Redecision:
    path.write_bytes(sink.content())
    plugins = {"multiPoint": {"disabled": [{"name": name} for name in disabled]}}
    document = {
        "apiVersion": config.API_VERSION,
        "kind": config.KIND,
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins, **profile}],
    }
    return redecide(Segment(path), read_configuration(document, GATES, REGISTRY), REGISTRY, GATES)


def test_under_the_same_configuration_nothing_differs(tmp_path: Path) -> None:
    async def program(cluster: MemoryCluster) -> None:
        for number in range(3):
            cluster.put(node(f"node-{number}", cpu="4"))
        for number in range(12):
            cluster.put(pod(f"pod-{number}", cpu="1"))
            await asyncio.sleep(0.5)
        cluster.put(pod("large", cpu="100"))
        await asyncio.sleep(30)

    result = redecided(recorded(program), tmp_path / "f")
    assert (len(result.pods), result.same()) == (13, 13)


def test_without_preemption_the_victims_stay_and_the_preemptor_is_pending(tmp_path: Path) -> None:
    result = redecided(small_record(), tmp_path / "f", "DefaultPreemption")
    assert [pod.pod for pod in result.newly_pending()] == ["default/urgent"]
    assert "Insufficient cpu" in result.newly_pending()[0].message
    victims = [pod for pod in result.victims_differ() if pod.was_victim]
    assert victims
    assert all(victim.redecided for victim in victims)


def test_packing_moves_pods(tmp_path: Path) -> None:
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    disabled = ("NodeResourcesBalancedAllocation", "PodTopologySpread")
    fit = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]
    result = redecided(small_record(), tmp_path / "f", *disabled, pluginConfig=fit)
    assert result.moved()
    assert len({pod.redecided for pod in result.pods if pod.pod in [f"default/pod-{n}" for n in range(4)]}) == 1


def test_what_others_did_happens_again(tmp_path: Path) -> None:
    async def program(cluster: MemoryCluster) -> None:
        cluster.put(node("node-0", cpu="2"))
        cluster.put(pod("foreign", cpu="1", node="node-0"))
        cluster.put(pod("waits", cpu="2"))
        cluster.put(pod("leaves", cpu="1"))
        await asyncio.sleep(5)
        cluster.remove(pod("leaves"))
        await asyncio.sleep(5)
        cluster.remove(pod("foreign"))
        await asyncio.sleep(20)

    result = redecided(recorded(program), tmp_path / "f")
    assert {pod.pod: (pod.recorded, pod.redecided) for pod in result.pods} == {
        "default/leaves": ("node-0", "node-0"),
        "default/waits": ("node-0", "node-0"),
    }


class Dated(PreFilterPlugin):
    """Rejects all pods with the year."""

    name = "Dated"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return Status.unschedulable(f"it is {self.handle.now().year}")


def test_plugins_see_the_time_of_the_record(tmp_path: Path) -> None:
    """Measurements that plugins compare with the time would be from the future, or too old."""

    async def program(cluster: MemoryCluster) -> None:
        cluster.put(node("node-0"))
        cluster.put(pod("p"))
        await asyncio.sleep(5)

    sink = recorded(program)
    sink.headers[0] = replace(sink.headers[0], began="2031-05-04T03:02:01+00:00")
    path = tmp_path / "f"
    path.write_bytes(sink.content())
    document = {
        "apiVersion": config.API_VERSION,
        "kind": config.KIND,
        "profiles": [{"plugins": {"preFilter": {"enabled": [{"name": "Dated"}]}}}],
    }
    registry = find_plugins(classes={"Dated": Dated})
    (found,) = redecide(Segment(path), read_configuration(document, GATES, registry), registry, GATES).pods
    assert "it is 2031" in found.message


def test_a_run_in_several_files_is_replayed_exactly_in_the_first_and_decided_again_in_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_record(tmp_path, monkeypatch)
    first, *others = [Segment(path) for path in segment_paths(tmp_path)]
    exact = replay(first)
    assert (exact.divergence, exact.end) == (None, End(next_file=others[0].path.name))
    assert exact.decisions > 0
    found: dict[str, tuple[str, str]] = {}
    for segment in others:
        result = redecide(segment, read_configuration(segment.header.configuration, GATES, REGISTRY), REGISTRY, GATES)
        assert (result.newly_pending(), result.newly_placed()) == ([], []), "only the choice among equals differs"
        found |= {pod.pod: (pod.recorded, pod.redecided) for pod in result.pods}
    assert found["default/pod-39"][0]
    assert found["default/large"] == ("", "")
    assert exact.decisions + len(found) >= 41


def test_the_pod_groups_of_other_projects_count(tmp_path: Path) -> None:
    sink, cluster = MemorySink(), MemoryCluster()
    cluster.put(node("n"))
    for name, minimum in (("complete", 2), ("incomplete", 3)):
        cluster.put(group(name, minimum, api=TEAMS))
        for each in members(2, name, api=TEAMS):
            cluster.put(each)

    async def record() -> None:
        recorder = ClusterRecorder(sink, VirtualClock(asyncio.get_running_loop()), with_custom([TEAMS.kind]))
        recording = asyncio.create_task(recorder.run(cluster))
        await asyncio.sleep(1)
        recording.cancel()
        await asyncio.gather(recording, return_exceptions=True)
        assert recorder.events["Team"] == 2

    run(record())
    (tmp_path / "f").write_bytes(sink.content())
    document = {
        "apiVersion": config.API_VERSION,
        "kind": config.KIND,
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}],
    }
    configuration = read_configuration(document, GATES, REGISTRY)
    result = redecide(Segment(tmp_path / "f"), configuration, REGISTRY, GATES, [TEAMS])
    assert [each.redecided for each in result.pods] == ["n", "n", "", ""]
    assert result.remarks == ()
    result = redecide(Segment(tmp_path / "f"), configuration, REGISTRY, GATES)
    assert [each.redecided for each in result.pods] == ["n"] * 4
    assert result.remarks == ("1 resources that only plugins watch were left out",)
