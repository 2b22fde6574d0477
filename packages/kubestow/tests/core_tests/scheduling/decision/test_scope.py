"""Scoped decisions: the result is that of a cluster with the scoped nodes alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_tests.decisions import preemption_of, rejectors_of
from kubestow.api.core import Node, Pod
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.scheduling.decision.result import Scheduled
from kubestow.testing import PluginHarness, node, pod


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], set[str]]:
    """Nodes, pods on them, and the names of the nodes in scope."""
    nodes = [
        node(
            f"n{number}",
            cpu=str(draw(st.integers(1, 4))),
            labels={"disk": draw(st.sampled_from(("ssd", "hdd")))},
            taints=draw(st.sampled_from(((), ("team=a:NoSchedule",), ("slow=yes:PreferNoSchedule",)))),
            unschedulable=draw(st.booleans()) and number % 3 == 0,
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    pods = [
        pod(f"p{number}", node=draw(st.sampled_from(nodes)).metadata.name, cpu=draw(st.sampled_from(("500m", "1"))))
        for number in range(draw(st.integers(0, 8)))
    ]
    return nodes, pods, {each.metadata.name for each in nodes if draw(st.booleans())}


PENDING = st.builds(
    pod,
    st.just("pending"),
    cpu=st.sampled_from(("100m", "1", "3", "9")),
    node_selector=st.sampled_from(({}, {"disk": "ssd"})),
    priority=st.sampled_from((0, 100)),
    nominated=st.sampled_from(("", "n0", "n1")),
    tolerations=st.sampled_from(((), ({"operator": "Exists"},))),
)


@given(cluster=clusters(), pending=PENDING)
def test_a_scoped_decision_equals_one_in_a_cluster_of_the_scope_alone(
    cluster: tuple[list[Node], list[Pod], set[str]], pending: Pod
) -> None:
    nodes, pods, names = cluster
    if not names:
        return
    whole = PluginHarness(nodes, pods)
    small = PluginHarness(
        [each for each in nodes if each.metadata.name in names], [each for each in pods if each.spec.node_name in names]
    )
    restricted = whole.pipeline.decide_by_plugins(whole.info(pending), Scope(names))
    alone = small.decide(pending)
    assert (restricted.node_name, restricted.message) == (alone.node_name, alone.message)
    assert rejectors_of(restricted) == rejectors_of(alone)
    assert isinstance(restricted, Scheduled) is isinstance(alone, Scheduled)
    if isinstance(restricted, Scheduled) and isinstance(alone, Scheduled):
        assert restricted.candidate_count == alone.candidate_count


def test_a_nominated_node_outside_the_scope_is_not_chosen() -> None:
    harness = PluginHarness([node("a"), node("b")])
    assert harness.pipeline.decide_by_plugins(harness.info(pod("p", nominated="a")), Scope(["b"])).node_name == "b"


def test_excluded_nodes_are_not_chosen() -> None:
    harness = PluginHarness([node("a"), node("b")])
    assert harness.pipeline.decide_by_plugins(harness.info(pod("p")), Scope(excluded=["a"])).node_name == "b"


def test_a_scope_without_preemption_nominates_no_node() -> None:
    harness = PluginHarness([node("a", cpu="1")], [pod("low", cpu="1", node="a")])
    high = harness.info(pod("high", cpu="1", priority=100))
    assert preemption_of(harness.pipeline.decide_by_plugins(high)) is not None
    assert preemption_of(harness.pipeline.decide_by_plugins(high, Scope(preempts=False))) is None


def test_a_scope_survives_the_renumbering_of_rows() -> None:
    harness = PluginHarness([node("a"), node("b"), node("c")])
    scope = Scope(["c"])
    assert harness.pipeline.decide_by_plugins(harness.info(pod("p")), scope).node_name == "c"
    harness.cluster.remove_node("a")  # node c moves to the row of node a
    assert harness.pipeline.decide_by_plugins(harness.info(pod("p")), scope).node_name == "c"


def test_pods_outside_the_scope_count_for_affinity() -> None:
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "topology.kubernetes.io/zone"}
            ]
        }
    }
    harness = PluginHarness([node("a", zone="z"), node("b", zone="z")], [pod("bound", labels={"app": "x"}, node="a")])
    pending = harness.info(pod("p", affinity=affinity))
    assert harness.pipeline.decide_by_plugins(pending, Scope(["b"])).node_name is None
