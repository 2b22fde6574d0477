"""The cluster state of an extender: from a watch, or from requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from kubestow.api.core import Namespace
from kubestow.api.meta import ObjectMeta
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.errors import InvalidObject
from kubestow.scheduling.events.resources import NAMESPACES, NODES, PODS, WATCHED, resource_of
from kubestow.scheduling.events.watch_cache import WatchCache
from kubestow.testing import node, pod
from kubestow.testing.storage import claim


def raw(name: str, **labels: str) -> Raw:
    allocatable = {"cpu": "4", "pods": "110"}
    return Raw(
        json.dumps({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}).encode()
    )


def set_nodes(cache: WatchCache, **nodes: Any) -> list[str]:
    cache.set_nodes({name: raw(name, **labels) for name, labels in nodes.items()})
    return sorted(cache.cluster.nodes.names)


def test_set_nodes_replaces_all_nodes() -> None:
    cache = WatchCache()
    assert set_nodes(cache, a={}, b={}) == ["a", "b"]
    assert set_nodes(cache, b={}, c={}) == ["b", "c"]


def test_an_object_is_known_as_it_was_received_last() -> None:
    cache = WatchCache()
    set_nodes(cache, a={"disk": "ssd"})
    assert cache.observed(NODES, ("", "a")).metadata.labels == {"disk": "ssd"}
    assert cache.observed(NODES, ("", "b")) is None
    assert cache.observed(PODS, ("default", "p")) is None
    assert cache.observed(NAMESPACES, ("", "n")) is None
    cache.cluster.put_namespace("n", {"team": "x"})
    assert cache.observed(NAMESPACES, ("", "n")).metadata == ObjectMeta(name="n", labels={"team": "x"})


def test_a_list_removes_what_it_does_not_have_and_leaves_the_rest_as_it_is() -> None:
    cache = WatchCache()
    cache.replace(NODES, [node("a"), node("b")])
    cache.replace(PODS, [pod("p", node="a"), pod("q")])
    cache.replace(NAMESPACES, [Namespace(ObjectMeta(name=name)) for name in ("x", "y")])
    before = cache.cluster.journal.position
    cache.replace(NODES, [node("a"), node("b")])
    cache.replace(PODS, [pod("p", node="a"), pod("q")])
    assert cache.cluster.journal.position == before
    cache.replace(NODES, [node("b")])
    cache.replace(PODS, [pod("q")])
    cache.replace(NAMESPACES, [Namespace(ObjectMeta(name="x"))])
    assert cache.cluster.nodes.names == ["b"]
    assert (cache.known("uid-default-p"), cache.cluster.pod_count) == (None, 0)
    assert sorted(cache.cluster.namespaces) == ["x"]


def test_each_kind_is_observed_by_its_key() -> None:
    cache = WatchCache()
    cache.replace(PODS, [pod("p", labels={"app": "a"})])
    assert cache.observed(PODS, ("default", "p")).metadata.labels == {"app": "a"}
    claims = resource_of(PersistentVolumeClaim)
    cache.replace(claims, [claim("data")])
    assert cache.observed(claims, ("default", "data")) == claim("data")
    cache.apply(claims, "DELETED", claim("data"))
    assert cache.observed(claims, ("default", "data")) is None
    cache.apply(NAMESPACES, "ADDED", Namespace(ObjectMeta(name="n")))
    cache.apply(NAMESPACES, "DELETED", Namespace(ObjectMeta(name="n")))
    assert cache.observed(NAMESPACES, ("", "n")) is None


def test_an_unchanged_node_invalidates_nothing() -> None:
    cache = WatchCache()
    set_nodes(cache, a={}, b={})
    before = cache.cluster.journal.position
    set_nodes(cache, a={}, b={})
    assert cache.cluster.journal.position == before
    set_nodes(cache, a={"colour": "red"}, b={})
    assert cache.cluster.journal.position > before


def test_an_invalid_node_is_an_error() -> None:
    with pytest.raises(InvalidObject):
        WatchCache().set_nodes({"a": Raw(b'{"status": 3}')})


def test_watch_events_are_applied() -> None:
    cache = WatchCache()
    cache.replace(NODES, [node("a")])
    cache.apply(PODS, "ADDED", pod("p", node="a"))
    cache.apply(PODS, "ADDED", pod("q"))
    cache.apply(PODS, "MODIFIED", pod("q", labels={"x": "y"}, metadata={"resourceVersion": "2"}))
    placed_pod = cache.cluster.placed_pod("uid-default-p")
    assert placed_pod is not None
    assert cache.known("uid-default-q") is not None
    cache.apply(PODS, "DELETED", pod("q"))
    cache.apply(PODS, "DELETED", pod("p", node="a"))
    assert cache.cluster.pod_count == 0


def test_nominated_pods_of_every_scheduler_are_tracked() -> None:
    cache = WatchCache()
    cache.replace(NODES, [node("a")])
    cache.apply(PODS, "ADDED", pod("p", scheduler="another", nominated="a"))
    assert [info.name for info in cache.cluster.nominated_pods("a")] == ["p"]


def test_an_invalid_object_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    WatchCache().unreadable(PODS, ObjectMeta(name="p", namespace="default"), "spec: expected an object")
    assert "Pod default/p cannot be decoded" in caplog.text


def test_on_synced_is_called_once() -> None:
    calls: list[bool] = []
    cache = WatchCache()
    cache.on_synced = lambda: calls.append(True)
    for _ in range(2):
        for resource in WATCHED:
            cache.replace(resource, [])
    assert calls == [True]
