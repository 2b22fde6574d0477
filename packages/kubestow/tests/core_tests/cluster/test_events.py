"""Cluster events: what a registration covers, their bits in the journal, and their names."""

from __future__ import annotations

import logging
from itertools import product

import pytest

from kubestow.cluster.changes.events import POD_BITS, Action, ClusterEvent, EventResource, notify

NODE, POD, ASSIGNED = EventResource.NODE, EventResource.POD, EventResource.ASSIGNED_POD
EVERY = ClusterEvent(EventResource.WILDCARD, Action.ALL)


@pytest.mark.parametrize(
    ("registered", "incoming", "expected"),
    [
        ((NODE, Action.ADD | Action.UPDATE_NODE_TAINT), (NODE, Action.ADD), True),
        ((NODE, Action.ADD), (NODE, Action.UPDATE_NODE_TAINT), False),
        ((NODE, Action.UPDATE_NODE_TAINT), (NODE, Action.UPDATE), False),  # a generic update is the greater number
        ((NODE, Action.UPDATE), (NODE, Action.UPDATE), True),
        ((NODE, Action.ADD), (POD, Action.ADD), False),
        ((POD, Action.ADD), (ASSIGNED, Action.ADD), True),
        ((POD, Action.ADD), (EventResource.UNSCHEDULABLE_POD, Action.ADD), True),
        ((ASSIGNED, Action.ADD), (POD, Action.ADD), False),
        ((EventResource.WILDCARD, Action.DELETE), (NODE, Action.DELETE), True),
        ((EventResource.WILDCARD, Action.DELETE), (NODE, Action.ADD), False),
        ((EventResource.WILDCARD, Action.ALL), (NODE, Action.UPDATE_NODE_IMAGES), True),
    ],
)
def test_a_registration_covers_an_event(
    registered: tuple[str, Action], incoming: tuple[str, Action], expected: bool
) -> None:
    assert ClusterEvent(*registered).matches(ClusterEvent(*incoming)) is expected


def test_nodes_and_pods_have_a_bit_per_action_and_other_resources_one_for_all() -> None:
    single = [one for one in Action if one not in (Action.UPDATE, Action.ALL)]
    bits = [ClusterEvent(resource, action).bits for resource, action in product((NODE, POD), single)]
    others = {
        EventResource.STORAGE_CLASS,
        EventResource.PERSISTENT_VOLUME,
        EventResource.RESOURCE_CLAIM,
        EventResource.CUSTOM,
    }
    bits += [ClusterEvent(resource, Action.ADD).bits for resource in others]
    assert all(one.bit_count() == 1 for one in bits)
    assert len(set(bits)) == len(bits)
    assert all(one & EVERY.bits == one for one in bits)
    for resource in others:
        assert ClusterEvent(resource, Action.DELETE).bits == ClusterEvent(resource, Action.ADD).bits
    assert ClusterEvent("example.com/things", Action.ADD).bits == ClusterEvent(EventResource.CUSTOM, Action.ADD).bits


def test_all_kinds_of_pods_share_the_bits_of_pods() -> None:
    for resource in (POD, ASSIGNED, EventResource.UNSCHEDULABLE_POD):
        assert ClusterEvent(resource, Action.DELETE).bits == Action.DELETE
        assert ClusterEvent(resource, Action.DELETE).bits & POD_BITS
    assert not ClusterEvent(NODE, Action.DELETE).bits & POD_BITS


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ClusterEvent(ASSIGNED, Action.ADD), "AssignedPodAdd"),
        (ClusterEvent(NODE, Action.UPDATE_NODE_IMAGES), "NodeUPDATE_NODE_IMAGES"),
        (ClusterEvent("example.com/things", Action.UPDATE), "example.com/thingsUpdate"),
    ],
)
def test_an_event_is_named_by_resource_and_action(event: ClusterEvent, label: str) -> None:
    assert event.label == label


def test_only_the_registration_for_everything_is_a_wildcard() -> None:
    assert EVERY.is_wildcard
    assert not ClusterEvent(EventResource.WILDCARD, Action.ADD).is_wildcard
    assert not ClusterEvent(NODE, Action.ALL).is_wildcard


def test_a_listener_that_fails_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Listener:
        def __call__(self, name: str) -> None:
            raise SystemExit(name)

    with caplog.at_level(logging.ERROR):
        notify(Listener(), "n")
        notify([].index, "absent")
    first, second = (record.getMessage() for record in caplog.records)
    assert f"{__name__}.{Listener.__qualname__} failed" in first
    assert "list.index failed" in second
    with pytest.raises(KeyboardInterrupt):
        notify(_interrupt)


def _interrupt() -> None:
    raise KeyboardInterrupt
