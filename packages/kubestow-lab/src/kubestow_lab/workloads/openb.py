"""Reader for the public trace of Alibaba's GPU cluster "openb".

A directory with one node list and one of several pod lists (CSV) becomes a workload: every pod of the list is submitted
in order of creation, regardless of its fate in the trace. The trace has no zones, taints, priorities or scheduling
gates, and none are added. :mod:`kubestow_lab.workloads.gpu` builds the Kubernetes objects.

An invalid file raises InputError with file, line, column and the expected value.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubestow.errors import InputError
from kubestow.files import read_file
from kubestow_lab.workloads import gpu
from kubestow_lab.workloads.gpu import NodeShape, PodShape
from kubestow_lab.workloads.openb_shapes import ATTRIBUTION
from kubestow_lab.workloads.workload import DURATION, Object, Workload

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_TIME_COLUMNS = ("creation_time", "deletion_time")
_NODE_LIST, _POD_LIST = "openb_node_list_{}.csv", "openb_pod_list_{}.csv"
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_INTEGER = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class TracePod:
    """A row of a pod list.

    ``created`` is in seconds since the start of the trace. ``duration`` is the run time in seconds, or the waiting time
    of a pod that never ran; None if the list has no times.
    """

    name: str
    shape: PodShape
    created: int = 0
    duration: int | None = None


def list_files(directory: Path, *, pod_list: str, node_list: str) -> tuple[Path, Path]:
    """The files of a node list and a pod list by their short names. Raises InputError with the available lists."""
    return _list_file(directory, _NODE_LIST, node_list), _list_file(directory, _POD_LIST, pod_list)


def read(directory: Path, *, pod_list: str = "default", node_list: str = "gpu_node", timed: bool = False) -> Workload:
    """Read the cluster and workload of a trace directory; lists have short names, such as ``gpuspec33``.

    With ``timed``, pods have their run time in the annotation ``kubestow.dev/duration`` for simulated nodes. Raises
    InputError for missing and invalid files.
    """
    node_file, pod_file = list_files(directory, pod_list=pod_list, node_list=node_list)
    nodes = [gpu.node(name, shape) for name, shape in read_nodes(node_file)]
    pods: list[Object] = []
    for pod in sorted(read_pods(pod_file, timed=timed), key=lambda pod: pod.created):
        pods.append(gpu.pod(pod.name, pod.shape))
        if timed and pod.duration is not None:
            pods[-1]["metadata"]["annotations"] = {DURATION: f"{pod.duration}s"}
    return Workload(
        title=f"openb, {len(nodes):,} nodes and the {len(pods):,} pods of the list {pod_list!r}",
        attribution=ATTRIBUTION,
        nodes=tuple(nodes),
        pods=tuple(pods),
    )


def read_nodes(path: Path) -> Iterator[tuple[str, NodeShape]]:
    """The name and shape of each node of a node list. Raises InputError."""
    for row in _rows(path, _NODE_COLUMNS):
        shape = NodeShape(row.integer("cpu_milli"), row.integer("memory_mib"), row.integer("gpu"), row.text("model"))
        if bool(shape.gpus) != bool(shape.model):
            raise row.error("model", "a GPU model if and only if the node has GPUs")
        yield row.name("sn"), shape


def read_pods(path: Path, *, timed: bool = False) -> Iterator[TracePod]:
    """Each pod of a pod list, in file order; ``timed`` requires the time columns. Raises InputError."""
    for row in _rows(path, (*_POD_COLUMNS, *_TIME_COLUMNS) if timed else _POD_COLUMNS):
        yield TracePod(
            name=row.name("name"),
            shape=_pod_shape(row),
            created=row.integer("creation_time") if row.text("creation_time") else 0,
            duration=_duration(row),
        )


def _list_file(directory: Path, pattern: str, name: str) -> Path:
    """The file of a list. Raises InputError with the available lists."""
    if not directory.is_dir():
        raise InputError(str(directory), "no such directory, expected the CSV files of cluster-trace-gpu-v2023")
    path = directory / pattern.format(name)
    if path.is_file():
        return path
    prefix, suffix = pattern.split("{}")
    lists = sorted(p.name.removeprefix(prefix).removesuffix(suffix) for p in directory.glob(pattern.format("*")))
    raise InputError(str(path), f"no such file, available lists: {', '.join(lists) or 'none'}")


def _pod_shape(row: _Row) -> PodShape:
    gpus, gpu_milli = row.integer("num_gpu"), row.integer("gpu_milli")
    if (gpus == 0 and gpu_milli) or (gpus == 1 and not 0 < gpu_milli <= 1000) or (gpus > 1 and gpu_milli != 1000):
        raise row.error("gpu_milli", "0 for a pod without GPUs, 1 to 1000 for one GPU, 1000 for several")
    qos = row.text("qos") or "Burstable"
    if qos not in gpu.QOS_CLASSES:
        raise row.error("qos", f"one of {', '.join(gpu.QOS_CLASSES)}")
    models = tuple(dict.fromkeys(filter(None, row.text("gpu_spec").split("|"))))
    return PodShape(row.integer("cpu_milli"), row.integer("memory_mib"), gpus, gpu_milli, qos, models)


def _duration(row: _Row) -> int | None:
    if not row.text("deletion_time"):
        return None
    start = "scheduled_time" if row.text("scheduled_time") else "creation_time"
    duration = row.integer("deletion_time") - row.integer(start)
    if duration < 0:
        raise row.error("deletion_time", f"a time not earlier than {start}")
    return duration


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a CSV file with its position, for error messages."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """The text of a cell; empty if the file has no such column."""
        return self.cells.get(column, "").strip()

    def integer(self, column: str) -> int:
        """The value of a cell as a non-negative integer."""
        text = self.text(column)
        if not _INTEGER.fullmatch(text):
            raise self.error(column, "an integer")
        return int(text)

    def name(self, column: str) -> str:
        """The value of a cell as a Kubernetes object name."""
        text = self.text(column)
        if not _OBJECT_NAME.fullmatch(text):
            raise self.error(column, 'a name of lower case letters, digits and "-"')
        return text

    def error(self, column: str, expected: str) -> InputError:
        """The error for an invalid cell."""
        problem = f"expected {expected}, got {self.text(column)!r}"
        return InputError(str(self.path), problem, place=f"line {self.line}, column {column}")


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    """The rows of a CSV file with at least these columns, unique values in the first of them, and at least one row."""
    try:
        with io.StringIO(read_file(path).decode("utf-8-sig"), newline="") as file:
            reader = csv.DictReader(file, strict=True)
            found, expected = reader.fieldnames or (), f"expected the columns {', '.join(columns)}"
            if not found:
                raise InputError(str(path), f"is empty, {expected}", place="line 1")
            for missing in (column for column in columns if column not in found):
                raise InputError(str(path), f"missing, {expected}", place=f"line 1, column {missing}")
            row, seen = None, set[str]()
            for cells in reader:
                row = _Row(path, reader.line_num, {k: v for k, v in cells.items() if k is not None and v is not None})
                if None in cells:
                    raise InputError(str(path), "has more values than columns", place=f"line {row.line}")
                for missing in (column for column in columns if column not in row.cells):
                    raise InputError(str(path), "missing value", place=f"line {row.line}, column {missing}")
                if row.text(columns[0]) in seen:
                    raise row.error(columns[0], "a unique name")
                seen.add(row.text(columns[0]))
                yield row
    except UnicodeDecodeError:
        raise InputError(str(path), "not UTF-8 text") from None
    except csv.Error as error:
        raise InputError(str(path), f"invalid CSV: {error}", place=f"line {reader.line_num}") from None
    if row is None:
        raise InputError(str(path), "has a header but no rows", place="line 2")
