"""How a simulated pod runs: its annotations, the rules of a ``--stages`` file and its containers' commands.

Annotations (:mod:`kubestow_devcluster.annotations`) take precedence over rules, and rules over commands. An
annotation that cannot be parsed is ignored; the kubelet records a warning event about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kubestow.api.formats.duration import Duration
from kubestow_devcluster.annotations import (
    DURATION,
    EXIT_CODE,
    INIT_DURATION,
    INIT_EXIT_CODE,
    PREFIX,
    PULL_ERROR,
    READY,
    SHUTDOWN,
    START,
)
from kubestow_devcluster.apiserver.resources import Object
from kubestow_devcluster.container_commands import ContainerCommand, command_of
from kubestow_devcluster.stages.pod_behaviour import NO_RULES, PodBehaviourRules

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
    #: Containers whose command is known, by name, apart from those to which annotations apply.
    commands: Mapping[str, ContainerCommand] = field(default_factory=dict)
    #: Why the images of the pod cannot be pulled; empty: they can, apart from those in :attr:`pull_errors`.
    pull_error: str = ""
    #: Why the image of a container cannot be pulled, by its name.
    pull_errors: Mapping[str, str] = field(default_factory=dict)
    #: From the deletion of the pod until its containers have stopped, unless the grace period is shorter.
    shutdown: float = _SHUTDOWN
    #: A message for each annotation that cannot be parsed.
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, pod: Object, rules: PodBehaviourRules = NO_RULES) -> PodBehaviour:
        annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
        pull_errors: Mapping[str, str] = {}
        if rules:
            annotations, pull_errors = rules.apply(pod)
        is_annotated = any(key.startswith(PREFIX) for key in annotations)
        behaviour = _AnnotationParser(annotations).parse() if is_annotated else _DEFAULT
        commands = dict(_commands(pod, annotations))
        if not commands and not pull_errors:
            return behaviour
        return replace(behaviour, commands=commands, pull_errors=pull_errors)

    def pull_error_of(self, container: str) -> str:
        """Why the image of a container cannot be pulled; empty: it can."""
        return self.pull_error or self.pull_errors.get(container, "")

    def duration_of(self, container: str, *, is_init: bool = False) -> float | None:
        """From a container's start until it exits; None: it does not exit."""
        command = self.commands.get(container)
        if command is not None:
            return None if command.duration == float("inf") else command.duration
        return self.init_duration if is_init else self.duration

    def exit_codes_of(self, container: str, *, is_init: bool = False) -> tuple[int, ...] | None:
        """The exit codes of a container by run; None: 0, and the container never restarts."""
        command = self.commands.get(container)
        if command is not None:
            return (command.exit_code,)
        return self.init_exit_codes if is_init else self.exit_codes


#: The annotations that apply to containers whatever their command.
_OVERRIDING = {"containers": (DURATION, EXIT_CODE), "initContainers": (INIT_DURATION, INIT_EXIT_CODE)}


def _commands(pod: Object, annotations: Mapping[str, str]) -> Iterator[tuple[str, ContainerCommand]]:
    for field_name, overriding in _OVERRIDING.items():
        if not any(key in annotations for key in overriding):
            for container in pod["spec"].get(field_name) or ():
                if (command := command_of(container, pod["metadata"])) is not None:
                    yield container["name"], command


_DEFAULT = PodBehaviour()


@dataclass
class _AnnotationParser:
    annotations: Mapping[str, str]
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
            pull_error=self.annotations.get(PULL_ERROR, ""),
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
