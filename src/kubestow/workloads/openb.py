"""Alibaba's GPU cluster "openb", read from the files of its public trace.

A folder with one node list and one of several pod lists (CSV) becomes a workload: every pod of the list, whatever
became of it in the trace, is submitted afresh in order of its creation. The trace has no zones, taints, priorities or
gates, and none are invented here. What shapes become as Kubernetes objects is :mod:`kubestow.workloads.gpu`'s business.

A file that is not what it claims to be raises InputError naming file, line, column and what was expected there.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubestow.errors import InputError
from kubestow.workloads import gpu
from kubestow.workloads.gpu import NodeShape, PodShape
from kubestow.workloads.openb_shapes import ATTRIBUTION
from kubestow.workloads.workload import DURATION, Object, Workload

__all__ = ["TracedPod", "read", "read_nodes", "read_pods"]

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_TIME_COLUMNS = ("creation_time", "deletion_time")
_NODE_LIST, _POD_LIST = "openb_node_list_{}.csv", "openb_pod_list_{}.csv"
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WHOLE = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class TracedPod:
    """A row of a pod list. ``created`` is in seconds from the start of the trace; ``duration`` is for how many seconds
    the pod ran, or, if it never ran, for how long it waited; absent where the list has no times."""

    name: str
    shape: PodShape
    created: int = 0
    duration: int | None = None


def read(folder: Path, *, pod_list: str = "default", node_list: str = "gpu_node", timed: bool = False) -> Workload:
    """The cluster and workload in a trace folder; lists go by their short names, such as ``gpuspec33``.

    With ``timed``, pods carry how long they run (the annotation ``kubestow.dev/duration``) for simulated nodes to
    honour. Raises InputError when a file is missing or malformed.
    """
    nodes = [gpu.node(name, shape) for name, shape in read_nodes(_listed(folder, _NODE_LIST, node_list))]
    path = _listed(folder, _POD_LIST, pod_list)
    pods = sorted(read_pods(path, timed=timed), key=lambda pod: pod.created)
    return Workload(
        title=f"openb, {len(nodes):,} nodes and the {len(pods):,} pods of the list {pod_list!r}",
        attribution=ATTRIBUTION,
        nodes=tuple(nodes),
        pods=tuple(_submitted(pod, timed=timed) for pod in pods),
    )


def read_nodes(path: Path) -> Iterator[tuple[str, NodeShape]]:
    """The name and shape of each node of a node list. Raises InputError."""
    for row in _rows(path, _NODE_COLUMNS):
        shape = NodeShape(row.whole("cpu_milli"), row.whole("memory_mib"), row.whole("gpu"), row.text("model"))
        if bool(shape.gpus) != bool(shape.model):
            raise row.wrong("model", "a GPU model if the node has GPUs, and none if it has not")
        yield row.name("sn"), shape


def read_pods(path: Path, *, timed: bool = False) -> Iterator[TracedPod]:
    """Each pod of a pod list, in the file's order; ``timed`` insists on the columns with times. Raises InputError."""
    for row in _rows(path, (*_POD_COLUMNS, *_TIME_COLUMNS) if timed else _POD_COLUMNS):
        yield TracedPod(
            name=row.name("name"),
            shape=_pod_shape(row),
            created=row.whole("creation_time") if row.text("creation_time") else 0,
            duration=_duration(row),
        )


def _listed(folder: Path, pattern: str, name: str) -> Path:
    """The file of a list, or an error that says which lists there are."""
    if not folder.is_dir():
        raise InputError(str(folder), "no such folder (expected the CSV files of Alibaba's cluster-trace-gpu-v2023)")
    path = folder / pattern.format(name)
    if path.is_file():
        return path
    prefix, suffix = pattern.split("{}")
    lists = sorted(p.name.removeprefix(prefix).removesuffix(suffix) for p in folder.glob(pattern.format("*")))
    raise InputError(str(path), f"no such file (lists found in this folder: {', '.join(lists) or 'none'})")


def _submitted(pod: TracedPod, *, timed: bool) -> Object:
    manifest = gpu.pod(pod.name, pod.shape)
    if timed and pod.duration is not None:
        manifest["metadata"]["annotations"] = {DURATION: f"{pod.duration}s"}
    return manifest


def _pod_shape(row: _Row) -> PodShape:
    gpus, gpu_milli = row.whole("num_gpu"), row.whole("gpu_milli")
    if (gpus == 0 and gpu_milli) or (gpus == 1 and not 0 < gpu_milli <= 1000) or (gpus > 1 and gpu_milli != 1000):
        raise row.wrong("gpu_milli", "0 for a pod without GPUs, 1 to 1000 for one GPU, 1000 for several")
    qos = row.text("qos") or "Burstable"
    if qos not in gpu.QOS_CLASSES:
        raise row.wrong("qos", f"one of {', '.join(gpu.QOS_CLASSES)}")
    models = tuple(dict.fromkeys(filter(None, row.text("gpu_spec").split("|"))))
    return PodShape(row.whole("cpu_milli"), row.whole("memory_mib"), gpus, gpu_milli, qos, models)


def _duration(row: _Row) -> int | None:
    if not row.text("deletion_time"):
        return None
    start = "scheduled_time" if row.text("scheduled_time") else "creation_time"
    duration = row.whole("deletion_time") - row.whole(start)
    if duration < 0:
        raise row.wrong("deletion_time", f"a time not before {start}")
    return duration


@dataclass(frozen=True, slots=True)
class _Row:
    """A row that knows where it stands, so that what is wrong with it can be pointed at."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """The cell's text, empty where the file has no such column."""
        return self.cells.get(column, "").strip()

    def whole(self, column: str) -> int:
        """The cell as a number that is whole and not negative."""
        text = self.text(column)
        if not _WHOLE.fullmatch(text):
            raise self.wrong(column, "a whole number")
        return int(text)

    def name(self, column: str) -> str:
        """The cell as the name of a Kubernetes object."""
        text = self.text(column)
        if not _OBJECT_NAME.fullmatch(text):
            raise self.wrong(column, 'a name of lower case letters, digits and "-"')
        return text

    def wrong(self, column: str, expected: str) -> InputError:
        """The error to raise about a cell."""
        problem = f"expected {expected}, found {self.text(column)!r}"
        return InputError(str(self.path), problem, place=f"line {self.line}, column {column}")


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    """The rows of a CSV file that has at least these columns, the first of them without repetition, and at least one
    row."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            _check_header(path, reader.fieldnames or (), columns)
            row, seen = None, set[str]()
            for cells in reader:
                row = _Row(path, reader.line_num, {k: v for k, v in cells.items() if k is not None and v is not None})
                _check_length(row, cells, columns)
                if row.text(columns[0]) in seen:
                    raise row.wrong(columns[0], "a name that no row above has")
                seen.add(row.text(columns[0]))
                yield row
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(str(path), "not a CSV file in UTF-8") from None
    except csv.Error as error:
        raise InputError(str(path), f"not a CSV file: {error}", place=f"line {reader.line_num}") from None
    if row is None:
        raise InputError(str(path), "has a header but no rows", place="line 2")


def _check_header(path: Path, found: Sequence[str], columns: tuple[str, ...]) -> None:
    if not found:
        raise InputError(str(path), f"is empty (expected the columns {', '.join(columns)})", place="line 1")
    missing = [column for column in columns if column not in found]
    if missing:
        problem = f"missing (the columns expected are {', '.join(columns)})"
        raise InputError(str(path), problem, place=f"line 1, column {missing[0]}")


def _check_length(row: _Row, cells: dict[str | None, object], columns: tuple[str, ...]) -> None:
    if None in cells:
        raise InputError(str(row.path), "has more values than the header has columns", place=f"line {row.line}")
    short = [column for column in columns if column not in row.cells]
    if short:
        raise InputError(str(row.path), "the row ends before it", place=f"line {row.line}, column {short[0]}")
