"""The life of a pod on its node, step by step: what happens next, when, and what the pod's status says after it.

Pure functions of the pod, its behaviour and the moment. All there is to know is in the pod's status, so a kubelet that
comes back after a silence, or a server started again, goes on from there.

    accepted      the node has taken note: containers are waiting
    init          init containers one after the other; sidecars (those that always restart) stay beside what follows
    running       containers start, become ready, end, and start again as the restart policy and the back-off say
    Succeeded, Failed    nothing runs any more
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.pods import set_condition
from kubestow.devcluster.kubelets.behaviour import Behaviour
from kubestow.devcluster.kubelets.pod_conditions import conditions_differ, is_sidecar, set_conditions

__all__ = ["Deed", "Step", "back_off", "end_pod", "next_step", "take_step"]

#: Back-off before a container starts again: doubled with each restart, forgotten after a long run (seconds).
_FIRST_BACK_OFF, _LAST_BACK_OFF, _LONG_RUN = 10, 300, 600
#: Seconds until the first restart, which needs no back-off.
_RESTART = 1.0

_PENDING, _RUNNING = "Pending", "Running"
_KILLED, _TERMINATED = 137, 143


class Deed(NamedTuple):
    """Something that happens to a pod or to one of its containers, in its ``run``-th run."""

    what: str
    container: str = ""
    run: int = 0


class Step(NamedTuple):
    """Deeds that happen together after ``delay`` seconds."""

    delay: float
    deeds: tuple[Deed, ...]


def next_step(pod: Object, behaviour: Behaviour, now: datetime) -> Step | None:
    """What happens next to a pod that is on a node and not being deleted; None: nothing, as things are."""
    status = pod["status"]
    if status.get("phase", _PENDING) not in (_PENDING, _RUNNING):
        return None
    if not status.get("containerStatuses"):
        return Step(0.0, (Deed("accept"),))
    ahead = list(_ahead(pod, behaviour, now))
    if not ahead:
        return None
    soonest = max(min(delay for delay, _ in ahead), 0.0)
    return Step(soonest, tuple(deed for delay, deed in ahead if delay <= soonest))


def take_step(pod: Object, step: Step, behaviour: Behaviour, now: str) -> None:
    """Write into the pod's status what a step leads to. ``now`` is the time of it, as the API writes times."""
    what = {deed.what for deed in step.deeds}
    if "accept" in what:
        _accept(pod, now)
    elif "expire" in what:
        _expire(pod, now)
    else:
        for deed in step.deeds:
            _act(pod, deed, behaviour, now)
    _conclude(pod, behaviour, now)


def end_pod(pod: Object, now: str, *, code: int = _TERMINATED) -> None:
    """All containers that run are made to end; the pod has failed, unless it ended before."""
    status = pod["status"]
    for container in _statuses(status):
        if "terminated" not in container["state"]:
            _end(container, code, now)
    if status.get("phase") in (_PENDING, _RUNNING):
        status["phase"] = "Failed"
        set_conditions(pod, now)


def back_off(runs: int, ran: float) -> float:
    """Seconds before the start that follows the ``runs``-th run, which lasted ``ran`` seconds; 0 without back-off."""
    if runs < 2 or ran >= _LONG_RUN:
        return 0.0
    return float(min(_FIRST_BACK_OFF << min(runs - 2, 10), _LAST_BACK_OFF))


# What lies ahead


def _ahead(pod: Object, behaviour: Behaviour, now: datetime) -> Iterator[tuple[float, Deed]]:
    spec, status = pod["spec"], pod["status"]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        yield deadline - _since(status.get("startTime"), now), Deed("expire")
    if spec.get("readinessGates") and conditions_differ(pod):
        yield 0.0, Deed("report")
    first = True
    for container in status.get("initContainerStatuses") or ():
        state, sidecar = container["state"], is_sidecar(pod, container["name"])
        if "running" in state:
            if not sidecar:
                lasted = _since(state["running"]["startedAt"], now)
                yield behaviour.init_duration - lasted, _deed("end", container)
                return
        elif sidecar or state.get("terminated", {}).get("exitCode") != 0:
            yield _until_start(container, behaviour.start if first else 0.0, status, now), _deed("start", container)
            return
        first = False
    for container in status["containerStatuses"]:
        yield from _container_ahead(pod, container, behaviour, behaviour.start if first else 0.0, now)


def _container_ahead(
    pod: Object, container: Object, behaviour: Behaviour, start: float, now: datetime
) -> Iterator[tuple[float, Deed]]:
    state = container["state"]
    if "running" in state:
        lasted = _since(state["running"]["startedAt"], now)
        ready = _ready_after(pod, container["name"], behaviour)
        if not container["ready"] and ready != float("inf"):
            yield ready - lasted, _deed("ready", container)
        if behaviour.duration is not None:
            yield behaviour.duration - lasted, _deed("end", container)
    elif "waiting" in state or _restarts(pod, container, behaviour):
        yield _until_start(container, start, pod["status"], now), _deed("start", container)


def _until_start(container: Object, start: float, status: Object, now: datetime) -> float:
    """Seconds until a container that does not run is to start."""
    ended = container["state"].get("terminated")
    if ended is not None:
        return _RESTART - _since(ended["finishedAt"], now)
    last = container["lastState"].get("terminated")
    if last is None:
        return start - _since(status.get("startTime"), now)
    return _wait_after(container["restartCount"] + 1, last) - _since(last["finishedAt"], now)


def _ready_after(pod: Object, name: str, behaviour: Behaviour) -> float:
    if behaviour.ready is not None:
        return behaviour.ready
    probe = _spec_of(pod, name).get("readinessProbe") or {}
    return float(probe.get("initialDelaySeconds", 0))


def _restarts(pod: Object, container: Object, behaviour: Behaviour) -> bool:
    """Whether a container that ended is started again."""
    policy = pod["spec"].get("restartPolicy", "Always")
    if behaviour.exit_codes is None or policy == "Never":
        return False
    return policy == "Always" or bool(container["state"]["terminated"]["exitCode"])


# What happens


def _accept(pod: Object, now: str) -> None:
    spec, status = pod["spec"], pod["status"]
    status["phase"] = _PENDING
    status["startTime"] = now
    inits = spec.get("initContainers")
    waiting = "PodInitializing" if inits else "ContainerCreating"
    if inits:
        status["initContainerStatuses"] = [_waiting(container, waiting) for container in inits]
    status["containerStatuses"] = [_waiting(container, waiting) for container in spec["containers"]]
    set_condition(status, {"type": "PodReadyToStartContainers", "status": "False"}, now)


def _expire(pod: Object, now: str) -> None:
    end_pod(pod, now, code=_KILLED)
    pod["status"]["reason"] = "DeadlineExceeded"
    pod["status"]["message"] = "Pod was active on the node longer than the specified deadline"


def _waiting(container: Object, reason: str) -> Object:
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


def _act(pod: Object, deed: Deed, behaviour: Behaviour, now: str) -> None:
    status = pod["status"]
    inits = status.get("initContainerStatuses") or ()
    container = next((one for one in _statuses(status) if one["name"] == deed.container), None)
    if container is None:
        return
    is_init = container in inits
    if deed.what == "start":
        _start(container, now)
        if is_init:
            container["ready"] = is_sidecar(pod, deed.container)
        else:
            container["ready"] = _ready_after(pod, deed.container, behaviour) <= 0
        set_condition(status, {"type": "PodReadyToStartContainers", "status": "True"}, now)
    elif deed.what == "ready":
        container["ready"] = True
    elif deed.what == "end":
        codes = behaviour.init_exit_codes if is_init else behaviour.exit_codes or (0,)
        code = codes[min(deed.run, len(codes) - 1)]
        _end(container, code, now)
        container["ready"] = is_init and code == 0
        if code and is_init and pod["spec"].get("restartPolicy") == "Never":
            status["phase"] = "Failed"
        elif (code and is_init) or (not is_init and _restarts(pod, container, behaviour)):
            _back_off(pod, container)


def _start(container: Object, now: str) -> None:
    ended = container["state"].get("terminated")
    if ended is not None:
        container["lastState"] = {"terminated": ended}
    if container["lastState"]:
        container["restartCount"] += 1
    container["state"] = {"running": {"startedAt": now}}
    container["started"] = True


def _end(container: Object, code: int, now: str) -> None:
    running = container["state"].get("running")
    container["ready"] = container["started"] = False
    if running is None:
        # It never ran, or waited to run again.
        last = container["lastState"].get("terminated")
        missing = {"exitCode": _KILLED, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
        container["state"] = {"terminated": last or missing}
        return
    reason = "Error" if code else "Completed"
    ended = {"exitCode": code, "reason": reason, "startedAt": running["startedAt"], "finishedAt": now}
    container["state"] = {"terminated": ended}


def _back_off(pod: Object, container: Object) -> None:
    """A container that ended and is to start again waits, unless it did so for the first time."""
    ended = container["state"]["terminated"]
    wait = int(_wait_after(container["restartCount"] + 1, ended))
    if wait <= _RESTART:
        return
    identity = pod["metadata"]
    minutes, seconds = divmod(wait, 60)
    shown = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    name = f"{identity['name']}_{identity['namespace']}({identity['uid']})"
    message = f"back-off {shown} restarting failed container={container['name']} pod={name}"
    container["lastState"] = {"terminated": ended}
    container["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _wait_after(runs: int, ended: Object) -> float:
    ran = (_moment(ended["finishedAt"]) - _moment(ended["startedAt"])).total_seconds()
    return max(back_off(runs, ran), _RESTART)


# What it comes to


def _conclude(pod: Object, behaviour: Behaviour, now: str) -> None:
    status = pod["status"]
    if status["phase"] in (_PENDING, _RUNNING):
        status["phase"] = _phase(pod, behaviour)
    if status["phase"] not in (_PENDING, _RUNNING):
        for container in _statuses(status):
            if "terminated" not in container["state"]:
                _end(container, 0 if status["phase"] == "Succeeded" else _TERMINATED, now)
    set_conditions(pod, now)


def _phase(pod: Object, behaviour: Behaviour) -> str:
    containers = pod["status"]["containerStatuses"]
    ended = [one["state"]["terminated"] for one in containers if "terminated" in one["state"]]
    if len(ended) == len(containers) and not any(_restarts(pod, one, behaviour) for one in containers):
        return "Failed" if any(one["exitCode"] for one in ended) else "Succeeded"
    began = any("running" in one["state"] or "terminated" in one["state"] or one["lastState"] for one in containers)
    return _RUNNING if began else _PENDING


# Reading pods


def _statuses(status: Object) -> Iterable[Object]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _spec_of(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        if container["name"] == name:
            found: Object = container
            return found
    return {}


def _deed(what: str, container: Object) -> Deed:
    return Deed(what, container["name"], container["restartCount"])


def _since(time: str | None, now: datetime) -> float:
    """The least that has passed since a time in the API's form, in seconds.

    Times are cut to whole seconds, so a fresh one may seem to be a second old; nothing comes early for it.
    """
    if not time:
        return 0.0
    return max((now - _moment(time)).total_seconds() - 1.0, 0.0)


def _moment(time: str) -> datetime:
    return datetime.fromisoformat(time)
