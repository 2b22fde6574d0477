"""What is served is what the plugins say in process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow import config
from kubestow.api.core import Node
from kubestow.api.extender import MetaPod, MetaVictims
from kubestow.errors import KubestowError
from kubestow.extending import Opinions
from kubestow.extending.running import Extending, alone
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.testing import World, node, pod
from tests.extending.example_plugins import Colour, Failing, labelled

ONLY_COLOUR = {
    "plugins": {
        "multiPoint": {
            "enabled": [{"name": name} for name in ("PrioritySort", "Colour", "DefaultBinder")],
            "disabled": [{"name": "*"}],
        }
    }
}


def world(*nodes: Node, bound: tuple[object, ...] = ()) -> World:
    return World(nodes, bound, profile=ONLY_COLOUR, plugins=[Colour])  # type: ignore[arg-type]


def opinions(of: World) -> Opinions:
    return Opinions(of.cluster, of.profiles["default-scheduler"])


def served(plugin: type[Plugin], *nodes: Node) -> Opinions:
    registry = in_tree_registry() | {plugin.name: plugin}
    profile = config.load(alone([plugin.name]), implements=implements(registry)).profiles[0]
    extending = Extending.of(profile, registry, config.FeatureGates(), cached=True)
    for one in nodes:
        extending.mirror.cluster.add_node(one)
    return Opinions(extending.mirror.cluster, extending.profile)


def test_nodes_are_sorted_by_what_the_filters_say() -> None:
    crowd = tuple(pod(f"crowd-{n}", node="c") for n in range(2))
    nodes = [node(name, labels=labelled(colour)) for name, colour in (("a", "red"), ("b", "blue"), ("c", "red"))]
    verdicts = opinions(world(*nodes, bound=crowd)).filter(pod("p", labels={"colour": "red"}), ["c", "b", "a"])
    assert verdicts.passed == ["a"]
    assert verdicts.failed == {"c": "node(s) were crowded"}
    assert verdicts.unresolvable == {"b": "node(s) had another colour"}


def test_only_nodes_that_were_asked_about_are_spoken_of() -> None:
    verdicts = opinions(world(node("a"), node("b"))).filter(pod("p"), ["b"])
    assert (verdicts.passed, verdicts.failed) == (["b"], {})


def test_a_node_that_is_not_known_does_not_pass() -> None:
    assert "not known" in opinions(world(node("a"))).filter(pod("p"), ["a", "x"]).failed["x"]
    assert "not known" in opinions(world()).filter(pod("p"), ["x"]).failed["x"]


def test_a_pods_own_nomination_does_not_narrow_the_answer() -> None:
    verdicts = opinions(world(node("a"), node("b"))).filter(pod("p", nominated="a"), ["a", "b"])
    assert verdicts.passed == ["a", "b"]


def test_a_whole_refusal_is_said_of_every_node() -> None:
    full = Extending.of(
        config.default_configuration().profiles[0], in_tree_registry(), config.FeatureGates(), cached=True
    )
    full.mirror.cluster.add_node(node("a"))
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]}
    verdicts = Opinions(full.mirror.cluster, full.profile).filter(pod("p", spec=claim), ["a"])
    assert verdicts.unresolvable == {"a": 'persistentvolumeclaim "none" not found'}


def test_a_pod_that_is_refused_as_a_whole_evicts_nobody() -> None:
    full = Extending.of(
        config.default_configuration().profiles[0], in_tree_registry(), config.FeatureGates(), cached=True
    )
    full.mirror.cluster.add_node(node("a"))
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]}
    there = Opinions(full.mirror.cluster, full.profile)
    assert there.preempt(pod("p", spec=claim), {"a": victims("u")}) == {}
    assert there.preempt(pod("p"), {"x": victims("u")}) == {}


def test_nodes_that_are_not_known_get_no_score() -> None:
    assert opinions(world(node("a"))).prioritize(pod("p"), ["x"]) == []


@given(st.lists(st.tuples(st.sampled_from(["red", "blue"]), st.integers(0, 100)), min_size=1, max_size=6))
def test_opinions_are_those_of_the_plugin_in_process(nodes: list[tuple[str, int]]) -> None:
    there = world(*(node(f"n{row}", labels=labelled(*said)) for row, said in enumerate(nodes)))
    asked, names = pod("p", labels={"colour": "red"}), [f"n{row}" for row in range(len(nodes))]
    assert set(opinions(there).filter(asked, names).passed) == there.feasible(asked)
    assert dict(opinions(there).prioritize(asked, names)) == {
        f"n{row}": (number + 5) // 10 for row, (_, number) in enumerate(nodes)
    }


def test_scores_of_several_plugins_share_the_ten_points() -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Colour", "weight": 3}]}}}
    there = World([node("a", labels=labelled(number=100)), node("b")], profile=profile, plugins=[Colour])
    scores = dict(opinions(there).prioritize(pod("p"), ["a", "b"]))
    assert 0 <= scores["b"] < scores["a"] <= 10


def test_a_filter_that_fails_is_an_error() -> None:
    with pytest.raises(KubestowError, match="'Failing' failed at Filter: LookupError: no such thing"):
        served(Failing, node("a")).filter(pod("p"), ["a"])


def victims(*uids: str) -> MetaVictims:
    return MetaVictims(pods=[MetaPod(uid=uid) for uid in uids], num_pdb_violations=1)


def test_a_preemption_helps_where_the_filters_pass_without_the_victims() -> None:
    crowd = tuple(pod(f"{name}-{n}", node=name) for name in ("a", "b") for n in range(3))
    there = opinions(world(node("a"), node("b"), node("c", labels=labelled("blue")), bound=crowd))
    asked = {"a": victims("uid-default-a-0"), "b": victims("uid-default-b-0", "uid-default-b-1"), "x": victims("u")}
    assert there.preempt(pod("p"), asked) == {"b": asked["b"]}
