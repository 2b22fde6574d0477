"""How a simulated pod or node behaves: annotations, read once into plain values.

Times are Go durations (``30s``, ``1h30m``). What cannot be read counts as not given, and its pod is told so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubestow.api.duration import Duration
from kubestow.devcluster.apiserver.resources import Object

__all__ = [
    "DURATION",
    "EXIT_CODE",
    "INIT_DURATION",
    "INIT_EXIT_CODE",
    "KUBELET",
    "PREFIX",
    "READY",
    "SHUTDOWN",
    "SHUT_DOWN",
    "START",
    "STOPPED",
    "Behaviour",
]

#: What all annotations begin with.
PREFIX = "kubestow.dev/"

#: Of a pod: how long it takes from the bind to the first container that runs.
START = PREFIX + "start"
#: How long a container runs before it is ready; ``never``: it does not become ready.
READY = PREFIX + "ready"
#: How long containers run before they end by themselves.
DURATION = PREFIX + "duration"
#: With which codes, run by run, the last one for all that follow; then the restart policy counts.
EXIT_CODE = PREFIX + "exit-code"
#: The same two for each init container.
INIT_DURATION = PREFIX + "init-duration"
INIT_EXIT_CODE = PREFIX + "init-exit-code"
#: How long its containers take to stop when the pod is deleted; never longer than the grace period.
SHUTDOWN = PREFIX + "shutdown"

#: Of a node: what has become of its kubelet. Without it the kubelet runs.
KUBELET = PREFIX + "kubelet"
#: It has gone silent; it ended its pods and then went away.
STOPPED, SHUT_DOWN = "stopped", "shutdown"

#: Seconds where nothing is said: a small image that is on the node already, and a process that minds its signals.
_START = 0.2
_INIT_DURATION = 0.2
_STOP = 0.2


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What becomes of a pod, in seconds.

    ``ready`` None: as the readiness probes say; infinity: never. ``duration`` None: containers do not end.
    ``exit_codes`` None: when the containers end the pod has succeeded, whatever its restart policy.
    """

    start: float = _START
    ready: float | None = None
    duration: float | None = None
    exit_codes: tuple[int, ...] | None = None
    init_duration: float = _INIT_DURATION
    init_exit_codes: tuple[int, ...] = (0,)
    shutdown: float = _STOP
    #: What could not be read, one sentence each.
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, pod: Object) -> Behaviour:
        annotations = pod["metadata"].get("annotations") or {}
        if not any(key.startswith(PREFIX) for key in annotations):
            return _USUAL
        return _Reading(annotations).behaviour()


_USUAL = Behaviour()


@dataclass
class _Reading:
    annotations: dict[str, str]
    problems: list[str] = field(default_factory=list)

    def behaviour(self) -> Behaviour:
        start, duration, shutdown = self._seconds(START), self._seconds(DURATION), self._seconds(SHUTDOWN)
        codes, init_codes = self._codes(EXIT_CODE), self._codes(INIT_EXIT_CODE)
        init = self._seconds(INIT_DURATION)
        ready = float("inf") if self.annotations.get(READY) == "never" else self._seconds(READY)
        return Behaviour(
            start=_START if start is None else start,
            ready=ready,
            duration=0.0 if codes is not None and duration is None else duration,
            exit_codes=codes,
            init_duration=_INIT_DURATION if init is None else init,
            init_exit_codes=init_codes or (0,),
            shutdown=_STOP if shutdown is None else shutdown,
            problems=tuple(self.problems),
        )

    def _seconds(self, key: str) -> float | None:
        text = self.annotations.get(key)
        if text is None:
            return None
        try:
            length = Duration.parse(text)
        except ValueError:
            length = None
        if length is None or length < Duration():
            self.problems.append(f"{key}: {text!r} is not a duration such as 30s; it is ignored")
            return None
        return length.seconds

    def _codes(self, key: str) -> tuple[int, ...] | None:
        text = self.annotations.get(key)
        if text is None:
            return None
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() and int(part) < 256 for part in parts):
            self.problems.append(f"{key}: {text!r} is not a list of exit codes from 0 to 255; it is ignored")
            return None
        return tuple(int(part) for part in parts)
