"""Which step of its life each pod takes next, and when: one plan per pod that has anything ahead of it.

A plan is made whenever a pod is seen, from what its status says, and stands until it falls due or the pod is seen to
have something else ahead. Pods of nodes that are silent have no plans.
"""

from __future__ import annotations

from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.resources.pods import set_condition
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.event_recorder import Recorder
from kubestow.devcluster.kubelets.addresses import PodAddresses
from kubestow.devcluster.kubelets.behaviour import PREFIX, Behaviour
from kubestow.devcluster.kubelets.nodes import Nodes
from kubestow.devcluster.kubelets.pod_conditions import conditions_differ, set_conditions
from kubestow.devcluster.kubelets.pod_lifecycle import Deed, Step, end_pod, next_step, take_step
from kubestow.devcluster.kubelets.timers import Timetable

__all__ = ["PodWorkers"]

_NOT_READY = b'"type":"Ready","status":"False"'
_PREFIX = f'"{PREFIX}'.encode()
#: A running pod that shows none of these has nothing ahead.
_AHEAD = (
    _PREFIX,
    b'"ready":false',
    b'"readinessGates":',
    b'"activeDeadlineSeconds":',
)
_DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "Pod was terminated in response to imminent node shutdown.",
}
_COMPONENT = "kubelet"
#: Deeds that stop all containers.
_ENDINGS = ("stop", "shut down")


class PodWorkers:
    def __init__(self, registry: Registry, timetable: Timetable, nodes: Nodes, recorder: Recorder) -> None:
        self._registry, self._timetable, self._nodes, self._recorder = registry, timetable, nodes, recorder
        self._kind: Kind = registry.catalog["pods"]
        self._collection = registry.store.collection("pods")
        self._addresses = PodAddresses()
        #: Pods that have a step ahead: their uid and that step's deeds, so that nothing is done twice.
        self._planned: dict[str, tuple[str, tuple[Deed, ...]]] = {}

    def note_address(self, stored: Stored) -> None:
        """Take note of the address that a pod has, before others are given theirs."""
        if b'"podIP":' in stored.data:
            pod = self._kind.decode(stored)
            if not pod["spec"].get("hostNetwork"):
                self._addresses.note(stored.key, pod["status"]["podIP"])

    def observe(self, stored: Stored) -> None:
        """A pod is there, or has changed."""
        node, phase = stored.fields[0], stored.fields[5]
        state = self._nodes.state(node)
        if state in ("absent", "stopped"):
            return
        deleted = b'"deletionTimestamp":' in stored.data
        if not deleted and state == "running":
            if phase in ("Succeeded", "Failed"):
                self._addresses.release(stored.key)
                return
            if phase == "Running" and not any(sign in stored.data for sign in _AHEAD):
                return
        pod = self._kind.decode(stored)
        step = self._next(pod, shutting_down=state == "shutdown", deleted=deleted)
        planned = (pod["metadata"]["uid"], step.deeds if step is not None else ())
        if self._planned.get(stored.key) == planned:
            return
        self._planned[stored.key] = planned
        if step is None:
            del self._planned[stored.key]
            return
        if step.deeds[0].what in _ENDINGS and phase == "Running":
            for container in pod["spec"]["containers"]:
                self._tell_of(pod, "Killing", f"Stopping container {container['name']}")
        self._timetable.after(step.delay, lambda: self._do(stored.key, planned))

    def resume(self, stored: Stored) -> None:
        """The node is ready again: so is the pod, should others have given it up in the meantime."""
        if stored.fields[5] == "Running" and _NOT_READY in stored.data:
            pod = self._kind.decode(stored)
            if conditions_differ(pod):
                set_conditions(pod, self._registry.now())
                stored = self._registry.commit(self._kind, pod)
        self.observe(stored)

    def forget(self, key: str) -> None:
        """A pod is gone."""
        self._planned.pop(key, None)
        self._addresses.release(key)

    def _next(self, pod: Object, *, shutting_down: bool, deleted: bool) -> Step | None:
        behaviour = Behaviour.of(pod)
        if deleted:
            grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            return Step(min(float(grace), behaviour.shutdown), (Deed("stop", run=grace),))
        if not shutting_down:
            return next_step(pod, behaviour, self._registry.moment())
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return None
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        return Step(min(float(grace), behaviour.shutdown), (Deed("shut down"),))

    def _do(self, key: str, planned: tuple[str, tuple[Deed, ...]]) -> None:
        if self._planned.get(key) != planned:
            return
        del self._planned[key]
        stored = self._collection.get(key)
        if stored is None or self._nodes.state(stored.fields[0]) in ("absent", "stopped"):
            return
        pod = self._kind.decode(stored)
        uid, deeds = planned
        if pod["metadata"]["uid"] != uid:
            return
        if deeds[0].what == "stop":
            self._stop(pod)
        elif deeds[0].what == "shut down":
            self._shut_down(pod)
        else:
            self._go_on(pod, deeds)

    def _go_on(self, pod: Object, deeds: tuple[Deed, ...]) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            return
        behaviour = Behaviour.of(pod)
        if deeds[0].what == "accept":
            self._accept(pod, behaviour)
        elif deeds[0].what == "start" and not pod["status"].get("podIP"):
            self._connect(pod)
        take_step(pod, Step(0.0, deeds), behaviour, self._registry.now())
        self._registry.commit(self._kind, pod)
        self._tell(pod, deeds)

    def _accept(self, pod: Object, behaviour: Behaviour) -> None:
        host = self._nodes.network(pod["spec"]["nodeName"])[0]
        pod["status"]["hostIP"], pod["status"]["hostIPs"] = host, [{"ip": host}]
        for problem in behaviour.problems:
            self._recorder.warning(_COMPONENT, self._kind, pod, "InvalidAnnotation", problem)

    def _connect(self, pod: Object) -> None:
        """Give the pod its address."""
        host, pod_range = self._nodes.network(pod["spec"]["nodeName"])
        key = self._kind.key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        address = host if pod["spec"].get("hostNetwork") else self._addresses.take(key, pod_range)
        pod["status"]["podIP"], pod["status"]["podIPs"] = address, [{"ip": address}]

    def _tell(self, pod: Object, deeds: tuple[Deed, ...]) -> None:
        """The events that a kubelet tells of containers that start, or have to wait before they start again."""
        done = {deed.container: deed.what for deed in deeds if deed.container}
        status = pod["status"]
        for container in (*(status.get("initContainerStatuses") or ()), *status["containerStatuses"]):
            name = container["name"]
            if done.get(name) == "start":
                image = container["image"]
                self._tell_of(pod, "Pulled", f'Container image "{image}" already present on machine')
                self._tell_of(pod, "Created", f"Created container: {name}")
                self._tell_of(pod, "Started", f"Started container {name}")
            elif done.get(name) == "end" and "waiting" in container["state"]:
                shown = f"{pod['metadata']['name']}_{pod['metadata']['namespace']}({pod['metadata']['uid']})"
                message = f"Back-off restarting failed container {name} in pod {shown}"
                self._recorder.warning(_COMPONENT, self._kind, pod, "BackOff", message)

    def _tell_of(self, pod: Object, reason: str, message: str) -> None:
        self._recorder.normal(_COMPONENT, self._kind, pod, reason, message)

    def _stop(self, pod: Object) -> None:
        """The containers have stopped: say so, and let the pod go."""
        identity = pod["metadata"]
        if pod["status"].get("phase") == "Running":
            killed = Behaviour.of(pod).shutdown > identity.get("deletionGracePeriodSeconds", 0)
            end_pod(pod, self._registry.now(), code=137 if killed else 143)
            self._registry.commit(self._kind, pod)
        self._registry.delete(
            self._kind, identity["namespace"], identity["name"], Deletion(grace_period=0, uid=identity["uid"])
        )

    def _shut_down(self, pod: Object) -> None:
        status, now = pod["status"], self._registry.now()
        if status.get("phase") in ("Succeeded", "Failed"):
            return
        end_pod(pod, now)
        status["reason"], status["message"] = "Terminated", _DISRUPTED["message"]
        set_condition(status, _DISRUPTED, now)
        self._registry.commit(self._kind, pod)
