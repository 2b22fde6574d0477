"""The handlers of subresources that are not a part of the object, and of kinds that are created and never stored.

A binding assigns a pod to a node, an eviction is a delete that a PodDisruptionBudget can reject. Containers on
simulated nodes do not run: the log of one says what happened to it, and has the output of a known command; exec,
attach and portforward validate the request as kube-apiserver does, and then fail with 501. A Scale has the replicas of
a workload. Never stored are reviews of tokens and of access, and token requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from kubestow.api.core import PodStatus
from kubestow.api.formats.timestamps import timestamp
from kubestow.api.meta import convert, decode
from kubestow.api.policy import PodDisruptionBudget
from kubestow.http.messages import ALL_UNAUTHENTICATED, ANONYMOUS, HTTPResponse, UserInfo
from kubestow.rules.disruption import SEVERAL_BUDGETS, VIOLATION, BudgetIndex, denial, is_disruption, is_exempt
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.requests import Request
from kubestow_devcluster.apiserver.endpoints.writing_handlers import (
    JSON_MERGE_PATCH,
    JSON_PATCH,
    decode_patch,
    is_json_patch,
    parse_delete_options,
    patch_type_of,
    patched,
)
from kubestow_devcluster.apiserver.group_version import GroupResource
from kubestow_devcluster.apiserver.kinds.kind import Kind, ScalePaths, value_at, with_value_at
from kubestow_devcluster.apiserver.kinds.object_fields import update_pod_condition
from kubestow_devcluster.apiserver.managed_fields import FieldManager, record_update
from kubestow_devcluster.apiserver.printers import PRINTERS
from kubestow_devcluster.apiserver.printers.table import format_selector
from kubestow_devcluster.apiserver.registry.registry import Registry, WriteOptions, check_preconditions
from kubestow_devcluster.apiserver.schema.types import ANY, Object, UnmarshalTypeError, struct_of
from kubestow_devcluster.apiserver.security.authentication import (
    DEFAULT_AUDIENCE,
    BoundObject,
    RequestAuthenticator,
    ServiceAccountTokens,
)
from kubestow_devcluster.apiserver.security.authorization import Attributes, Authorizer, Decision
from kubestow_devcluster.apiserver.serialization.media_types import decode_body, negotiate_output_media_type
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.container_commands import command_of

_CREATED = statuses.success(code=201)


def create_pod_binding(scope: RequestScope) -> HTTPResponse:
    """``POST pods/NAME/binding``."""
    return _bind_named(scope, scope.kind, scope.info.name)


def create_binding(scope: RequestScope) -> HTTPResponse:
    """``POST bindings``, the deprecated form, which names the pod in the body only."""
    return _bind_named(scope, scope.registry.scheme["pods"], "")


def _bind_named(scope: RequestScope, pods: Kind, name: str) -> HTTPResponse:
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
    return HTTPResponse(201, _CREATED)


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
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


_SERVER_MANAGER = "kube-apiserver"


def create_eviction(scope: RequestScope) -> HTTPResponse:
    """``POST pods/NAME/eviction``. Raises a 409 StatusError, and a 429 one when the budget allows no disruption."""
    request, registry, pods = scope.request, scope.registry, scope.kind
    eviction = decode_body(request.body, request.headers.content_type, expected="Eviction")
    metadata, options = eviction.get("metadata") or {}, eviction.get("deleteOptions") or {}
    if not isinstance(metadata, dict) or not isinstance(options, dict):
        raise statuses.bad_request("Eviction: a field has the wrong type")
    name = metadata.get("name", scope.info.name)
    if name != scope.info.name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    delete_options = parse_delete_options(options)
    write_options = WriteOptions(request.field_manager, request.dry_run or bool(options.get("dryRun")))
    pod = pods.decode(scope.get())
    if is_disruption(pod["status"].get("phase", ""), is_terminating="deletionTimestamp" in pod["metadata"]):
        _decrement_budget(registry, pod, dry_run=write_options.dry_run)
    check_preconditions(pods, pod, delete_options)
    if not write_options.dry_run:
        _set_disruption_target(registry, pods, pod)  # with another resourceVersion than that of the precondition
        delete_options = replace(delete_options, resource_version="")
        registry.delete(pods, scope.info.namespace, name, delete_options, write_options)
    return HTTPResponse(201, statuses.success(code=201))


def _set_disruption_target(registry: Registry, pods: Kind, pod: Object) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }

    def set_condition(old: Object) -> Object:
        new = {**old, "metadata": dict(old["metadata"]), "status": dict(old["status"])}
        update_pod_condition(new["status"], condition, registry.now())
        return new

    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    registry.update(pods, namespace, name, set_condition, subresource="status")


def _decrement_budget(registry: Registry, pod: Object, *, dry_run: bool) -> None:
    """Count the eviction against the pod's budget. Raises a 429 or 500 StatusError."""
    kind = registry.scheme["poddisruptionbudgets.policy"]
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    stored = registry.store.collection(kind.storage).snapshot(f"{namespace}/")
    budgets = BudgetIndex(decode(PodDisruptionBudget, one.data) for one in stored).limiting(namespace, labels)
    if len(budgets) > 1:
        raise statuses.internal_error(SEVERAL_BUDGETS)
    if not budgets or is_exempt(convert(PodStatus, pod["status"]), budgets[0]):
        return
    denied = denial(budgets[0])
    if denied is not None:
        raise statuses.too_many_requests(VIOLATION, cause=denied.cause, retry_after=denied.retry_after)

    def decrement(old: Object) -> Object:
        new = {**old, "metadata": dict(old["metadata"]), "status": dict(old["status"])}
        now, status = registry.now(), new["status"]
        status["disruptionsAllowed"] -= 1
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
        if not status["disruptionsAllowed"]:
            condition = {
                "type": "DisruptionAllowed",
                "status": "False",
                "observedGeneration": new["metadata"].get("generation", 0),
                "lastTransitionTime": now,
                "reason": "InsufficientPods",
                "message": "",
            }
            others = [one for one in status.get("conditions") or () if one["type"] != condition["type"]]
            status["conditions"] = [*others, condition]
        return new

    options = WriteOptions(_SERVER_MANAGER, dry_run)
    registry.update(kind, namespace, budgets[0].metadata.name, decrement, options, subresource="status")


_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
#: The reasons of containers that wait for something else than their image.
_STARTING = ("ContainerCreating", "PodInitializing")


def get_log(scope: RequestScope) -> HTTPResponse:
    """The log of a container; empty for a pod without a node.

    Raises a StatusError for an unknown container, one that has not started, and a node without addresses.
    """
    request, pod = scope.request, scope.kind.decode(scope.get())
    name = request.query.get("container", "")
    _check_container(pod, name)
    if not pod["spec"].get("nodeName"):
        return HTTPResponse(200, b"", "text/plain")
    nodes = scope.registry.scheme["nodes"]
    node = nodes.decode(scope.registry.get(nodes, "", pod["spec"]["nodeName"]))
    if not node.get("status", {}).get("addresses"):
        raise statuses.internal("no preferred addresses found; known addresses: []")
    name = name or pod["spec"]["containers"][0]["name"]
    lines = list(_log_lines(pod, name, previous=request.flag("previous")))
    tail = request.number("tailLines")
    if tail is not None:
        lines = lines[max(len(lines) - tail, 0) :]
    text = "".join(f"{time} {line}\n" if request.flag("timestamps") else f"{line}\n" for time, line in lines)
    return HTTPResponse(200, text.encode()[: request.number("limitBytes")], "text/plain")


def connect(scope: RequestScope) -> HTTPResponse:
    """``exec``, ``attach`` and ``portforward``. Always raises a StatusError."""
    pod = scope.kind.decode(scope.get())
    if not pod["spec"].get("nodeName"):
        raise statuses.bad_request(f"pod {scope.info.name} does not have a host assigned")
    problem = "simulated nodes do not run containers: there is nothing to connect to"
    raise statuses.StatusError(501, "NotImplemented", problem)


def _log_lines(pod: Object, name: str, *, previous: bool) -> Iterator[tuple[str, str]]:
    """The lines of a container's log, each with its time. Raises a 400 StatusError for one that has not started."""
    status = _container_named(pod["status"], _STATUSES, name)
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    subject = f'container "{name}" in pod "{pod["metadata"]["name"]}"'
    if previous and not last:
        raise statuses.bad_request(f"previous terminated {subject} not found")
    run: Object | None = last if previous else state.get("running") or state.get("terminated") or last
    if not run:
        reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
        reason = reason if reason in _STARTING else "trying and failing to pull image"
        raise statuses.bad_request(f"{subject} is waiting to start: {reason}")
    started, finished = run.get("startedAt") or "", run.get("finishedAt")
    container = _container_named(pod["spec"], _CONTAINERS, name)
    command = command_of(container, pod["metadata"])
    if command is not None:
        yield from ((started, line) for line in command.output.splitlines())
    else:
        image = container.get("image", "")
        yield started, f"kubestow: simulated container {name} of image {image} started at {started}; no process runs"
    if finished:
        yield finished, f"kubestow: container {name} exited with code {run['exitCode']} at {finished}"


def _container_named(obj: Object, fields: tuple[str, ...], name: str) -> Object:
    """The container or container status of this name; empty without one."""
    return next((one for field in fields for one in obj.get(field) or () if one["name"] == name), {})


def _check_container(pod: Object, container: str) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [one["name"] for one in spec["containers"]]
    others = [one["name"] for field in ("initContainers", "ephemeralContainers") for one in spec.get(field) or ()]
    if not container and len(containers) > 1:
        choices = " ".join(containers)
        raise statuses.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    if container and container not in containers + others:
        raise statuses.bad_request(f"container {container} is not valid for pod {name}")


_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def get_scale(scope: RequestScope) -> HTTPResponse:
    return _scale_response(scope, scope.get())


def update_scale(scope: RequestScope) -> HTTPResponse:
    request = scope.request
    scale = decode_body(request.body, request.headers.content_type, expected="Scale")
    return _update_replicas(scope, lambda _: scale)


def patch_scale(scope: RequestScope) -> HTTPResponse:
    """Patches other than JSON patches are merged as JSON: a Scale has no lists, and an apply records no manager."""
    patch_type_of(scope)
    content = decode_patch(scope.request)
    patch_type = JSON_PATCH if is_json_patch(scope.request) else JSON_MERGE_PATCH
    return _update_replicas(scope, lambda scale: patched(scale, content, patch_type, ANY))


def _update_replicas(scope: RequestScope, change: Callable[[Object], Any]) -> HTTPResponse:
    """Set the replicas to those of the changed Scale."""

    def set_replicas(old: Object) -> Object:
        scale = change(_scale(scope.kind, old))
        metadata, replicas = scale.get("metadata") or {}, (scale.get("spec") or {}).get("replicas", 0)
        if type(replicas) is not int:
            problem = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32"
            raise statuses.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')
        if replicas < 0:
            error = statuses.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise statuses.invalid("Scale", scope.info.name, [error], group="autoscaling")
        new = with_value_at(old, _paths(scope.kind).spec_replicas, replicas)
        new["metadata"] = dict(old["metadata"])
        new["metadata"]["resourceVersion"] = metadata.get("resourceVersion", "")
        return new

    info, kind = scope.info, scope.kind
    stored = scope.registry.update(
        kind, info.namespace, info.name, set_replicas, scope.write_options, subresource="scale"
    )
    return _scale_response(scope, stored)


def _scale_response(scope: RequestScope, stored: StoredObject) -> HTTPResponse:
    scale = _scale(scope.kind, scope.kind.decode(stored))
    return scope.encoder.response_of_another_kind(scale, PRINTERS["scales.autoscaling"])


def _scale(kind: Kind, obj: Object) -> Object:
    paths = _paths(kind)
    replicas = value_at(obj, paths.spec_replicas)
    status = {"replicas": value_at(obj, paths.status_replicas) or 0}
    if selector := value_at(obj, paths.selector) if kind.custom is not None else _selector(kind, obj["spec"]):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: obj["metadata"][field] for field in _METADATA if field in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _paths(kind: Kind) -> ScalePaths:
    assert kind.subresources.scale is not None
    return kind.subresources.scale


def _selector(kind: Kind, spec: Object) -> str:
    """The serialized selector; that of a replication controller is a map of labels."""
    selector = spec.get("selector")
    if kind.name == "ReplicationController":
        return ",".join(f"{key}={value}" for key, value in sorted((selector or {}).items()))
    return format_selector(selector)


def create_self_subject_review(scope: RequestScope) -> HTTPResponse:
    _decode_review(scope)
    review = {
        "kind": scope.kind.name,
        "apiVersion": scope.kind.api_version,
        "metadata": {"creationTimestamp": scope.registry.now()},
        "status": {"userInfo": _user_info(scope.request.user)},
    }
    return HTTPResponse.json(review, 201)


def create_token_review(scope: RequestScope, authenticator: RequestAuthenticator) -> HTTPResponse:
    """Raises a 400 StatusError for a review without a token."""
    review = _decode_review(scope)
    token = (review.get("spec") or {}).get("token", "")
    if not token:
        raise statuses.bad_request("token is required for TokenReview in authentication")
    user = authenticator.authenticate_token(token)
    if user is None:
        return _review_response(scope, review, {"user": {}, "error": "invalid bearer token"})
    return _review_response(scope, review, {"authenticated": True, "user": _user_info(user)})


def create_self_subject_access_review(scope: RequestScope, authorizer: Authorizer) -> HTTPResponse:
    """Raises a 422 StatusError for a review with both or neither kind of attributes."""
    review = _decode_review(scope)
    spec = review.get("spec") or {}
    _check_attributes(scope, spec, [])
    decision = authorizer.authorize(scope.request.user, _reviewed_attributes(spec))
    return _review_response(scope, review, _access_status(decision))


def create_subject_access_review(scope: RequestScope, authorizer: Authorizer) -> HTTPResponse:
    """SubjectAccessReview and LocalSubjectAccessReview. Raises a 422 StatusError for a review without a subject."""
    review = _decode_review(scope)
    spec = review.get("spec") or {}
    user, groups = spec.get("user", ""), spec.get("groups") or []
    errors = []
    if not user and not groups:
        errors.append(statuses.invalid_value("spec.user", "", "at least one of user or group must be specified"))
    _check_attributes(scope, spec, errors)
    # An anonymous user is one without its group too.
    groups = [*groups, ALL_UNAUTHENTICATED] if user == ANONYMOUS.name else groups
    decision = authorizer.authorize(UserInfo(user, tuple(groups)), _reviewed_attributes(spec))
    return _review_response(scope, review, _access_status(decision))


def create_self_subject_rules_review(scope: RequestScope, authorizer: Authorizer) -> HTTPResponse:
    review = _decode_review(scope)
    namespace = (review.get("spec") or {}).get("namespace", "")
    resource_rules, path_rules = authorizer.rules(scope.request.user, namespace)
    rules = {"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": False}
    return _review_response(scope, review, rules)


def _decode_review(scope: RequestScope) -> Object:
    """Raises a 400 StatusError for a body that is not a review of the kind, a 406 if only a conversion is accepted."""
    headers = scope.request.headers
    negotiate_output_media_type(headers.accept, has_protobuf=scope.kind.has_protobuf, has_conversions=False)
    body, content_type = scope.request.body, headers.content_type
    return scope.read(decode_body(body, content_type, expected=scope.kind.name))[0]


def _review_response(scope: RequestScope, review: Object, status: Object) -> HTTPResponse:
    kind, spec = scope.kind, {"spec": review["spec"]} if "spec" in review else {}
    fields: Object = {"metadata": {}, **spec}
    manager = FieldManager(scope.write_options.field_manager, "Update", kind.api_version)
    record_update(None, fields, kind.struct, manager, scope.registry.now())
    response = {"kind": kind.name, "apiVersion": kind.api_version, **fields, "status": status}
    return HTTPResponse.json(response, 201)


def _check_attributes(scope: RequestScope, spec: Object, errors: list[statuses.FieldError]) -> None:
    """Raises a 422 StatusError unless the review is about either a resource or a path, and without ``errors``."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        problem = "cannot be specified in combination with resourceAttributes"
        errors = [statuses.invalid_value("spec.nonResourceAttributes", path, problem), *errors]
    elif resource is None and path is None:
        problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors = [statuses.invalid_value("spec.resourceAttributes", None, problem), *errors]
    if errors:
        raise statuses.invalid(scope.kind.name, "", errors, group=scope.kind.group)


def _reviewed_attributes(spec: Object) -> Attributes:
    """What an access review is about."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is None:
        return Attributes((path or {}).get("verb", ""), path=(path or {}).get("path", ""))
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(resource.get(field, "") for field in fields))


def _access_status(decision: Decision) -> Object:
    return {"allowed": decision.is_allowed} | ({"reason": decision.reason} if decision.reason else {})


def _user_info(user: UserInfo) -> Object:
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = user.extra
    return info


_DEFAULT_EXPIRATION, _MIN_EXPIRATION, _MAX_EXPIRATION = 3600, 600, 2**32


def create_token(scope: RequestScope, tokens: ServiceAccountTokens) -> HTTPResponse:
    """``POST serviceaccounts/NAME/token``. Raises a 422 StatusError for a token that cannot be issued."""
    request, stored = scope.request, scope.get()
    spec = _decode_token_request(request)["spec"]
    audiences = spec.get("audiences") or [DEFAULT_AUDIENCE]
    expiration = spec.get("expirationSeconds")
    expiration = _DEFAULT_EXPIRATION if expiration is None else expiration
    errors = []
    if expiration < _MIN_EXPIRATION:
        problem = "may not specify a duration less than 10 minutes"
        errors.append(statuses.invalid_value("spec.expirationSeconds", expiration, problem))
    elif expiration > _MAX_EXPIRATION:
        problem = "may not specify a duration larger than 2^32 seconds"
        errors.append(statuses.invalid_value("spec.expirationSeconds", expiration, problem))
    if errors:
        raise statuses.invalid("TokenRequest", stored.name, errors, group="authentication.k8s.io")
    reference = spec.get("boundObjectRef")
    bound_to = [] if reference is None else _bound_objects(scope, stored.name, reference)
    expires = scope.registry.clock() + timedelta(seconds=expiration)
    token_request = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": stored.name, "namespace": stored.namespace, "creationTimestamp": scope.registry.now()},
        "spec": {"audiences": audiences, "expirationSeconds": expiration, "boundObjectRef": reference},
        "status": {
            "token": tokens.issue(stored, audiences, expiration, bound_to),
            "expirationTimestamp": timestamp(expires),
        },
    }
    return HTTPResponse.json(token_request, 201)


def _decode_token_request(request: Request) -> Object:
    """The TokenRequest in the body, with a spec. Raises a 400 StatusError."""
    body = decode_body(request.body, request.headers.content_type, expected="TokenRequest")
    try:
        decoded: Object = struct_of("AuthenticationV1TokenRequest").read(body, [])
    except UnmarshalTypeError as error:
        problem = f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}'
        raise statuses.bad_request(problem) from None
    return decoded if decoded.get("spec") else {**decoded, "spec": {}}


def _bound_objects(scope: RequestScope, account: str, reference: Object) -> list[BoundObject]:
    """The object that a reference names, and for a pod also its node.

    Raises a 400 StatusError for an object that tokens cannot be bound to, a 404 or 409 one for one that does not exist.
    """
    kind, api_version, name = (reference.get(field) or "" for field in ("kind", "apiVersion", "name"))
    group, _, version = api_version.rpartition("/")
    resource = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind)
    if group or resource is None:
        raise statuses.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    registry = scope.registry
    found_kind = registry.scheme[resource]
    found = found_kind.decode(registry.get(found_kind, scope.info.namespace, name))
    if kind == "Pod" and found["spec"].get("serviceAccountName", "") != account:
        raise statuses.bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        )
    uid = found["metadata"]["uid"]
    if reference.get("uid") and reference["uid"] != uid:
        problem = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record."
            " The object might have been deleted and then recreated"
        )
        raise statuses.conflict(GroupResource("", kind), name, problem)
    bound = [BoundObject(kind.lower(), name, uid)]
    node_name = found["spec"].get("nodeName") if kind == "Pod" else ""
    node = registry.store.collection("nodes").get(node_name) if node_name else None
    if node is None:
        return bound
    return [*bound, BoundObject("node", node.name, registry.scheme["nodes"].decode(node)["metadata"]["uid"])]
