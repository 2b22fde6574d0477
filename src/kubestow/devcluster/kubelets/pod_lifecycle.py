"""The lifecycle of a pod on its node: the next step, when it is due, and the pod status after it.

Pure functions of the pod, its behaviour and the current time. All state is in the pod's status, so a kubelet that was
stopped, or a server that restarted, continues from there.

    admitted             the kubelet has set the start time; containers are waiting
    initializing         init containers run one after the other; sidecars keep running
    running              containers start, become ready, exit, and restart by restart policy and back-off
    Succeeded, Failed    no container runs any more
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, NamedTuple

from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.pod_conditions import update_pod_condition
from kubestow.devcluster.kubelets.behaviour import PodBehaviour
from kubestow.devcluster.kubelets.pod_conditions import are_conditions_stale, is_sidecar, update_conditions

__all__ = ["Action", "Step", "Transition", "apply_step", "crash_loop_back_off", "next_step", "terminate_pod"]

#: Back-off before a container restarts, in seconds: doubled with each restart, reset after a long run.
_INITIAL_BACK_OFF, _MAX_BACK_OFF, _BACK_OFF_RESET = 10, 300, 600
#: Seconds before a restart without back-off, such as the first one.
_RESTART_DELAY = 1.0

_PENDING, _RUNNING = "Pending", "Running"
#: Exit codes after SIGKILL and SIGTERM.
_SIGKILL, _SIGTERM = 137, 143

#: Of a pod: ``admit`` sets the start time, ``expire`` ends it at activeDeadlineSeconds, ``refresh`` updates its
#: conditions, ``stop`` and ``shutdown`` stop all containers because of a deletion or a node shutdown. Of a container:
#: ``start``, ``ready``, ``exit``.
Action = Literal["admit", "expire", "refresh", "stop", "shutdown", "start", "ready", "exit"]


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
    if not pending:
        return None
    delay = max(min(due for due, _ in pending), 0.0)
    return Step(delay, tuple(transition for due, transition in pending if due <= delay))


def apply_step(pod: Object, step: Step, behaviour: PodBehaviour, now: str) -> None:
    """Update the pod's status as the step says. ``now`` is an API timestamp."""
    actions = {transition.action for transition in step.transitions}
    if "admit" in actions:
        _admit(pod, now)
    elif "expire" in actions:
        _expire(pod, now)
    else:
        for transition in step.transitions:
            _apply(pod, transition, behaviour, now)
    _update_phase(pod, behaviour, now)


def terminate_pod(pod: Object, now: str, *, exit_code: int = _SIGTERM) -> None:
    """Terminate all containers with ``exit_code``; a pod that had not finished has failed."""
    status = pod["status"]
    for container in _container_statuses(status):
        if "terminated" not in container["state"]:
            _terminate(container, exit_code, now)
    if status.get("phase") in (_PENDING, _RUNNING):
        status["phase"] = "Failed"
        update_conditions(pod, now)


def crash_loop_back_off(runs: int, last_run: float) -> float:
    """Seconds to wait after the ``runs``-th run, which lasted ``last_run`` seconds; 0 without back-off."""
    if runs < 2 or last_run >= _BACK_OFF_RESET:
        return 0.0
    return float(min(_INITIAL_BACK_OFF << min(runs - 2, 10), _MAX_BACK_OFF))


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
                running_for = _elapsed(state["running"]["startedAt"], now)
                yield behaviour.init_duration - running_for, _transition("exit", container)
                return
        elif restarts_always or state.get("terminated", {}).get("exitCode") != 0:
            start_delay = behaviour.start if is_first else 0.0
            yield _until_start(container, start_delay, status, now), _transition("start", container)
            return
        is_first = False
    start_delay = behaviour.start if is_first else 0.0
    for container in status["containerStatuses"]:
        yield from _container_transitions(pod, container, behaviour, start_delay, now)


def _container_transitions(
    pod: Object, container: Object, behaviour: PodBehaviour, start_delay: float, now: datetime
) -> Iterator[tuple[float, Transition]]:
    state = container["state"]
    if "running" in state:
        running_for = _elapsed(state["running"]["startedAt"], now)
        ready_after = _ready_after(pod, container["name"], behaviour)
        if not container["ready"] and ready_after != float("inf"):
            yield ready_after - running_for, _transition("ready", container)
        if behaviour.duration is not None:
            yield behaviour.duration - running_for, _transition("exit", container)
    elif "waiting" in state or _should_restart(pod, container, behaviour):
        yield _until_start(container, start_delay, pod["status"], now), _transition("start", container)


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
    """Seconds from the container's start until it is ready."""
    if behaviour.ready is not None:
        return behaviour.ready
    probe = _container_spec(pod, name).get("readinessProbe") or {}
    return float(probe.get("initialDelaySeconds", 0))


def _should_restart(pod: Object, container: Object, behaviour: PodBehaviour) -> bool:
    """Whether a terminated container restarts."""
    policy = pod["spec"].get("restartPolicy", "Always")
    if behaviour.exit_codes is None or policy == "Never":
        return False
    return policy == "Always" or bool(container["state"]["terminated"]["exitCode"])


# Applying transitions


def _admit(pod: Object, now: str) -> None:
    spec, status = pod["spec"], pod["status"]
    status["phase"] = _PENDING
    status["startTime"] = now
    inits = spec.get("initContainers")
    reason = "PodInitializing" if inits else "ContainerCreating"
    if inits:
        status["initContainerStatuses"] = [_waiting_status(container, reason) for container in inits]
    status["containerStatuses"] = [_waiting_status(container, reason) for container in spec["containers"]]
    update_pod_condition(status, {"type": "PodReadyToStartContainers", "status": "False"}, now)


def _expire(pod: Object, now: str) -> None:
    terminate_pod(pod, now, exit_code=_SIGKILL)
    pod["status"]["reason"] = "DeadlineExceeded"
    pod["status"]["message"] = "Pod was active on the node longer than the specified deadline"


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
        update_pod_condition(status, {"type": "PodReadyToStartContainers", "status": "True"}, now)
    elif transition.action == "ready":
        container["ready"] = True
    elif transition.action == "exit":
        exit_codes = behaviour.init_exit_codes if is_init else behaviour.exit_codes or (0,)
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
    last_run = (_parse_time(terminated["finishedAt"]) - _parse_time(terminated["startedAt"])).total_seconds()
    return max(crash_loop_back_off(runs, last_run), _RESTART_DELAY)


# The pod's phase


def _update_phase(pod: Object, behaviour: PodBehaviour, now: str) -> None:
    """Set the phase that follows from the container statuses, and the conditions."""
    status = pod["status"]
    if status["phase"] in (_PENDING, _RUNNING):
        status["phase"] = _phase(pod, behaviour)
    if status["phase"] not in (_PENDING, _RUNNING):
        for container in _container_statuses(status):
            if "terminated" not in container["state"]:
                _terminate(container, 0 if status["phase"] == "Succeeded" else _SIGTERM, now)
    update_conditions(pod, now)


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
    return max((now - _parse_time(time)).total_seconds() - 1.0, 0.0)


def _parse_time(time: str) -> datetime:
    return datetime.fromisoformat(time)
