"""Eviction: a delete that disruption budgets may refuse for now."""

from __future__ import annotations

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.registry import Registry, WriteOptions
from kubestow.devcluster.apiserver.requests import Answer
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.resources.pods import update_pod_condition
from kubestow.devcluster.apiserver.selectors import matches_label_selector
from kubestow.devcluster.apiserver.serialization import negotiation
from kubestow.devcluster.apiserver.verbs.call import Call
from kubestow.devcluster.apiserver.verbs.writing import read_deletion

__all__ = ["create_eviction"]

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
#: Field manager of what the server itself writes about an eviction.
_SERVER = WriteOptions("kube-apiserver")
#: Seconds after which a client may ask again while the budget's controller has not looked yet.
_RETRY = 10


def create_eviction(call: Call) -> Answer:
    """``POST pods/NAME/eviction``."""
    eviction = negotiation.decode(call.request.body, call.request.content_type, expected="Eviction")
    name = (eviction.get("metadata") or {}).get("name", call.target.name)
    if name != call.target.name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    options = eviction.get("deleteOptions") or {}
    write = WriteOptions(call.request.manager, call.request.dry_run or bool(options.get("dryRun")))
    registry, pods = call.registry, call.kind
    pod = pods.decode(registry.get(pods, call.target.namespace, name))
    if _needs_budget(pod):
        _spend(registry, pod, write)
    if not write.dry_run:
        _announce(registry, pods, pod)
        registry.delete(pods, call.target.namespace, name, read_deletion(options), write)
    return Answer(201, statuses.success(code=201))


def _needs_budget(pod: Object) -> bool:
    """Pods that have finished, have not started or are going already disrupt nothing."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _announce(registry: Registry, pods: Kind, pod: Object) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }

    def mark(old: Object) -> Object:
        new = {**old, "metadata": dict(old["metadata"]), "status": dict(old["status"])}
        update_pod_condition(new["status"], condition, registry.now())
        return new

    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    registry.update(pods, namespace, name, mark, subresource="status")


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _lets_unhealthy_go(budget: Object) -> bool:
    """Whether a pod that is not ready, and so is in no count, may go: always, or while the others are healthy."""
    desired = budget["status"]["desiredHealthy"]
    enough = bool(0 < desired <= budget["status"]["currentHealthy"])
    return enough or budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"


def _spend(registry: Registry, pod: Object, write: WriteOptions) -> None:
    """Count the eviction against the pod's budget. Raises a 429 Failure when it allows none."""
    kind = registry.scheme["poddisruptionbudgets.policy"]
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    matching = [
        budget
        for stored in registry.store.collection(kind.storage).snapshot(f"{namespace}/")
        if matches_label_selector((budget := kind.decode(stored))["spec"].get("selector"), labels)
    ]
    if not matching:
        return
    if len(matching) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise statuses.internal_error(message)
    budget = matching[0]
    name, status = budget["metadata"]["name"], budget["status"]
    if not _is_ready(pod) and _lets_unhealthy_go(budget):
        return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise statuses.too_many_requests(_REFUSED, cause=cause, retry_after=_RETRY)
    if status["disruptionsAllowed"] <= 0:
        raise statuses.too_many_requests(_REFUSED, cause=_why(name, status))

    def count(old: Object) -> Object:
        new = {**old, "metadata": dict(old["metadata"]), "status": dict(old["status"])}
        now, status = registry.now(), new["status"]
        status["disruptionsAllowed"] -= 1
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
        if not status["disruptionsAllowed"]:
            _mark_insufficient(status, new["metadata"].get("generation", 0), now)
        return new

    manager = WriteOptions(_SERVER.field_manager, write.dry_run)
    registry.update(kind, namespace, name, count, manager, subresource="status")


def _why(name: str, status: Object) -> str:
    failed = [one for one in status.get("conditions") or () if one.get("reason") == "SyncFailed"]
    if failed:
        problem = failed[0].get("message", "")
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {problem}"
    desired, healthy = status["desiredHealthy"], status["currentHealthy"]
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _mark_insufficient(status: Object, generation: int, now: str) -> None:
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
