"""Which events an update raises."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import Shapes
from kubestow.scheduling.events.cluster_events import node_events, pod_events
from kubestow.testing import node, pod

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


_TOLERATION = {"key": "dedicated", "operator": "Exists"}
_CLAIM = {"name": "gpu", "resourceClaimName": "p-gpu"}


@pytest.mark.parametrize(
    ("before", "after", "actions"),
    [
        ({"labels": {"a": "b"}}, {"labels": {"a": "c"}}, [Action.UPDATE_POD_LABEL]),
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, [Action.UPDATE_POD_SCALE_DOWN]),
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "2"}, [Action.UPDATE_POD_SCALE_DOWN]),
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "3", "memory": "512Mi"}, [Action.UPDATE_POD_SCALE_DOWN]),
        ({"cpu": "2", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"}, [Action.UPDATE]),
        ({"gates": ["a", "b"]}, {"gates": ["b"]}, [Action.UPDATE]),
        ({"gates": ["b"]}, {}, [Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED]),
        ({}, {"tolerations": [_TOLERATION]}, [Action.UPDATE_POD_TOLERATION]),
        (
            {},
            {"status": {"resourceClaimStatuses": [_CLAIM]}},
            [Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM],
        ),
        ({"cpu": "2"}, {"labels": {"a": "b"}}, [Action.UPDATE_POD_LABEL, Action.UPDATE_POD_SCALE_DOWN]),
        ({}, {"nominated": "n"}, [Action.UPDATE]),
    ],
)
@pytest.mark.parametrize("on", ["", "n"], ids=["pending", "assigned"])
def test_an_update_of_a_pod_raises_an_event_for_each_part_that_may_help_a_pod(
    before: dict[str, Any], after: dict[str, Any], actions: list[Action], on: str
) -> None:
    shapes = Shapes()
    old, new = (shapes.info(pod("p", node=on, **fields)) for fields in (before, after))
    events = pod_events(old, new)
    if actions == [Action.UPDATE]:
        assert len(events) == 1 and events[0].action not in {
            Action.UPDATE_POD_LABEL,
            Action.UPDATE_POD_SCALE_DOWN,
            Action.UPDATE_POD_TOLERATION,
            Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
            Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
        }
    else:
        assert [event.action for event in events] == actions
    kind = EventResource.ASSIGNED_POD if on else EventResource.UNSCHEDULABLE_POD
    assert {event.resource for event in events} == {kind}
