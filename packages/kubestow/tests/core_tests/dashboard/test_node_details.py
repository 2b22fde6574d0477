"""One node: its pods and what is free."""

from __future__ import annotations

from kubestow.cluster.cache import Cluster
from kubestow.dashboard.details import node_details
from kubestow.testing import node, pod


def test_a_node_has_its_pods_and_amounts() -> None:
    cluster = Cluster()
    cluster.add_node(node("a", cpu="4", memory="8Gi", labels={"k": "v"}))
    for name, priority in (("low", 1), ("high", 9)):
        cluster.put_pod(cluster.shapes.info(pod(name, cpu="500m", priority=priority, node="a")))
    cluster.assume(cluster.shapes.info(pod("assumed", cpu="1")), "a")
    found = node_details(cluster, "a")
    assert found is not None
    assert [(each["pod"], each["assumed"]) for each in found["pods"]] == [
        ("default/high", False),
        ("default/low", False),
        ("default/assumed", True),
    ]
    assert found["amounts"]["cpu"] == {"allocatable": 4000, "requested": 2000}
    assert found["amounts"]["pods"]["requested"] == found["podCount"] == 3
    assert found["labels"]["k"] == "v"


def test_an_unknown_node_has_no_details() -> None:
    assert node_details(Cluster(), "none") is None
