"""NodeDeclaredFeatures (semantics 8.20)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Node, Pod
from kubestow.cluster.events import Action, EventResource
from kubestow.testing import World, node, pod
from tests.plugins.hints import requeues_after

RESTART = "RestartAllContainersOnContainerExits"
HOST_NETWORK = "UserNamespacesHostNetworkSupport"
REFUSAL = ("NodeDeclaredFeatures", ("node(s) didn't match Pod's required features",))


def declaring(name: str, *features: str) -> Node:
    return node(name, status={"declaredFeatures": list(features)})


def restarting(*actions: str, kind: str = "containers") -> Pod:
    rules = [{"action": action} for action in actions]
    return pod(spec={kind: [{"name": "main", "restartPolicyRules": rules}]})


def test_a_node_must_declare_what_the_pod_needs() -> None:
    world = World([declaring("old"), declaring("new", "Other", RESTART)])
    assert world.refusals(restarting("RestartAllContainers")) == {"old": REFUSAL}


def test_init_containers_count() -> None:
    assert World([declaring("old")]).refusals(restarting("RestartAllContainers", kind="initContainers"))


@pytest.mark.parametrize(
    ("network", "users", "needed"),
    [(True, False, True), (True, True, False), (False, False, False), (True, None, False)],
)
def test_the_host_network_in_a_user_namespace_is_a_feature(network: bool, users: Any, needed: bool) -> None:
    asked = pod(spec={"hostNetwork": network, "hostUsers": users})
    assert bool(World([declaring("old")]).refusals(asked)) is needed
    assert World([declaring("new", HOST_NETWORK)]).refusals(asked) == {}


def test_other_pods_need_no_feature() -> None:
    assert World([declaring("old")]).refusals(restarting("Restart")) == {}


def test_without_the_gate_nothing_is_needed() -> None:
    world = World(
        [declaring("old")], gates={"NodeDeclaredFeatures": False, "InPlacePodLevelResourcesVerticalScaling": False}
    )
    assert world.refusals(restarting("RestartAllContainers")) == {}


def test_a_node_that_begins_to_declare_a_feature_is_seen() -> None:
    world = World([declaring("n")])
    assert world.refusals(restarting("RestartAllContainers"))
    world.cluster.update_node(declaring("n", RESTART))
    assert world.refusals(restarting("RestartAllContainers")) == {}


@pytest.mark.parametrize(
    ("old", "new", "worth_it"),
    [
        (None, declaring("n", RESTART), True),
        (None, declaring("n"), False),
        (declaring("n"), declaring("n", RESTART), True),
        (declaring("n", RESTART), declaring("n", RESTART), False),
        (declaring("n", RESTART), declaring("n"), False),
    ],
)
def test_a_node_is_worth_a_try_when_it_declares_enough(old: Node | None, new: Node, worth_it: bool) -> None:
    action = Action.ADD if old is None else Action.UPDATE_NODE_DECLARED_FEATURE
    waiting = restarting("RestartAllContainers")
    assert requeues_after("NodeDeclaredFeatures", waiting, EventResource.NODE, action, old=old, new=new) is worth_it


def test_a_pod_is_tried_again_when_it_needs_something_else() -> None:
    waiting = restarting("RestartAllContainers")
    assert requeues_after(
        "NodeDeclaredFeatures", waiting, EventResource.POD, Action.UPDATE, old=waiting, new=restarting("Restart")
    )
    assert not requeues_after(
        "NodeDeclaredFeatures", waiting, EventResource.POD, Action.UPDATE, old=waiting, new=waiting
    )
