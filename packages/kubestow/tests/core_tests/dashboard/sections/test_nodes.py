"""The nodes section: everything once, then the rows that change."""

from __future__ import annotations

from typing import Any

from core_tests.observability.harness import Observed, observe
from kubestow.cluster.cache import Cluster
from kubestow.dashboard.sections import NodesSection
from kubestow.testing import node, pod

ZONE = "topology.kubernetes.io/zone"


def placed(cluster: Cluster, name: str, node_name: str, **spec: Any) -> None:
    cluster.put_pod(cluster.shapes.info(pod(name, node=node_name, **spec)))


def three_nodes() -> Cluster:
    cluster = Cluster()
    for name, zone in (("a", "z1"), ("b", "z2"), ("c", "z1")):
        cluster.add_node(node(name, cpu="4", labels={ZONE: zone, "kubernetes.io/hostname": name}))
    return cluster


def test_the_first_change_is_everything() -> None:
    cluster = three_nodes()
    placed(cluster, "p", "b", cpu="1")
    section = NodesSection(cluster)
    content = section.refresh()
    assert content == section.content()
    assert content is not None
    assert content["names"] == ["a", "b", "c"]
    assert content["labels"][ZONE] == {"values": ["z1", "z2"], "codes": [1, 2, 1]}
    assert content["requested"]["cpu"] == [0, 1000, 0]
    assert content["requested"]["pods"] == [0, 1, 0]
    assert content["allocatable"]["cpu"] == [4000, 4000, 4000]
    assert content["cordoned"] == []


def test_a_label_with_a_value_of_its_own_for_each_node_is_not_offered() -> None:
    section = NodesSection(three_nodes())
    section.refresh()
    assert list(section.content()["labels"]) == [ZONE]


def test_without_a_change_there_is_nothing_to_send() -> None:
    section = NodesSection(three_nodes())
    section.refresh()
    assert section.refresh() is None


def test_a_placed_pod_changes_one_row() -> None:
    cluster = three_nodes()
    section = NodesSection(cluster)
    section.refresh()
    placed(cluster, "p", "c", cpu="500m")
    change = section.refresh()
    assert change is not None
    assert change["rows"] == [2]
    assert (change["requested"]["cpu"], change["requested"]["pods"]) == ([500], [1])
    assert change["allocatable"] == {}


def test_a_cordoned_and_a_tainted_node_are_described_anew() -> None:
    cluster = three_nodes()
    section = NodesSection(cluster)
    section.refresh()
    cluster.update_node(node("b", cpu="4", labels={ZONE: "z2"}, unschedulable=True, taints=["k=v:NoExecute"]))
    change = section.refresh()
    assert change is not None
    assert change["cordoned"] == [1]
    assert change["taints"] == {"values": [[], ["k=v:NoExecute"]], "codes": [0, 1, 0]}


def test_a_removed_node_leaves_no_gap() -> None:
    cluster = three_nodes()
    placed(cluster, "p", "c", cpu="1")
    section = NodesSection(cluster)
    section.refresh()
    cluster.remove_node("a")
    change = section.refresh()
    assert change is not None
    assert (change["names"], change["requested"]["cpu"]) == (["c", "b"], [1000, 0])


def test_rows_and_changes_together_are_the_content_of_the_scheduler() -> None:
    """A viewer that applies all changes sees what a new viewer sees."""

    async def scenario(observed: Observed) -> None:
        section = NodesSection(observed.harness.scheduler.cluster)
        seen = section.refresh()
        assert seen is not None
        for number in range(12):
            observed.harness.cluster.put(pod(f"p{number}", cpu="300m"))
            await observed.harness.settle()
            change = section.refresh()
            assert change is not None
            for kind in ("requested", "allocatable"):
                for name, values in change[kind].items():
                    for row, value in zip(change["rows"], values, strict=True):
                        seen[kind][name][row] = value
            assert seen == section.content()

    observe(scenario, node("a"), node("b"), node("c"))
