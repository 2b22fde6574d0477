"""NodeUnschedulable: cordoned nodes, and the changes that help pods which it has rejected."""

from __future__ import annotations

import pytest

from core_tests.plugins.hints import requeues_after
from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.testing import PluginHarness, node, pod

OPEN, CORDONED = node("n"), node("n", unschedulable=True)
TOLERATION = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    harness = PluginHarness([CORDONED, node("other")])
    assert harness.feasible(pod("p")) == {"other"}
    assert harness.feasible(pod("p", spec={"tolerations": [TOLERATION]})) == {"n", "other"}


@pytest.mark.parametrize(
    ("old", "new", "requeues"),
    [
        (None, OPEN, True),
        (None, CORDONED, False),
        (CORDONED, OPEN, True),
        (OPEN, CORDONED, False),
        (OPEN, OPEN, False),
        (CORDONED, CORDONED, False),
    ],
)
def test_a_node_requeues_when_it_becomes_schedulable(old: Node | None, new: Node, requeues: bool) -> None:
    action = Action.ADD if old is None else Action.UPDATE_NODE_TAINT
    assert requeues_after("NodeUnschedulable", pod("p"), EventResource.NODE, action, old=old, new=new) is requeues
