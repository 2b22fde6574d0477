"""The extender verbs return the results of the plugins in process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.extender.example_plugins import Colour, Failing, labelled
from kubestow import config
from kubestow.api.core import Node
from kubestow.api.extender import MetaPod, MetaVictims
from kubestow.errors import KubestowError
from kubestow.extender import ProfileExtender
from kubestow.extender.extender_app import ExtenderApp, minimal_configuration
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.testing import PluginHarness, node, pod

ONLY_COLOUR = {
    "plugins": {
        "multiPoint": {
            "enabled": [{"name": name} for name in ("PrioritySort", "Colour", "DefaultBinder")],
            "disabled": [{"name": "*"}],
        }
    }
}


def plugin_harness(*nodes: Node, bound: tuple[object, ...] = ()) -> PluginHarness:
    return PluginHarness(nodes, bound, profile=ONLY_COLOUR, plugins=[Colour])  # type: ignore[arg-type]


def extender(of: PluginHarness) -> ProfileExtender:
    return ProfileExtender(of.cluster, of.profiles["default-scheduler"])


def served(plugin: type[Plugin], *nodes: Node) -> ProfileExtender:
    registry = in_tree_registry() | {plugin.name: plugin}
    profile = config.load(minimal_configuration([plugin.name]), implements=implements(registry)).profiles[0]
    app = ExtenderApp.of(profile, registry, config.FeatureGates(), node_cache_capable=True)
    for added in nodes:
        app.cache.cluster.add_node(added)
    return ProfileExtender(app.cache.cluster, app.profile)


def test_nodes_are_classified_by_the_filters() -> None:
    crowd = tuple(pod(f"crowd-{n}", node="c") for n in range(2))
    nodes = [node(name, labels=labelled(colour)) for name, colour in (("a", "red"), ("b", "blue"), ("c", "red"))]
    result = extender(plugin_harness(*nodes, bound=crowd)).filter(pod("p", labels={"colour": "red"}), ["c", "b", "a"])
    assert result.feasible == ["a"]
    assert result.failed == {"c": "node(s) were crowded"}
    assert result.unresolvable == {"b": "node(s) had another colour"}


def test_the_result_has_only_the_requested_nodes() -> None:
    result = extender(plugin_harness(node("a"), node("b"))).filter(pod("p"), ["b"])
    assert (result.feasible, result.failed) == (["b"], {})


def test_an_unknown_node_fails() -> None:
    assert "not found" in extender(plugin_harness(node("a"))).filter(pod("p"), ["a", "x"]).failed["x"]
    assert "not found" in extender(plugin_harness()).filter(pod("p"), ["x"]).failed["x"]


def test_the_nominated_node_of_the_pod_is_ignored() -> None:
    result = extender(plugin_harness(node("a"), node("b"))).filter(pod("p", nominated="a"), ["a", "b"])
    assert result.feasible == ["a", "b"]


def test_a_pre_filter_rejection_applies_to_every_node() -> None:
    full = ExtenderApp.of(
        config.default_configuration().profiles[0], in_tree_registry(), config.FeatureGates(), node_cache_capable=True
    )
    full.cache.cluster.add_node(node("a"))
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]}
    result = ProfileExtender(full.cache.cluster, full.profile).filter(pod("p", spec=claim), ["a"])
    assert result.unresolvable == {"a": 'persistentvolumeclaim "none" not found'}


def test_a_pre_filter_rejection_leaves_no_preemption_candidates() -> None:
    full = ExtenderApp.of(
        config.default_configuration().profiles[0], in_tree_registry(), config.FeatureGates(), node_cache_capable=True
    )
    full.cache.cluster.add_node(node("a"))
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]}
    served = ProfileExtender(full.cache.cluster, full.profile)
    assert served.preempt(pod("p", spec=claim), {"a": victims("u")}) == {}
    assert served.preempt(pod("p"), {"x": victims("u")}) == {}


def test_unknown_nodes_have_no_score() -> None:
    assert extender(plugin_harness(node("a"))).prioritize(pod("p"), ["x"]) == []


@given(st.lists(st.tuples(st.sampled_from(["red", "blue"]), st.integers(0, 100)), min_size=1, max_size=6))
def test_results_equal_those_of_the_plugin_in_process(nodes: list[tuple[str, int]]) -> None:
    in_process = plugin_harness(*(node(f"n{row}", labels=labelled(*labels)) for row, labels in enumerate(nodes)))
    red, names = pod("p", labels={"colour": "red"}), [f"n{row}" for row in range(len(nodes))]
    assert set(extender(in_process).filter(red, names).feasible) == in_process.feasible(red)
    assert dict(extender(in_process).prioritize(red, names)) == {
        f"n{row}": (number + 5) // 10 for row, (_, number) in enumerate(nodes)
    }


def test_scores_of_several_plugins_are_scaled_to_10() -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Colour", "weight": 3}]}}}
    in_process = PluginHarness([node("a", labels=labelled(number=100)), node("b")], profile=profile, plugins=[Colour])
    scores = dict(extender(in_process).prioritize(pod("p"), ["a", "b"]))
    assert 0 <= scores["b"] < scores["a"] <= 10


def test_a_failing_filter_is_an_error() -> None:
    with pytest.raises(KubestowError, match="'Failing' failed at Filter: LookupError: no such thing"):
        served(Failing, node("a")).filter(pod("p"), ["a"])


def victims(*uids: str) -> MetaVictims:
    return MetaVictims(pods=[MetaPod(uid=uid) for uid in uids], num_pdb_violations=1)


def test_preempt_keeps_candidates_that_pass_without_their_victims() -> None:
    crowd = tuple(pod(f"{name}-{n}", node=name) for name in ("a", "b") for n in range(3))
    served = extender(plugin_harness(node("a"), node("b"), node("c", labels=labelled("blue")), bound=crowd))
    candidates = {
        "a": victims("uid-default-a-0"),
        "b": victims("uid-default-b-0", "uid-default-b-1"),
        "x": victims("u"),
    }
    assert served.preempt(pod("p"), candidates) == {"b": candidates["b"]}
