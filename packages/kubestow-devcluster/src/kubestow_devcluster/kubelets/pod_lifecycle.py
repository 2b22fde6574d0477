"""The lifecycle of a pod on its node: the next step, when it is due, and the pod status after it.

Pure functions of the pod, its behaviour and the current time. All state is in the pod's status, so a kubelet that was
stopped, or a server that restarted, continues from there.

    admitted             the kubelet has set the start time; containers are waiting
    initializing         init containers run one after the other; sidecars keep running
    running              containers start, become ready, exit, and restart by restart policy and back-off
    Succeeded, Failed    no container runs any more

A pod's conditions are generated from its phase and container statuses.
The conditions are Initialized, Ready, ContainersReady and PodScheduled; reasons and messages are the kubelet's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, NamedTuple

from kubestow_devcluster.apiserver.kinds.object_fields import update_pod_condition
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.behaviour.pod_behaviour import PodBehaviour
from kubestow_devcluster.kubelets.pod_admission import Resize

#: The reason of the conditions of a finished pod, by its phase.
_FINISHED_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}


def update_conditions(pod: Object, now: str) -> None:
    """Write the generated conditions into the pod's status."""
    for condition in _generate_conditions(pod):
        set_condition(pod, condition, now)


def set_condition(pod: Object, condition: Object, now: str) -> None:
    """Write a condition of the pod's current generation."""
    if "generation" in pod["metadata"]:
        condition = {**condition, "observedGeneration": pod["metadata"]["generation"]}
    update_pod_condition(pod["status"], condition, now)


def are_conditions_stale(pod: Object) -> bool:
    """Whether the status of a condition differs, for example because of a readiness gate."""
    current = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions") or ()}
    return any(current.get(condition["type"]) != condition["status"] for condition in _generate_conditions(pod))


def is_sidecar(pod: Object, name: str) -> bool:
    """Whether this is a restartable init container, which keeps running beside the main containers."""
    inits = pod["spec"].get("initContainers") or ()
    return any(container["name"] == name and container.get("restartPolicy") == "Always" for container in inits)


def _generate_conditions(pod: Object) -> Iterator[Object]:
    status = pod["status"]
    finished_reason = _FINISHED_REASONS.get(status["phase"], "")
    if finished_reason == "PodCompleted":
        yield {"type": "Initialized", "status": "True", "reason": finished_reason}
    else:
        inits = status.get("initContainerStatuses") or ()
        incomplete = [one["name"] for one in inits if not _is_initialized(pod, one)]
        yield _condition("Initialized", incomplete, "incomplete", "ContainersNotInitialized")
    if finished_reason:
        ready: Object = {"type": "ContainersReady", "status": "False", "reason": finished_reason}
    else:
        unready = [one["name"] for one in status.get("containerStatuses") or () if not one["ready"]]
        ready = _condition("ContainersReady", unready, "unready", "ContainersNotReady")
    if ready["status"] == "True" and (problems := ", ".join(_failed_readiness_gates(pod))):
        yield {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": problems}
    else:
        yield {**ready, "type": "Ready"}
    yield ready
    yield {"type": "PodScheduled", "status": "True"}


def _is_initialized(pod: Object, init_container: Object) -> bool:
    state = init_container["state"]
    if is_sidecar(pod, init_container["name"]):
        return "waiting" not in state
    return bool(state.get("terminated", {}).get("exitCode") == 0)


def _condition(type_: str, containers: list[str], state: str, reason: str) -> Object:
    """True without ``containers``, else False because of them; ``state`` describes them in the message."""
    if not containers:
        return {"type": type_, "status": "True"}
    message = f"containers with {state} status: [{' '.join(containers)}]"
    return {"type": type_, "status": "False", "reason": reason, "message": message}


def _failed_readiness_gates(pod: Object) -> Iterator[str]:
    """A message for each readiness gate whose condition is not True."""
    conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions") or ()}
    for gate in pod["spec"].get("readinessGates") or ():
        type_ = gate["conditionType"]
        status = conditions.get(type_)
        if status is None:
            yield f'corresponding condition of pod readiness gate "{type_}" does not exist.'
        elif status != "True":
            yield f'the status of pod readiness gate "{type_}" is not "True", but {status}'


#: Back-off before a container restarts, in seconds: doubled with each restart, reset after a long run.
_INITIAL_BACK_OFF, _MAX_BACK_OFF, _BACK_OFF_RESET = 10, 300, 600
#: Seconds before a restart without back-off, such as the first one.
_RESTART_DELAY = 1.0

_PENDING, _RUNNING = "Pending", "Running"
#: The reasons of a container that waits for its image: after a failed pull, and before the next one.
_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff")
#: Seconds from a failed pull until the container waits in back-off.
_PULL_BACK_OFF_DELAY = 10.0
#: The least time in seconds that processes have after a preStop hook.
_MIN_GRACE_PERIOD = 2.0
_RESIZE_PENDING = "PodResizePending"
#: Exit codes after SIGKILL and SIGTERM.
_SIGKILL, _SIGTERM = 137, 143

#: Of a pod: ``admit`` sets the start time, ``observe`` reacts to a change of its spec, ``expire`` ends it at
#: activeDeadlineSeconds, ``refresh`` updates its conditions, ``stop`` and ``shutdown`` stop all containers because of a
#: deletion or a node shutdown. Of a container: ``pull`` fails to pull its image, ``back_off`` waits before the next
#: attempt; ``start``, ``ready``, ``exit``.
Action = Literal[
    "admit", "observe", "expire", "refresh", "stop", "shutdown", "pull", "back_off", "start", "ready", "exit"
]


class Transition(NamedTuple):
    """One change of a pod, or of a container in its ``run``-th run."""

    action: Action
    container: str = ""
    run: int = 0


class Step(NamedTuple):
    """Transitions that are due together, in ``delay`` seconds."""

    delay: float
    transitions: tuple[Transition, ...]


def next_step(pod: Object, behaviour: PodBehaviour, now: datetime) -> Step | None:
    """The next step of a bound pod that is not being deleted; None if there is none until the pod is updated."""
    status = pod["status"]
    if status.get("phase", _PENDING) not in (_PENDING, _RUNNING):
        return None
    if not status.get("containerStatuses"):
        return Step(0.0, (Transition("admit"),))
    pending = list(_pending_transitions(pod, behaviour, now))
    if pod["metadata"].get("generation", 0) > status.get("observedGeneration", 0):
        # The spec has changed since the kubelet last wrote the status.
        pending.append((0.0, Transition("observe", run=pod["metadata"]["generation"])))
    if not pending:
        return None
    delay = max(min(due for due, _ in pending), 0.0)
    return Step(delay, tuple(transition for due, transition in pending if due <= delay))


def apply_step(pod: Object, step: Step, behaviour: PodBehaviour, now: str) -> None:
    """Update the pod's status as the step says. ``now`` is an API timestamp."""
    actions = {transition.action for transition in step.transitions}
    _observe_generation(pod)
    if "observe" in actions:
        # Start the ephemeral containers that have been added; they are never ready, and do not restart.
        reported = list(pod["status"].get("ephemeralContainerStatuses") or ())
        names = {container["name"] for container in reported}
        for container in pod["spec"].get("ephemeralContainers") or ():
            if container["name"] not in names:
                started = _waiting_status(container, "ContainerCreating")
                _start(started, now)
                started["started"] = False
                reported.append(started)
        if reported:
            pod["status"]["ephemeralContainerStatuses"] = reported
    if "admit" in actions:
        spec, status = pod["spec"], pod["status"]
        status["phase"] = _PENDING
        status["startTime"] = now
        inits = spec.get("initContainers")
        reason = "PodInitializing" if inits else "ContainerCreating"
        if inits:
            status["initContainerStatuses"] = [_waiting_status(container, reason) for container in inits]
        status["containerStatuses"] = [_waiting_status(container, reason) for container in spec["containers"]]
        set_condition(pod, {"type": "PodReadyToStartContainers", "status": "False"}, now)
    elif "expire" in actions:
        terminate_pod(pod, now, exit_code=_SIGKILL)
        pod["status"]["reason"] = "DeadlineExceeded"
        pod["status"]["message"] = "Pod was active on the node longer than the specified deadline"
    else:
        for transition in step.transitions:
            _apply(pod, transition, behaviour, now)
    # Set the phase that follows from the container statuses, and the conditions.
    status = pod["status"]
    if status["phase"] in (_PENDING, _RUNNING):
        status["phase"] = _phase(pod, behaviour)
    if status["phase"] not in (_PENDING, _RUNNING):
        for container in _container_statuses(status):
            if "terminated" not in container["state"]:
                _terminate(container, 0 if status["phase"] == "Succeeded" else _SIGTERM, now)
    update_conditions(pod, now)


def terminate_pod(pod: Object, now: str, *, exit_code: int = _SIGTERM) -> None:
    """Terminate all containers with ``exit_code``; a pod that had not finished has failed."""
    status = pod["status"]
    _observe_generation(pod)
    for container in _container_statuses(status):
        if "terminated" not in container["state"]:
            _terminate(container, exit_code, now)
    if status.get("phase") in (_PENDING, _RUNNING):
        status["phase"] = "Failed"
        update_conditions(pod, now)


def stop_delay(pod: Object, behaviour: PodBehaviour, grace_period: float) -> tuple[float, bool]:
    """Seconds until the containers of a deleted pod have stopped, and whether they are killed then.

    A ``preStop`` hook that sleeps counts within the grace period; after it the processes have at least two seconds.
    """
    sleeps = [
        ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep", {}).get("seconds", 0)
        for container in pod["spec"]["containers"]
    ]
    hook = min(float(max(sleeps, default=0)), grace_period)
    remaining = max(grace_period - hook, _MIN_GRACE_PERIOD if hook else 0.0)
    return hook + min(behaviour.shutdown, remaining), behaviour.shutdown > remaining


def apply_resize(pod: Object, resize: Resize, now: str) -> None:
    """Report the resources of all containers, and whether a resize is pending."""
    status = pod["status"]
    for container in _container_statuses(status):
        resources = resize.resources.get(container["name"])
        if resources is not None:
            amounts = {"limits": dict(resources.limits), "requests": dict(resources.requests)}
            container["resources"] = {name: amount for name, amount in amounts.items() if amount}
            container["allocatedResources"] = dict(resources.requests)
    conditions = status.get("conditions") or []
    status["conditions"] = [condition for condition in conditions if condition["type"] != _RESIZE_PENDING]
    if resize.reason:
        condition = {"type": _RESIZE_PENDING, "status": "True", "reason": resize.reason, "message": resize.message}
        set_condition(pod, condition, now)


def reject_pod(pod: Object, reason: str, message: str, now: str) -> None:
    """Fail a pod that its kubelet does not admit; no container starts."""
    _observe_generation(pod)
    pod["status"] |= {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "startTime": now}


def crash_loop_back_off(runs: int, last_run: float) -> float:
    """Seconds to wait after the ``runs``-th run, which lasted ``last_run`` seconds; 0 without back-off."""
    if runs < 2 or last_run >= _BACK_OFF_RESET:
        return 0.0
    return float(min(_INITIAL_BACK_OFF << min(runs - 2, 10), _MAX_BACK_OFF))


def _observe_generation(pod: Object) -> None:
    if "generation" in pod["metadata"]:
        pod["status"]["observedGeneration"] = pod["metadata"]["generation"]


# Pending transitions


def _pending_transitions(pod: Object, behaviour: PodBehaviour, now: datetime) -> Iterator[tuple[float, Transition]]:
    """All transitions to come, each with the seconds until it is due."""
    spec, status = pod["spec"], pod["status"]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        yield deadline - _elapsed(status.get("startTime"), now), Transition("expire")
    if spec.get("readinessGates") and are_conditions_stale(pod):
        yield 0.0, Transition("refresh")
    is_first = True
    for container in status.get("initContainerStatuses") or ():
        state, restarts_always = container["state"], is_sidecar(pod, container["name"])
        if "running" in state:
            if not restarts_always:
                duration = behaviour.duration_of(container["name"], is_init=True)
                if duration is not None:
                    running_for = _elapsed(state["running"]["startedAt"], now)
                    yield duration - running_for, _transition("exit", container)
                return
        elif restarts_always or state.get("terminated", {}).get("exitCode") != 0:
            start_delay = behaviour.start if is_first else 0.0
            yield from _start_transitions(container, behaviour, start_delay, status, now)
            return
        is_first = False
    start_delay = behaviour.start if is_first else 0.0
    for container in status["containerStatuses"]:
        state = container["state"]
        if "running" in state:
            running_for = _elapsed(state["running"]["startedAt"], now)
            ready_after = _ready_after(pod, container["name"], behaviour)
            if not container["ready"] and ready_after != float("inf"):
                yield ready_after - running_for, _transition("ready", container)
            duration = behaviour.duration_of(container["name"])
            if duration is not None:
                yield duration - running_for, _transition("exit", container)
        elif "waiting" in state or _should_restart(pod, container, behaviour):
            yield from _start_transitions(container, behaviour, start_delay, pod["status"], now)


def _start_transitions(
    container: Object, behaviour: PodBehaviour, start_delay: float, status: Object, now: datetime
) -> Iterator[tuple[float, Transition]]:
    """The start of a container, or the failing pull of its image."""
    reason = container["state"].get("waiting", {}).get("reason", "")
    if not behaviour.pull_error_of(container["name"]):
        delay = 0.0 if reason in _PULL_REASONS else _until_start(container, start_delay, status, now)
        yield delay, _transition("start", container)
    elif reason not in _PULL_REASONS:
        yield _until_start(container, start_delay, status, now), _transition("pull", container)
    elif reason == _PULL_REASONS[0]:
        yield _PULL_BACK_OFF_DELAY, _transition("back_off", container)


def _until_start(container: Object, start_delay: float, status: Object, now: datetime) -> float:
    """Seconds until a container that is not running starts; ``start_delay`` counts from the pod's start time."""
    terminated = container["state"].get("terminated")
    if terminated is not None:
        return _RESTART_DELAY - _elapsed(terminated["finishedAt"], now)
    last_terminated = container["lastState"].get("terminated")
    if last_terminated is None:
        return start_delay - _elapsed(status.get("startTime"), now)
    delay = _restart_delay(container["restartCount"] + 1, last_terminated)
    return delay - _elapsed(last_terminated["finishedAt"], now)


def _ready_after(pod: Object, name: str, behaviour: PodBehaviour) -> float:
    """Seconds from the container's start until it is ready: the initial delays of its probes, one after the other."""
    if behaviour.ready is not None:
        return behaviour.ready
    container = _container_spec(pod, name)
    probes = (container.get(probe) or {} for probe in ("startupProbe", "readinessProbe"))
    return float(sum(probe.get("initialDelaySeconds", 0) for probe in probes))


def _should_restart(pod: Object, container: Object, behaviour: PodBehaviour) -> bool:
    policy = pod["spec"].get("restartPolicy", "Always")
    if behaviour.exit_codes_of(container["name"]) is None or policy == "Never":
        return False
    return policy == "Always" or bool(container["state"]["terminated"]["exitCode"])


# Applying transitions


def _waiting_status(container: Object, reason: str) -> Object:
    return {
        "name": container["name"],
        "state": {"waiting": {"reason": reason}},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": "",
        "started": False,
    }


def _apply(pod: Object, transition: Transition, behaviour: PodBehaviour, now: str) -> None:
    status = pod["status"]
    inits = status.get("initContainerStatuses") or ()
    container = next((one for one in _container_statuses(status) if one["name"] == transition.container), None)
    if container is None:
        return
    is_init = container in inits
    if transition.action == "start":
        _start(container, now)
        if is_init:
            container["ready"] = is_sidecar(pod, transition.container)
        else:
            container["ready"] = _ready_after(pod, transition.container, behaviour) <= 0
        set_condition(pod, {"type": "PodReadyToStartContainers", "status": "True"}, now)
    elif transition.action == "ready":
        container["ready"] = True
    elif transition.action == "pull":
        problem = behaviour.pull_error_of(transition.container)
        container["state"] = {"waiting": {"reason": _PULL_REASONS[0], "message": problem}}
    elif transition.action == "back_off":
        problem = behaviour.pull_error_of(transition.container)
        message = f'Back-off pulling image "{container["image"]}": ErrImagePull: {problem}'
        container["state"] = {"waiting": {"reason": _PULL_REASONS[1], "message": message}}
    elif transition.action == "exit":
        exit_codes = behaviour.exit_codes_of(transition.container, is_init=is_init) or (0,)
        exit_code = exit_codes[min(transition.run, len(exit_codes) - 1)]
        _terminate(container, exit_code, now)
        container["ready"] = is_init and exit_code == 0
        if exit_code and is_init and pod["spec"].get("restartPolicy") == "Never":
            status["phase"] = "Failed"
        elif (exit_code and is_init) or (not is_init and _should_restart(pod, container, behaviour)):
            _back_off(pod, container)


def _start(container: Object, now: str) -> None:
    terminated = container["state"].get("terminated")
    if terminated is not None:
        container["lastState"] = {"terminated": terminated}
    if container["lastState"]:
        container["restartCount"] += 1
    container["state"] = {"running": {"startedAt": now}}
    container["started"] = True


def _terminate(container: Object, exit_code: int, now: str) -> None:
    running = container["state"].get("running")
    container["ready"] = container["started"] = False
    if running is None:
        # The container never ran, or was waiting to restart.
        last_terminated = container["lastState"].get("terminated")
        unknown = {"exitCode": _SIGKILL, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
        container["state"] = {"terminated": last_terminated or unknown}
        return
    reason = "Error" if exit_code else "Completed"
    terminated = {"exitCode": exit_code, "reason": reason, "startedAt": running["startedAt"], "finishedAt": now}
    container["state"] = {"terminated": terminated}


def _back_off(pod: Object, container: Object) -> None:
    """Make a terminated container wait with CrashLoopBackOff; its first restart has no back-off."""
    terminated = container["state"]["terminated"]
    delay = int(_restart_delay(container["restartCount"] + 1, terminated))
    if delay <= _RESTART_DELAY:
        return
    metadata = pod["metadata"]
    minutes, seconds = divmod(delay, 60)
    duration = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    pod_name = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
    message = f"back-off {duration} restarting failed container={container['name']} pod={pod_name}"
    container["lastState"] = {"terminated": terminated}
    container["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _restart_delay(runs: int, terminated: Object) -> float:
    started, finished = (datetime.fromisoformat(terminated[field]) for field in ("startedAt", "finishedAt"))
    return max(crash_loop_back_off(runs, (finished - started).total_seconds()), _RESTART_DELAY)


# The pod's phase


def _phase(pod: Object, behaviour: PodBehaviour) -> str:
    containers = pod["status"]["containerStatuses"]
    terminated = [one["state"]["terminated"] for one in containers if "terminated" in one["state"]]
    if len(terminated) == len(containers) and not any(_should_restart(pod, one, behaviour) for one in containers):
        return "Failed" if any(one["exitCode"] for one in terminated) else "Succeeded"
    has_started = any(
        "running" in one["state"] or "terminated" in one["state"] or one["lastState"] for one in containers
    )
    return _RUNNING if has_started else _PENDING


# Reading pods


def _container_statuses(status: Object) -> Iterable[Object]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()
    yield from status.get("ephemeralContainerStatuses") or ()


def _container_spec(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        if container["name"] == name:
            found: Object = container
            return found
    return {}


def _transition(action: Action, container: Object) -> Transition:
    return Transition(action, container["name"], container["restartCount"])


def _elapsed(time: str | None, now: datetime) -> float:
    """The least time in seconds that has passed since an API timestamp; 0 without one.

    Timestamps are truncated to seconds, so up to one second of the difference may not have passed.
    """
    if not time:
        return 0.0
    return max((now - datetime.fromisoformat(time)).total_seconds() - 1.0, 0.0)
