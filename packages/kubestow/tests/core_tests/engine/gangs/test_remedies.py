"""What would make a gang fit now: fewer pods, other nodes, another level of its topology; each change is verified."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from core_tests.engine.gangs.clusters import most_placed, offline_scheduler, pod_group, worker
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.scheduling import PodGroup
from kubestow.engine.gangs.group_forecast import GroupForecast, GroupState, forecast_groups, forecast_start
from kubestow.engine.gangs.remedies import larger_domains
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError
from kubestow.testing import node, pod

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

GATES = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}
OPTIONS = SchedulerOptions(gates=config.FeatureGates(GATES))


def state(nodes: Sequence[Node], pods: Sequence[Pod], group: PodGroup) -> GroupState:
    """The answer about the group of these pods."""
    found = forecast_groups(ClusterObjects.of(nodes, pods, [group]), pods, OPTIONS)
    assert found is not None
    [answer] = found.groups
    return answer


def changes(nodes: Sequence[Node], pods: Sequence[Pod], group: PodGroup) -> dict[str, dict[str, int]]:
    """The nodes of the pods with each change."""
    return {each.change: dict(each.nodes) for each in state(nodes, pods, group).remedies}


def workers(count: int, cpu: str = "1", **same: Any) -> list[Pod]:
    return [worker(f"w{number}", cpu=cpu, **same) for number in range(count)]


def racks(*names: str, cpu: str = "2") -> list[Node]:
    """Nodes such as a0x: in block a and rack a0."""
    return [node(name, cpu=cpu, labels={"block": name[0], "rack": name[:2]}) for name in names]


def in_segments(minimum: int) -> PodGroup:
    """A group in segments of two pods per rack."""
    annotations = {"kubestow.dev/segment-size": "2", "kubestow.dev/segment-topology": "rack"}
    group = pod_group("train", minimum)
    return msgspec.structs.replace(group, metadata=msgspec.structs.replace(group.metadata, annotations=annotations))


# -- fewer pods --------------------------------------------------------------------------------------------------------


def test_the_most_pods_that_fit_are_proposed() -> None:
    found = state([node("a", cpu="3"), node("b", cpu="2")], workers(7), pod_group("train", 7))

    assert found.state == "Waiting"
    assert "at most 5 pods of the 7 that are needed can be placed" in found.reason
    assert [(each.change, dict(each.nodes)) for each in found.remedies] == [("5 pods instead of 7", {"a": 3, "b": 2})]


def test_pods_of_the_most_numerous_kind_are_left_out() -> None:
    pods = [worker("launcher", cpu="2"), *workers(4)]

    assert changes([node("a", cpu="4")], pods, pod_group("train", 5)) == {"3 pods instead of 5": {"a": 3}}


def test_fewer_pods_are_whole_segments() -> None:
    nodes = racks("a0x", "a1x", "b0x", cpu="3")

    found = changes(nodes, workers(8, cpu="1500m"), in_segments(8))

    assert found == {"6 pods instead of 8": {"a0x": 2, "a1x": 2, "b0x": 2}}


@pytest.mark.parametrize("seed", range(8))
def test_the_proposed_number_of_pods_is_the_largest(seed: int) -> None:
    random = Random(f"remedies {seed}")
    nodes = [node(f"n{number}", cpu=str(random.randint(1, 3))) for number in range(2)]
    pods = workers(random.randint(3, 6), cpu=str(random.choice([1, 2])))
    group = pod_group("train", len(pods))
    scheduler, profile = offline_scheduler(nodes, pods, [group])
    gang = profile.gangs.gang_of(scheduler.cache.shapes.info(pods[0]))
    assert gang is not None
    most = most_placed(scheduler, gang, len(pods), [each.metadata.name for each in nodes])

    found = changes(nodes, pods, group)

    plural = "s" if most > 1 else ""
    assert set(found) == ({f"{most} pod{plural} instead of {len(pods)}"} if 0 < most < len(pods) else set())


# -- other nodes -------------------------------------------------------------------------------------------------------


def test_other_values_of_the_label_that_pods_select_are_proposed() -> None:
    nodes = [node(name, cpu=cpu, labels={"gpu": name}) for name, cpu in (("a", "1"), ("b", "1"), ("c", "4"))]
    pods = workers(2, node_selector={"gpu": "a"})

    assert changes(nodes, pods, pod_group("train", 2)) == {
        "1 pod instead of 2": {"a": 1},
        "nodes with gpu=c": {"c": 2},
        "no node selector and node affinity": {"c": 2},
    }


# -- another level of the topology -------------------------------------------------------------------------------------


def test_the_nearest_level_in_which_the_gang_fits_is_proposed() -> None:
    found = changes(racks("a0x", "a1x", "b0x"), workers(4), pod_group("train", 4, topology="rack"))

    assert found == {
        "2 pods instead of 4": {"a0x": 2},
        "the topology level block instead of rack": {"a0x": 2, "a1x": 2},
    }


def test_fewer_pods_are_those_for_the_domain_with_most_room() -> None:
    nodes = [*racks("a0x", cpu="1"), *racks("a1x", cpu="3"), *racks("b0x", cpu="2")]

    found = changes(nodes, workers(5), pod_group("train", 5, topology="rack"))

    assert found["3 pods instead of 5"] == {"a1x": 3}


def test_no_constraint_is_proposed_if_no_level_has_room() -> None:
    found = changes(racks("a0x", "b0x"), workers(4), pod_group("train", 4, topology="rack"))

    assert found["no topology constraint instead of rack"] == {"a0x": 2, "b0x": 2}


def test_larger_domains_for_segments_are_proposed() -> None:
    assert changes(racks("a0x", "a1x", cpu="1"), workers(2), in_segments(2)) == {
        "the topology level block for segments instead of rack": {"a0x": 1, "a1x": 1}
    }


def test_larger_domains_contain_those_of_a_key_and_are_fewer() -> None:
    nodes = [
        node("a0x", labels={"block": "a", "rack": "a0", "odd": "1", "same": "p"}),
        node("a1x", labels={"block": "a", "rack": "a1", "odd": "2", "same": "p"}),
        node("b0x", labels={"block": "b", "rack": "b0", "odd": "1", "same": "p"}),
        node("b0y", labels={"block": "b", "rack": "b0", "odd": "2", "same": "p"}),
    ]
    scheduler, _ = offline_scheduler(nodes, [], [])

    assert larger_domains(scheduler.cache.all_nodes(), "rack") == ["block", "same"]


# -- the answer --------------------------------------------------------------------------------------------------------


def test_groups_that_fit_or_run_need_no_change() -> None:
    nodes = [node("a", cpu="2")]

    assert state(nodes, workers(2), pod_group("train", 2)).state == "Startable"
    assert state(nodes, workers(2, node="a"), pod_group("train", 2)).state == "Running"


def test_missing_pods_are_the_reason_if_there_are_too_few() -> None:
    assert state([node("a")], workers(1), pod_group("train", 3)).reason == (
        "3 of its pods still need a node, and 1 pod without a node exists"
    )


def test_pods_in_no_group_are_left_to_others() -> None:
    cluster = ClusterObjects.of([node("a")], [pod("alone")])

    assert forecast_groups(cluster, cluster.pods, OPTIONS) is None
    with pytest.raises(InputError, match="job/alone"):
        forecast_start(cluster, cluster.pods, OPTIONS, "job/alone")


def test_the_scheduler_answers_about_groups_in_no_queue() -> None:
    pods = workers(3)
    cluster = ClusterObjects.of([node("a", cpu="2")], pods, [pod_group("train", 3)])

    system, answer = forecast_start(cluster, pods, OPTIONS, "job/train")

    assert system == "the scheduler"
    assert isinstance(answer, GroupForecast)
    assert [each.change for each in answer.would_start_now()["default/train"]] == ["2 pods instead of 3"]
    assert answer.document()["jobs"][0]["state"] == "Waiting"
