"""Test cases: a list of operations (the workload template) and the workloads that run it with their parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.config.document import Document, DocumentError, parse_document
from kubestow.errors import InputError
from kubestow_lab.scheduler_perf import operations
from kubestow_lab.scheduler_perf.operations import Operation, Parameters, resolved

#: The place in the data that msgspec appends to its messages.
_PLACE = re.compile(r" - at `\$(.*)`$")


class WorkloadCase(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A workload: the parameters of one run of a test case.

    ``threshold`` is the throughput that scheduler_perf's CI demands; here it has no effect.
    """

    name: str
    params: dict[str, Any] = {}
    feature_gates: dict[str, bool] = {}
    labels: list[str] = []
    threshold: float | dict[str, float] | None = None
    threshold_metric_selector: dict[str, Any] | None = None


class TestCase(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A test case of a workload file."""

    __test__ = False  # not a test of pytest

    name: str
    workload_template: list[Operation]
    workloads: list[WorkloadCase]
    default_pod_template_path: str = ""
    scheduler_config_path: str = ""
    feature_gates: dict[str, bool] = {}
    labels: list[str] = []
    metrics_collector_config: dict[str, Any] | None = None
    default_threshold_metric_selector: dict[str, Any] | None = None


@dataclass(frozen=True)
class WorkloadPlan:
    """One workload to run: the test case with the parameters of the workload and of the command line.

    Template paths are relative to the folder of ``file``.
    """

    file: Path
    case: TestCase
    workload: WorkloadCase
    parameters: Parameters

    @property
    def name(self) -> str:
        """Test case and workload, such as ``SchedulingBasic/500Nodes``."""
        return f"{self.case.name}/{self.workload.name}"

    @property
    def labels(self) -> frozenset[str]:
        """The labels of the test case and of the workload."""
        return frozenset(self.case.labels) | frozenset(self.workload.labels)

    @property
    def feature_gates(self) -> dict[str, bool]:
        """The feature gates of the test case, overridden by those of the workload."""
        return self.case.feature_gates | self.workload.feature_gates

    @property
    def scheduler_configuration(self) -> Path | None:
        """The configuration of the scheduler for this test case, if it has one."""
        path = self.case.scheduler_config_path
        return self.path(path) if path else None

    def path(self, relative: str) -> Path:
        """The path of a template or configuration that the file refers to."""
        return self.file.parent / relative

    def operations(self) -> list[tuple[int, Operation]]:
        """The operations with their values, and the index of each in the template.

        A ``createPodSets`` is replaced by its ``createPods``, one per namespace. Raises InputError.
        """
        subject = f"{self.file}: {self.name}"
        found: list[tuple[int, Operation]] = []
        for index, operation in enumerate(self.case.workload_template):
            operation = resolved(operation, self.parameters, subject=f"{subject}: workloadTemplate[{index}]")
            if not isinstance(operation, operations.CreatePodSets):
                found.append((index, operation))
                continue
            inner = resolved(
                operation.create_pods_op, self.parameters, subject=f"{subject}: workloadTemplate[{index}].createPodsOp"
            )
            for number in range(operation.count):
                namespace = f"{operation.namespace_prefix}-{number}"
                found.append((index, msgspec.structs.replace(inner, namespace=namespace)))
        return found

    def template_paths(self) -> set[Path]:
        """The templates that the workload uses."""
        relative = {self.case.default_pod_template_path}
        for _, operation in self.operations():
            relative |= {
                getattr(operation, name)
                for name in operation.__struct_fields__
                if name.endswith("template_path") and getattr(operation, name)
            }
            if isinstance(operation, operations.Churn):
                relative |= set(operation.template_paths)
        return {self.path(path) for path in relative if path}

    @property
    def is_measured(self) -> bool:
        """Whether any operation collects metrics."""
        return any(
            (isinstance(operation, operations.CreatePods) and operation.collect_metrics)
            or isinstance(operation, operations.StartCollectingMetrics)
            for _, operation in self.operations()
        )


def read_document(file: Path) -> Document:
    """The content of a YAML or JSON file. Raises InputError."""
    try:
        return parse_document(file.read_bytes())
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {error.strerror or error}") from None
    except DocumentError as error:
        raise InputError(str(file), str(error)) from None


def read_test_cases(file: Path) -> list[TestCase]:
    """The test cases of a workload file. Raises InputError with the file, the place and what was expected."""
    document = read_document(file)
    if not isinstance(document.data, list):
        raise InputError(str(file), "expected a list of test cases")
    for duplicate in document.duplicates:
        raise InputError(str(file), duplicate.message, place=_place(document, duplicate.path))
    try:
        cases = msgspec.convert(document.data, list[TestCase])
    except msgspec.ValidationError as error:
        raise _input_error(file, document, str(error)) from None
    _check_names(file, document, cases)
    return cases


def _input_error(file: Path, document: Document, message: str) -> InputError:
    found = _PLACE.search(message)
    path = found[1] if found else ""
    problem = _PLACE.sub("", message)
    problem = problem[:1].lower() + problem[1:]
    if path.endswith(".opcode") or (problem.endswith("`opcode`") and "missing" in problem):
        problem += f"; expected one of {', '.join(sorted(operations.OPCODES))}"
    return InputError(str(file), problem, place=_place(document, path))


def _place(document: Document, path: str) -> str:
    position = document.position_of(path)
    return path if position is None else f"line {position.line}: {path}"


def _check_names(file: Path, document: Document, cases: list[TestCase]) -> None:
    names: set[str] = set()
    for index, case in enumerate(cases):
        if not case.workload_template:
            raise InputError(str(file), "expected at least one operation", place=_place(document, f"[{index}]"))
        for number, workload in enumerate(case.workloads):
            name = f"{case.name}/{workload.name}"
            if name in names:
                place = _place(document, f"[{index}].workloads[{number}].name")
                raise InputError(str(file), f"another workload has the name {name}", place=place)
            names.add(name)
