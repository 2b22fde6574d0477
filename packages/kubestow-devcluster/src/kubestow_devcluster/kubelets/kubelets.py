"""The watch loop of all simulated kubelets, and the pod workers: each bound pod has at most one step scheduled.

A step is computed from the pod's status whenever the pod is synced; it stays scheduled until it is applied when its
delay has passed, or a later sync computes another one. Pods on nodes whose kubelet is stopped have no steps.

The Stages of KWOK change pods beside the lifecycle that a kubelet simulates. A stage is chosen when a pod reaches a
state that it matches, and applied after its delay if it still matches then.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from kubestow.errors import KubestowError
from kubestow.log_fields import fields
from kubestow.rules.pods import is_terminal
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions, Registry
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject, WatchEvent
from kubestow_devcluster.behaviour.pod_behaviour import PREFIX, PodBehaviour, PodBehaviourRules
from kubestow_devcluster.behaviour.stages import NO_STAGES, KwokStage, Stages, choose_stage
from kubestow_devcluster.component_base.event_recorder import RegistryEventRecorder
from kubestow_devcluster.component_base.node_health import RENEW_INTERVAL
from kubestow_devcluster.component_base.stored_objects import (
    is_pod_finished,
    is_terminating,
    node_name_of,
    phase_of,
    uid_of,
)
from kubestow_devcluster.component_base.watch_loop import Timers, WatchLoop
from kubestow_devcluster.kubelets.node_status import NodeStatusManager, PodIPAllocator
from kubestow_devcluster.kubelets.pod_admission import PodAdmission, PodRejection
from kubestow_devcluster.kubelets.pod_lifecycle import (
    Step,
    Transition,
    apply_resize,
    apply_step,
    are_conditions_stale,
    next_step,
    reject_pod,
    set_condition,
    stop_delay,
    terminate_pod,
    update_conditions,
)

_log = logging.getLogger(__name__)

_NOT_READY = b'"type":"Ready","status":"False"'
_PREFIX = f'"{PREFIX}'.encode()
#: A running pod without any of these has no step ahead, so it need not be decoded.
_NEEDS_DECODING = (
    _PREFIX,
    b'"ready":false',
    b'"readinessGates":',
    b'"activeDeadlineSeconds":',
    b'"command":',
    b'"args":',
)
_FIRST_GENERATION = b'"generation":1,'
_TERMINATED_BY_KUBELET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "Pod was terminated in response to imminent node shutdown.",
}
_COMPONENT = "kubelet"


class _ScheduledStep(NamedTuple):
    """A scheduled step, without its delay: syncing a pod again must not schedule the same step twice."""

    uid: str
    transitions: tuple[Transition, ...]


class PodWorkers:
    """The workers of all pods; pods are identified by key, ``namespace/name``."""

    def __init__(
        self,
        registry: Registry,
        timers: Timers,
        nodes: NodeStatusManager,
        recorder: RegistryEventRecorder,
        rules: PodBehaviourRules,
    ) -> None:
        self._registry, self._timers, self._nodes, self._recorder = registry, timers, nodes, recorder
        self._rules = rules
        self._kind: Kind = registry.scheme["pods"]
        self._collection = registry.store.collection("pods")
        self._node_collection = registry.store.collection("nodes")
        self._admission = PodAdmission()
        #: The keys of the pods whose resize waits for resources, by node.
        self._deferred: dict[str, set[str]] = {}
        self._ips = PodIPAllocator()
        self._scheduled: dict[str, _ScheduledStep] = {}

    def restore(self, stored: StoredObject) -> None:
        """Restore the IP and the resources that a pod already has; to be called for all pods before :meth:`sync`."""
        if b'"containerStatuses":' in stored.data and not is_pod_finished(stored):
            # A pod that cannot be read counts for nothing, and must not stop the others.
            with contextlib.suppress(KubestowError):
                self._admission.restore(stored)
        if b'"podIP":' in stored.data:
            pod = self._kind.decode(stored)
            if not pod["spec"].get("hostNetwork"):
                self._ips.reserve(stored.key, pod["status"]["podIP"])

    def sync(self, stored: StoredObject) -> None:
        """Schedule the next step of a pod that was added or updated."""
        state, phase = self._nodes.state(node_name_of(stored)), phase_of(stored)
        if state in ("absent", "stopped"):
            return
        is_deleted = is_terminating(stored)
        if not is_deleted and state == "running":
            if is_pod_finished(stored):
                self._release(stored.key)
                return
            is_changed = _FIRST_GENERATION not in stored.data
            needs_decoding = self._rules or any(one in stored.data for one in _NEEDS_DECODING)
            if phase == "Running" and not is_changed and not needs_decoding:
                return
        pod = self._kind.decode(stored)
        step = self._next_step(pod, is_shutting_down=state == "shutdown", is_deleted=is_deleted)
        scheduled = _ScheduledStep(pod["metadata"]["uid"], step.transitions if step is not None else ())
        if self._scheduled.get(stored.key) == scheduled:
            return
        self._scheduled[stored.key] = scheduled
        if step is None:
            del self._scheduled[stored.key]
            return
        if step.transitions[0].action in ("stop", "shutdown") and phase == "Running":
            for container in pod["spec"]["containers"]:
                self._record_event(pod, "Killing", f"Stopping container {container['name']}")
        self._timers.call_later(step.delay, lambda: self._run_step(stored.key, scheduled))

    def resume(self, stored: StoredObject) -> None:
        """Sync a pod whose node is ready again, and restore the conditions that node lifecycle had set to False."""
        if phase_of(stored) == "Running" and _NOT_READY in stored.data:
            pod = self._kind.decode(stored)
            if are_conditions_stale(pod):
                update_conditions(pod, self._registry.now())
                stored = self._registry.commit(self._kind, pod)
        self.sync(stored)

    def remove(self, key: str) -> None:
        """Drop the worker of a deleted pod."""
        self._scheduled.pop(key, None)
        self._release(key)

    def discard_node(self, name: str) -> None:
        """Drop what is kept of a deleted node."""
        self._admission.discard_node(name)
        self._deferred.pop(name, None)

    def _release(self, key: str) -> None:
        self._ips.release(key)
        node = self._admission.release(key)
        if self._deferred.get(node):
            self._timers.call_later(0.0, lambda: self._retry_resizes(node))

    def _next_step(self, pod: Object, *, is_shutting_down: bool, is_deleted: bool) -> Step | None:
        behaviour = self._behaviour_of(pod)
        if is_deleted:
            grace_period = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            # With the grace period in the transition, a shorter one replaces the scheduled step.
            return Step(stop_delay(pod, behaviour, grace_period)[0], (Transition("stop", run=grace_period),))
        if not is_shutting_down:
            return next_step(pod, behaviour, self._registry.clock())
        if is_terminal(pod["status"].get("phase")):
            return None
        grace_period = pod["spec"].get("terminationGracePeriodSeconds", 30)
        return Step(stop_delay(pod, behaviour, grace_period)[0], (Transition("shutdown"),))

    def _behaviour_of(self, pod: Object) -> PodBehaviour:
        return PodBehaviour.of(pod, self._rules)

    def _run_step(self, key: str, scheduled: _ScheduledStep) -> None:
        """Apply a step unless it was replaced, the pod was deleted, or the kubelet stopped in the meantime."""
        if self._scheduled.get(key) != scheduled:
            return
        del self._scheduled[key]
        stored = self._collection.get(key)
        if stored is None or self._nodes.state(node_name_of(stored)) in ("absent", "stopped"):
            return
        pod = self._kind.decode(stored)
        uid, transitions = scheduled
        if pod["metadata"]["uid"] != uid:
            return
        if transitions[0].action == "admit" and (rejection := self._admit(stored)) is not None:
            self._recorder.warning(_COMPONENT, self._kind, pod, rejection.reason, rejection.message)
            reject_pod(pod, rejection.reason, rejection.message, self._registry.now())
            self._registry.commit(self._kind, pod)
        elif transitions[0].action == "stop":
            # Report the stopped containers of a deleted pod, then remove the object.
            metadata = pod["metadata"]
            if pod["status"].get("phase") == "Running":
                grace_period = metadata.get("deletionGracePeriodSeconds", 0)
                _, is_killed = stop_delay(pod, self._behaviour_of(pod), grace_period)
                terminate_pod(pod, self._registry.now(), exit_code=137 if is_killed else 143)
                self._registry.commit(self._kind, pod)
            deletion = DeleteOptions(grace_period_seconds=0, uid=metadata["uid"])
            self._registry.delete(self._kind, metadata["namespace"], metadata["name"], deletion)
        elif transitions[0].action == "shutdown":
            self._shut_down(pod)
        else:
            self._apply(pod, transitions)

    def _admit(self, stored: StoredObject) -> PodRejection | None:
        node = self._node_collection.get(node_name_of(stored))
        if node is None or is_terminating(stored):
            return None
        try:
            return self._admission.admit(stored, node)
        except KubestowError as error:
            return PodRejection("UnexpectedAdmissionError", f"Unexpected error while attempting to admit: {error}")

    def _apply(self, pod: Object, transitions: tuple[Transition, ...]) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            return
        behaviour = self._behaviour_of(pod)
        if transitions[0].action == "admit":
            host_ip, _ = self._nodes.network(pod["spec"]["nodeName"])
            pod["status"]["hostIP"], pod["status"]["hostIPs"] = host_ip, [{"ip": host_ip}]
            for problem in behaviour.problems:
                self._recorder.warning(_COMPONENT, self._kind, pod, "InvalidAnnotation", problem)
        elif transitions[0].action == "start" and not pod["status"].get("podIP"):
            host_ip, pod_cidr = self._nodes.network(pod["spec"]["nodeName"])
            key = self._kind.key(pod["metadata"]["namespace"], pod["metadata"]["name"])
            ip = host_ip if pod["spec"].get("hostNetwork") else self._ips.allocate(key, pod_cidr)
            pod["status"]["podIP"], pod["status"]["podIPs"] = ip, [{"ip": ip}]
        ephemeral = len(pod["status"].get("ephemeralContainerStatuses") or ())
        apply_step(pod, Step(0.0, transitions), behaviour, self._registry.now())
        if any(transition.action == "observe" for transition in transitions):
            self._resize(pod)
        self._registry.commit(self._kind, pod)
        self._record_transitions(pod, transitions)
        for container in (pod["status"].get("ephemeralContainerStatuses") or ())[ephemeral:]:
            self._record_start(pod, container)

    def _resize(self, pod: Object) -> None:
        """Resize the containers of a running pod whose spec has changed."""
        key = self._kind.key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        stored, node = self._collection.get(key), self._node_collection.get(pod["spec"]["nodeName"])
        if stored is None or node is None or (resize := self._admission.resize(stored, node)) is None:
            return
        apply_resize(pod, resize, self._registry.now())
        if resize.reason == "Deferred":
            self._deferred.setdefault(node.name, set()).add(key)

    def _retry_resizes(self, node: str) -> None:
        """Try the deferred resizes on a node again, because one of its pods has ended."""
        for key in sorted(self._deferred.pop(node, ())):
            stored = self._collection.get(key)
            if stored is not None and not is_terminating(stored) and phase_of(stored) == "Running":
                pod = self._kind.decode(stored)
                self._resize(pod)
                if pod != self._kind.decode(stored):
                    self._registry.commit(self._kind, pod)

    def _record_transitions(self, pod: Object, transitions: tuple[Transition, ...]) -> None:
        actions = {transition.container: transition.action for transition in transitions if transition.container}
        status = pod["status"]
        for container in (*(status.get("initContainerStatuses") or ()), *status["containerStatuses"]):
            name = container["name"]
            if actions.get(name) == "start":
                self._record_start(pod, container)
            elif actions.get(name) == "pull":
                self._record_event(pod, "Pulling", f'Pulling image "{container["image"]}"')
                problem = container["state"]["waiting"]["message"]
                self._record_warning(pod, "Failed", f'Failed to pull image "{container["image"]}": {problem}')
                self._record_warning(pod, "Failed", "Error: ErrImagePull")
            elif actions.get(name) == "back_off":
                self._record_event(pod, "BackOff", f'Back-off pulling image "{container["image"]}"')
                self._record_warning(pod, "Failed", "Error: ImagePullBackOff")
            elif actions.get(name) == "exit" and "waiting" in container["state"]:
                pod_name = f"{pod['metadata']['name']}_{pod['metadata']['namespace']}({pod['metadata']['uid']})"
                message = f"Back-off restarting failed container {name} in pod {pod_name}"
                self._record_warning(pod, "BackOff", message)

    def _record_start(self, pod: Object, container: Object) -> None:
        name, image = container["name"], container["image"]
        self._record_event(pod, "Pulled", f'Container image "{image}" already present on machine')
        self._record_event(pod, "Created", f"Created container: {name}")
        self._record_event(pod, "Started", f"Started container {name}")

    def _record_event(self, pod: Object, reason: str, message: str) -> None:
        self._recorder.normal(_COMPONENT, self._kind, pod, reason, message)

    def _record_warning(self, pod: Object, reason: str, message: str) -> None:
        self._recorder.warning(_COMPONENT, self._kind, pod, reason, message)

    def _shut_down(self, pod: Object) -> None:
        """Fail a pod because its node shuts down."""
        status, now = pod["status"], self._registry.now()
        if is_terminal(status.get("phase")):
            return
        terminate_pod(pod, now)
        status["reason"], status["message"] = "Terminated", _TERMINATED_BY_KUBELET["message"]
        set_condition(pod, _TERMINATED_BY_KUBELET, now)
        self._registry.commit(self._kind, pod)


class _ScheduledStage(NamedTuple):
    uid: str
    stage: KwokStage


class PodStages:
    """The stage that is due next for each pod on a running node; pods are identified by key, ``namespace/name``."""

    def __init__(
        self,
        registry: Registry,
        timers: Timers,
        nodes: NodeStatusManager,
        recorder: RegistryEventRecorder,
        stages: Sequence[KwokStage],
    ) -> None:
        self._registry, self._timers, self._nodes, self._recorder = registry, timers, nodes, recorder
        self._stages = tuple(stages)
        self._kind = registry.scheme["pods"]
        self._collection = registry.store.collection("pods")
        self._scheduled: dict[str, _ScheduledStage] = {}

    def sync(self, stored: StoredObject) -> None:
        """Schedule a stage for a pod that was added or updated, unless the scheduled one still matches."""
        if not self._stages or self._nodes.state(node_name_of(stored)) != "running":
            return
        pod = self._kind.decode(stored)
        uid = pod["metadata"]["uid"]
        scheduled = self._scheduled.get(stored.key)
        if scheduled is not None and scheduled.uid == uid and scheduled.stage.matches(pod):
            return
        self._scheduled.pop(stored.key, None)
        # The same pod in the same state gets the same stage.
        random = Random(f"{uid}/{stored.resource_version}")
        stage = choose_stage(self._stages, pod, random)
        if stage is not None:
            next_stage = self._scheduled[stored.key] = _ScheduledStage(uid, stage)
            self._timers.call_later(stage.delay(random), lambda: self._run(stored.key, next_stage))

    def remove(self, key: str) -> None:
        """Drop what is scheduled for a deleted pod."""
        self._scheduled.pop(key, None)

    def _run(self, key: str, scheduled: _ScheduledStage) -> None:
        """Apply a stage unless another one was scheduled, or the pod or its node are gone."""
        if self._scheduled.get(key) is not scheduled:
            return
        del self._scheduled[key]
        stored = self._collection.get(key)
        if stored is None or self._nodes.state(node_name_of(stored)) != "running":
            return
        self._apply(self._kind.decode(stored), scheduled.stage)

    def _apply(self, pod: Object, stage: KwokStage) -> None:
        """Make the change of a stage, as writes of a client: status, finalizers, deletion."""
        metadata, change = pod["metadata"], stage.next
        namespace, name = metadata["namespace"], metadata["name"]
        if change.event is not None:
            record = self._recorder.warning if change.event.type == "Warning" else self._recorder.normal
            record(_COMPONENT, self._kind, pod, change.event.reason, change.event.message)
        if status := change.status():
            self._registry.update(
                self._kind, namespace, name, lambda old: self._with_status(old, status), subresource="status"
            )
        finalizers = metadata.get("finalizers") or []
        changed = stage.change_finalizers(finalizers)
        if changed != finalizers:
            self._registry.update(
                self._kind, namespace, name, lambda old: {**old, "metadata": {**old["metadata"], "finalizers": changed}}
            )
        if change.delete:
            options = DeleteOptions(grace_period_seconds=0, uid=metadata["uid"])
            self._registry.delete(self._kind, namespace, name, options)

    def _with_status(self, pod: Object, status: Object) -> Object:
        new = {**pod, "status": pod["status"] | {field: status[field] for field in status if field != "conditions"}}
        for condition in status.get("conditions") or ():
            set_condition(new, condition, self._registry.now())
        return new


class Kubelets(WatchLoop):
    """The kubelets of all nodes of a cluster, in the running event loop's time.

    ``lease_renew_interval`` is the time between two heartbeats of a node, in seconds. ``stages`` are rules for how pods
    run.
    """

    name = "kubelets"

    def __init__(
        self, registry: Registry, *, lease_renew_interval: float = RENEW_INTERVAL, stages: Stages = NO_STAGES
    ) -> None:
        super().__init__(registry.store)
        self._stages = stages
        self._registry = registry
        self._lease_renew_interval = lease_renew_interval

    def relist(self) -> None:
        self._timers = Timers()
        self._nodes = NodeStatusManager(
            self._registry, self._timers, self._sync_pods_on, lease_renew_interval=self._lease_renew_interval
        )
        self._recorder = recorder = RegistryEventRecorder(self._registry)
        self._pods = PodWorkers(self._registry, self._timers, self._nodes, recorder, self._stages.behaviour)
        self._pod_stages = PodStages(self._registry, self._timers, self._nodes, recorder, self._stages.pod_stages)
        #: The keys of the pods bound to each node; dicts keep them in order.
        self._pods_on: dict[str, dict[str, None]] = {}
        nodes = self.list_and_watch("nodes")
        for stored in nodes:
            self._nodes.reserve_addresses(stored)
        for stored in self.list_and_watch("pods"):
            self._pods.restore(stored)
            if node := node_name_of(stored):
                self._pods_on.setdefault(node, {})[stored.key] = None
        for stored in nodes:
            self._attempt(partial(self._nodes.sync, stored))

    @property
    def next_deadline(self) -> float | None:
        return self._timers.next_deadline

    def handle_event(self, resource: str, event: WatchEvent) -> None:
        handle = self._handle_node if resource == "nodes" else self._handle_pod
        self._attempt(partial(handle, event))

    def process_pending(self) -> None:
        callback = self._timers.pop_expired()
        if callback is not None:
            self._attempt(callback)

    @staticmethod
    def _attempt(callback: Callable[[], None]) -> None:
        """Do what is to be done about one node or pod. A failure is logged and does not affect the others."""
        try:
            callback()
        except statuses.StatusError as failure:
            # Not found and conflict: another client's write came first, and its event leads to the next step.
            if failure.code not in (404, 409):
                _log.warning("kubelets: write rejected: %s", failure.message, extra=fields(err=failure.message))
        except Exception as error:
            _log.exception("kubelets: a node or pod could not be handled", extra=fields(err=str(error)))

    def _handle_node(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._nodes.remove(event.object.name)
            self._pods.discard_node(event.object.name)
        else:
            self._nodes.sync(event.object)

    def _handle_pod(self, event: WatchEvent) -> None:
        stored, node = event.object, node_name_of(event.object)
        if event.type == "DELETED":
            self._pods.remove(stored.key)
            self._pod_stages.remove(stored.key)
            self._recorder.discard(uid_of(stored))
            self._pods_on.get(node, {}).pop(stored.key, None)
        elif node:
            self._pods_on.setdefault(node, {})[stored.key] = None
            self._pods.sync(stored)
            self._pod_stages.sync(stored)

    def _sync_pods_on(self, node: str) -> None:
        """Sync every pod on a node that has become ready or started to shut down."""
        pods = self._registry.store.collection("pods")
        for key in self._pods_on.get(node, ()):
            if (stored := pods.get(key)) is not None and node_name_of(stored) == node:
                (self._pods.resume if self._nodes.state(node) == "running" else self._pods.sync)(stored)
                self._pod_stages.sync(stored)
