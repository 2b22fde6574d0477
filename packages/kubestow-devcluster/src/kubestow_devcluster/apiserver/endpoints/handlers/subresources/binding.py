"""The binding subresource: assigns a pod to a node."""

from __future__ import annotations

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.registry.registry import Registry, WriteOptions
from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.resources.pod_conditions import update_pod_condition
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.serialization.decoding import decode_body

__all__ = ["create_binding", "create_pod_binding"]

_CREATED = statuses.success(code=201)


def create_pod_binding(scope: RequestScope) -> Response:
    """``POST pods/NAME/binding``."""
    return _create(scope, scope.kind, scope.info.name)


def create_binding(scope: RequestScope) -> Response:
    """``POST bindings``, the deprecated form, which names the pod in the body only."""
    return _create(scope, scope.registry.scheme["pods"], "")


def _create(scope: RequestScope, pods: Kind, name: str) -> Response:
    request, namespace = scope.request, scope.info.namespace
    binding = decode_body(request.body, request.headers.content_type, expected="Binding")
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if not isinstance(metadata, dict) or not isinstance(target, dict):
        problem = "json: cannot unmarshal into Go struct field Binding.target of type v1.ObjectReference"
        raise statuses.bad_request(f'Binding in version "v1" cannot be handled as a Binding: {problem}')
    if name and metadata.get("name", name) != name:
        raise statuses.bad_request("name in URL does not match name in Binding object")
    if metadata.get("namespace", namespace) != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if target.get("kind") not in (None, "", "Node"):
        kind = target["kind"]
        raise statuses.internal(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        raise statuses.internal("target.name: Required value")
    _bind(scope.registry, pods, namespace, name or metadata.get("name", ""), binding, scope.write_options)
    return Response(201, _CREATED)


def _bind(registry: Registry, pods: Kind, namespace: str, name: str, binding: Object, options: WriteOptions) -> None:
    """Set the node of a pod, and merge the labels and annotations of the binding into it.

    Raises a 404 or 409 StatusError.
    """
    pod = pods.decode(registry.get(pods, namespace, name))
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    from_binding = binding.get("metadata") or {}
    uid = from_binding.get("uid")
    if uid and uid != metadata["uid"]:
        key = pods.key(namespace, name)
        raise statuses.uid_conflict(pods.group_resource, key, name, expected=uid, actual=metadata["uid"])
    if problem := _binding_problem(pod):
        raise statuses.conflict(pods.group_resource, name, problem, subject="pods/binding")
    node = binding["target"]["name"]
    spec["nodeName"] = node
    labels = {**(from_binding.get("labels") or {}), **registry.admission.topology_labels(node)}
    for field, added in (("labels", labels), ("annotations", from_binding.get("annotations"))):
        if added:
            metadata[field] = {**(metadata.get(field) or {}), **added}
    # As with the feature gate ClearingNominatedNodeNameAfterBinding.
    status.pop("nominatedNodeName", None)
    update_pod_condition(status, {"type": "PodScheduled", "status": "True"}, registry.now())
    registry.commit(pods, pod, dry_run=options.dry_run)


def _binding_problem(pod: Object) -> str:
    """Why a pod cannot be bound, or the empty string."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""
