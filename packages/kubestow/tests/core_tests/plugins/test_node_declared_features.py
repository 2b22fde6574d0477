"""NodeDeclaredFeatures: required and declared features (semantics 8.20)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.plugins.hints import requeues_after
from kubestow.api.core import Node, Pod
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import PluginHarness, node, pod

RESTART = "RestartAllContainersOnContainerExits"
HOST_NETWORK = "UserNamespacesHostNetworkSupport"
REJECTION = ("NodeDeclaredFeatures", ("node(s) didn't match Pod's required features",))


def declaring(name: str, *features: str) -> Node:
    return node(name, status={"declaredFeatures": list(features)})


def restarting(*actions: str, kind: str = "containers") -> Pod:
    rules = [{"action": action} for action in actions]
    return pod(spec={kind: [{"name": "main", "restartPolicyRules": rules}]})


def test_a_node_must_declare_the_features_that_the_pod_requires() -> None:
    harness = PluginHarness([declaring("old"), declaring("new", "Other", RESTART)])
    assert harness.rejections(restarting("RestartAllContainers")) == {"old": REJECTION}


def test_init_containers_count() -> None:
    assert PluginHarness([declaring("old")]).rejections(restarting("RestartAllContainers", kind="initContainers"))


@pytest.mark.parametrize(
    ("network", "users", "required"),
    [(True, False, True), (True, True, False), (False, False, False), (True, None, False)],
)
def test_the_host_network_in_a_user_namespace_requires_a_feature(network: bool, users: Any, required: bool) -> None:
    waiting = pod(spec={"hostNetwork": network, "hostUsers": users})
    assert bool(PluginHarness([declaring("old")]).rejections(waiting)) is required
    assert PluginHarness([declaring("new", HOST_NETWORK)]).rejections(waiting) == {}


def test_other_pods_require_no_feature() -> None:
    assert PluginHarness([declaring("old")]).rejections(restarting("Restart")) == {}


def test_without_the_gate_no_feature_is_required() -> None:
    harness = PluginHarness(
        [declaring("old")], gates={"NodeDeclaredFeatures": False, "InPlacePodLevelResourcesVerticalScaling": False}
    )
    assert harness.rejections(restarting("RestartAllContainers")) == {}


def around(behaviour: Behaviour) -> tuple[Minor, Minor]:
    """The last minor version without a behaviour, and the first with it."""
    return Minor(behaviour.value.since - 1), Minor(behaviour.value.since)


def at(minor: Minor, *nodes: Node) -> PluginHarness:
    return PluginHarness(nodes, minor=minor, gates={"NodeDeclaredFeatures": True})


def test_before_136_the_reason_lists_the_features() -> None:
    waiting = restarting("RestartAllContainers")
    before, since = around(Behaviour.DECLARED_FEATURES_ARE_NOT_LISTED)
    listing = f"node declared features check failed - unsatisfied requirements: {RESTART}"
    assert at(since, declaring("old")).rejections(waiting) == {"old": REJECTION}
    assert at(before, declaring("old")).rejections(waiting) == {"old": ("NodeDeclaredFeatures", (listing,))}


def test_before_136_the_host_network_in_a_user_namespace_requires_no_feature() -> None:
    waiting = pod(spec={"hostNetwork": True, "hostUsers": False})
    before, since = around(Behaviour.HOST_NETWORK_IN_USER_NAMESPACE_IS_A_FEATURE)
    assert at(since, declaring("old")).rejections(waiting)
    assert at(before, declaring("old")).rejections(waiting) == {}


def test_before_135_there_is_no_such_plugin() -> None:
    before, since = around(Behaviour.HAS_NODE_DECLARED_FEATURES)
    assert "NodeDeclaredFeatures" in in_tree_registry(since)
    assert "NodeDeclaredFeatures" not in in_tree_registry(before)


def test_without_the_gate_the_filter_works_without_pre_filter() -> None:
    disabled = {"plugins": {"preFilter": {"disabled": [{"name": "NodeDeclaredFeatures"}]}}}
    enabled = {"plugins": {**disabled["plugins"], "filter": {"enabled": [{"name": "NodeDeclaredFeatures"}]}}}
    harness = PluginHarness([declaring("old")], profile=enabled, minor=Minor(35))
    assert harness.decide(restarting("RestartAllContainers")).node_name == "old"


def test_a_node_passes_once_it_declares_the_feature() -> None:
    harness = PluginHarness([declaring("n")])
    assert harness.rejections(restarting("RestartAllContainers"))
    harness.cluster.update_node(declaring("n", RESTART))
    assert harness.rejections(restarting("RestartAllContainers")) == {}


@pytest.mark.parametrize(
    ("old", "new", "requeued"),
    [
        (None, declaring("n", RESTART), True),
        (None, declaring("n"), False),
        (declaring("n"), declaring("n", RESTART), True),
        (declaring("n", RESTART), declaring("n", RESTART), False),
        (declaring("n", RESTART), declaring("n"), False),
    ],
)
def test_a_node_that_newly_declares_the_features_requeues_the_pod(old: Node | None, new: Node, requeued: bool) -> None:
    action = Action.ADD if old is None else Action.UPDATE_NODE_DECLARED_FEATURE
    waiting = restarting("RestartAllContainers")
    assert requeues_after("NodeDeclaredFeatures", waiting, EventResource.NODE, action, old=old, new=new) is requeued


def test_a_pod_is_requeued_when_its_required_features_change() -> None:
    waiting = restarting("RestartAllContainers")
    assert requeues_after(
        "NodeDeclaredFeatures", waiting, EventResource.POD, Action.UPDATE, old=waiting, new=restarting("Restart")
    )
    assert not requeues_after(
        "NodeDeclaredFeatures", waiting, EventResource.POD, Action.UPDATE, old=waiting, new=waiting
    )
