"""The controller of horizontal pod autoscalers: replicas of anything with a scale subresource, by resource metrics.

Every :data:`SYNC_PERIOD` the usage of the target's pods is compared with the targets of the metrics. The metric that
asks for the most replicas counts. Resource and container resource metrics are those that ``kubectl top`` shows; there
are no custom and external metrics, so an autoscaler that has only these does not scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubestow.api.formats import quantity
from kubestow.api.selector_text import parse_selector
from kubestow.errors import InvalidSelector
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind, value_at, with_value_at
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import matches_label_selector
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange, PodUsage
from kubestow_devcluster.controllers.pod_index import PodView
from kubestow_devcluster.controllers.replica_calculator import (
    AverageValueTarget,
    Limits,
    MeasuredPod,
    MetricUnavailable,
    ReplicaProposal,
    ScalingHistory,
    Target,
    Tolerance,
    UtilizationTarget,
    propose_replicas,
)

#: Seconds between two reconciliations of an autoscaler.
SYNC_PERIOD = 15.0
#: Seconds after a pod's start in which its usage counts only once it was ready for a whole measurement.
CPU_INITIALIZATION_PERIOD = 300.0
#: Seconds after a pod's start within which becoming not ready means that it never was ready.
INITIAL_READINESS_DELAY = 30.0
#: What fetching a metric says where there is no metrics API for it.
_NO_SUCH_RESOURCE = "the server could not find the requested resource"
_SERVED = ("Resource", "ContainerResource")
_FETCHED = {
    "Pods": "pods metric value: unable to get metric {name}: unable to fetch metrics from custom metrics API",
    "Object": "object metric value: unable to get metric {name}: unable to fetch metrics from custom metrics API",
    "External": "{name} external metric value: unable to get external metric {name}",
}


class _TargetUnavailable(Exception):
    """The scale of the target, or its selector, is missing: reason and message of a condition."""

    def __init__(self, reason: str, problem: str) -> None:
        self.reason = reason
        super().__init__(problem)


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resources: dict[str, Any] = {}
    restart_policy: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resources: dict[str, Any] = {}


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    start_time: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    """What a pod requests, and when it started."""

    spec: _Spec
    status: _Status = _Status()

    def request(self, resource: str, container: str, pod: str) -> int:
        """What the pod, or one container, requests in milli-units. Raises MetricUnavailable."""
        if not container and resource in (of_pod := self.spec.resources.get("requests") or {}):
            return quantity.millis(of_pod[resource])
        sidecars = tuple(one for one in self.spec.init_containers if one.restart_policy == "Always")
        counted = [one for one in (*self.spec.containers, *sidecars) if container in ("", one.name)]
        if not counted:
            raise MetricUnavailable(f"container {container} not found in Pod {pod}")
        total = 0
        for one in counted:
            requests = one.resources.get("requests") or {}
            if resource not in requests:
                raise MetricUnavailable(f"missing request for {resource} in container {one.name} of Pod {pod}")
            total += quantity.millis(requests[resource])
        return total


class HorizontalPodAutoscalerController(Controller):
    resource = "horizontalpodautoscalers.autoscaling"
    component = "horizontal-pod-autoscaler"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._usage = context.usage
        self._pod_collection = context.registry.store.collection("pods")
        self._histories: dict[str, ScalingHistory] = {}
        #: Whether the labels of a pod match the selector of the target, by autoscaler.
        self._selectors: dict[str, Callable[[Mapping[str, str]], bool]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        if change.is_deletion:
            self._histories.pop(change.key, None)
            self._selectors.pop(change.key, None)
        elif change.event.type == "ADDED":
            self.enqueue(change.key)
        # Other changes are seen at the next reconciliation, as the status is written at every one.

    def sync(self, key: str, autoscaler: Object) -> None:
        self.enqueue_after(key, SYNC_PERIOD)
        status = dict(autoscaler.get("status") or {})
        try:
            kind, target = self._target(autoscaler)
        except _TargetUnavailable as problem:
            self.record_warning(autoscaler, "FailedGetScale", str(problem))
            message = f"the HPA controller was unable to get the target's current scale: {problem}"
            self._set_condition(status, "AbleToScale", "False", "FailedGetScale", message)
            self.update_status(autoscaler, status)
            return
        message = "the HPA controller was able to get the target's current scale"
        self._set_condition(status, "AbleToScale", "True", "SucceededGetScale", message)
        self._scale(key, autoscaler, status, kind, target)
        self.update_status(autoscaler, status)

    def _target(self, autoscaler: Object) -> tuple[Kind, Object]:
        """The kind and the object to scale. Raises _TargetUnavailable."""
        reference, scheme = autoscaler["spec"]["scaleTargetRef"], self.registry.scheme
        group = reference.get("apiVersion", "").rpartition("/")[0]
        kind = scheme.kind_for(group, reference["kind"])
        if kind is None:
            named = f"{reference['kind']}.{group}".rstrip(".")
            raise _TargetUnavailable("FailedGetScale", f'no matches for kind "{reference["kind"]}" in group "{named}"')
        name, namespace = reference["name"], autoscaler["metadata"]["namespace"]
        if kind.subresources.scale is None:
            raise _TargetUnavailable("FailedGetScale", _NO_SUCH_RESOURCE)
        target = self.get(kind.key(namespace, name), kind)
        if target is None:
            raise _TargetUnavailable("FailedGetScale", f'{kind.resource} "{name}" not found')
        return kind, target

    def _scale(self, key: str, autoscaler: Object, status: Object, kind: Kind, target: Object) -> None:
        """Scale the target if the metrics ask for it, and update ``status``."""
        assert kind.subresources.scale is not None
        spec, now = autoscaler["spec"], self.registry.clock()
        current: int = value_at(target, kind.subresources.scale.spec_replicas) or 0
        limits = Limits(spec["minReplicas"], spec["maxReplicas"], spec.get("behavior"))
        history = self._histories.setdefault(key, ScalingHistory(now.timestamp(), current))
        desired, reason = current, ""
        status["currentReplicas"] = current
        if current == 0:
            problem = "scaling is disabled since the replica count of the target is zero"
            self._set_condition(status, "ScalingActive", "False", "ScalingDisabled", problem)
            status.pop("currentMetrics", None)
        elif current > limits.most:
            desired, reason = limits.most, "Current number of replicas above Spec.MaxReplicas"
        elif current < limits.least:
            desired, reason = limits.least, "Current number of replicas below Spec.MinReplicas"
        else:
            recommended = self._recommended(key, autoscaler, status, kind, target, current)
            if recommended is None:
                return
            replicas, metric = recommended
            decision = history.decide(now.timestamp(), current, replicas, limits)
            self._set_condition(status, "AbleToScale", "True", *decision.able)
            limited = "True" if decision.is_limited else "False"
            self._set_condition(status, "ScalingLimited", limited, *decision.limited)
            desired = decision.replicas
            reason = f"{metric} above target" if replicas > current else "All metrics below target"
        status["desiredReplicas"] = desired
        if desired != current and self._rescale(autoscaler, status, kind, target, desired, reason):
            history.record_change(now.timestamp(), desired - current)

    def _rescale(
        self, autoscaler: Object, status: Object, kind: Kind, target: Object, replicas: int, reason: str
    ) -> bool:
        """Set the replicas of the target; whether that succeeded."""
        assert kind.subresources.scale is not None
        path, identity = kind.subresources.scale.spec_replicas, target["metadata"]

        def scaled(old: Object) -> Object:
            new = with_value_at(old, path, replicas)
            return {**new, "metadata": dict(new["metadata"])}

        try:
            self.registry.update(kind, identity["namespace"], identity["name"], scaled, subresource="scale")
        except statuses.StatusError as failure:
            event = f"New size: {replicas}; reason: {reason}; error: {failure.message}"
            self.record_warning(autoscaler, "FailedRescale", event)
            message = f"the HPA controller was unable to update the target scale: {failure.message}"
            self._set_condition(status, "AbleToScale", "False", "FailedUpdateScale", message)
            return False
        message = f"the HPA controller was able to update the target scale to {replicas}"
        self._set_condition(status, "AbleToScale", "True", "SucceededRescale", message)
        self.record_event(autoscaler, "SuccessfulRescale", f"New size: {replicas}; reason: {reason}")
        status["lastScaleTime"] = self.registry.now()
        return True

    # Metrics

    def _recommended(
        self, key: str, autoscaler: Object, status: Object, kind: Kind, target: Object, current: int
    ) -> tuple[int, str] | None:
        """The most replicas that a metric asks for, and its name; None if that is unknown.

        If the usage of some metrics is unknown, the others may scale up.
        """
        try:
            pods = self._pods_of(key, autoscaler, kind, target)
        except _TargetUnavailable as problem:
            self._set_condition(status, "ScalingActive", "False", problem.reason, str(problem))
            self.record_warning(autoscaler, problem.reason, str(problem))
            return None
        best, problems, current_metrics = (0, ""), [], []
        for metric in autoscaler["spec"]["metrics"]:
            try:
                proposal = self._proposal(autoscaler, metric, pods, current)
            except MetricUnavailable as problem:
                problems.append((f"FailedGet{metric['type']}Metric", str(problem)))
                current_metrics.append({"type": ""})
                continue
            current_metrics.append(_current_metric(metric, proposal))
            best = max(best, (proposal.replicas, _metric_name(metric)), key=lambda one: one[0])
        status["currentMetrics"] = current_metrics
        for reason, message in problems:
            self.record_warning(autoscaler, reason, message)
        if problems and (len(problems) == len(current_metrics) or best[0] < current):
            reason, message = problems[0]
            text = f"the HPA was unable to compute the replica count: {message}"
            self._set_condition(status, "ScalingActive", "False", reason, text)
            if len(problems) == len(current_metrics):
                del status["currentMetrics"]
            return None
        text = f"the HPA was able to successfully calculate a replica count from {best[1]}"
        self._set_condition(status, "ScalingActive", "True", "ValidMetricFound", text)
        return best

    def _pods_of(self, key: str, autoscaler: Object, kind: Kind, target: Object) -> list[PodView]:
        """The pods that the selector of the target matches. Raises _TargetUnavailable."""
        matches = self._selectors[key] = _selector(kind, target)
        namespace = autoscaler["metadata"]["namespace"]
        pods = [pod for pod in self.pods.in_namespace(namespace) if matches(pod.metadata.labels)]
        others = [
            other
            for other, selects in self._selectors.items()
            if other.startswith(f"{namespace}/") and any(selects(pod.metadata.labels) for pod in pods)
        ]
        if len(others) > 1:
            problem = f"pods by selector are controlled by multiple HPAs: {' '.join(sorted(others))}"
            raise _TargetUnavailable("AmbiguousSelector", problem)
        return pods

    def _proposal(self, autoscaler: Object, metric: Object, pods: list[PodView], current: int) -> ReplicaProposal:
        """Raises MetricUnavailable."""
        type_ = metric["type"]
        source = metric[type_[0].lower() + type_[1:]]
        if type_ not in _SERVED:
            failed = _FETCHED[type_].format(name=source["metric"]["name"])
            raise MetricUnavailable(f"failed to get {failed}: {_NO_SUCH_RESOURCE}")
        resource, container, aim = source["name"], source.get("container", ""), source["target"]
        target: Target
        if aim.get("averageValue") is not None:
            target, noun = AverageValueTarget(quantity.millis(aim["averageValue"])), "usage"
        else:
            target, noun = UtilizationTarget(aim["averageUtilization"]), "utilization"
        try:
            measured = self._measured_pods(pods, resource, container, has_requests=noun == "utilization")
            behavior = autoscaler["spec"].get("behavior") or {}
            rules = {"scale_down": behavior.get("scaleDown") or {}, "scale_up": behavior.get("scaleUp") or {}}
            set_ = {name: float(quantity.parse(one["tolerance"])) for name, one in rules.items() if "tolerance" in one}
            return propose_replicas(measured, target, current, Tolerance(**set_))
        except MetricUnavailable as problem:
            raise MetricUnavailable(f"failed to get {resource} {noun}: {problem}") from None

    def _measured_pods(
        self, pods: list[PodView], resource: str, container: str, *, has_requests: bool
    ) -> list[MeasuredPod]:
        """The pods that count. Raises MetricUnavailable."""
        failed = f"unable to get metrics for resource {resource}"
        if self._usage is None:
            problem = f"unable to fetch metrics from resource metrics API: {_NO_SUCH_RESOURCE}"
            raise MetricUnavailable(f"{failed}: {problem} (get pods.metrics.k8s.io)")
        found = [(pod, stored) for pod in pods if (stored := self._pod_collection.get(pod.key)) is not None]
        usages = [self._usage.of_pod(stored) for _, stored in found]
        if not any(usages):
            raise MetricUnavailable(f"{failed}: no metrics returned from resource metrics API")
        measured = []
        for (pod, stored), amounts in zip(found, usages, strict=True):
            decoded = msgspec.json.decode(stored.data, type=_Pod)
            request = decoded.request(resource, container, pod.name) if has_requests else 0
            if pod.is_terminating or pod.status.phase == "Failed":
                continue
            used = [getattr(one, resource, math.nan) for name, one in amounts.items() if container in ("", name)]
            usage = round(total * 1000) if used and not math.isnan(total := sum(used)) else None
            is_ready = pod.status.phase != "Pending"
            if is_ready and usage is not None and resource == "cpu":
                is_ready = self._has_initialized(pod, decoded.status.start_time, self._usage)
            measured.append(MeasuredPod(usage, request, is_ready))
        return measured

    def _has_initialized(self, pod: PodView, started: str | None, usage: PodUsage) -> bool:
        """Whether the CPU usage of a pod is not that of its start."""
        ready = next((one for one in pod.status.conditions if one.type == "Ready"), None)
        if ready is None or started is None:
            return False
        start = datetime.fromisoformat(started)
        changed = datetime.fromisoformat(ready.last_transition_time or started)
        is_ready = ready.status != "False"
        if start + timedelta(seconds=CPU_INITIALIZATION_PERIOD) > self.registry.clock():
            return is_ready and usage.measured_at() >= changed + timedelta(seconds=usage.resolution)
        return is_ready or start + timedelta(seconds=INITIAL_READINESS_DELAY) <= changed

    def _set_condition(self, status: Object, type_: str, value: str, reason: str, message: str) -> None:
        """Set a condition in place of the one of its type, or after all others."""
        old = get_condition(status, type_)
        since = old["lastTransitionTime"] if old is not None and old["status"] == value else self.registry.now()
        new = {"type": type_, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
        conditions = status.get("conditions") or []
        status["conditions"] = [new if one is old else one for one in conditions] + ([] if old else [new])


def _selector(kind: Kind, target: Object) -> Callable[[Mapping[str, str]], bool]:
    """Whether labels match the selector of a target. Raises _TargetUnavailable."""
    scale = kind.subresources.scale
    assert scale is not None
    if kind.custom is None:
        selector = target["spec"].get("selector")
        as_labels = {"matchLabels": selector} if kind.name == "ReplicationController" else selector
        return lambda labels: matches_label_selector(as_labels, dict(labels))
    text = value_at(target, scale.selector)
    if not text:
        raise _TargetUnavailable("InvalidSelector", "the HPA target's scale is missing a selector")
    try:
        return parse_selector(text).matches
    except InvalidSelector as error:
        problem = f"couldn't convert selector into a corresponding internal selector object: {error}"
        raise _TargetUnavailable("InvalidSelector", problem) from None


def _metric_name(metric: Object) -> str:
    """A metric of pods or containers as conditions and events name it."""
    is_pod = metric["type"] == "Resource"
    source = metric["resource" if is_pod else "containerResource"]
    if source["target"].get("averageValue") is not None:
        return f"{source['name']} resource"
    return f"{source['name']} {'' if is_pod else 'container '}resource utilization (percentage of request)"


def _current_metric(metric: Object, proposal: ReplicaProposal) -> Object:
    field = "resource" if metric["type"] == "Resource" else "containerResource"
    source, usage = metric[field], proposal.usage
    current: Object = {"averageValue": _as_quantity(source["name"], usage.average)}
    if usage.utilization is not None:
        current["averageUtilization"] = usage.utilization
    identity = {name: source[name] for name in ("name", "container") if name in source}
    return {"type": metric["type"], field: {**identity, "current": current}}


def _as_quantity(resource: str, millis: int) -> str:
    """Milli-units in the shortest form, memory in bytes with a binary suffix where that is exact."""
    if millis % 1000:
        return f"{millis}m"
    value, suffix = millis // 1000, ""
    if resource == "memory":
        for suffix_ in ("Ki", "Mi", "Gi", "Ti"):
            if not value or value % 1024:
                break
            value, suffix = value // 1024, suffix_
    return f"{value}{suffix}"
