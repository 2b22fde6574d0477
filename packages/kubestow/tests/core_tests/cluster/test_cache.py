"""The cluster's state equals what a recount of its pods gives, after any sequence of events."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from kubestow.api.core import PodStatus
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.changes.journal import EVERY_ROW
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import InvalidQuantity, KubestowError
from kubestow.rules.pods import HostPort
from kubestow.testing import node, pod

NODES = st.sampled_from([f"n{number}" for number in range(4)])
PODS = st.sampled_from([f"p{number}" for number in range(8)])


def test_an_assumed_pod_counts_until_it_is_forgotten() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    info = cluster.shapes.info(pod("a", cpu="1"))
    cluster.assume(info, "n")
    assert cluster.all_nodes().requested("cpu").tolist() == [1000]
    cluster.forget(info.uid)
    assert cluster.all_nodes().requested("cpu").tolist() == [0]


def test_a_confirmed_pod_is_not_forgotten() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    cluster.assume(cluster.shapes.info(pod("a", cpu="1")), "n")
    cluster.put_pod(cluster.shapes.info(pod("a", cpu="1", node="n")))
    cluster.forget("uid-default-a")
    assert cluster.all_nodes().pod_count.tolist() == [1]


def test_a_pod_is_assumed_until_it_is_confirmed() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    info = cluster.shapes.info(pod("a"))
    assert not cluster.is_assumed(info.uid)
    cluster.assume(info, "n")
    assert cluster.is_assumed(info.uid)
    cluster.put_pod(cluster.shapes.info(pod("a", node="n")))
    assert not cluster.is_assumed(info.uid)


def test_nominations_are_counted_by_node() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    infos = [cluster.shapes.info(pod(name)) for name in "ab"]
    for info in infos:
        cluster.nominate(info, "n")
    assert cluster.nodes.nominated_count.values.tolist() == [2]
    cluster.drop_nomination(infos[0].uid)
    assert cluster.nodes.nominated_count.values.tolist() == [1]
    assert (cluster.nominated_pods("n"), cluster.nomination(infos[1].uid)) == ([infos[1]], "n")
    cluster.assume(infos[1], "n")  # which ends the nomination
    assert (cluster.nodes.nominated_count.values.tolist(), cluster.has_nominations) == ([0], False)


def test_a_pod_is_assumed_only_once() -> None:
    cluster = Cluster()
    info = cluster.shapes.info(pod("a"))
    cluster.assume(info, "n")
    with pytest.raises(KubestowError, match=r"default/a .*is in the cache"):
        cluster.assume(info, "n")


def test_an_invalid_node_changes_nothing() -> None:
    cluster = Cluster()
    cluster.add_node(node("n", cpu="1"))
    with pytest.raises(InvalidQuantity, match=r"status\.allocatable\[cpu\]"):
        cluster.update_node(node("n", cpu="many"))
    assert cluster.all_nodes().allocatable("cpu").tolist() == [1000]


def test_copies_of_a_pod_share_their_shape() -> None:
    cluster = Cluster()
    one, other = (cluster.shapes.info(pod(name, cpu="1", labels={"app": "x"})) for name in "ab")
    assert one.shape is other.shape
    assert cluster.shapes.info(pod("c", cpu="2", labels={"app": "x"})).shape is not one.shape


def test_a_family_is_placed_while_one_of_its_pods_is_on_a_node() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    one, other = (cluster.shapes.info(pod(name, cpu=cpu)) for name, cpu in (("a", "1"), ("b", "2")))
    cluster.assume(one, "n")
    assert cluster.has_placed(one.shape.family)
    assert not cluster.has_placed(other.shape.family)
    cluster.remove_pod(one.uid)
    assert not cluster.has_placed(one.shape.family)


def test_only_a_change_of_a_namespace_is_a_change() -> None:
    cluster = Cluster()
    versions = [cluster.namespaces_version]
    for labels in ({"team": "x"}, {"team": "x"}, {"team": "y"}):
        cluster.put_namespace("a", labels)
        versions.append(cluster.namespaces_version)
    for _ in range(2):
        cluster.remove_namespace("a")
        versions.append(cluster.namespaces_version)
    assert [later - earlier for earlier, later in pairwise(versions)] == [1, 0, 1, 1, 0]
    changes = cluster.journal.since(0)
    assert changes is not None
    assert changes.bits[-1] == ClusterEvent(EventResource.NAMESPACE, Action.DELETE).bits
    assert list(changes.rows) == [EVERY_ROW] * 3


def test_the_journal_has_the_row_of_a_removed_pod() -> None:
    cluster = Cluster()
    cluster.add_node(node("other"))
    cluster.add_node(node("n"))
    cluster.put_pod(cluster.shapes.info(pod("a", node="n")))
    position = cluster.journal.position
    cluster.remove_pod("uid-default-a")
    changes = cluster.journal.since(position)
    assert changes is not None
    assert list(zip(changes.rows, changes.bits, strict=True)) == [
        (1, ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE).bits)
    ]


@pytest.mark.parametrize(("name", "row"), [("n", 1), ("unknown", EVERY_ROW), (None, EVERY_ROW)])
def test_the_journal_has_the_row_of_the_node_that_the_data_of_a_plugin_is_about(name: str | None, row: int) -> None:
    cluster = Cluster()
    for each in ("other", "n"):
        cluster.add_node(node(each))
    position, event = cluster.journal.position, ClusterEvent(EventResource.POD, Action.ADD)
    cluster.record_change(event, name)
    changes = cluster.journal.since(position)
    assert changes is not None
    assert list(zip(changes.rows, changes.bits, strict=True)) == [(row, event.bits)]


def test_the_journal_has_the_row_of_a_pod_that_has_started() -> None:
    cluster = Cluster()
    for each in ("other", "n"):
        cluster.add_node(node(each))
    started = {"startTime": "2026-01-01T00:00:00Z"}
    cluster.assume(cluster.shapes.info(pod("a")), "n")
    rows = []
    for status in ({}, started, started):
        position = cluster.journal.position
        cluster.put_pod(cluster.shapes.info(pod("a", node="n", status=status)))
        changes = cluster.journal.since(position)
        assert changes is not None
        rows.append(list(changes.rows))
    assert rows == [[], [1], []]


class ClusterMachine(RuleBasedStateMachine):
    """Events in any order, compared with a dictionary of pods."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.nodes: set[str] = set()
        self.placed: dict[str, tuple[str, PodInfo]] = {}
        #: The taken host ports of each node, known or not, as kube-scheduler keeps them: a set, shared or not.
        self.ports: dict[str, set[HostPort]] = defaultdict(set)
        self.counter = self.cluster.counter("of app x", lambda shape: int(shape.labels.get("app") == "x"))

    @rule(name=NODES, cpu=st.integers(1, 9))
    def node_is_added_or_changed(self, name: str, cpu: int) -> None:
        if name in self.nodes:
            self.cluster.update_node(node(name, cpu=str(cpu)))
        else:
            self.cluster.add_node(node(name, cpu=str(cpu)))
        self.nodes.add(name)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def node_is_removed(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.cluster.remove_node(name)
        self.nodes.remove(name)

    @rule(name=PODS, where=NODES, cpu=st.integers(0, 3), app=st.sampled_from("xy"), deleting=st.booleans())
    def pod_is_placed(self, name: str, where: str, cpu: int, app: str, deleting: bool) -> None:
        info = self.cluster.shapes.info(
            pod(name, node=where, cpu=str(cpu), labels={"app": app}, host_ports=[80 + cpu % 2], deleting=deleting)
        )
        self.cluster.put_pod(info)
        self._free_ports(info.uid)
        self.ports[where].update(info.shape.host_ports)
        self.placed[info.uid] = (where, info)

    @rule(name=PODS, phase=st.sampled_from(["Pending", "Running"]))
    def pod_status_is_updated(self, name: str, phase: str) -> None:
        uid = f"uid-default-{name}"
        if uid in self.placed:
            where, old = self.placed[uid]
            info = self.cluster.shapes.info(replace(old.on(where).pod, status=PodStatus(phase=phase)))
            self.cluster.put_pod(info)
            self.ports[where].update(info.shape.host_ports)
            self.placed[uid] = (where, info)

    def _free_ports(self, uid: str) -> None:
        if uid in self.placed:
            where, info = self.placed[uid]
            self.ports[where].difference_update(info.shape.host_ports)

    @rule(name=PODS, where=NODES)
    def pod_is_assumed(self, name: str, where: str) -> None:
        info = self.cluster.shapes.info(pod(name, cpu="1", labels={"app": "x"}))
        if info.uid not in self.placed:
            self.cluster.assume(info, where)
            self.placed[info.uid] = (where, info)

    @rule(name=PODS)
    def pod_is_removed(self, name: str) -> None:
        self.cluster.remove_pod(f"uid-default-{name}")
        self._free_ports(f"uid-default-{name}")
        self.placed.pop(f"uid-default-{name}", None)

    @invariant()
    def columns_equal_a_recount(self) -> None:
        nodes = self.cluster.all_nodes()
        assert set(nodes.names) == self.nodes
        requested: Counter[str] = Counter()
        count: Counter[str] = Counter()
        counted: Counter[str] = Counter()
        for where, info in self.placed.values():
            requested[where] += info.requests.get("cpu", 0)
            count[where] += 1
            counted[where] += info.labels.get("app") == "x" and not info.terminating
        names = nodes.names
        assert nodes.requested("cpu").tolist() == [requested[name] for name in names]
        assert nodes.pod_count.tolist() == [count[name] for name in names]
        assert self.counter.by_row.tolist() == [counted[name] for name in names]
        assert self.cluster.pod_count == len(self.placed)

    @invariant()
    def host_ports_are_taken_as_in_kube_scheduler(self) -> None:
        for row, name in enumerate(self.cluster.nodes.names):
            assert self.cluster.nodes.taken_ports(row) == self.ports[name]


ClusterMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestClusterMachine = ClusterMachine.TestCase
