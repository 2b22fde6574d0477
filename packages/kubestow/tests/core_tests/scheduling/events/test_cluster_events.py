"""Which events an update raises."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.changes.events import Action
from kubestow.scheduling.events.cluster_events import node_events
from kubestow.testing import node

_TAINTED = ["dedicated=db:NoSchedule"]


@pytest.mark.parametrize(
    ("before", "after", "actions"),
    [
        ({}, {}, []),
        ({"unschedulable": True}, {}, [Action.UPDATE_NODE_TAINT]),
        ({}, {"unschedulable": True}, []),
        ({"taints": _TAINTED}, {}, [Action.UPDATE_NODE_TAINT]),
        ({"taints": _TAINTED}, {"unschedulable": True}, [Action.UPDATE_NODE_TAINT]),
        ({"cpu": "1"}, {"cpu": "2", "labels": {"a": "b"}}, [Action.UPDATE_NODE_ALLOCATABLE, Action.UPDATE_NODE_LABEL]),
        ({}, {"unschedulable": True, "metadata": {"annotations": {"a": "b"}}}, [Action.UPDATE_NODE_ANNOTATION]),
        ({"images": {"i": 1}}, {"images": {"i": 2}}, []),
    ],
)
def test_an_update_of_a_node_raises_an_event_for_each_part_that_may_help_a_pod(
    before: dict[str, Any], after: dict[str, Any], actions: list[Action]
) -> None:
    assert [event.action for event in node_events(node("n", **before), node("n", **after))] == actions
