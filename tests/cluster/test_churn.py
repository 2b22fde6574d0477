"""What a cluster keeps while nodes and pods come and go: as much as there is, not as much as there ever was."""

from __future__ import annotations

from random import Random

from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.columns import Columns
from kubestow.cluster.nodes.labels import LabelColumn
from kubestow.testing import World, node, pod
from kubestow.testing.storage import claim

HOST = "kubernetes.io/hostname"


def test_values_that_no_node_has_any_more_are_forgotten() -> None:
    columns = Columns()
    column = LabelColumn(HOST, columns)
    for _ in range(10):
        columns.append_row()
    for number in range(10_000):
        column.set(number % 10, f"node-{number}")
    assert len(column.values) < 100
    assert [column.values[number] for number in column.ids] == [f"node-{number}" for number in range(9_990, 10_000)]
    assert (column.id_of("node-9999"), column.id_of("node-1")) == (column.ids[9], None)


def test_spread_is_counted_right_while_nodes_are_replaced_without_end() -> None:
    spread = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"labelSelector": {"matchLabels": {"app": "a"}}}
    wanted = pod("wanted", labels={"app": "a"}, spread=[spread | selector])
    random = Random(1)
    names = [f"node-{number}" for number in range(4)]
    world = World([node(name) for name in names])
    for number in range(300):
        full = random.choice(names)
        world.cluster.put_pod(world.info(pod(f"p{number}", node=full, labels={"app": "a"})))
        assert world.feasible(wanted) == set(names) - {full}
        world.cluster.remove_pod(f"uid-default-p{number}")
        world.cluster.remove_node(names.pop(0))
        names.append(f"replaced-{number}")
        world.cluster.add_node(node(names[-1]))


def test_a_port_that_nobody_holds_any_more_is_forgotten() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    for port in range(1000):
        cluster.put_pod(cluster.shapes.info(pod("p", node="n", host_ports=[port + 1])))
        cluster.remove_pod("uid-default-p")
    assert list(cluster.nodes.ports()) == []


def test_a_catalog_gives_its_objects_in_order_whatever_comes_and_goes() -> None:
    catalog = Cluster().catalog(PersistentVolumeClaim)
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y"), ("c", "w")):
        catalog.put(claim(name, namespace=namespace))
    assert [there.metadata.name for there in catalog] == ["y", "z", "x", "w"]
    catalog.remove("c", "w")
    catalog.remove("a", "z")
    catalog.put(claim("a", namespace="a"))
    assert [there.metadata.name for there in catalog] == ["a", "y", "x"]
    assert [there.metadata.name for there in catalog.in_namespace("a")] == ["a", "y"]
    assert list(catalog.in_namespace("c")) == []
