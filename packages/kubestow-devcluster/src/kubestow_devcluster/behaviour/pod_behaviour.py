"""How a simulated pod runs: its annotations, the rules of a ``--stages`` file and its containers' commands.

Durations are Go durations (``30s``, ``1h30m``). Kubelets read the annotations of pods and nodes, the provisioner reads
those of storage classes; the job controller sets :data:`DURATION` on pods whose template does not. A rule of kind
PodBehaviour gives values to the annotations. An annotation of the pod itself takes precedence; of several rules, the
first that sets a value. A command of the container applies unless an annotation says how long it runs or how it exits.
All fields of a selector must match; an empty selector matches everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any
from zlib import crc32

import msgspec

from kubestow.api.formats.duration import Duration
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.container_commands import ContainerCommand, command_of

#: The prefix of every annotation in this module.
PREFIX = "kubestow.dev/"

# Pods

#: The time from the binding to the start of the first container.
START = PREFIX + "start"
#: The time from a container's start until it is ready; ``never``: it does not become ready.
READY = PREFIX + "ready"
#: How long each container runs before it exits by itself.
DURATION = PREFIX + "duration"
#: The exit code of each run, comma-separated; the last one repeats. With exit codes the restart policy applies.
EXIT_CODE = PREFIX + "exit-code"
#: :data:`DURATION` and :data:`EXIT_CODE` of each init container.
INIT_DURATION = PREFIX + "init-duration"
INIT_EXIT_CODE = PREFIX + "init-exit-code"
#: Why the images of the pod cannot be pulled. The pod starts when the annotation is removed.
PULL_ERROR = PREFIX + "pull-error"
#: How long the containers take to stop when the pod is deleted; capped by the grace period.
SHUTDOWN = PREFIX + "shutdown"

# Nodes

#: The state of the node's kubelet, :data:`STOPPED` or :data:`SHUT_DOWN`. Without the annotation the kubelet runs.
KUBELET = PREFIX + "kubelet"
#: The kubelet stopped: no heartbeats and no pod status updates.
STOPPED = "stopped"
#: The kubelet shut down gracefully: it terminated its pods, then stopped.
SHUT_DOWN = "shutdown"

# Storage classes

#: How long provisioning a volume takes; ``never``: volumes are not provisioned.
PROVISIONING = PREFIX + "provisioning"


class PodPatterns(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Selects pods by namespace, name, labels, annotations and images. Names and images are patterns (``*``, ``?``)."""

    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    match_labels: dict[str, str] = {}
    match_annotations: dict[str, str] = {}
    #: Patterns of images: the pod has a container with one of them.
    images: tuple[str, ...] = ()

    def matches(self, pod: dict[str, Any]) -> bool:
        metadata = pod["metadata"]
        return (
            (not self.namespaces or metadata.get("namespace", "") in self.namespaces)
            and _matches_any(self.names, metadata.get("name", ""))
            and _contains(metadata.get("labels"), self.match_labels)
            and _contains(metadata.get("annotations"), self.match_annotations)
            and (not self.images or any(True for _ in self.containers_of(pod)))
        )

    def containers_of(self, pod: dict[str, Any]) -> Iterator[str]:
        """The names of the containers, init containers included, whose image matches."""
        for name in ("initContainers", "containers"):
            for container in pod["spec"].get(name) or ():
                if _matches_any(self.images, container.get("image", "")):
                    yield container["name"]


class NodePatterns(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Selects nodes by name (patterns) and labels."""

    names: tuple[str, ...] = ()
    match_labels: dict[str, str] = {}

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return _matches_any(self.names, name) and _contains(labels, self.match_labels)


def _matches_any(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


def _contains(found: Mapping[str, str] | None, expected: Mapping[str, str]) -> bool:
    return not expected or (found is not None and expected.items() <= found.items())


_NEVER = "never"

ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]
#: A Go duration, or the least and the greatest of several pods.
DurationOrRange = str | tuple[str, str]


class PodBehaviourRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The spec of a PodBehaviour. Raises ValueError for an invalid duration or an empty list of exit codes."""

    selector: PodPatterns = PodPatterns()
    start: DurationOrRange | None = None
    ready: DurationOrRange | None = None
    duration: DurationOrRange | None = None
    exit_codes: tuple[ExitCode, ...] | None = None
    init_duration: DurationOrRange | None = None
    init_exit_codes: tuple[ExitCode, ...] | None = None
    shutdown: DurationOrRange | None = None
    #: Why images cannot be pulled: those that the selector names, or all.
    pull_error: str = ""

    def __post_init__(self) -> None:
        for name in _DURATIONS:
            value = getattr(self, name)
            if value is not None and not (name == "ready" and value == _NEVER):
                _seconds_range(value)
        if () in (self.exit_codes, self.init_exit_codes):
            raise ValueError("expected at least one exit code")

    def annotations_for(self, uid: str) -> dict[str, str]:
        """The annotations that this rule gives a pod. The same pod always gets the same value from a range."""
        annotations = {}
        for name, key in _DURATIONS.items():
            value = getattr(self, name)
            if value is not None:
                annotations[key] = _NEVER if value == _NEVER else _choose(value, f"{uid}/{key}")
        for key, codes in ((EXIT_CODE, self.exit_codes), (INIT_EXIT_CODE, self.init_exit_codes)):
            if codes is not None:
                annotations[key] = ",".join(map(str, codes))
        return annotations


#: The annotation of each field that is a duration.
_DURATIONS = {
    "start": START,
    "ready": READY,
    "duration": DURATION,
    "init_duration": INIT_DURATION,
    "shutdown": SHUTDOWN,
}


class PodBehaviourRules:
    """All rules for the behaviour of pods, in the order of precedence."""

    def __init__(self, rules: Sequence[PodBehaviourRule] = ()) -> None:
        self._rules = tuple(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def apply(self, pod: dict[str, Any]) -> tuple[dict[str, str], Mapping[str, str]]:
        """The annotations of a pod with those of the rules, and why images cannot be pulled, by container."""
        annotations: dict[str, str] = dict(pod["metadata"].get("annotations") or {})
        pull_errors: dict[str, str] = {}
        for rule in self._rules:
            if rule.selector.matches(pod):
                annotations = rule.annotations_for(pod["metadata"].get("uid", "")) | annotations
                if rule.pull_error:
                    pull_errors = dict.fromkeys(rule.selector.containers_of(pod), rule.pull_error) | pull_errors
        return annotations, pull_errors


NO_RULES = PodBehaviourRules()


def _choose(value: DurationOrRange, key: str) -> str:
    """A duration within the range, which depends on ``key`` only."""
    least, greatest = _seconds_range(value)
    return str(Duration.of(seconds=least + (greatest - least) * crc32(key.encode()) / 2**32))


def _seconds_range(value: DurationOrRange) -> tuple[float, float]:
    """Raises ValueError unless the durations are valid, not negative and in order."""
    texts = (value, value) if isinstance(value, str) else value
    least, greatest = (Duration.parse(text).seconds for text in texts)
    if not 0 <= least <= greatest:
        raise ValueError(f"expected a duration such as 30s, or a range such as [10s, 30s], got {value!r}")
    return least, greatest


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
