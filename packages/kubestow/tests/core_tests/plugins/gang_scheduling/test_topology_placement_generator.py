"""TopologyPlacementGenerator and the plugins that score placements, without a scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from core_tests.scheduling.gangs.groups import GATES, group, member, members, together
from kubestow.api.core import Pod
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupName
from kubestow.framework.gang import Gang, Placement, Proposal
from kubestow.framework.runtime.gang_runtime import GangRuntime
from kubestow.framework.status import Code, Status
from kubestow.plugins.gang_scheduling.topology_placement import TopologyPlacementGenerator
from kubestow.testing import PluginHarness, node, pod

RACKS = [
    node("a0", labels={"rack": "a"}),
    node("a1", labels={"rack": "a"}),
    node("b0", labels={"rack": "b"}),
    node("c"),
]


class Groups(PluginHarness):
    """Nodes in two racks and one pod group, whose pods may have nodes."""

    def __init__(self, *pods: Pod, key: str = "rack") -> None:
        super().__init__(RACKS, gates=GATES | {"TopologyAwareWorkloadScheduling": True})
        made = together("train", 2, key) if key else group("train", 2)
        self.cluster.catalog(type(made)).put(made)
        for each in pods:
            info = self.info(each)
            self.cluster.pod_groups.put(info)
            if each.spec.node_name:
                self.cluster.put_pod(info)
        name = PodGroupName(KUBERNETES.name, "default", "train")
        self.gang = Gang(name, "uid-train", 2, 300.0, self.cluster.pod_groups.members(name))

    @property
    def runtime(self) -> GangRuntime:
        return self.profiles["default-scheduler"].gangs

    def generated(self) -> dict[str, list[str]] | Status | None:
        found = self.runtime.generate_placements(self.gang, [], self.cluster)
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


def test_a_group_without_a_topology_constraint_has_no_placements() -> None:
    assert Groups(*members(2, "train"), key="").generated() is None


def test_without_a_node_that_has_the_label_no_placement_is_feasible() -> None:
    found = Groups(*members(2, "train"), key="row").generated()
    assert isinstance(found, Status)
    assert (found.message, found.plugin) == ("no feasible placements found", "TopologyPlacementGenerator")


def test_the_domain_of_placed_members_is_the_only_placement() -> None:
    harness = Groups(member("first", "train", node="b0"), member("second", "train"))
    assert harness.generated() == {"b": ["b0"]}


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (["a0", "b0"], "more than 1 domain found for pod group: a, b"),
        (["c"], "no topology domain found for pod default/p0"),
        (["gone"], 'getting node for pod default/p0: nodeinfo not found for node name "gone"'),
    ],
)
def test_placed_members_outside_one_domain_are_an_error(nodes: list[str], problem: str) -> None:
    found = Groups(*(member(f"p{n}", "train", node=on) for n, on in enumerate(nodes))).generated()
    assert isinstance(found, Status) and found.code is Code.ERROR
    assert found.message == f"cannot determine domain for already scheduled pods: {problem}"


def test_a_placement_that_takes_more_pods_scores_higher() -> None:
    harness = Groups()
    one, two = members(2, "train", cpu="1m")
    assert (
        harness.runtime.choose_placement(
            harness.gang, [harness.proposal("a", one), harness.proposal("b", one, two)], harness.random
        )
        == 1
    )


def test_among_placements_that_take_as_many_pods_the_fullest_scores_highest() -> None:
    harness = Groups()
    pair = members(2, "train", cpu="1")
    assert (
        harness.runtime.choose_placement(
            harness.gang, [harness.proposal("a", *pair), harness.proposal("b", *pair)], harness.random
        )
        == 1
    )


def test_one_of_several_equal_placements_is_picked_at_random() -> None:
    harness = Groups()
    same = [harness.proposal("b", *members(1, "train"))] * 3
    assert {harness.runtime.choose_placement(harness.gang, same, harness.random) for _ in range(60)} == {0, 1, 2}


def test_node_changes_and_deleted_members_requeue_the_group() -> None:
    plugin = TopologyPlacementGenerator(None, Groups())
    harness = Groups()
    first, second, other = (harness.info(each) for each in (*members(2, "train"), pod("other")))
    (_, pod_deleted) = plugin.events_to_register
    assert pod_deleted.hint is not None
    assert pod_deleted.hint(first, second, None) and not pod_deleted.hint(first, other, None)
    labelled = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_LABEL)
    assert any(registration.event.matches(labelled) for registration in plugin.events_to_register)


def test_a_gang_is_that_of_the_group_that_exists() -> None:
    harness = Groups(*members(2, "train"))
    plugins = harness.profiles["default-scheduler"].plugins
    (plugin,) = (each for each in plugins if isinstance(each, TopologyPlacementGenerator))
    found, missing = (plugin.gang_of(harness.info(member("a", name))) for name in ("train", "missing"))
    assert found is not None and found.uid == "uid-train"
    assert missing is not None and missing.uid == ""
