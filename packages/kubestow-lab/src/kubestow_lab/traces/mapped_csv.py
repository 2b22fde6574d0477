"""Any CSV file of jobs or pods with a header, and a mapping file that says which column is what.

The mapping is YAML. Each amount is a column, a column with a factor, or a fixed value::

    name: job_id                                 # optional; rows are numbered without it
    created: {column: submit_time, datetime: true}    # or seconds, with a factor for other units
    duration: {column: minutes, factor: 60}      # optional: pods without one do not end
    count: workers                               # optional: pods of the row, 1 by default
    cpu: cores                                   # cores of a pod
    memory: {column: mem_mb, factor: 0.0009765625}    # optional, GiB of a pod
    gpus: {value: 1}                             # optional; below 1 is a share of one GPU
    gpu-model: model                             # optional column: the GPU models that it may have, with | between
    priority: prio                               # optional
    queue: team                                  # optional column
    gang: true                                   # optional: the pods of a row are a gang, with --assume gangs=true
    nodes: {count: 100, cpu: 64, memory: 256, gpus: 8}    # or {file: nodes.csv, name: host, cpu: …}, beside the mapping
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.engine.input.documents import convert_part, read_yaml
from kubestow.errors import InputError
from kubestow_lab.traces.tables import Row, object_name, rows
from kubestow_lab.traces.trace import (
    Assumptions,
    ClusterTrace,
    PodTemplate,
    Task,
    TracedNode,
    gpu_amounts,
    uniform_nodes,
)
from kubestow_lab.workloads.gpu import NodeShape, PodShape


class _Amount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a number comes from: a column times a factor, or a value."""

    column: str = ""
    factor: float = 1.0
    value: float | None = None
    datetime: bool = False

    def __post_init__(self) -> None:
        if bool(self.column) == (self.value is not None):
            raise ValueError("expected either a column or a value")

    def of(self, row: Row) -> float:
        """The amount in a row; a cell without a value counts as 0. Raises InputError."""
        if self.value is not None:
            return self.value
        return row.moment(self.column) if self.datetime else self.factor * row.number(self.column, default=0)


_Source = str | float | _Amount


class _Nodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    cpu: _Source
    memory: _Source = 1024.0
    gpus: _Source = 0.0
    gpu_model: str = ""
    count: int = 0
    file: str = ""
    name: str = ""


class _Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    created: _Source
    cpu: _Source
    nodes: _Nodes
    name: str = ""
    duration: _Source | None = None
    count: _Source = 1.0
    memory: _Source = 0.0
    gpus: _Source = 0.0
    gpu_model: str = ""
    priority: _Source = 0.0
    queue: str = ""
    gang: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvAssumptions(Assumptions):
    """What no mapping says: all is in the mapping."""


def read(path: Path, mapping_file: Path, assumed: CsvAssumptions) -> ClusterTrace:
    """Read a CSV file by a mapping. Raises InputError with file, line and column."""
    mapping: _Mapping = convert_part(read_yaml(mapping_file), _Mapping, subject=str(mapping_file))
    fields = {name: _amount(value) for name, value in _sources(mapping)}
    columns = [amount.column for amount in fields.values() if amount.column]
    columns += [column for column in (mapping.name, mapping.gpu_model, mapping.queue) if column]
    tasks = []
    for row in rows(path, list(dict.fromkeys(columns))):
        amounts = {name: amount.of(row) for name, amount in fields.items()}
        gpus, gpu_milli = gpu_amounts(amounts["gpus"])
        models = tuple(filter(None, row.text(mapping.gpu_model).split("|"))) if gpus and mapping.gpu_model else ()
        shape = PodShape(
            math.ceil(1000 * amounts["cpu"]),
            math.ceil(1024 * amounts["memory"]),
            gpus,
            gpu_milli,
            "Burstable",
            tuple(object_name(model) for model in models),
        )
        count = int(amounts["count"])
        name = object_name(row.text(mapping.name)) if mapping.name else f"row-{row.line}"
        template = PodTemplate(shape, int(amounts["priority"]))
        queue = row.text(mapping.queue) if mapping.queue else ""
        is_gang = mapping.gang and count > 1
        tasks.append(Task(name, template, amounts["created"], amounts.get("duration"), count, queue, is_gang))
    return ClusterTrace(path.name, _nodes(mapping.nodes, mapping_file), tasks)


def _sources(mapping: _Mapping) -> list[tuple[str, _Source]]:
    names = ("created", "duration", "count", "cpu", "memory", "gpus", "priority")
    values = ((name, getattr(mapping, name)) for name in names)
    return [(name, value) for name, value in values if value is not None]


def _amount(source: _Source) -> _Amount:
    match source:
        case str():
            return _Amount(column=source)
        case _Amount():
            return source
    return _Amount(value=float(source))


def _nodes(nodes: _Nodes, mapping_file: Path) -> list[TracedNode]:
    sources: dict[str, Any] = {name: _amount(getattr(nodes, name)) for name in ("cpu", "memory", "gpus")}
    if not nodes.file:
        missing = [name for name, amount in sources.items() if amount.value is None]
        if missing or nodes.count < 1:
            problem = "expected count and fixed amounts, or a file"
            raise InputError(str(mapping_file), problem, place="nodes" + (f".{missing[0]}" if missing else ".count"))
        values = {name: amount.value for name, amount in sources.items()}
        return uniform_nodes(nodes.count, _node_shape(values, object_name(nodes.gpu_model or "gpu")))
    columns = [amount.column for amount in sources.values() if amount.column]
    columns += [column for column in (nodes.name, nodes.gpu_model) if column]
    result = []
    for row in rows(mapping_file.parent / nodes.file, columns, unique=nodes.name):
        name = object_name(row.text(nodes.name)) if nodes.name else f"node-{row.line}"
        model = object_name(row.text(nodes.gpu_model) if nodes.gpu_model else "gpu")
        result.append(TracedNode(name, _node_shape({n: amount.of(row) for n, amount in sources.items()}, model)))
    return result


def _node_shape(amounts: dict[str, float], model: str) -> NodeShape:
    gpus = int(amounts["gpus"])
    return NodeShape(int(1000 * amounts["cpu"]), int(1024 * amounts["memory"]), gpus, model if gpus else "")
