"""The cluster at the end of a simulation as Kubernetes objects, as ``kubectl get -o yaml`` would print them.

Objects of the input keep all their fields; those that the simulation changed have their new state. A pod that replaces
an evicted one has the fields of that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubestow.api.core import Pod
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.cluster_api.replacements import original_uid
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.rules.patches import json_merge_patch
from kubestow.scheduling.events.resources import NAMESPACES, NODES, PODS, WATCHED
from kubestow.scheduling.interfaces import Resource
from kubestow_lab.simulation.arrivals import Arrivals

Object = dict[str, Any]

#: Server-side metadata that says nothing about the result.
_BOOKKEEPING = ("resourceVersion", "managedFields", "selfLink", "generation")
#: Kinds that controllers of a simulation change; all others are as in the input.
_CHANGED = frozenset({"PersistentVolume", "PersistentVolumeClaim", "ResourceClaim"})
#: The fields of a pod's status that a simulation determines.
_SIMULATED_STATUS = (
    "phase",
    "startTime",
    "conditions",
    "nominatedNodeName",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
)


def resulting_objects(api: MemoryAPI, cluster: ClusterObjects, arrivals: Arrivals) -> Iterator[Object]:
    """All objects of the simulated cluster in API JSON form: nodes, namespaces, other objects, and pods last.

    Custom resources and what admission reads are as in the input.
    """
    cluster_wide = {resource.kind for resource in WATCHED if not resource.namespaced}
    sources = {}
    for given in cluster.sources:
        metadata = given.manifest["metadata"]
        namespace = "" if given.kind in cluster_wide else metadata.get("namespace") or "default"
        sources[given.kind, namespace, metadata["name"]] = given
    for resource in (NODES, NAMESPACES, *(r for r in WATCHED if r not in (NODES, NAMESPACES, PODS))):
        for obj in api.objects(resource.type).values():
            source = sources.get((resource.kind, obj.metadata.namespace, obj.metadata.name))
            manifest = {} if source is None else source.manifest
            if source is None or resource.kind in _CHANGED:
                if resource.kind == "ResourceClaim":  # whose allocation may be gone
                    manifest = {name: value for name, value in manifest.items() if name != "status"}
                manifest = json_merge_patch(manifest, msgspec.to_builtins(obj))
            yield _output(resource, manifest)
    for source in (*cluster.custom_resources, *arrivals.custom_resources):
        yield {"apiVersion": source.api_version, "kind": source.kind, **_without_bookkeeping(source.manifest)}
    names = {pod.metadata.uid: (PODS.kind, pod.metadata.namespace, pod.metadata.name) for pod in cluster.pods}
    templates = {arrival.pod.metadata.uid: arrival.manifest for arrival in arrivals.pods}
    for pod in api.pods():
        uid = original_uid(pod.metadata.uid)
        source = sources.get(names[uid]) if uid in names else None
        manifest = templates.get(uid, {}) if source is None else source.manifest
        yield _output(PODS, _updated(manifest, pod, is_new=uid != pod.metadata.uid))


def _output(resource: Resource, manifest: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **_without_bookkeeping(manifest)}


def _updated(manifest: Object, pod: Pod, *, is_new: bool) -> Object:
    """A manifest with the state of the decoded pod, which has fewer fields; ``is_new``: it is that of another pod."""
    state: Object = msgspec.to_builtins(pod)
    if not manifest:
        return state
    metadata = json_merge_patch(manifest.get("metadata") or {}, state["metadata"])
    spec = {name: value for name, value in (manifest.get("spec") or {}).items() if name != "nodeName"}
    if pod.spec.node_name:
        spec["nodeName"] = pod.spec.node_name
    status = {} if is_new else {k: v for k, v in (manifest.get("status") or {}).items() if k not in _SIMULATED_STATUS}
    status |= {name: value for name, value in state.get("status", {}).items() if name in _SIMULATED_STATUS}
    return {**manifest, "metadata": metadata, "spec": spec, "status": status}


def _without_bookkeeping(manifest: Mapping[str, Any]) -> Object:
    metadata = {k: v for k, v in (manifest.get("metadata") or {}).items() if k not in _BOOKKEEPING}
    return {**{k: v for k, v in manifest.items() if k not in ("apiVersion", "kind")}, "metadata": metadata}
