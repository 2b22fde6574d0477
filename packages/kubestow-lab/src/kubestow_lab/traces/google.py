"""Google's cluster traces: clusterdata-2011 (CSV tables without headers), and Borg 2019 (exports of BigQuery in JSON).

The formats are documented with the traces, at https://github.com/google/cluster-data: "Google cluster-usage traces:
format + schema" for 2011, and clusterdata_trace_format_v3.proto for 2019. Capacities and requests are normalised to the
largest machine; names and attributes are hashed.

A task is one pod, however often it was evicted or failed and was submitted again: created when it was first submitted,
and as long as the time that it ran in all. Machines that were added at any time are there from the start.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from kubestow.errors import InputError
from kubestow.files import MAX_DUMP, as_utf8, read_file
from kubestow_lab.traces.tables import find_table, rows
from kubestow_lab.traces.trace import Assumptions, ClusterTrace, PodTemplate, Requirement, Task, TracedNode, assumption
from kubestow_lab.workloads.gpu import NodeShape, PodShape

_ATTRIBUTION = "Google, cluster-data {} (CC-BY 4.0)"
_MICROSECONDS = 1e6
#: Timestamps from here on stand for "after the end of the trace", 2**63 - 1.
_AFTER_THE_END = float(2**62)

_MACHINE_EVENTS = ("timestamp", "machine ID", "event type", "platform ID", "CPU", "memory")
_MACHINE_ATTRIBUTES = ("timestamp", "machine ID", "attribute name", "attribute value", "attribute deleted")
_TASK_EVENTS = (
    "timestamp",
    "missing info",
    "job ID",
    "task index",
    "machine ID",
    "event type",
    "user name",
    "scheduling class",
    "priority",
    "CPU request",
    "memory request",
    "disk space request",
    "different-machine constraint",
)
#: As the published schema.csv has them; the document about the format lists the operator last.
_TASK_CONSTRAINTS = (
    "timestamp",
    "job ID",
    "task index",
    "comparison operator",
    "attribute name",
    "attribute value",
)


class _Event(Enum):
    """What happened to a task, as far as its times depend on it."""

    SUBMIT = "submit"
    START = "start"
    STOP = "stop"
    OTHER = "other"


_EVENTS_2011 = [_Event.SUBMIT, _Event.START, *(_Event.STOP,) * 5, *(_Event.OTHER,) * 2]
#: SUBMIT, QUEUE, ENABLE, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE_PENDING, UPDATE_RUNNING.
_NAMES_2019 = [
    "SUBMIT",
    "QUEUE",
    "ENABLE",
    "SCHEDULE",
    "EVICT",
    "FAIL",
    "FINISH",
    "KILL",
    "LOST",
    "UPDATE_PENDING",
    "UPDATE_RUNNING",
]
_EVENTS_2019 = [
    _Event.SUBMIT,
    *(_Event.OTHER,) * 2,
    _Event.START,
    *(_Event.STOP,) * 5,
    *(_Event.OTHER,) * 2,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleAssumptions(Assumptions):
    """What the normalised traces do not say."""

    cpu: float = assumption(64.0, "cores of a machine with the capacity 1")
    memory: float = assumption(256.0, "GiB of a machine with the capacity 1")
    machines: str = assumption("all", "all: machines added at any time; start: those of the first moment")
    constraints: bool = assumption(True, "tasks' constraints on attributes of machines are required node affinities")


@dataclass(frozen=True, slots=True, kw_only=True)
class Google2019Assumptions(GoogleAssumptions):
    """What the trace of 2019 does not say in addition."""

    allocs: str = assumption("reserve", "reserve: alloc instances are pods, tasks inside them are not; ignore: reverse")


@dataclass(slots=True)
class _Life:
    """What the events of one task say about it."""

    created: float
    ran: float = 0.0
    started: float | None = None
    stopped: float | None = None
    request: tuple[float, float] = (0.0, 0.0)
    priority: int = 0
    is_exclusive: bool = False
    constraints: dict[tuple[str, str], str] = field(default_factory=dict)

    def happened(self, event: _Event, time: float) -> None:
        """Take in an event, in the order of time."""
        if event is _Event.START and self.started is None:
            self.started = time
        elif event is _Event.STOP:
            self.stopped = time
            if self.started is not None:
                self.ran += time - self.started
                self.started = None
        elif event is _Event.SUBMIT:
            self.stopped = None

    @property
    def duration(self) -> float | None:
        """The run time; how long it waited if it never ran; None if it had not ended by the end of the trace."""
        if self.stopped is None:
            return None
        return self.ran or self.stopped - self.created


def read_2011(folder: Path, assumed: GoogleAssumptions) -> ClusterTrace:
    """Read clusterdata-2011: the tables machine_events, task_events, and if they are there, attributes and constraints.

    Raises InputError with file, line and column.
    """
    attributes: dict[str, dict[str, str]] = {}
    for path in _parts(folder, "machine_attributes", is_required=False) if assumed.constraints else ():
        for row in rows(path, _MACHINE_ATTRIBUTES[:3], names=_MACHINE_ATTRIBUTES):
            of_machine = attributes.setdefault(row.text("machine ID"), {})
            if row.text("attribute deleted") == "1":
                of_machine.pop(row.text("attribute name"), None)
            else:
                of_machine[row.text("attribute name")] = row.text("attribute value")
    capacities: dict[str, tuple[float, float]] = {}
    for path in _parts(folder, "machine_events"):
        for row in rows(path, _MACHINE_EVENTS[:3], names=_MACHINE_EVENTS):
            if row.count("event type") == 0 and not (assumed.machines == "start" and row.number("timestamp")):
                capacity = row.number("CPU", default=0), row.number("memory", default=0)
                if all(capacity):
                    capacities.setdefault(row.text("machine ID"), capacity)
    lives: dict[tuple[str, str], _Life] = {}
    for path in _parts(folder, "task_events"):
        for row in rows(path, _TASK_EVENTS[:6], names=_TASK_EVENTS):
            kind = row.count("event type")
            if kind >= len(_EVENTS_2011):
                raise row.error("event type", f"an event from 0 to {len(_EVENTS_2011) - 1}")
            time = row.number("timestamp")
            life = _life(lives, (row.text("job ID"), row.text("task index")), time)
            life.happened(_EVENTS_2011[kind], time)
            if _EVENTS_2011[kind] is _Event.SUBMIT:
                life.request = row.number("CPU request", default=0), row.number("memory request", default=0)
                life.priority = row.count("priority", default=0)
                life.is_exclusive = row.text("different-machine constraint") == "1"
    for path in _parts(folder, "task_constraints", is_required=False) if assumed.constraints else ():
        for row in rows(path, _TASK_CONSTRAINTS[:5], names=_TASK_CONSTRAINTS):
            constrained = lives.get((row.text("job ID"), row.text("task index")))
            operator = row.count("comparison operator")
            if operator > 3:
                raise row.error("comparison operator", "an operator from 0 to 3")
            if constrained is not None:
                constrained.constraints[row.text("attribute name"), _RELATIONS[operator]] = row.text("attribute value")
    limits = {key: 1 for key, life in lives.items() if life.is_exclusive}
    return _trace("2011", capacities, attributes, lives, limits, Counter(), assumed)


def read_2019(folder: Path, assumed: Google2019Assumptions) -> ClusterTrace:
    """Read a cell of the Borg traces of 2019, exported from BigQuery as lines of JSON, compressed or not.

    The tables are instance_events, machine_events, and if they are there, collection_events for limits per machine and
    machine_attributes for constraints. Raises InputError with file, line and field.
    """
    attributes: dict[str, dict[str, str]] = {}
    for record in _records(folder, "machine_attributes", is_required=False) if assumed.constraints else ():
        of_machine = attributes.setdefault(record.text("machine_id"), {})
        if record.get("deleted") in (True, "true"):
            of_machine.pop(record.text("name"), None)
        else:
            of_machine[record.text("name")] = record.text("value")
    capacities: dict[str, tuple[float, float]] = {}
    for record in _records(folder, "machine_events"):
        if record.choice("type", ("UNKNOWN", "ADD", "REMOVE", "UPDATE")) == 1:
            capacity = record.get("capacity") or {}
            amounts = record.number("cpus", capacity), record.number("memory", capacity)
            if all(amounts) and not (assumed.machines == "start" and record.number("time")):
                capacities.setdefault(record.text("machine_id"), amounts)
    at_most: dict[str, int] = {}
    for record in _records(folder, "collection_events", is_required=False):
        if limit := int(record.number("max_per_machine")):
            at_most[record.text("collection_id")] = limit
    lives: dict[tuple[str, str], _Life] = {}
    left_out: Counter[str] = Counter()
    inside: set[tuple[str, str]] = set()
    for record in _records(folder, "instance_events"):
        is_alloc = record.choice("collection_type", ("JOB", "ALLOC_SET")) == 1
        is_in_alloc = int(record.number("alloc_collection_id")) != 0
        key = record.text("collection_id"), record.text("instance_index") or "0"
        if (is_alloc and assumed.allocs == "ignore") or (is_in_alloc and assumed.allocs == "reserve"):
            inside.add(key)
            continue
        time = record.number("time")
        event = _EVENTS_2019[record.choice("type", _NAMES_2019)]
        life = _life(lives, key, time)
        life.happened(event, time)
        requested = record.get("resource_request")
        if requested:
            # Of a task that was scaled while it ran, the largest request: it must have room for it.
            life.request = (
                max(life.request[0], record.number("cpus", requested)),
                max(life.request[1], record.number("memory", requested)),
            )
        life.priority = int(record.number("priority"))
        for constraint in (record.get("constraint") or ()) if assumed.constraints else ():
            relation = _RELATIONS[record.choice("relation", _RELATION_NAMES, constraint)]
            life.constraints[str(constraint.get("name", "")), relation] = str(constraint.get("value") or "")
    if inside:
        left_out["alloc instance" if assumed.allocs == "ignore" else "task inside an alloc instance"] = len(inside)
    limits = {key: at_most[key[0]] for key in lives if key[0] in at_most}
    return _trace("2019", capacities, attributes, lives, limits, left_out, assumed)


def _life(lives: dict[tuple[str, str], _Life], key: tuple[str, str], time: float) -> _Life:
    life = lives.get(key)
    if life is None:
        life = lives[key] = _Life(created=time)
    return life


#: Relations of both traces; those of 2011 are the first four.
_RELATION_NAMES = (
    "EQUAL",
    "NOT_EQUAL",
    "LESS_THAN",
    "GREATER_THAN",
    "LESS_THAN_EQUAL",
    "GREATER_THAN_EQUAL",
    "PRESENT",
    "NOT_PRESENT",
)
_RELATIONS = ("=", "!=", "<", ">", "<=", ">=", "exists", "absent")


def _trace(
    year: str,
    capacities: Mapping[str, tuple[float, float]],
    attributes: Mapping[str, Mapping[str, str]],
    lives: Mapping[tuple[str, str], _Life],
    limits: Mapping[tuple[str, str], int],
    left_out: Counter[str],
    assumed: GoogleAssumptions,
) -> ClusterTrace:
    cpu_unit, memory_unit = 1000 * assumed.cpu, 1024 * assumed.memory
    nodes = [
        TracedNode(
            f"machine-{machine}",
            NodeShape(round(cpu * cpu_unit), round(memory * memory_unit), 0, ""),
            {_label(name): _label_value(value) for name, value in attributes.get(machine, {}).items()},
        )
        for machine, (cpu, memory) in capacities.items()
    ]
    if not nodes:
        raise InputError(f"machine events of {year}", "has no machine with a capacity that was added")
    tasks = []
    for (job, index), life in lives.items():
        shape = PodShape(round(life.request[0] * cpu_unit), round(life.request[1] * memory_unit), 0, 0, "Burstable")
        limit = limits.get((job, index), 0)
        template = PodTemplate(
            shape,
            life.priority,
            tuple(_requirement(*key, value) for key, value in life.constraints.items()),
            app=f"job-{job}" if limit else "",
            most_per_node=limit,
        )
        duration = None if life.duration is None else life.duration / _MICROSECONDS
        tasks.append(Task(f"job-{job}-{index}", template, life.created / _MICROSECONDS, duration))
    return ClusterTrace(_ATTRIBUTION.format(year), nodes, tasks, left_out)


def _requirement(attribute: str, relation: str, value: str) -> Requirement:
    """A constraint as a node affinity. A value of "" stands for an attribute that a machine does not have."""
    label, values = _label(attribute), (_label_value(value),)
    match relation:
        case "=":
            return Requirement(label, "In", values) if value else Requirement(label, "DoesNotExist")
        case "!=":
            return Requirement(label, "NotIn", values) if value else Requirement(label, "Exists")
        case "<" | "<=":
            return Requirement(label, "Lt", (_integer(value, 1 if relation == "<=" else 0),))
        case ">" | ">=":
            return Requirement(label, "Gt", (_integer(value, -1 if relation == ">=" else 0),))
    return Requirement(label, "Exists" if relation == "exists" else "DoesNotExist")


def _integer(value: str, offset: int) -> str:
    """Lt and Gt of node selectors take integers; what is not one compares as 0."""
    try:
        return str(int(float(value)) + offset)
    except (ValueError, OverflowError):
        return str(offset)


def _label(attribute: str) -> str:
    """The label for a hashed attribute, whose name may have characters that labels do not."""
    return f"google.example/{hashlib.sha256(attribute.encode()).hexdigest()[:16]}"


def _label_value(value: str) -> str:
    """Integers are kept, for Lt and Gt; other values, which are hashes, are hashed again."""
    return value if value.lstrip("-").isdigit() and len(value) < 19 else hashlib.sha256(value.encode()).hexdigest()[:16]


def _parts(folder: Path, table: str, *, is_required: bool = True) -> list[Path]:
    return find_table(folder, f"{table}/part-*.csv", f"{table}*.csv", is_required=is_required)


@dataclass(frozen=True, slots=True)
class _Record:
    """A line of an export with its position. BigQuery writes 64-bit integers as strings and leaves out nulls."""

    path: Path
    line: int
    values: Mapping[str, Any]

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return "" if value is None else str(value)

    def number(self, name: str, values: Mapping[str, Any] | None = None) -> float:
        """A number, 0 if there is none. Raises InputError."""
        value = (self.values if values is None else values).get(name)
        try:
            number = 0.0 if value is None else float(value)
        except (TypeError, ValueError):
            raise self._error(name, "a number", value) from None
        return min(number, _AFTER_THE_END) if number == number else 0.0

    def choice(self, name: str, names: Iterable[str], values: Mapping[str, Any] | None = None) -> int:
        """The position of a value, a name or a number, among the names of an enumeration. Raises InputError."""
        value = (self.values if values is None else values).get(name)
        known = list(names)
        if value is None:
            return 0
        text = str(value)
        if text in known:
            return known.index(text)
        if text.isdigit() and int(text) < len(known):
            return int(text)
        raise self._error(name, f"one of {', '.join(known)}", value)

    def _error(self, name: str, expected: str, value: Any) -> InputError:
        problem = f"expected {expected}, got {str(value)[:100]!r}"
        return InputError(str(self.path), problem, place=f"line {self.line}, field {name}")


def _records(folder: Path, table: str, *, is_required: bool = True) -> Iterator[_Record]:
    for path in find_table(folder, f"{table}/*.json", f"{table}*.json", f"{table}*.jsonl", is_required=is_required):
        content = as_utf8(read_file(path, limit=MAX_DUMP), str(path))
        for number, line in enumerate(io.BytesIO(content), start=1):
            if not line.strip():
                continue
            try:
                values = msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(str(path), f"expected an object in JSON: {error}", place=f"line {number}") from None
            yield _Record(path, number, values)
