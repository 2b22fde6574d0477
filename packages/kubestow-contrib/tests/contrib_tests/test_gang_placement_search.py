"""The plugin GangPlacementSearch on a running scheduler in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from contrib_tests.gang_scenarios import bound, group, message, workers
from core_tests.engine.gangs.device_cases import DeviceCase
from kubestow.api.meta import convert
from kubestow.testing import SchedulerHarness, in_virtual_time, node, pod
from kubestow.testing.devices import exactly, slice_of
from kubestow_contrib.gang_placement_search import GangPlacementSearch
from kubestow_contrib.volcano.pod_groups import GROUP_ANNOTATION, TASK_ANNOTATION, VOLCANO, PodGroup

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

GATES = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}
#: Pod after pod takes the emptier node, and in both orders that are tried a pod is left over.
NODES = [node("n4", cpu="4"), node("n6", cpu="6")]
TRAIN = workers("train", "2", "2", "3", "3")


class SlowComputing:
    """Computations that take ten seconds of virtual time."""

    def __init__(self) -> None:
        self.running = 0

    async def run(self, computation: Callable[[], object]) -> None:
        self.running += 1
        await asyncio.sleep(10)
        computation()
        self.running -= 1


def run(
    scenario: Any, *objects: Any, computing: SlowComputing | None = None, has_search: bool = True, **args: Any
) -> None:
    """Run a scenario with the plugin, or without it."""
    enabled = [{"name": "GangScheduling"}, {"name": "GangPlacementSearch"}][: 1 + has_search]
    profile = {
        "plugins": {"multiPoint": {"enabled": enabled}},
        "pluginConfig": [{"name": "GangPlacementSearch", "args": args}],
    }
    plugins = [GangPlacementSearch]
    in_virtual_time(
        scenario,
        *objects,
        plugins=plugins,
        gates=GATES,
        profiles=[profile],
        pod_group_apis=[VOLCANO],
        computing=computing,
    )


def test_a_gang_is_placed_that_does_not_fit_pod_after_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in TRAIN:
            harness.cluster.put(each)
        await harness.settle()
        assert bound(harness, "train") == {"train-0": "n4", "train-1": "n4", "train-2": "n6", "train-3": "n6"}

    run(scenario, *NODES, group("train", 4))


def test_the_certificate_is_the_message_of_all_pods() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", "3", "3", "3"):
            harness.cluster.put(each)
        await harness.settle()
        for number in range(3):
            text = message(harness, f"train-{number}")
            assert "default/train: no placement exists: at most 2 pods of the 3 that are needed can be placed" in text
            assert "cpu: 9.0 cores needed, and 10.0 cores free on nodes that pass the filters, but in parts" in text

    run(scenario, node("a", cpu="5"), node("b", cpu="5"), group("train", 3))


def test_other_pods_are_scheduled_during_a_search() -> None:
    computing = SlowComputing()

    async def scenario(harness: SchedulerHarness) -> None:
        for each in TRAIN:
            harness.cluster.put(each)
        await harness.advance(5)
        assert computing.running == 1
        assert "a placement is being searched for" in message(harness, "train-0")
        harness.cluster.put(pod("other", cpu="1"))
        await harness.settle()
        assert harness.node_of("other")

    run(scenario, *NODES, node("far", cpu="1"), group("train", 4), computing=computing)


def test_a_placement_whose_nodes_were_taken_meanwhile_is_searched_again() -> None:
    computing = SlowComputing()

    async def scenario(harness: SchedulerHarness) -> None:
        for each in TRAIN:
            harness.cluster.put(each)
        await harness.advance(5)
        harness.cluster.put(pod("other", cpu="4", node="n4"))
        harness.cluster.put(node("m4", cpu="4", unschedulable=True))
        await harness.advance(30)
        assert not bound(harness, "train")
        harness.cluster.put(node("m4", cpu="4"))
        await harness.advance(60)
        assert set(bound(harness, "train").values()) == {"m4", "n6"}

    run(scenario, *NODES, group("train", 4), computing=computing)


def test_a_node_that_appears_during_a_search_is_not_missed() -> None:
    computing = SlowComputing()
    pods = workers("train", "2", "2", "3", "3", "6")

    async def scenario(harness: SchedulerHarness) -> None:
        for each in pods:
            harness.cluster.put(each)
        await harness.advance(5)
        harness.cluster.put(node("late", cpu="6"))
        await harness.advance(120)
        assert len(bound(harness, "train")) == 5

    run(scenario, *NODES, group("train", 5), computing=computing)


def test_a_gang_preempts_only_after_its_certificate() -> None:
    computing = SlowComputing()
    blocker = pod("blocker", cpu="2", priority=-1, node="n4")

    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", "3", "3", "3"):
            harness.cluster.put(each)
        await harness.advance(8)
        assert any(each.metadata.name == "blocker" for each in harness.cluster.pods())
        await harness.advance(60)
        assert len(bound(harness, "train")) == 3

    run(scenario, *NODES, blocker, group("train", 3), computing=computing)


def test_a_gang_in_one_rack_is_placed_in_the_rack_that_has_a_placement() -> None:
    nodes = [
        node("a", cpu="5", labels={"rack": "x"}),
        node("b", cpu="4", labels={"rack": "x"}),
        node("c", cpu="4", labels={"rack": "y"}),
        node("d", cpu="6", labels={"rack": "y"}),
    ]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in TRAIN:
            harness.cluster.put(each)
        await harness.settle()
        assert set(bound(harness, "train").values()) <= {"c", "d"}
        assert len(bound(harness, "train")) == 4

    run(scenario, *nodes, group("train", 4, topology="rack"))


def test_a_gang_in_segments_is_placed_in_whole_segments_or_waits() -> None:
    segments = {"kubestow.dev/segment-size": "2", "kubestow.dev/segment-topology": "rack"}
    nodes = [node("a", cpu="3", labels={"rack": "x"}), node("b", cpu="1", labels={"rack": "y"})]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", "1", "1", "1", "1"):
            harness.cluster.put(each)
        await harness.settle()
        assert not bound(harness, "train")
        assert "segments of pods per domain" in message(harness, "train-0")
        harness.cluster.put(node("c", cpu="1", labels={"rack": "y"}))
        await harness.advance(30)
        placed = bound(harness, "train")
        assert sum(name == "a" for name in placed.values()) == 2
        assert len(placed) == 4

    run(scenario, *nodes, group("train", 4, **segments))


# -- preferences -----------------------------------------------------------------------------------------------------

RACKS = [
    *(node(f"x{number}", cpu="2", labels={"rack": "x", "zone": "z"}) for number in range(2)),
    *(node(f"y{number}", cpu="3", labels={"rack": "y", "zone": "z"}) for number in range(2)),
]
PREFERENCE = {"kubestow.dev/preferred-topology": "rack, zone"}
SEGMENTS = {"kubestow.dev/segment-size": "2", "kubestow.dev/segment-preferred-topology": "kubernetes.io/hostname,rack"}


@pytest.mark.parametrize("has_search", [True, False])
def test_a_gang_is_placed_in_one_domain_of_the_best_level_at_which_it_fits(has_search: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in [*workers("small", "1", "1", "1", "1"), *workers("large", "1", "1", "1", "1")]:
            harness.cluster.put(each)
        await harness.settle()
        assert len(bound(harness, "small")) == len(bound(harness, "large")) == 4
        racks = ["".join({name[0] for name in bound(harness, of).values()}) for of in ("small", "large")]
        assert sorted(racks) == ["x", "y"]
        for each in workers("rest", "1", "1"):
            harness.cluster.put(each)
        await harness.settle()
        assert set(bound(harness, "rest").values()) <= {"y0", "y1"}
        for each in workers("wide", "1"):
            harness.cluster.put(each)
        harness.cluster.put(node("far", cpu="1", labels={"rack": "f", "zone": "z"}))
        await harness.settle()
        assert bound(harness, "wide") == {"wide-0": "far"}

    groups = [
        group(name, count, **PREFERENCE) for name, count in {"small": 4, "large": 4, "rest": 2, "wide": 1}.items()
    ]
    run(scenario, *RACKS, *groups, has_search=has_search)


def test_a_gang_that_fits_in_no_preferred_domain_is_placed_in_wider_ones() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", *["1"] * 8):
            harness.cluster.put(each)
        await harness.settle()
        assert len(bound(harness, "train")) == 8

    run(scenario, *RACKS, group("train", 8, **PREFERENCE))


def test_a_preferred_domain_is_found_that_pod_after_pod_does_not_fill() -> None:
    """The nodes of the rack are those of TRAIN; in the emptier zone there is room for any order."""
    in_rack = [node("n4", cpu="4", labels={"rack": "r"}), node("n6", cpu="6", labels={"rack": "r"})]
    elsewhere = [node(f"m{number}", cpu="9", labels={"rack": f"m{number}"}) for number in range(2)]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in TRAIN:
            harness.cluster.put(each)
        await harness.settle()
        assert set(bound(harness, "train").values()) == {"n4", "n6"}

    run(scenario, *in_rack, *elsewhere, group("train", 4, **PREFERENCE))


def test_segments_are_in_preferred_domains_where_they_fit() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", "1", "1", "1", "1"):
            harness.cluster.put(each)
        await harness.settle()
        counts = Counter(bound(harness, "train").values())
        assert counts.total() == 4
        assert all(count == 2 for count in counts.values())

    nodes = [node(f"x{number}", cpu="2", labels={"rack": "x"}) for number in range(3)]
    run(scenario, *nodes, group("train", 4, **SEGMENTS))


def test_segments_that_fit_in_no_preferred_domain_are_in_any() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", "1", "1"):
            harness.cluster.put(each)
        await harness.settle()
        assert len(bound(harness, "train")) == 2

    nodes = [node("a", cpu="1", labels={"rack": "a"}), node("b", cpu="1", labels={"rack": "b"})]
    run(scenario, *nodes, group("train", 2, **SEGMENTS))


# -- devices ---------------------------------------------------------------------------------------------------------


def test_a_gang_is_placed_whose_devices_pod_after_pod_leaves_in_parts() -> None:
    """The node with more CPU attracts each pod, in both orders, until the devices of neither suffice for the last."""
    case = DeviceCase([node("n4", cpu="10"), node("n6", cpu="100")])
    case.slices = [slice_of(*(f"g{number}" for number in range(count)), node=f"n{count}") for count in (4, 6)]
    for count in (2, 2, 3, 3):
        case.add_pod(exactly(count))

    async def scenario(harness: SchedulerHarness) -> None:
        for each in case.pods:
            harness.cluster.put(each)
        await harness.settle()
        assert bound(harness, "w") == {}
        placed = {each.metadata.name: harness.node_of(each.metadata.name) for each in case.pods}
        assert placed == {"w0": "n4", "w1": "n4", "w2": "n6", "w3": "n6"}
        held = [harness.cluster.claim(f"w{number}-own").status.allocation for number in range(4)]
        assert [len(each.devices.results) for each in held if each is not None] == [2, 2, 3, 3]

    run(scenario, *case.nodes, *case.objects(), group("train", 4))


def test_the_certificate_names_the_devices() -> None:
    case = DeviceCase([node(f"n{number}", cpu="9") for number in range(2)])
    case.slices = [slice_of("g0", "g1", "g2", node=f"n{number}") for number in range(2)]
    for _ in range(3):
        case.add_pod(exactly(2))

    async def scenario(harness: SchedulerHarness) -> None:
        for each in case.pods:
            harness.cluster.put(each)
        await harness.settle()
        text = message(harness, "w0")
        assert "no placement exists: at most 2 pods of the 3 that are needed can be placed" in text
        assert "devices of class gpu (driver gpu.example.com): 6 needed, and 6 free on nodes that pass" in text

    run(scenario, *case.nodes, *case.objects(), group("train", 3))


def test_enough_pods_of_each_task_of_a_volcano_job_are_placed() -> None:
    spec = {"minMember": 1, "minTaskMember": {"driver": 1}}
    job = convert(PodGroup, {"metadata": {"name": "job", "namespace": "default", "uid": "job"}, "spec": spec})
    pods = [
        pod(name, cpu=cpu, metadata={"annotations": {GROUP_ANNOTATION: "job", TASK_ANNOTATION: name.partition("-")[2]}})
        for name, cpu in {"a-worker": "1", "b-worker": "1", "c-driver": "2"}.items()
    ]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in pods:
            harness.cluster.put(each)
        await harness.settle()
        assert [harness.node_of(each.metadata.name) for each in pods] == ["", "", "n"]

    run(scenario, node("n", cpu="2"), job)


def test_segments_without_a_size_are_an_error_of_the_pods() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", "1", "1"):
            harness.cluster.put(each)
        await harness.settle()
        assert not bound(harness, "train")
        assert 'kubestow.dev/segment-size is "" and' in message(harness, "train-0")

    run(scenario, *NODES, group("train", 2, **{"kubestow.dev/segment-topology": "rack"}))


def test_searches_wait_for_each_other_and_all_gangs_have_their_turn() -> None:
    computing = SlowComputing()

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(20):
            for each in workers(f"gang{number:02}", "9", "9"):
                harness.cluster.put(each)
        await harness.advance(5)
        assert computing.running == 1
        await harness.advance(1_000)
        assert all("no placement exists" in message(harness, f"gang{number:02}-0") for number in range(20))

    run(scenario, *NODES, *(group(f"gang{number:02}", 2) for number in range(20)), computing=computing)


def test_pods_that_a_model_cannot_describe_are_left_to_the_scheduler() -> None:
    claim = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "missing"}]}

    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", "9", "9", **claim):
            harness.cluster.put(each)
        await harness.settle()
        assert "placement" not in message(harness, "train-0")

    run(scenario, *NODES, group("train", 2))


@pytest.mark.parametrize("seed", range(12))
def test_a_gang_that_was_not_placed_has_no_placement(seed: int) -> None:
    """On random clusters that change during searches: at rest every gang is bound, or its message is a certificate."""
    random = Random(seed)
    sizes = [random.randint(3, 7) for _ in range(random.choice([2, 3]))]
    requests = [random.randint(2, 4) for _ in range(random.choice([3, 4, 5]))]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers("train", *map(str, requests)):
            harness.cluster.put(each)
        await harness.advance(random.randrange(15))
        node_name = random.choice(["n0", "n1"])
        harness.cluster.put(pod("old", cpu="1", node=node_name))
        await harness.advance(random.randrange(15))
        if not bound(harness, "train"):
            harness.cluster.remove(harness.cluster.pod("old"))
        await harness.advance(120)
        placed = bound(harness, "train")
        if placed:
            assert len(placed) == len(requests)
        else:
            assert "no placement exists" in message(harness, "train-0")
            assert not _fits(requests, sizes)

    nodes = [node(f"n{number}", cpu=str(cpu)) for number, cpu in enumerate(sizes)]
    run(scenario, *nodes, group("train", len(requests)), computing=SlowComputing())


def _fits(requests: list[int], sizes: list[int]) -> bool:
    """Whether all requests fit, by trying everything."""
    if not requests:
        return True
    first, *others = requests
    return any(
        size >= first and _fits(others, [*sizes[:number], size - first, *sizes[number + 1 :]])
        for number, size in enumerate(sizes)
    )
