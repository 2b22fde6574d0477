"""How a simulated pod runs: its annotations (:mod:`kubestow.devcluster.annotations`), parsed once.

An annotation that cannot be parsed is ignored; the kubelet records a warning event about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubestow.api.duration import Duration
from kubestow.devcluster.annotations import (
    DURATION,
    EXIT_CODE,
    INIT_DURATION,
    INIT_EXIT_CODE,
    PREFIX,
    READY,
    SHUTDOWN,
    START,
)
from kubestow.devcluster.apiserver.resources import Object

__all__ = ["PodBehaviour"]

#: Defaults in seconds: an image that is already on the node, and processes that handle SIGTERM.
_START = 0.2
_INIT_DURATION = 0.2
_SHUTDOWN = 0.2


@dataclass(frozen=True, slots=True)
class PodBehaviour:
    """How the containers of a pod start, run and stop; durations in seconds."""

    #: From the binding to the start of the first container.
    start: float = _START
    #: From a container's start until it is ready. None: the initial delay of its readiness probe; infinity: never.
    ready: float | None = None
    #: From a container's start until it exits. None: it does not exit.
    duration: float | None = None
    #: Exit codes by run, the last one repeated. None: 0, and the pod succeeds whatever its restart policy.
    exit_codes: tuple[int, ...] | None = None
    init_duration: float = _INIT_DURATION
    init_exit_codes: tuple[int, ...] = (0,)
    #: From the deletion of the pod until its containers have stopped, unless the grace period is shorter.
    shutdown: float = _SHUTDOWN
    #: A message for each annotation that cannot be parsed.
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, pod: Object) -> PodBehaviour:
        annotations = pod["metadata"].get("annotations") or {}
        if not any(key.startswith(PREFIX) for key in annotations):
            return _DEFAULT
        return _AnnotationParser(annotations).parse()


_DEFAULT = PodBehaviour()


@dataclass
class _AnnotationParser:
    annotations: dict[str, str]
    problems: list[str] = field(default_factory=list)

    def parse(self) -> PodBehaviour:
        start, duration, shutdown = self._seconds(START), self._seconds(DURATION), self._seconds(SHUTDOWN)
        exit_codes, init_exit_codes = self._exit_codes(EXIT_CODE), self._exit_codes(INIT_EXIT_CODE)
        init_duration = self._seconds(INIT_DURATION)
        ready = float("inf") if self.annotations.get(READY) == "never" else self._seconds(READY)
        return PodBehaviour(
            start=_START if start is None else start,
            ready=ready,
            duration=0.0 if exit_codes is not None and duration is None else duration,
            exit_codes=exit_codes,
            init_duration=_INIT_DURATION if init_duration is None else init_duration,
            init_exit_codes=init_exit_codes or (0,),
            shutdown=_SHUTDOWN if shutdown is None else shutdown,
            problems=tuple(self.problems),
        )

    def _seconds(self, key: str) -> float | None:
        text = self.annotations.get(key)
        if text is None:
            return None
        try:
            duration = Duration.parse(text)
        except ValueError:
            duration = None
        if duration is None or duration < Duration():
            self.problems.append(f"{key}: {text!r} is not a duration such as 30s; it is ignored")
            return None
        return duration.seconds

    def _exit_codes(self, key: str) -> tuple[int, ...] | None:
        text = self.annotations.get(key)
        if text is None:
            return None
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() and int(part) < 256 for part in parts):
            self.problems.append(f"{key}: {text!r} is not a list of exit codes from 0 to 255; it is ignored")
            return None
        return tuple(int(part) for part in parts)
