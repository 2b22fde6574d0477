"""NodePorts on nodes whose pods share a host port: used ports are a set, as in kube-scheduler (semantics 7.4)."""

from __future__ import annotations

from kubestow.api.core import Pod
from kubestow.testing import PluginHarness, node, pod

INCOMING = pod("incoming", host_ports=[80])


def running(name: str, *, phase: str = "Pending") -> Pod:
    return pod(name, node="n", host_ports=[80], status={"phase": phase})


def test_a_pod_that_leaves_frees_its_host_port_even_if_another_pod_has_it() -> None:
    harness = PluginHarness([node("n")], [running("a"), running("b")])
    assert harness.feasible(INCOMING) == set()
    harness.cluster.remove_pod("uid-default-a")
    assert harness.feasible(INCOMING) == {"n"}


def test_a_freed_host_port_is_taken_again_when_a_pod_that_has_it_is_updated() -> None:
    harness = PluginHarness([node("n")], [running("a"), running("b")])
    harness.cluster.remove_pod("uid-default-a")
    assert harness.feasible(INCOMING) == {"n"}
    harness.cluster.put_pod(harness.info(running("b", phase="Running")))
    assert harness.feasible(INCOMING) == set()


def test_a_freed_host_port_stays_free_when_the_node_is_deleted_and_added_again() -> None:
    harness = PluginHarness([node("n")], [running("a"), running("b")])
    harness.cluster.remove_pod("uid-default-a")
    harness.cluster.remove_node("n")
    harness.cluster.add_node(node("n"))
    assert harness.feasible(INCOMING) == {"n"}
