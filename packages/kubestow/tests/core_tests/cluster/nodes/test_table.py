"""The node table: rows, what a change of a node changes, and kube-scheduler's order of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kubestow.api.core import ContainerImage
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action
from kubestow.cluster.nodes.columns import Columns, Images, InternedColumn
from kubestow.cluster.nodes.table import NodeTable, difference
from kubestow.cluster.nodes.views import single_node
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.rules.pods import HostPort
from kubestow.testing import node, pod


def zone_order(table: NodeTable) -> list[str]:
    return [table.names[row] for row in table.zone_order().tolist()]


def test_columns_keep_their_values_while_rows_are_added_and_are_filled_for_new_ones() -> None:
    columns = Columns()
    column = columns.new("int64", fill=-1)
    for row in range(100):
        assert columns.append_row() == row
        column.values[row] = row
    columns.append_row()
    assert column.values.tolist() == [*range(100), -1]
    assert column.readonly.tolist() == column.values.tolist()


def test_values_that_no_row_has_any_more_are_dropped_and_the_default_never_is() -> None:
    columns = Columns()
    column = InternedColumn[str](columns, "default")
    for _ in range(3):
        columns.append_row()
    for number in range(1000):
        column.set(0, f"first {number}")
        column.set(1, f"second {number // 2}")
        column.set(2, "always")
    assert len(column.values) < 500
    assert column.map(lambda value: value, np.object_, slice(0, 3)).tolist() == ["first 999", "second 499", "always"]
    columns.append_row()
    assert column.map(len, np.int64, slice(0, 4)).tolist() == [9, 10, 6, 7]
    assert column.values[0] == "default"


def test_the_order_takes_a_node_of_each_zone_in_turn_also_after_one_was_removed() -> None:
    table = NodeTable()
    for name, zone in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")):
        table.add(node(name, zone=zone))
    assert zone_order(table) == ["a1", "b1", "c1", "a2", "a3"]
    table.remove("b1")
    assert zone_order(table) == ["a1", "c1", "a2", "a3"]
    table.remove("a1")
    assert zone_order(table) == ["a2", "c1", "a3"]


def test_a_node_that_says_nothing_of_pods_takes_none() -> None:
    table = NodeTable()
    for status in ({"allocatable": {"cpu": "4"}}, {"allocatable": {"cpu": "4", "pods": "7"}}):
        table.add(node(f"n{len(status['allocatable'])}", status=status))
    assert table.allowed_pods.readonly.tolist() == [0, 7]
    table.update(node("n2", status={"allocatable": {"cpu": "4"}}))
    assert table.allowed_pods.readonly.tolist() == [0, 0]


def changed_by(**parts: Any) -> Action:
    return difference(node("n"), node("n", **parts))


@pytest.mark.parametrize(
    ("parts", "changes"),
    [
        ({}, Action(0)),
        ({"cpu": "7"}, Action.UPDATE_NODE_ALLOCATABLE),
        ({"labels": {"disk": "ssd"}}, Action.UPDATE_NODE_LABEL),
        ({"taints": ["dedicated=db:NoSchedule"]}, Action.UPDATE_NODE_TAINT),
        ({"unschedulable": True}, Action.UPDATE_NODE_TAINT),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, Action.UPDATE_NODE_CONDITION),
        ({"metadata": {"annotations": {"a": "b"}}}, Action.UPDATE_NODE_ANNOTATION),
        ({"status": {"declaredFeatures": ["F"]}}, Action.UPDATE_NODE_DECLARED_FEATURE),
        ({"status": {"images": [{"names": ["i"], "sizeBytes": 1}]}}, Action.UPDATE_NODE_IMAGES),
    ],
)
def test_an_update_of_a_node_is_told_by_what_it_changes(parts: dict[str, Any], changes: Action) -> None:
    assert changed_by(**parts) == changes


def test_a_heartbeat_of_a_condition_changes_nothing() -> None:
    beats = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:0{n}:00Z"} for n in (1, 2)]
    old, new = (node("n", status={"conditions": [beat]}) for beat in beats)
    assert difference(old, new) == Action(0)


def test_a_view_of_a_single_node_has_one_row() -> None:
    nodes = single_node(node("n", cpu="2"))
    assert (len(nodes), nodes.allocatable("cpu").tolist()) == (1, [2000])


def test_an_image_is_known_while_a_node_has_it_with_the_size_that_came_first() -> None:
    columns = Columns()
    images = Images(columns)
    columns.append_row()
    columns.append_row()
    first, second = ([ContainerImage(names=["app", "app:1"], size_bytes=size)] for size in (5, 9))
    images.add(0, first)
    images.add(1, second)
    images.add(1, second)  # listed twice
    app = images.get("app")
    assert app is not None
    assert (app.size, app.nodes, app.on.values.tolist()) == (5, 2, [True, True])
    images.remove(0, first)
    images.remove(0, first)
    assert (app.nodes, app.on.values.tolist()) == (1, [False, True])
    assert images.get("app:1") is not None
    images.remove(1, second)
    assert (images.get("app"), images.get("app:1"), images.get("other")) == (None, None, None)


def test_ports_conflict_with_the_same_number_on_the_same_or_any_address() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    ports = [{"hostPort": 80, "hostIP": ip} for ip in ("", "10.0.0.1", "10.0.0.2")]
    cluster.put_pod(cluster.shapes.info(pod("a", node="n", spec={"containers": [{"name": "c", "ports": ports}]})))
    anywhere, one, other, third = (HostPort(ip, "TCP", 80) for ip in ("0.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"))

    def conflicting(wanted: HostPort) -> set[HostPort]:
        return {port for port, _ in cluster.nodes.ports_conflicting_with(wanted)}

    assert conflicting(anywhere) == {anywhere, one, other}
    assert conflicting(one) == {anywhere, one}
    assert conflicting(third) == {anywhere}
    assert conflicting(HostPort("0.0.0.0", "UDP", 80)) == set()
    assert cluster.nodes.taken_ports(0) == {anywhere, one, other}


def test_an_amount_beyond_64_bits_wraps_around_as_in_go() -> None:
    columns = Columns()
    columns.append_row()
    column = columns.new("int64")
    column.add(0, 2**63 - 1)
    column.add(0, 1)
    assert column.values.tolist() == [-(2**63)]


# -- labels --------------------------------------------------------------------------------------------------------


def test_a_label_key_is_known_as_long_as_a_node_has_it() -> None:
    table = NodeTable()
    for name, labels in (("a", {"disk": "ssd"}), ("b", {"disk": "hdd", "rack": "1"}), ("c", {})):
        table.add(node(name, labels=labels))
    assert table.label_keys == {"kubernetes.io/hostname", "disk", "rack"}
    assert [table.label("disk").values[number] for number in table.label("disk").ids.tolist()] == ["ssd", "hdd", None]
    assert table.label("other").ids.tolist() == [0, 0, 0]
    table.update(node("b", labels={"disk": "nvme"}))
    assert table.label_keys == {"kubernetes.io/hostname", "disk"}
    assert table.label("rack").ids.tolist() == [0, 0, 0]
    table.remove("a")
    assert table.label_keys == {"kubernetes.io/hostname", "disk"}
    assert [table.label("disk").values[number] for number in table.label("disk").ids.tolist()] == [None, "nvme"]
    table.remove("b")
    assert table.label_keys == {"kubernetes.io/hostname"}
    table.remove("c")
    assert table.label_keys == set()


@pytest.mark.parametrize(
    ("changed", "is_revised"),
    [
        ({"labels": {"disk": "ssd"}}, True),
        ({"taints": ["dedicated=db:NoSchedule"]}, True),
        ({"unschedulable": True}, True),
        ({"cpu": "8"}, False),
        ({}, False),
    ],
)
def test_a_table_is_revised_by_changes_of_labels_and_taints(changed: dict[str, Any], is_revised: bool) -> None:
    table = NodeTable()
    table.add(node("n"))
    structure, revision = table.structure, table.revision
    table.update(node("n", **changed))
    assert (table.revision > revision, table.structure) == (is_revised, structure)
    table.add(node("m"))
    assert (table.revision > revision, table.structure > structure) == (True, True)
    structure, revision = table.structure, table.revision
    table.remove("m")
    assert (table.revision > revision, table.structure > structure) == (True, True)


def test_the_order_in_which_nodes_were_added_is_kept_while_rows_move() -> None:
    table = NodeTable()
    for name in "cab":
        table.add(node(name))
    table.remove("c")
    table.add(node("d"))
    table.update(node("a", cpu="8"))
    order = table.sequence.values.argsort().tolist()
    assert [table.names[row] for row in order] == ["a", "b", "d"]
    assert len(set(table.sequence.values.tolist())) == 3


def test_names_are_ranked_in_the_order_of_their_text() -> None:
    table = NodeTable()
    for name in ("b", "a", "c"):
        table.add(node(name))
    assert table.name_rank().tolist() == [1, 0, 2]
    table.remove("a")
    assert [table.names, table.name_rank().tolist()] == [["b", "c"], [0, 1]]
    table.add(node("0"))
    assert table.name_rank().tolist() == [1, 2, 0]


# -- amounts beyond the ordinary -----------------------------------------------------------------------------------

MOST = 2**53


def pod_with(name: str, **requests: Any) -> PodInfo:
    return Cluster().shapes.info(pod(name, **requests))


@pytest.mark.parametrize("requests", [{"memory": "9Pi"}, {"cpu": "9e15"}, {"requests": {"example.com/gpu": "1e16"}}])
def test_a_row_is_extreme_while_its_pods_request_extreme_amounts(requests: dict[str, Any]) -> None:
    table = NodeTable()
    for name in "ab":
        table.add(node(name))
    ordinary, extreme, other = pod_with("p", cpu="1"), pod_with("q", **requests), pod_with("r", **requests)
    table.add_pod(0, ordinary)
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False, False], False)
    table.add_pod(1, extreme)
    table.add_pod(1, other)
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False, True], True)
    table.remove_pod(1, extreme)
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False, True], True)
    table.remove_pod(1, other)
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False, False], False)


@pytest.mark.parametrize("amounts", [{"memory": str(MOST + 1)}, {"allocatable": {"example.com/gpu": "-1"}}])
def test_a_row_is_extreme_while_its_node_has_extreme_amounts(amounts: dict[str, Any]) -> None:
    table = NodeTable()
    for name in "abc":
        table.add(node(name, **(amounts if name == "b" else {})))
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False, True, False], True)
    table.add_pod(1, pod_with("p", cpu="1"))
    assert table.extreme.values.tolist() == [False, True, False]
    table.update(node("b"))
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False, False, False], False)
    table.update(node("c", **amounts))
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False, False, True], True)
    table.remove("a")
    assert (table.extreme.values.tolist(), table.has_extreme) == ([True, False], True)
    table.remove("c")
    assert (table.extreme.values.tolist(), table.has_extreme) == ([False], False)


def test_an_amount_of_53_bits_is_ordinary() -> None:
    table = NodeTable()
    table.add(node("n", memory=str(MOST)))
    assert not table.has_extreme
    table.add_pod(0, pod_with("p", memory=str(MOST)))
    assert not table.has_extreme
    table.add_pod(0, pod_with("q", memory="1"))
    assert table.has_extreme


# -- pods ----------------------------------------------------------------------------------------------------------


def test_replacing_a_pod_says_whether_it_has_started() -> None:
    table = NodeTable()
    table.add(node("n"))
    pending, started = pod_with("p"), pod_with("p", status={"startTime": "2026-01-01T00:00:00Z"})
    table.add_pod(0, pending)
    assert table.replace_pod(0, started) is True
    assert list(table.pods[0].values()) == [started]
    assert table.replace_pod(0, pod_with("p", status={"startTime": "2026-01-01T00:00:00Z"})) is False


def test_the_first_pod_with_a_port_that_leaves_frees_it_for_all() -> None:
    table = NodeTable()
    for name in "ab":
        table.add(node(name))
    port = HostPort("0.0.0.0", "TCP", 80)
    one, other, elsewhere = (pod_with(name, host_ports=[80]) for name in "pqr")
    table.add_pod(0, one)
    assert table.take_ports(0, one) == []
    assert table.take_ports(1, one) == [port]
    table.free_ports(1, [port])
    assert (table.taken_ports(0), table.taken_ports(1)) == ({port}, set())
    table.add_pod(0, other)
    table.add_pod(1, elsewhere)
    table.remove_pod(0, one)
    assert (table.taken_ports(0), table.taken_ports(1)) == (set(), {port})
    table.remove_pod(1, elsewhere)
    assert list(table.ports()) == []
    table.free_ports(0, [port])
    assert list(table.ports()) == []


def test_nominated_pods_are_counted_on_their_rows() -> None:
    table = NodeTable()
    for name in "abc":
        table.add(node(name))
    one, other = pod_with("p"), pod_with("q")
    table.nominate(1, one)
    table.nominate(1, other)
    assert table.nominated_count.values.tolist() == [0, 2, 0]
    table.remove("a")
    assert table.nominated_count.values.tolist() == [0, 2], "rows keep their numbers but for the last one"
    table.drop_nomination(1, one.uid)
    assert table.nominated_count.values.tolist() == [0, 1]
    assert [table.nominated.info(slot).name for slot in table.nominated.slots(1)] == ["q"]
