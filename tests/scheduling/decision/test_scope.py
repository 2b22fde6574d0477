"""Decisions about some of the nodes: the same as if there were no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.core import Node, Pod
from kubestow.scheduling.decision.result import Scheduled
from kubestow.scheduling.decision.scope import Scope
from kubestow.testing import World, node, pod
from tests.decisions import preemption_of, rejectors_of


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], set[str]]:
    """Nodes, pods on them, and the names of those nodes that are in question."""
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
def test_a_decision_about_some_nodes_is_that_of_a_cluster_of_them(
    cluster: tuple[list[Node], list[Pod], set[str]], pending: Pod
) -> None:
    nodes, pods, names = cluster
    if not names:
        return
    whole = World(nodes, pods)
    small = World(
        [each for each in nodes if each.metadata.name in names], [each for each in pods if each.spec.node_name in names]
    )
    restricted = whole.pipeline.decide(whole.info(pending), Scope(names))
    alone = small.decide(pending)
    assert (restricted.node_name, restricted.message) == (alone.node_name, alone.message)
    assert rejectors_of(restricted) == rejectors_of(alone)
    assert isinstance(restricted, Scheduled) is isinstance(alone, Scheduled)
    if isinstance(restricted, Scheduled) and isinstance(alone, Scheduled):
        assert restricted.candidate_count == alone.candidate_count


def test_a_pod_does_not_go_to_a_node_that_it_was_promised_elsewhere() -> None:
    world = World([node("a"), node("b")])
    assert world.pipeline.decide(world.info(pod("p", nominated="a")), Scope(["b"])).node_name == "b"


def test_nodes_that_are_barred_are_not_in_question() -> None:
    world = World([node("a"), node("b")])
    assert world.pipeline.decide(world.info(pod("p")), Scope(excluded=["a"])).node_name == "b"


def test_who_may_not_make_room_evicts_nobody() -> None:
    world = World([node("a", cpu="1")], [pod("low", cpu="1", node="a")])
    high = world.info(pod("high", cpu="1", priority=100))
    assert preemption_of(world.pipeline.decide(high)) is not None
    assert preemption_of(world.pipeline.decide(high, Scope(preempts=False))) is None


def test_a_scope_outlives_the_rows_of_its_nodes() -> None:
    world = World([node("a"), node("b"), node("c")])
    scope = Scope(["c"])
    assert world.pipeline.decide(world.info(pod("p")), scope).node_name == "c"
    world.cluster.remove_node("a")  # its row is that of c now
    assert world.pipeline.decide(world.info(pod("p")), scope).node_name == "c"


def test_affinities_hold_beyond_the_nodes_in_question() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "topology.kubernetes.io/zone"}
            ]
        }
    }
    world = World([node("a", zone="z"), node("b", zone="z")], [pod("there", labels={"app": "x"}, node="a")])
    lonely = world.info(pod("p", affinity=apart))
    assert world.pipeline.decide(lonely, Scope(["b"])).node_name is None
