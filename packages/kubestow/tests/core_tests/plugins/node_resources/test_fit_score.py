"""Which requests of a pod NodeResourcesFit compares and scores, and which scores by resources are kept."""

from __future__ import annotations

from kubestow.cluster.nodes.views import NodeRows
from kubestow.framework.cycle_state import CycleState
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
