"""Counters say what walking over all pods says, whatever happened before and whatever is only imagined."""

from __future__ import annotations

import gc

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubestow.api.core import Node, Pod
from kubestow.api.meta import LabelSelector
from kubestow.cluster.nodes.views import Change, HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status
from kubestow.testing import World
from tests.plugins import topology_clusters as topology_worlds
from tests.plugins import topology_oracle
from tests.plugins.topology_clusters import NODE_NAMES, POD_NAMES

REASONS = {
    "node(s) didn't match pod topology spread constraints": "skew",
    "node(s) didn't match pod topology spread constraints (missing required label)": "missing label",
    "node(s) didn't match pod affinity rules": "affinity",
    "node(s) didn't match pod anti-affinity rules": "anti-affinity",
    "node(s) didn't satisfy existing pods anti-affinity rules": "existing",
}


def plugin(world: World, name: str) -> Plugin:
    return next(p for p in world.profiles["default-scheduler"].plugins if p.name == name)


def refusals(asked: Plugin, world: World, pod: PodInfo, nodes: Nodes | None = None) -> list[str]:
    """What a plugin says of the nodes (all by default), in one word each."""
    assert isinstance(asked, PreFilterPlugin) and isinstance(asked, FilterPlugin)
    state = CycleState()
    nodes = world.cluster.all_nodes() if nodes is None else nodes
    prepared = asked.pre_filter(state, pod, world.cluster.all_nodes())
    verdict = None if isinstance(prepared, Status) else asked.filter(state, pod, nodes)
    if verdict is None:
        return [""] * len(nodes)
    reasons = (verdict.status(position).reasons for position in range(len(nodes)))
    return [REASONS[said[0]] if said else "" for said in reasons]


def scores(asked: Plugin, world: World, pod: PodInfo, feasible: Nodes) -> list[int]:
    """A plugin's normalised scores, empty when it skips the pod."""
    assert isinstance(asked, PreScorePlugin) and isinstance(asked, ScorePlugin)
    state = CycleState()
    if asked.pre_score(state, pod, feasible) is not None:
        return []
    normalized: list[int] = asked.normalize(state, pod, asked.score(state, pod, feasible), feasible).tolist()
    return normalized


class TopologyMachine(RuleBasedStateMachine):
    """A world in which nodes, pods and namespaces come, change and go, held against the slow way at every look."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.bound: dict[str, Pod] = {}
        self.asked: list[PodInfo] = []

    @rule(shown=topology_worlds.nodes())
    def node_appears_or_changes(self, shown: Node) -> None:
        cluster = self.world.cluster
        known = shown.metadata.name in cluster.nodes.rows
        cluster.update_node(shown) if known else cluster.add_node(shown)

    @rule(name=st.sampled_from(NODE_NAMES))
    def node_goes(self, name: str) -> None:
        if name in self.world.cluster.nodes.rows:
            self.world.cluster.remove_node(name)

    @rule(data=st.data(), name=st.sampled_from(POD_NAMES), where=st.sampled_from(NODE_NAMES))
    def pod_is_on_a_node(self, data: st.DataObject, name: str, where: str) -> None:
        shown = data.draw(topology_worlds.pods(name=name, on=where))
        self.world.cluster.put_pod(self.world.info(shown))
        self.bound[shown.metadata.uid] = shown

    @rule(name=st.sampled_from(POD_NAMES))
    def pod_goes(self, name: str) -> None:
        self.world.cluster.remove_pod(f"uid-{name}")
        self.bound.pop(f"uid-{name}", None)

    @rule(name=topology_worlds.namespaces, labelled=st.booleans())
    def namespace_changes(self, name: str, labelled: bool) -> None:
        self.world.cluster.put_namespace(name, {"team": "x"} if labelled else {})

    @rule(name=topology_worlds.namespaces)
    def namespace_goes(self, name: str) -> None:
        self.world.cluster.remove_namespace(name)

    @rule(asked=topology_worlds.pods(name="asked"))
    def somebody_asks(self, asked: Pod) -> None:
        self.asked = [*self.asked[-2:], self.world.info(asked)]

    @rule()
    def unused_counters_are_let_go(self) -> None:
        self.asked = []
        gc.collect()

    @invariant()
    def counters_say_what_a_walk_says(self) -> None:
        cluster = self.world.cluster
        nodes = cluster.nodes.objects
        by_name = {node.metadata.name: node for node in nodes}
        placed = [(by_name[p.spec.node_name], p) for p in self.bound.values() if p.spec.node_name in by_name]
        spread, affinity = plugin(self.world, "PodTopologySpread"), plugin(self.world, "InterPodAffinity")
        for info in self.asked:
            pod = info.pod
            assert refusals(spread, self.world, info) == [
                topology_oracle.spread_refusal(pod, node, nodes, placed) for node in nodes
            ]
            assert refusals(affinity, self.world, info) == [
                topology_oracle.affinity_refusal(pod, node, placed, cluster.namespaces) for node in nodes
            ]
            for feasible in (cluster.all_nodes(), Nodes(cluster.nodes, np.arange(0, len(nodes), 2))):
                rows = [nodes[row] for row in feasible.row_numbers]
                if rows:
                    assert scores(spread, self.world, info, feasible) == topology_oracle.spread_scores(
                        pod, rows, nodes, placed
                    )
                    assert scores(affinity, self.world, info, feasible) == topology_oracle.affinity_scores(
                        pod, rows, placed, cluster.namespaces
                    )


TopologyMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestTopologyMachine = TopologyMachine.TestCase


@st.composite
def populated(draw: st.DrawFn) -> tuple[list[Node], list[Pod], Pod, list[Pod]]:
    """Nodes, pods on them, a pod to ask about and some to imagine there."""
    shown = [draw(topology_worlds.nodes(name=name)) for name in NODE_NAMES]
    somewhere = st.sampled_from(NODE_NAMES)
    placed = [draw(topology_worlds.pods(name=name, on=draw(somewhere))) for name in POD_NAMES]
    promised = draw(st.lists(topology_worlds.pods(name="promised"), max_size=1))
    return shown, placed, draw(topology_worlds.pods(name="asked")), promised


@given(populated(), st.sampled_from(("PodTopologySpread", "InterPodAffinity")), st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_imagined_of_a_node_is_what_would_be_said_if_it_came_true(
    populated: tuple[list[Node], list[Pod], Pod, list[Pod]], name: str, data: st.DataObject
) -> None:
    nodes, placed, asked, promised = populated
    assume(not _selects_everything(asked))
    placed = [pod for pod in placed if pod.metadata.deletion_timestamp is None]
    world = World(nodes, placed)
    info = world.info(asked)
    if isinstance(_prepared(plugin(world, name), world, info), Status):
        return  # skipped: the reference does not ask about imagined pods then either
    chosen = [pod for pod in placed if data.draw(st.booleans())]
    gone = {where: [pod for pod in chosen if pod.spec.node_name == where] for where in NODE_NAMES}
    changes = [
        Change(tuple(world.info(p) for p in gone[where]), tuple(world.info(p) for p in promised))
        for where in NODE_NAMES
    ]
    imagined = HypotheticalNodes(world.cluster.nodes, np.arange(len(nodes)), changes)
    said = refusals(plugin(world, name), world, info, imagined)
    for position, where in enumerate(NODE_NAMES):
        world = World(nodes, [pod for pod in placed if pod not in gone[where]])
        for pod in promised:
            world.cluster.assume(world.info(pod), where)
        row = world.cluster.nodes.rows[where]
        assert said[position] == refusals(plugin(world, name), world, world.info(asked))[row]


def _prepared(asked: Plugin, world: World, pod: PodInfo) -> object:
    assert isinstance(asked, PreFilterPlugin)
    return asked.pre_filter(CycleState(), pod, world.cluster.all_nodes())


def _selects_everything(pod: Pod) -> bool:
    """QUIRK: empty selectors count no placed pods, but imagined changes all the same."""
    return any(constraint.label_selector == LabelSelector() for constraint in pod.spec.topology_spread_constraints)


@given(populated(), st.sampled_from(("PodTopologySpread", "InterPodAffinity")))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_view_of_one_row_says_what_the_whole_view_says_of_it(
    populated: tuple[list[Node], list[Pod], Pod, list[Pod]], name: str
) -> None:
    nodes, placed, asked, _ = populated
    world = World(nodes, placed)
    info = world.info(asked)
    whole = refusals(plugin(world, name), world, info)
    assert whole == [
        refusals(plugin(world, name), world, info, Nodes(world.cluster.nodes, np.array([row])))[0]
        for row in range(len(nodes))
    ]
