"""Which requests of a pod NodeResourcesFit compares and scores, and which scores by resources are kept."""

from __future__ import annotations

import pytest

from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import NodeRows
from kubestow.cluster.pods.pod_groups import PodGroupName
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.gang import Gang, Placement, Proposal
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow.testing import PluginHarness, node, pod

HUGEPAGES = "hugepages-2Mi"
PROFILE = {
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}, {"name": HUGEPAGES, "weight": 1}],
                }
            },
        }
    ]
}
NODES = [node("n", cpu="4", allocatable={HUGEPAGES: "4Gi"})]


def score(container: dict[str, str], pod_level: dict[str, str]) -> int:
    incoming = pod("p", requests=container, spec={"resources": {"requests": pod_level}})
    return PluginHarness(NODES, profile=PROFILE).scores(incoming, "NodeResourcesFit")["n"]


def test_pod_level_requests_do_not_enter_the_score() -> None:
    assert score({"cpu": "1"}, {"cpu": "4"}) == 25


def test_hugepages_that_only_the_pod_level_requests_are_left_out_of_the_score() -> None:
    assert score({"cpu": "1"}, {HUGEPAGES: "4Gi"}) == 25


def test_hugepages_of_containers_enter_the_score_even_if_the_pod_level_replaces_them() -> None:
    assert score({"cpu": "1", HUGEPAGES: "3Gi"}, {HUGEPAGES: "4Gi"}) == (25 + 75) // 2


def test_a_resource_that_a_node_does_not_have_is_left_out_of_its_score() -> None:
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    arguments = {"scoringStrategy": {"type": "MostAllocated", "resources": resources}}
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}
    sizes = [node("with", cpu="4", memory="400Mi"), node("without", cpu="4", memory="0")]
    harness = PluginHarness(sizes, profile=profile)
    # A pod without a request of memory is scored at 200 MiB.
    assert harness.scores(pod("p", cpu="1"), "NodeResourcesFit") == {"with": (25 + 50) // 2, "without": 25}


def test_the_score_of_a_row_is_by_the_strategy_too() -> None:
    harness = PluginHarness(NODES, profile=PROFILE)
    info = harness.info(pod("p", requests={"cpu": "1", HUGEPAGES: "3Gi"}))
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if isinstance(p, NodeResourcesFit))
    assert plugin.score_rows(CycleState(), info, NodeRows(harness.cluster.nodes, range(1))) == [50]


def test_only_extended_resources_are_ignored() -> None:
    arguments = {"ignoredResources": [HUGEPAGES, "example.com/gpu"], "ignoredResourceGroups": ["example.org"]}
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}
    harness = PluginHarness([node("n")], profile=profile)
    assert harness.feasible(pod("p", requests={"example.com/gpu": "1", "example.org/nic": "1"})) == {"n"}
    assert harness.feasible(pod("p", requests={"example.com/nic": "1"})) == set()
    assert harness.feasible(pod("p", requests={HUGEPAGES: "2Mi"})) == set()


def test_scores_by_resources_that_devices_may_stand_for_are_not_kept() -> None:
    """Any allocation of a claim changes how many of the devices are used."""
    resources = [{"name": name, "weight": 1} for name in ("cpu", "example.com/gpu", "example.com/nic")]
    arguments = {
        "NodeResourcesFit": {"scoringStrategy": {"type": "LeastAllocated", "resources": resources}},
        "NodeResourcesBalancedAllocation": {"resources": resources},
    }
    harness = PluginHarness(profile={"pluginConfig": [{"name": name, "args": arguments[name]} for name in arguments]})
    runtime = harness.profiles["default-scheduler"].runtime
    plugins = [plugin for plugin, _ in runtime.plugins.score if plugin.name in arguments]
    assert len(plugins) == 2
    plain, with_device = harness.info(pod(cpu="1")), harness.info(pod(requests={"example.com/gpu": "1"}))
    for plugin in plugins:
        assert runtime.plugin_signature(plugin, plain) is not None
        assert runtime.plugin_signature(plugin, with_device) is None


def placement_score(harness: PluginHarness, *pods: Pod) -> int:
    """The score of all nodes as the placement of a gang."""
    gang = Gang("g", "uid", 1, 1.0, harness.cluster.pod_groups.members(PodGroupName(*"abc")))
    proposal = Proposal(Placement("all", harness.cluster.all_nodes()), [(harness.info(each), "") for each in pods])
    return fit_of(harness).score_placement(gang, proposal)


def fit_of(harness: PluginHarness) -> NodeResourcesFit:
    (found,) = (p for p in harness.profiles["default-scheduler"].plugins if isinstance(p, NodeResourcesFit))
    return found


def test_a_placement_is_scored_by_the_use_of_all_its_nodes_together() -> None:
    resources = [{"name": HUGEPAGES, "weight": 3}, {"name": "cpu", "weight": 1}]
    arguments = {"scoringStrategy": {"type": "LeastAllocated", "resources": resources}}
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}
    sizes = [node(name, cpu="5", allocatable={HUGEPAGES: "2Gi"}) for name in "ab"]
    harness = PluginHarness(sizes, [pod("there", node="a", cpu="2")], profile=profile)
    one, two = pod("one", cpu="1"), pod("two", requests={"cpu": "3", HUGEPAGES: "1Gi"})
    # Whatever the strategy for nodes, the fullest placement is the best one.
    assert placement_score(harness, one) == 30
    assert placement_score(harness, one, two) == (3 * 25 + 60) // 4


def test_a_shape_scores_amounts_of_any_size() -> None:
    """A node that offers more than its bytes times 100 fit into 64 bits is scored by itself."""
    shape = [{"utilization": 20, "score": 2}, {"utilization": 60, "score": 10}, {"utilization": 100, "score": 0}]
    resources = [{"name": "memory", "weight": 1}, {"name": "ephemeral-storage", "weight": 3}]
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": resources,
        "requestedToCapacityRatio": {"shape": shape},
    }
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]}
    nodes = [
        node("large", memory="4Ei", allocatable={"ephemeral-storage": "4Ei"}),
        node("small", memory="400Gi", allocatable={"ephemeral-storage": "400Gi"}),
    ]

    def scores(memory: int, storage: int) -> dict[str, int]:
        """Of a pod that requests so many percent of each node."""
        found: dict[str, int] = {}
        for each, size in zip(nodes, (2**62, 400 * 2**30), strict=True):
            amounts = {"memory": str(size * memory // 100 + 1), "ephemeral-storage": str(size * storage // 100 + 1)}
            found |= PluginHarness([each], profile=profile).scores(pod("p", requests=amounts), "NodeResourcesFit")
        return found

    # (20 + 3 * 100) / 4, (60 + 3 * 75) / 4 = 71.25, (0 + 3 * 25) / 3: a score of zero does not count in the mean.
    assert scores(10, 60) == {"large": 80, "small": 80}
    assert scores(40, 70) == {"large": 71, "small": 71}
    assert scores(99, 90) == {"large": 20, "small": 20}


# -- queueing hints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "requeues"),
    [
        (None, node("n", max_pods=1), True),
        (None, node("n", max_pods=0), False),
        (None, node("n", cpu="1"), False),
        (node("n", cpu="1"), node("n", cpu="2"), True),
        (node("n", memory="1Gi"), node("n", memory="2Gi"), False),
        (node("n", max_pods=1), node("n", max_pods=2), True),
        (node("n"), node("n"), False),
    ],
    ids=["room for one", "room for none", "too small", "more cpu", "more memory", "room for more", "the same"],
)
def test_a_node_requeues_a_pod_that_fits_it_if_it_has_more_of_what_the_pod_needs(
    old: Node | None, new: Node, requeues: bool
) -> None:
    harness = PluginHarness()
    assert fit_of(harness)._is_schedulable_after_node_change(harness.info(pod("p", cpu="2")), old, new) is requeues
