"""What clients of an API server did and saw: operations with their answers, events of watches, crashes between them.

One process records everything, so positions in the history are an order of real time: an operation whose answer has a
smaller position than the start of another was over before that began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

Verb = Literal["create", "update", "patch", "delete", "get", "list"]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]
#: The content of ``data`` of a config map. Every write has a value that no other has.
Data = frozenset[tuple[str, str]]


class Version(NamedTuple):
    """One state of one object. ``content`` is the whole object in one canonical form."""

    resource_version: int
    uid: str
    data: Data
    content: bytes


def version_of(manifest: Mapping[str, Any]) -> Version:
    """The state that an answer, a list or an event contains."""
    body = {name: value for name, value in manifest.items() if name not in ("kind", "apiVersion")}
    metadata = body["metadata"]
    return Version(
        int(metadata["resourceVersion"]),
        metadata["uid"],
        frozenset((body.get("data") or {}).items()),
        msgspec.json.encode(body, order="deterministic"),
    )


class Answer(NamedTuple):
    """``version`` is the object in the answer, if there is one; ``listed`` and ``resource_version`` are of a list."""

    status: int
    version: Version | None = None
    listed: Mapping[str, Version] = {}
    resource_version: int = 0


@dataclass(eq=False, slots=True)
class Operation:
    """One request. ``key`` is empty for a list, ``precondition`` the resourceVersion that a write demands, or None.

    ``data`` is the new content, of a patch only what it sets. Without an ``answer`` the outcome is unknown.
    """

    client: str
    verb: Verb
    key: str
    data: Data = frozenset()
    precondition: int | None = None
    invoked: int = 0
    returned: int | None = None
    answer: Answer | None = None

    def __str__(self) -> str:
        content = ",".join(f"{name}={value}" for name, value in sorted(self.data))
        parts = [self.client, self.verb, self.key, content, f"if at {self.precondition}" if self.precondition else ""]
        text = " ".join(filter(None, parts))
        if self.answer is None:
            return f"{text}: no answer"
        version = self.answer.resource_version or (self.answer.version and self.answer.version.resource_version)
        return f"{text}: {self.answer.status}" + (f" at {version}" if version else "")


class WatchEvent(NamedTuple):
    """``position`` is that in the history when the event arrived."""

    position: int
    type: EventType
    key: str
    version: Version


@dataclass(eq=False, slots=True)
class WatchSpan:
    """What one watcher received from a list on, over any number of connections, until it had to list again.

    Each connection resumes at ``resource_version``, that of the last event or bookmark.
    """

    watcher: str
    start: Operation
    resource_version: int
    events: list[WatchEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of the API that the history breaks, with what shows it."""

    rule: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.evidence}"


class Crash(NamedTuple):
    """The process ended: what it has not answered until then has happened by now, or never does."""


class History:
    """Records operations, watches and crashes in the order in which they happen."""

    def __init__(self) -> None:
        #: Starts and ends of operations, and crashes. An operation is in it once or twice: it starts, it is answered.
        self.steps: list[Operation | Crash] = []
        self.spans: list[WatchSpan] = []

    @property
    def operations(self) -> list[Operation]:
        """In the order in which they began."""
        begun = enumerate(self.steps)
        return [step for position, step in begun if isinstance(step, Operation) and step.invoked == position]

    def invoke(self, operation: Operation) -> Operation:
        operation.invoked = self._add(operation)
        return operation

    def answer(self, operation: Operation, answer: Answer) -> None:
        operation.answer, operation.returned = answer, self._add(operation)

    def crash(self) -> None:
        self._add(Crash())

    def open_span(self, watcher: str, start: Operation) -> WatchSpan:
        assert start.answer is not None
        span = WatchSpan(watcher, start, start.answer.resource_version)
        self.spans.append(span)
        return span

    def receive(self, span: WatchSpan, type_: EventType, key: str, version: Version) -> None:
        span.events.append(WatchEvent(len(self.steps), type_, key, version))
        span.resource_version = version.resource_version

    def _add(self, step: Operation | Crash) -> int:
        self.steps.append(step)
        return len(self.steps) - 1
