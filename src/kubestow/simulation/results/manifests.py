"""The cluster at the end of a simulation as Kubernetes objects, as ``kubectl get -o yaml`` would print them.

Objects of the input keep all their fields; those that the simulation changed have their new state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubestow.api.core import Pod
from kubestow.scheduling.events.resources import NAMESPACES, NODES, PODS, WATCHED
from kubestow.simulation.cluster_api.object_writes import json_merge_patched
from kubestow.simulation.cluster_api.simulated_cluster import SimulatedCluster
from kubestow.simulation.input.arrivals import Arrivals
from kubestow.simulation.input.cluster import Cluster

__all__ = ["resulting_objects"]

Object = dict[str, Any]
Key = tuple[str, str, str]

#: Server-side metadata that says nothing about the result.
_BOOKKEEPING = ("resourceVersion", "uid", "managedFields", "selfLink", "generation")
#: Kinds that controllers of a simulation change; all others are as in the input.
_CHANGED = frozenset({"Pod", "PersistentVolume", "PersistentVolumeClaim", "ResourceClaim"})


def resulting_objects(api: SimulatedCluster, cluster: Cluster, arrivals: Arrivals) -> Iterator[Object]:
    """All objects of the simulated cluster in API JSON form: nodes, namespaces, other objects, and pods last."""
    sources = {_source_key(source.kind, source.manifest): source for source in cluster.sources}
    templates = {arrival.pod.metadata.uid: arrival.manifest for arrival in arrivals.pods}
    for resource in (NODES, NAMESPACES, *(r for r in WATCHED if r not in (NODES, NAMESPACES, PODS)), PODS):
        for obj in api.objects(resource.type).values():
            metadata = obj.metadata
            source = sources.get((resource.kind, metadata.namespace, metadata.name))
            if source is not None:
                manifest = source.manifest
            elif isinstance(obj, Pod):
                manifest = dict(templates.get(metadata.uid) or {})
            else:
                manifest = {}
            if source is None or resource.kind in _CHANGED:
                manifest = _updated(manifest, obj)
            yield {"apiVersion": resource.api_version, "kind": resource.kind, **_without_bookkeeping(manifest)}


def _source_key(kind: str, manifest: Object) -> Key:
    metadata = manifest["metadata"]
    namespaced = next((r.namespaced for r in WATCHED if r.kind == kind), True)
    return kind, (metadata.get("namespace") or "default") if namespaced else "", metadata["name"]


def _updated(manifest: Object, obj: Any) -> Object:
    """A manifest with the state of the decoded object, which has fewer fields."""
    state = msgspec.to_builtins(obj)
    if not isinstance(obj, Pod) or not manifest:
        return json_merge_patched(manifest, state)
    changes: Object = {"metadata": state["metadata"]}
    spec = dict(manifest.get("spec") or {})
    if obj.spec.node_name:
        spec["nodeName"] = obj.spec.node_name
    status = {name: state["status"][name] for name in ("phase", "conditions") if name in state.get("status", {})}
    if status:
        changes["status"] = status
    return json_merge_patched({**manifest, "spec": spec}, changes)


def _without_bookkeeping(manifest: Mapping[str, Any]) -> Object:
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in _BOOKKEEPING}
    return {**{k: v for k, v in manifest.items() if k not in ("apiVersion", "kind")}, "metadata": metadata}
