"""Rules for how the containers of pods start, run, stop and fail.

A rule gives values to the annotations of :mod:`kubestow_devcluster.annotations`. An annotation of the pod itself takes
precedence; of several rules, the first that sets a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from zlib import crc32

import msgspec

from kubestow.api.formats.duration import Duration
from kubestow_devcluster.annotations import (
    DURATION,
    EXIT_CODE,
    INIT_DURATION,
    INIT_EXIT_CODE,
    READY,
    SHUTDOWN,
    START,
)
from kubestow_devcluster.stages.selectors import PodSelector

__all__ = ["NO_RULES", "PodBehaviourRule", "PodBehaviourRules"]

_NEVER = "never"

ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]
#: A Go duration, or the least and the greatest of several pods.
DurationOrRange = str | tuple[str, str]


class PodBehaviourRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The spec of a PodBehaviour. Raises ValueError for an invalid duration or an empty list of exit codes."""

    selector: PodSelector = PodSelector()
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
        for field in _DURATIONS:
            value = getattr(self, field)
            if value is not None and not (field == "ready" and value == _NEVER):
                _seconds_range(value)
        if () in (self.exit_codes, self.init_exit_codes):
            raise ValueError("expected at least one exit code")

    def annotations_for(self, uid: str) -> dict[str, str]:
        """The annotations that this rule gives a pod. The same pod always gets the same value from a range."""
        annotations = {}
        for field, key in _DURATIONS.items():
            value = getattr(self, field)
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
