"""Sampling, compared with a model of kube-scheduler's node tree and walk (semantics 5.4, 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.config.builders import v1
from kubestow.api.core import Node
from kubestow.cluster.cache import Cluster
from kubestow.config import FieldError, check
from kubestow.scheduling.decision.node_selection import NodeSampler, feasible_nodes_to_find
from kubestow.testing import PluginHarness, node, pod

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("nodes", "percentage", "wanted"),
    [
        (99, 10, 99),
        (100, 0, 100),
        (300, 0, 144),  # 50 % − 300 / 125
        (1000, 0, 420),
        (5000, 0, 500),  # 10 %
        (5624, 0, 337),  # 6 %
        (6000, 0, 300),  # not below 5 %
        (15000, 0, 750),
        (1000, 5, 100),  # at least 100
        (1000, 70, 700),
    ],
)
def test_how_many_feasible_nodes_are_searched_for(nodes: int, percentage: int, wanted: int) -> None:
    assert feasible_nodes_to_find(nodes, percentage) == wanted


# -- the order and the walk -------------------------------------------------------------------------------------------


class ModelTree:
    """Lists of node names by zone, and the node list, rebuilt by the first walk after nodes came or went."""

    def __init__(self) -> None:
        self.zones: list[tuple[str, list[str]]] = []
        self._node_list: list[str] | None = None

    def add(self, name: str, zone: str) -> None:
        names = next((names for key, names in self.zones if key == zone), None)
        if names is None:
            self.zones.append((zone, [name]))
        else:
            names.append(name)

    def changed(self) -> None:
        self._node_list = None

    def remove(self, name: str) -> None:
        for position, (_, names) in enumerate(self.zones):
            if name in names:
                names.remove(name)
                if not names:
                    del self.zones[position]
                return

    @property
    def node_list(self) -> list[str]:
        if self._node_list is None:
            self._node_list = []
            index = 0
            while len(self._node_list) < sum(len(names) for _, names in self.zones):
                self._node_list += [names[index] for _, names in self.zones if index < len(names)]
                index += 1
        return self._node_list


class ModelWalk:
    """findNodesThatPassFilters with one worker."""

    def __init__(self) -> None:
        self.start = 0

    def sample(self, every: Sequence[str], nodes: Sequence[str], feasible: set[str], percentage: int) -> list[str]:
        found: list[str] = []
        wanted, processed = feasible_nodes_to_find(len(nodes), percentage), 0
        for offset in range(len(nodes)):
            name = nodes[(self.start + offset) % len(nodes)]
            if name in feasible:
                if len(found) == wanted:
                    break
                found.append(name)
            processed += 1
        self.start = (self.start + processed) % len(every)
        return found


def in_zone(name: str, zone: str) -> Node:
    return node(name, labels={ZONE: zone} if zone else {})


ZONES = st.sampled_from(["", "a", "b", "c"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40), ZONES),
        st.tuples(st.just("remove"), st.integers(0, 300), ZONES),
        st.tuples(st.just("move"), st.integers(0, 300), ZONES),
        st.tuples(st.just("sample"), st.integers(0, 99), st.integers(0, 2**32)),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(EVENTS, st.integers(120, 200))
def test_samples_are_those_of_a_simple_walk_over_the_node_tree(events: list[tuple[str, int, Any]], size: int) -> None:
    cluster, tree, walk = Cluster(), ModelTree(), ModelWalk()
    sampler = NodeSampler(cluster.nodes)
    added = 0

    def add(count: int, zone: str) -> None:
        nonlocal added
        for _ in range(count):
            added += 1
            cluster.add_node(in_zone(f"n{added}", zone))
            tree.add(f"n{added}", zone)
        tree.changed()

    add(size, "a")
    for kind, number, more in [*events, ("sample", 1, 1), ("sample", 0, 2)]:
        names = cluster.nodes.names
        name = names[number % len(names)]
        if kind == "add":
            add(number, more)
        elif kind == "remove":
            tree.remove(name)
            tree.changed()
            cluster.remove_node(name)
        elif kind == "move":
            if in_zone(name, more).metadata.labels != cluster.nodes.objects[cluster.nodes.rows[name]].metadata.labels:
                cluster.update_node(in_zone(name, more))
                tree.remove(name)
                tree.add(name, more)  # which does not rebuild the node list
        else:
            assert [names[row] for row in cluster.nodes.zone_order()] == tree.node_list
            random = np.random.default_rng(more)
            feasible, candidates = random.random(len(names)) < random.random(), random.random(len(names)) < 0.97
            feasible &= candidates
            rows, count = sampler.sample(number, np.flatnonzero(feasible), int(feasible.sum()), candidates=candidates)
            walked = [n for n in tree.node_list if candidates[cluster.nodes.rows[n]]]
            expected = walk.sample(tree.node_list, walked, {names[row] for row in np.flatnonzero(feasible)}, number)
            assert {names[row] for row in np.arange(len(names))[rows]} == set(expected)
            assert count == len(expected)


def test_region_and_zone_make_a_zone_and_beta_labels_take_precedence() -> None:
    cluster = Cluster()
    for name, labels in {
        "a1": {REGION: "r", ZONE: "a"},
        "a2": {REGION: "r", ZONE: "b", BETA_ZONE: "a"},
        "other": {REGION: "s", ZONE: "a"},
        "none": {},
        "a3": {REGION: "r", ZONE: "a"},
    }.items():
        cluster.add_node(node(name, labels=labels))
    assert [cluster.nodes.names[row] for row in cluster.nodes.zone_order()] == ["a1", "other", "none", "a2", "a3"]


# -- how a profile asks for it ----------------------------------------------------------------------------------------


def candidates(size: int, **profile: Any) -> int:
    harness = PluginHarness([node(f"n{number}") for number in range(size)], profile=profile)
    decision = harness.decide(pod("p"))
    assert decision.node_name is not None
    return int(np.arange(size)[decision.candidates].size)


def sampling(*, adaptive: Any) -> list[dict[str, Any]]:
    return [{"name": "NodeSampling", "args": {"adaptive": adaptive}}]


def test_every_feasible_node_is_scored_unless_the_profile_asks_for_a_sample() -> None:
    assert candidates(300) == 300
    assert candidates(300, percentageOfNodesToScore=0) == 300
    assert candidates(300, pluginConfig=sampling(adaptive=False)) == 300
    assert candidates(300, pluginConfig=sampling(adaptive=True)) == 144
    assert candidates(300, pluginConfig=sampling(adaptive=True), percentageOfNodesToScore=0) == 144


def test_an_explicit_percentage_takes_precedence_over_the_adaptive_one() -> None:
    assert candidates(300, pluginConfig=sampling(adaptive=True), percentageOfNodesToScore=60) == 180
    assert candidates(300, pluginConfig=sampling(adaptive=True), percentageOfNodesToScore=100) == 300


def test_the_arguments_of_sampling_are_checked() -> None:
    errors = check(v1(profiles=[{"pluginConfig": sampling(adaptive="yes")}]))
    assert errors == [FieldError("profiles[0].pluginConfig[0].args.adaptive", 'expected a boolean, got string "yes"')]
