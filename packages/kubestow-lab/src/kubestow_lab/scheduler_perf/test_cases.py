"""Test cases: a list of operations (the workload template) and the workloads that run it with their parameters.

They are installed with the package, or in a file or folder that is named; a :class:`Selection` says which ones to run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kubestow.config.document import Document, DocumentError, parse_document
from kubestow.errors import InputError
from kubestow.files import read_file
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
        return parse_document(read_file(file))
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


# -- selection ---------------------------------------------------------------------------------------------------------

#: The name of workload files in a folder in scheduler_perf's layout.
_FILE_NAME = "performance-config.yaml"


@dataclass(frozen=True)
class Selection:
    """Which workloads to run, and with which parameters.

    ``names`` are test cases (``SchedulingBasic``), workloads (``SchedulingBasic/500Nodes``), or workload files and
    folders of these. ``label_filter`` is spelled as in scheduler_perf: ``performance,-short`` selects workloads that
    have the first label and not the second. ``name_filter`` is a regular expression, which is searched in
    ``test case/workload``. ``overrides`` are assignments such as ``nodes=500``; ``nodes``, ``pods`` and ``init`` also
    stand for the usual longer names.
    """

    names: Sequence[str] = ()
    name_filter: str = ""
    label_filter: str = ""
    overrides: Sequence[str] = ()

    def accepts(self, plan: WorkloadPlan) -> bool:
        """Whether the filters accept a workload."""
        try:
            if re.search(self.name_filter, plan.name) is None:
                return False
        except re.error as error:
            raise InputError("--filter", f"expected a regular expression: {error}") from None
        terms = [term for term in self.label_filter.split(",") if term]
        return all((term.lstrip("+-") in plan.labels) != term.startswith("-") for term in terms)


#: Short names of parameters: the first one that a workload has is meant.
_ALIASES = {
    "nodes": ("initNodes", "normalNodes", "nodesWithDRA"),
    "pods": ("measurePods",),
    "init": ("initPods",),
}


def plans(selection: Selection) -> list[WorkloadPlan]:
    """The selected workloads in the order of the names. Raises InputError for unknown names and invalid files.

    Without names, all installed workloads are selected.
    """
    found = [plan for name in selection.names or ("",) for plan in _named(name)]
    accepted = [plan for plan in found if selection.accepts(plan)]
    if not accepted:
        filters = [text for text in (selection.name_filter, selection.label_filter) if text]
        raise InputError("--filter, --labels", f"no workload matches {' and '.join(filters)}")
    return [_with_overrides(plan, selection.overrides) for plan in accepted]


def _named(name: str) -> list[WorkloadPlan]:
    """The workloads of a file, of a folder, of an installed test case, or the installed one of this name."""
    path = Path(name)
    if name and (path.suffix in (".yaml", ".yml") or path.exists()):
        paths = [path] if not path.is_dir() else sorted(path.rglob(_FILE_NAME)) or sorted(path.glob("*.yaml"))
        if not paths:
            raise InputError(str(path), f"expected a workload file, or a folder with files named {_FILE_NAME}")
        return _plans(paths)
    installed = _installed()
    selected = [plan for plan in installed if name in ("", plan.case.name, plan.name)]
    if selected:
        return selected
    case = name.partition("/")[0]
    others = sorted(
        {plan.name for plan in installed if plan.case.name == case} or {plan.case.name for plan in installed}
    )
    raise InputError(name, f"no such file or installed workload; there are {', '.join(others)}")


def _plans(files: Iterable[Path]) -> list[WorkloadPlan]:
    return [
        WorkloadPlan(file, case, workload, workload.params)
        for file in files
        for case in read_test_cases(file)
        for workload in case.workloads
    ]


@cache
def _installed() -> list[WorkloadPlan]:
    return _plans(sorted(Path(__file__).with_name("workloads").glob("*.yaml")))


def _with_overrides(plan: WorkloadPlan, overrides: Sequence[str]) -> WorkloadPlan:
    parameters = dict(plan.parameters)
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise InputError("--param", f"expected NAME=VALUE, got {override!r}")
        candidates = (name, *_ALIASES.get(name, ()))
        found = next((candidate for candidate in candidates if candidate in parameters), None)
        if found is None:
            raise InputError("--param", f"{plan.name} has no parameter {name!r}, only {', '.join(parameters)}")
        try:
            parameters[found] = json.loads(text)
        except ValueError:
            parameters[found] = text
    return WorkloadPlan(plan.file, plan.case, plan.workload, parameters)
