"""The cluster that answers are about: followed by a watch, or shown in requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from kubestow.errors import InvalidObject
from kubestow.extending import Mirror
from kubestow.scheduling.events.resources import NODES, PODS, WATCHED
from kubestow.testing import node, pod


def raw(name: str, **labels: str) -> Raw:
    allocatable = {"cpu": "4", "pods": "110"}
    return Raw(
        json.dumps({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}).encode()
    )


def shown(mirror: Mirror, **nodes: Any) -> list[str]:
    mirror.show({name: raw(name, **labels) for name, labels in nodes.items()})
    return sorted(mirror.cluster.nodes.names)


def test_nodes_that_are_shown_replace_those_before() -> None:
    mirror = Mirror()
    assert shown(mirror, a={}, b={}) == ["a", "b"]
    assert shown(mirror, b={}, c={}) == ["b", "c"]


def test_a_node_that_is_shown_unchanged_spoils_no_answers() -> None:
    mirror = Mirror()
    shown(mirror, a={}, b={})
    before = mirror.cluster.journal.position
    shown(mirror, a={}, b={})
    assert mirror.cluster.journal.position == before
    shown(mirror, a={"colour": "red"}, b={})
    assert mirror.cluster.journal.position > before


def test_a_node_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(InvalidObject):
        Mirror().show({"a": Raw(b'{"status": 3}')})


def test_a_watch_is_followed() -> None:
    mirror = Mirror()
    mirror.replace(NODES, [node("a")])
    mirror.apply(PODS, "ADDED", pod("p", node="a"))
    mirror.apply(PODS, "ADDED", pod("q"))
    mirror.apply(PODS, "MODIFIED", pod("q", labels={"x": "y"}, metadata={"resourceVersion": "2"}))
    placed_pod = mirror.cluster.placed_pod("uid-default-p")
    assert placed_pod is not None
    assert mirror.known("uid-default-q") is not None
    mirror.apply(PODS, "DELETED", pod("q"))
    mirror.apply(PODS, "DELETED", pod("p", node="a"))
    assert mirror.cluster.pod_count == 0


def test_nodes_that_any_scheduler_promised_a_pod_are_promised() -> None:
    mirror = Mirror()
    mirror.replace(NODES, [node("a")])
    mirror.apply(PODS, "ADDED", pod("p", scheduler="another", nominated="a"))
    assert [info.name for info in mirror.cluster.nominated_to("a")] == ["p"]


def test_an_object_that_does_not_decode_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    Mirror().unreadable(PODS, "default/p", "spec: expected an object")
    assert "Pod default/p cannot be decoded" in caplog.text


def test_it_tells_once_that_it_is_complete() -> None:
    told: list[bool] = []
    mirror = Mirror()
    mirror.on_synced = lambda: told.append(True)
    for _ in range(2):
        for resource in WATCHED:
            mirror.replace(resource, [])
    assert told == [True]
