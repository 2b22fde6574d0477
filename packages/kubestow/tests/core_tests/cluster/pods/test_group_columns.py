"""What is kept of pod groups agrees with what the groups and pods themselves say, after any sequence of changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.scheduling.gangs.groups import composite, group, member
from kubestow.api.core import Node
from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.hierarchies import count_disrupted_units
from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupName
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod

#: The parents that each group may have: trees have at most four levels.
PARENTS = {"x": "", "y": "x", "z": "y", "a": "z", "b": "y", "c": "y", "d": "x", "e": ""}
COMPOSITES, GROUPS = "xyz", "abcde"
PODS = [f"{name}{number}" for name in GROUPS for number in range(3)] + ["f0", "-0"]

changes: st.SearchStrategy[tuple[str, str, Any]] = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(PODS), st.sampled_from(["", "gated", "n0", "n1", "unknown"])),
    st.tuples(st.just("end"), st.sampled_from(PODS), st.just("")),
    st.tuples(
        st.sampled_from(["put", "orphan"]),
        st.sampled_from(COMPOSITES + GROUPS),
        st.tuples(st.integers(0, 3), st.sampled_from([None, {"all": {}}, {"single": {}}]), st.integers(0, 3)),
    ),
    st.tuples(st.just("remove"), st.sampled_from(COMPOSITES + GROUPS), st.just("")),
    st.tuples(st.just("node"), st.sampled_from(["n0", "n1", "n2"]), st.just("")),
)


class Groups:
    """A cluster that changes, at first with all groups, of which all are ready."""

    def __init__(self) -> None:
        self.cluster = Cluster(gates=FeatureGates({"GenericWorkload": True}, minor=Minor(37)))
        self.groups, self.composites = self.cluster.catalog(PodGroup), self.cluster.catalog(CompositePodGroup)
        self.pods: dict[str, PodInfo] = {}
        for name in ("n0", "n1"):
            self._change_node(node(name))
        for name in COMPOSITES + GROUPS:
            self._put_group(name, PARENTS[name], 1, None, 0)
        for name in PODS[::2]:
            self._put_pod(name, "n0")

    def apply(self, kind: str, name: str, details: Any) -> None:
        if kind == "pod":
            self._put_pod(name, details)
        elif kind == "end" and name in self.pods:
            info = self.pods.pop(name)
            self.cluster.remove_pod(info.uid)
            self.cluster.end_pod(info.uid)
        elif kind in ("put", "orphan"):
            self._put_group(name, PARENTS[name] if kind == "put" else "", *details)
        elif kind == "remove":
            catalog: Any = self.composites if name in COMPOSITES else self.groups
            catalog.remove("default", name)
        elif kind == "node":
            self._change_node(node(name))

    def _put_pod(self, name: str, where: str) -> None:
        gates = ["wait"] if where == "gated" else []
        placed = "" if where == "gated" else where
        made = pod(name, priority=5, node=placed, gates=gates) if name == "-0" else None
        made = made or member(name, name[0], priority=5, node=placed, gates=gates)
        info = self.pods[name] = self.cluster.shapes.info(made)
        self.cluster.observe_pod(info)
        if placed:
            self.cluster.put_pod(info)
        else:
            self.cluster.remove_pod(info.uid)

    def _put_group(self, name: str, parent: str, minimum: int, mode: Any, priority: int) -> None:
        spec: dict[str, Any] = {"priority": priority} | ({"disruptionMode": mode} if mode else {})
        if name in COMPOSITES:
            self.composites.put(composite(name, minimum, parent=parent, **spec))
        else:
            spec |= {"parentCompositePodGroupName": parent} if parent else {}
            self.groups.put(group(name, minimum, **spec))

    def _change_node(self, changed: Node) -> None:
        if changed.metadata.name in self.cluster.nodes.rows:
            self.cluster.remove_node(changed.metadata.name)
        else:
            self.cluster.add_node(changed)

    # -- the simple computations ---------------------------------------------------------------------------------

    def path(self, name: str) -> Iterator[Any]:
        """A group and the ones above it that exist."""
        found: Any = self.groups.get("default", name)
        while found is not None:
            yield found
            found = self.composites.get("default", found.spec.parent_composite_pod_group_name or "")

    def is_ready(self, name: str) -> bool:
        if name in GROUPS:
            found = self.groups.get("default", name)
            policy = None if found is None else found.spec.scheduling_policy.gang
            members = self.cluster.pod_groups.members(PodGroupName(KUBERNETES.name, "default", name))
            return found is not None and len(members.ready) >= max(1, 0 if policy is None else policy.min_count)
        top = self.composites.get("default", name)
        gang = None if top is None else top.spec.scheduling_policy.gang
        needed = 1 if gang is None else gang.min_group_count
        return top is not None and sum(map(self.is_ready, self.children(name))) >= needed

    def has_gated(self, name: str) -> bool:
        if name in GROUPS:
            members = self.cluster.pod_groups.members(PodGroupName(KUBERNETES.name, "default", name))
            return self.groups.get("default", name) is not None and bool(members.gated)
        return self.composites.get("default", name) is not None and any(map(self.has_gated, self.children(name)))

    def children(self, name: str) -> list[str]:
        everything = (*self.groups, *self.composites)
        return [each.metadata.name for each in everything if each.spec.parent_composite_pod_group_name == name]


@settings(max_examples=100)
@given(st.lists(changes, min_size=1, max_size=12), st.integers(0, 3))
def test_the_readiness_of_trees_is_that_of_their_groups(steps: list[tuple[str, str, Any]], first_use: int) -> None:
    groups = Groups()
    for number, step in enumerate(steps):
        groups.apply(*step)
        if number >= first_use:
            for name in COMPOSITES:
                top = groups.composites.get("default", name)
                if top is not None:
                    assert groups.cluster.group_readiness.is_ready(top) == groups.is_ready(name)
                    assert groups.cluster.group_readiness.has_gated(top) == groups.has_gated(name)


@settings(max_examples=100)
@given(st.lists(changes, min_size=1, max_size=12), st.integers(0, 3))
def test_the_columns_of_placed_groups_are_what_the_groups_define(
    steps: list[tuple[str, str, Any]], first_use: int
) -> None:
    groups = Groups()
    for number, step in enumerate(steps):
        groups.apply(*step)
        if number >= first_use:
            check_columns(groups)


def test_pods_that_come_before_their_group_count_once_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(gates=FeatureGates({"GenericWorkload": True}, minor=Minor(37)))
    top = composite("top", 1)
    cluster.catalog(CompositePodGroup).put(top)
    readiness = cluster.group_readiness
    found = []
    for made in (member("p", "g"), member("q", "g", gates=["wait"])):
        cluster.observe_pod(cluster.shapes.info(made))
        found.append((readiness.is_ready(top), readiness.has_gated(top)))
    cluster.catalog(PodGroup).put(group("g", 1, parentCompositePodGroupName="top"))
    found.append((readiness.is_ready(top), readiness.has_gated(top)))
    cluster.end_pod("uid-default-p")
    found.append((readiness.is_ready(top), readiness.has_gated(top)))
    cluster.catalog(PodGroup).remove("default", "g")
    found.append((readiness.is_ready(top), readiness.has_gated(top)))
    assert found == [(False, False), (False, False), (True, True), (False, True), (False, False)]
    assert caplog.messages == []


@pytest.mark.parametrize("column", ["is_in_group", "priority_of", "unit_of"])
def test_each_column_is_as_long_as_that_of_the_pods(column: str) -> None:
    expected = {"is_in_group": [True, False], "priority_of": [7, 5], "unit_of": [0, -1]}
    groups = Groups()
    groups.apply("put", "e", (1, {"all": {}}, 7))
    groups.apply("pod", "e0", "n0")
    placed = groups.cluster.placed_groups
    for number in range(100):
        groups.cluster.put_pod(groups.cluster.shapes.info(pod(f"other-{number}", priority=5, node="n0")))
    table = groups.cluster.nodes.pod_table
    slots = np.array([table.slot("uid-default-e0"), table.slot("uid-default-other-99")], np.intp)
    assert getattr(placed, column)(slots).tolist() == expected[column]


def test_a_pod_that_leaves_is_in_no_group_and_its_slot_may_be_that_of_another() -> None:
    groups = Groups()
    groups.apply("put", "e", (1, {"all": {}}, 7))
    groups.apply("end", "-0", "")
    for name in ("e0", "e1"):
        groups.apply("pod", name, "n0")
    placed, table = groups.cluster.placed_groups, groups.cluster.nodes.pod_table
    slots = np.array([table.slot(f"uid-default-{name}") for name in ("e0", "e1")], np.intp)
    before = len(placed)
    (unit,) = set(placed.unit_of(slots).tolist())
    in_unit = placed.slots_of(unit).tolist()
    assert {*slots.tolist()} <= {*in_unit}
    groups.apply("end", "e1", "")
    groups.apply("pod", "-0", "n0")
    assert table.slot("uid-default--0") == slots[1]
    assert len(placed) == before - 1
    assert placed.is_in_group(slots).tolist() == [True, False]
    assert (placed.priority_of(slots).tolist(), placed.unit_of(slots).tolist()) == ([7, 5], [unit, -1])
    assert placed.slots_of(unit).tolist() == [slot for slot in in_unit if slot != slots[1]]


def check_columns(groups: Groups) -> None:
    cluster, table, units = groups.cluster, groups.cluster.nodes.pod_table, dict[int, set[str]]()
    expected = dict[Any, set[str]]()
    for name, info in groups.pods.items():
        slot = table.slot(info.uid)
        if slot is None:
            continue
        path = list(groups.path(name[0]))
        slots = np.array([slot], np.intp)
        assert cluster.placed_groups.is_in_group(slots).item() == (name != "-0")
        assert cluster.placed_groups.priority_of(slots).item() == (path[-1].spec.priority if path else 5)
        whole = [each.metadata.name for each in path if each.spec.is_disrupted_as_a_whole]
        unit = cluster.placed_groups.unit_of(slots).item()
        assert (unit >= 0) == bool(whole)
        if whole:
            expected.setdefault(whole[-1], set()).add(name)
            units.setdefault(unit, set()).add(name)
            assert slot in cluster.placed_groups.slots_of(unit)
    assert sorted(map(sorted, units.values())) == sorted(map(sorted, expected.values()))
    for unit, names in units.items():
        slots = cluster.placed_groups.slots_of(unit)
        assert [table.info(slot).name for slot in slots.tolist()] == sorted(names)
    placed = [info for info in groups.pods.values() if table.slot(info.uid) is not None]
    single = sum(info.name != "-0" for info in placed) - sum(map(len, expected.values()))
    assert count_disrupted_units(placed, groups.groups, groups.composites) == len(expected) + single
    assert len(cluster.placed_groups) == sum(info.name != "-0" for info in placed)
