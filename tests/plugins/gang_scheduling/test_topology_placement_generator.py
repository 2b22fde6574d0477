"""TopologyPlacementGenerator and the scores of placements: what they say of groups, without a scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kubestow.api.core import Pod
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName
from kubestow.framework.gang import Gang
from kubestow.framework.placement import Placement, Proposal
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import Code, Status
from kubestow.plugins.gang_scheduling.topology_placement_generator import TopologyPlacementGenerator
from kubestow.testing import World, node, pod
from tests.scheduling.gangs.groups import GATES, group, member, members, together

RACKS = [
    node("a0", labels={"rack": "a"}),
    node("a1", labels={"rack": "a"}),
    node("b0", labels={"rack": "b"}),
    node("c"),
]


class Groups(World):
    """A world with one group, some of whose pods may have nodes."""

    def __init__(self, *pods: Pod, key: str = "rack") -> None:
        super().__init__(RACKS, gates=GATES | {"TopologyAwareWorkloadScheduling": True})
        made = together("train", 2, key) if key else group("train", 2)
        self.cluster.catalog(type(made)).put(made)
        for each in pods:
            info = self.info(each)
            self.cluster.pod_groups.put(info)
            if each.spec.node_name:
                self.cluster.put_pod(info)
        name = PodGroupName(PodGroupAPI.KUBERNETES, "default", "train")
        self.gang = Gang(name, "uid-train", 2, 300.0, self.cluster.pod_groups.members(name))

    @property
    def runtime(self) -> FrameworkRuntime:
        return self.profiles["default-scheduler"].runtime

    def generated(self) -> dict[str, list[str]] | Status | None:
        found = self.runtime.generate_placements(self.gang, [], self.cluster.all_nodes())
        return {p.name: p.nodes.names for p in found} if isinstance(found, Sequence) else found

    def proposal(self, name: str, *pods: Pod) -> Proposal:
        nodes = self.cluster.all_nodes()
        rows = [
            self.cluster.nodes.rows[each.metadata.name] for each in RACKS if each.metadata.labels.get("rack") == name
        ]
        placed_pod = Placement(name, nodes.select(np.array(rows, np.intp)))
        return Proposal(placed_pod, [(self.info(each), "") for each in pods])


def test_every_value_of_the_label_is_a_placement() -> None:
    assert Groups(*members(2, "train")).generated() == {"a": ["a0", "a1"], "b": ["b0"]}


def test_a_group_without_a_constraint_may_go_anywhere() -> None:
    assert Groups(*members(2, "train"), key="").generated() is None


def test_without_a_node_that_has_the_label_there_is_no_placement() -> None:
    found = Groups(*members(2, "train"), key="row").generated()
    assert isinstance(found, Status)
    assert (found.message, found.plugin) == ("no feasible placements found", "TopologyPlacementGenerator")


def test_a_group_follows_those_that_have_nodes() -> None:
    world = Groups(member("first", "train", node="b0"), member("second", "train"))
    assert world.generated() == {"b": ["b0"]}


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (["a0", "b0"], "more than 1 domain found for pod group: a, b"),
        (["c"], "no topology domain found for pod default/p0"),
        (["gone"], 'getting node for pod default/p0: nodeinfo not found for node name "gone"'),
    ],
)
def test_a_group_that_is_in_no_one_place_is_an_error(nodes: list[str], problem: str) -> None:
    found = Groups(*(member(f"p{n}", "train", node=on) for n, on in enumerate(nodes))).generated()
    assert isinstance(found, Status) and found.code is Code.ERROR
    assert found.message == f"cannot determine domain for already scheduled pods: {problem}"


def test_a_placement_that_takes_more_pods_is_better() -> None:
    world = Groups()
    one, two = members(2, "train", cpu="1m")
    assert (
        world.runtime.best_placement(
            world.gang, [world.proposal("a", one), world.proposal("b", one, two)], world.random
        )
        == 1
    )


def test_of_placements_that_take_as_many_the_fuller_one_is_better() -> None:
    world = Groups()
    pair = members(2, "train", cpu="1")
    assert (
        world.runtime.best_placement(world.gang, [world.proposal("a", *pair), world.proposal("b", *pair)], world.random)
        == 1
    )


def test_equals_are_chosen_among_at_random() -> None:
    world = Groups()
    same = [world.proposal("b", *members(1, "train"))] * 3
    assert {world.runtime.best_placement(world.gang, same, world.random) for _ in range(60)} == {0, 1, 2}


def test_a_new_node_and_a_sibling_that_leaves_wake_the_group() -> None:
    plugin = TopologyPlacementGenerator(None, Groups())
    world = Groups()
    first, second, stranger = (world.info(each) for each in (*members(2, "train"), pod("other")))
    (_, leaving) = plugin.events_to_register
    assert leaving.hint is not None
    assert leaving.hint(first, second, None) and not leaving.hint(first, stranger, None)
    labelled = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_LABEL)
    assert any(interest.event.matches(labelled) for interest in plugin.events_to_register)
