"""The workloads that can be run: those installed with the package, or those of a file or folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kubestow.errors import InputError
from kubestow_lab.scheduler_perf.test_cases import WorkloadPlan, read_test_cases

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
