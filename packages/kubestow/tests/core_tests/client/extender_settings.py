"""Extender settings, and the objects that extenders receive."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import decode
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.cluster.pods.shapes import PodInfo, Shapes
from kubestow.config import API_VERSION, KIND
from kubestow.scheduling.events.resources import NODES, PODS

VERBS = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "bindVerb": "bind",
    "weight": 1,
}

#: A pod as the API server returns it, with fields that scheduling does not read.
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "uid-p", "managedFields": [{"manager": "kubectl"}]},
    "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}]},
    "status": {"phase": "Pending", "qosClass": "BestEffort"},
}


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"nodeInfo": {"architecture": "arm64"}}}


def settings(url: str, **changes: Any) -> config.Extender:
    document = {"apiVersion": API_VERSION, "kind": KIND, "extenders": [{"urlPrefix": url, **VERBS, **changes}]}
    return config.load(document).extenders[0]


def raw_objects(extender: config.Extender, *nodes: str, pods: tuple[dict[str, Any], ...] = (POD,)) -> RawObjectCache:
    """A cache for the extender, filled from a cluster with these nodes and pods."""
    cache = RawObjectCache.for_extenders([extender])
    for obj in pods:
        cache.store(PODS, *_decode(Pod, obj))
    for name in nodes:
        cache.store(NODES, *_decode(Node, node(name)))
    return cache


def _decode(kind: type[Any], obj: dict[str, Any]) -> tuple[Any, msgspec.Raw]:
    data = json.dumps(obj).encode()
    return decode(kind, data), msgspec.Raw(data)


def info(obj: dict[str, Any] = POD) -> PodInfo:
    return Shapes().info(decode(Pod, json.dumps(obj).encode()))


def without_managed_fields(obj: dict[str, Any]) -> dict[str, Any]:
    return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}
