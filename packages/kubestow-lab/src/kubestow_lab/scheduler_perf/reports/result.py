"""The result of a benchmark as data, and its JSON."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import msgspec

from kubestow.errors import InputError
from kubestow.version import VERSION
from kubestow_lab.scheduler_perf.measurements.phase import PhaseResult

__all__ = ["BenchmarkResult", "Machine", "WorkloadResult", "read_result", "this_machine", "write_result"]

_FORMAT = "kubestow-benchmark/v1"


class Machine(msgspec.Struct, rename="camel", frozen=True):
    """The machine of the driver: what has to be equal, or at least known, when results are compared.

    ``load_average`` is that of the last minute before the run.
    """

    processor: str
    processors: int
    system: str
    python: str
    load_average: float | None


class WorkloadResult(msgspec.Struct, rename="camel", frozen=True):
    """The result of one workload; ``seconds`` is the whole run, preparation included."""

    name: str
    parameters: dict[str, Any]
    cluster: str
    scheduler: str
    started: str
    seconds: float
    left_out_feature_gates: list[str] = []
    phases: list[PhaseResult] = []


class BenchmarkResult(msgspec.Struct, rename="camel", frozen=True):
    """The results of all workloads of one call. ``failures`` has the error of each workload that failed."""

    machine: Machine
    workloads: list[WorkloadResult]
    failures: dict[str, str] = {}
    kubestow: str = VERSION
    format: str = _FORMAT


def this_machine() -> Machine:
    """The machine of this process."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Machine(_processor(), os.cpu_count() or 1, platform.platform(), platform.python_version(), load)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_result(result: BenchmarkResult) -> bytes:
    """The result as JSON."""
    return msgspec.json.format(msgspec.json.encode(result)) + b"\n"


def read_result(file: Path) -> BenchmarkResult:
    """A result that was written as JSON. Raises InputError."""
    try:
        result = msgspec.json.decode(file.read_bytes(), type=BenchmarkResult)
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(file), f"expected a result of kubestow bench -o json: {error}") from None
    if result.format != _FORMAT:
        raise InputError(str(file), f"expected the format {_FORMAT}, got {result.format!r}")
    return result
