"""Binding a pod to a node: what every placement comes down to, and therefore short."""

from __future__ import annotations

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.registry import Registry, WriteOptions
from kubestow.devcluster.apiserver.requests import Answer
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.resources.pods import update_pod_condition
from kubestow.devcluster.apiserver.serialization import negotiation
from kubestow.devcluster.apiserver.verbs.call import Call

__all__ = ["bind", "create_binding", "create_pod_binding"]

_BOUND = statuses.success(code=201)


def create_pod_binding(call: Call) -> Answer:
    """``POST pods/NAME/binding``."""
    return _create(call, call.kind, call.target.name)


def create_binding(call: Call) -> Answer:
    """``POST bindings``, the older form, which names the pod in the body only."""
    return _create(call, call.registry.scheme["pods"], "")


def _create(call: Call, pods: Kind, name: str) -> Answer:
    binding = negotiation.decode(call.request.body, call.request.content_type, expected="Binding")
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if not isinstance(metadata, dict) or not isinstance(target, dict):
        problem = "json: cannot unmarshal into Go struct field Binding.target of type v1.ObjectReference"
        raise statuses.bad_request(f'Binding in version "v1" cannot be handled as a Binding: {problem}')
    if name and metadata.get("name", name) != name:
        raise statuses.bad_request("name in URL does not match name in Binding object")
    if metadata.get("namespace", call.target.namespace) != call.target.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if target.get("kind") not in (None, "", "Node"):
        kind = target["kind"]
        raise statuses.internal(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        raise statuses.internal("target.name: Required value")
    bind(call.registry, pods, call.target.namespace, name or metadata.get("name", ""), binding, call.write)
    return Answer(201, _BOUND)


def bind(registry: Registry, pods: Kind, namespace: str, name: str, binding: Object, write: WriteOptions) -> None:
    """Put the pod on the node of ``binding``. Raises a 404 or 409 Failure."""
    pod = pods.decode(registry.get(pods, namespace, name))
    metadata, spec = pod["metadata"], pod["spec"]
    wanted = binding.get("metadata") or {}
    if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
        key = pods.key(namespace, name)
        raise statuses.uid_conflict(pods, key, name, wanted=wanted["uid"], found=metadata["uid"])
    problem = ""
    if "deletionTimestamp" in metadata:
        problem = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        problem = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        problem = f"pod {name} has non-empty .spec.schedulingGates"
    if problem:
        raise statuses.conflict(pods, name, problem, resource="pods/binding")
    node = binding["target"]["name"]
    spec["nodeName"] = node
    pod["status"].pop("nominatedNodeName", None)  # the promise is kept, or made pointless
    labels = {**(wanted.get("labels") or {}), **registry.admission.topology_labels(node)}
    for field, added in (("labels", labels), ("annotations", wanted.get("annotations"))):
        if added:
            metadata[field] = {**(metadata.get(field) or {}), **added}
    # A nomination has done its work once the pod is on a node.
    pod["status"].pop("nominatedNodeName", None)
    update_pod_condition(pod["status"], {"type": "PodScheduled", "status": "True"}, registry.now())
    # What was promised is done (feature gate ClearingNominatedNodeNameAfterBinding).
    pod["status"].pop("nominatedNodeName", None)
    registry.commit(pods, pod, dry_run=write.dry_run)
