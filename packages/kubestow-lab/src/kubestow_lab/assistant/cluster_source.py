"""The cluster that an assistant asks about: files that are read once, or a live one that is listed now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions

#: Seconds for which the objects of a live cluster are used again: questions often follow each other.
_FRESH = 15.0


class EventReader(Protocol):
    """Reads the events about a pod. Raises APIError and Unreachable."""

    def __call__(self, namespace: str, name: str) -> Sequence[dict[str, Any]]: ...


@dataclass(slots=True)
class ClusterSource:
    """Where a cluster comes from.

    ``read`` reads it with the options of its scheduler; ``is_live`` says that it changes. On the command line,
    ``arguments`` name the cluster, and ``configuration`` ("" for the default) and ``scheduler_arguments`` its
    scheduler. ``events`` reads events of a live cluster. ``monotonic`` is a clock in seconds.
    """

    read: Callable[[], tuple[ClusterObjects, SchedulerOptions]]
    arguments: Sequence[str]
    monotonic: Callable[[], float]
    configuration: str = ""
    scheduler_arguments: Sequence[str] = ()
    is_live: bool = False
    events: EventReader | None = None
    _found: tuple[ClusterObjects, SchedulerOptions] | None = field(default=None, init=False)
    _found_at: float = field(default=0.0, init=False)

    def cluster(self) -> tuple[ClusterObjects, SchedulerOptions]:
        """The cluster and the options of its scheduler. Raises InputError, APIError and Unreachable."""
        now = self.monotonic()
        if self._found is None or (self.is_live and now - self._found_at > _FRESH):
            self._found, self._found_at = self.read(), now
        return self._found

    def command(self, *words: str, candidate: str = "") -> list[str]:
        """The command line of ``kubestow`` with some words about this cluster, maybe compared with a configuration."""
        configurations = ["--config", self.configuration] if self.configuration or candidate else []
        configurations += ["--config", candidate] if candidate else []
        return ["kubestow", *words, *self.arguments, *configurations, *self.scheduler_arguments]

    def age(self) -> Iterator[tuple[str, float]]:
        """How old the objects of a live cluster are, in seconds, as an entry of the evidence."""
        if self.is_live:
            yield "secondsOld", round(self.monotonic() - self._found_at, 1)
