"""The eviction subresource: a delete that a PodDisruptionBudget can reject."""

from __future__ import annotations

from dataclasses import replace

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.handlers.delete import parse_delete_options
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.registry.deletion import check_preconditions
from kubestow_devcluster.apiserver.registry.registry import Registry, WriteOptions
from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.resources.pod_conditions import update_pod_condition
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.selectors import matches_label_selector
from kubestow_devcluster.apiserver.serialization.decoding import decode_body

__all__ = ["create_eviction"]

_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
_SERVER_MANAGER = "kube-apiserver"
#: Seconds after which clients retry while the disruption controller has not seen the latest budget.
_RETRY_AFTER = 10


def create_eviction(scope: RequestScope) -> Response:
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
    if _is_disruption(pod):
        _decrement_budget(registry, pod, dry_run=write_options.dry_run)
    check_preconditions(pods, pod, delete_options)
    if not write_options.dry_run:
        _set_disruption_target(registry, pods, pod)  # with another resourceVersion than that of the precondition
        delete_options = replace(delete_options, resource_version="")
        registry.delete(pods, scope.info.namespace, name, delete_options, write_options)
    return Response(201, statuses.success(code=201))


def _is_disruption(pod: Object) -> bool:
    """Whether the eviction counts: pods that have not started, have finished or are being deleted do not."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


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
    budget = _budget(registry, kind, pod)
    if budget is None or (not _is_ready(pod) and _allows_unhealthy(budget)):
        return
    _check_budget(budget)

    def decrement(old: Object) -> Object:
        new = {**old, "metadata": dict(old["metadata"]), "status": dict(old["status"])}
        now, status = registry.now(), new["status"]
        status["disruptionsAllowed"] -= 1
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
        if not status["disruptionsAllowed"]:
            _set_insufficient_pods(status, new["metadata"].get("generation", 0), now)
        return new

    options = WriteOptions(_SERVER_MANAGER, dry_run)
    namespace, name = budget["metadata"]["namespace"], budget["metadata"]["name"]
    registry.update(kind, namespace, name, decrement, options, subresource="status")


def _budget(registry: Registry, kind: Kind, pod: Object) -> Object | None:
    """The budget of a pod; one without labels has none. Raises a 500 StatusError when several match."""
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    if not labels:
        return None
    matching = [
        budget
        for stored in registry.store.collection(kind.storage).snapshot(f"{namespace}/")
        if matches_label_selector((budget := kind.decode(stored))["spec"].get("selector"), labels)
    ]
    if len(matching) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise statuses.internal_error(message)
    return matching[0] if matching else None


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _allows_unhealthy(budget: Object) -> bool:
    """Whether evicting a pod that is not ready ignores the budget: by policy, or while enough others are healthy."""
    desired = budget["status"]["desiredHealthy"]
    is_satisfied = bool(0 < desired <= budget["status"]["currentHealthy"])
    return is_satisfied or budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"


def _check_budget(budget: Object) -> None:
    """Raises a 429 StatusError when the budget is outdated or allows no disruption."""
    name, status = budget["metadata"]["name"], budget["status"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise statuses.too_many_requests(_VIOLATION, cause=cause, retry_after=_RETRY_AFTER)
    if status["disruptionsAllowed"] <= 0:
        raise statuses.too_many_requests(_VIOLATION, cause=_violation_cause(name, status))


def _violation_cause(name: str, status: Object) -> str:
    sync_failures = [one for one in status.get("conditions") or () if one.get("reason") == "SyncFailed"]
    if sync_failures:
        problem = sync_failures[0].get("message", "")
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {problem}"
    desired, healthy = status["desiredHealthy"], status["currentHealthy"]
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _set_insufficient_pods(status: Object, generation: int, now: str) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": generation,
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }
    others = [one for one in status.get("conditions") or () if one["type"] != condition["type"]]
    status["conditions"] = [*others, condition]
