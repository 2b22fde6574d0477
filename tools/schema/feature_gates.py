"""Writes the feature gates of Kubernetes: their stages, defaults and locks by minor version, and their dependencies.

    python -m tools.schema.feature_gates SOURCES DIRECTORY

It writes ``feature_gates.json`` in DIRECTORY. SOURCES has a folder for each minor version that can be emulated, named
as ``1.36``, with Kubernetes' sources (Apache-2.0) of its last patch release. What a minor version says about its own
gates counts: a gate may have been removed, or added with a version before the one that brought it.

Since 1.32 the sources have ``versioned_feature_list.yaml``, and until 1.33 also ``unversioned_feature_list.yaml``, with
the gates of all components; 1.31 has their declarations in Go only. The lists lack the gates of client-go, which are
read from their declarations. The newest minor version has the dependencies in ``feature_list.md``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kubestow.rules.minors import MINORS, NEWEST, Minor

#: The gates that affect scheduling. The others are accepted, because one flag serves all components of a cluster.
_OF_SCHEDULING = """
    CSIMigrationPortworx ClearingNominatedNodeNameAfterBinding ComponentFlagz ComponentStatusz CompositePodGroup
    CoordinatedLeaderElection DRAAdminAccess DRAConsumableCapacity DRAControlPlaneController DRADerivedAttributes
    DRADeviceBindingConditions DRADeviceCompatibilityGroups DRADeviceTaintRules DRADeviceTaints DRAExtendedResource
    DRAFractionalCapacityRange DRAListTypeAttributes DRANodeAllocatableResources DRAOptionalNodeOperations
    DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus DRASchedulerFilterTimeout
    DRAWorkloadResourceClaims DynamicResourceAllocation GangScheduling GenericWorkload ImageVolume
    InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling InPlacePodVerticalScalingSchedulerPreemption
    InterPodAffinityHostnameFastPath MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread
    MatchLabelKeysInPodTopologySpreadSelectorMerge MinDomainsInPodTopologySpread NativeHistograms NodeDeclaredFeatures
    NodeInclusionPolicyInPodTopologySpread NominatedNodeNameForExpectation OpportunisticBatching PodDisruptionConditions
    PodGroupPreemptionPolicy PodLevelResources PodObservedGenerationTracking PodSchedulingReadiness
    SchedulerAsyncAPICalls SchedulerAsyncPreemption SchedulerPopFromBackoffQ SchedulerPreQueueingHints
    SchedulerQueueingHints SidecarContainers StorageCapacityScoring TaintTolerationComparisonOperators
    TopologyAwareWorkloadScheduling VolumeAttributesClass VolumeCapacityPriority VolumeLimitScaling
    WorkloadAwarePreemption
"""
SCHEDULING = tuple(_OF_SCHEDULING.split())
#: The gates that were merged into another one when they were removed.
_SUCCESSORS = {"GangScheduling": "GenericWorkload", "WorkloadAwarePreemption": "GenericWorkload"}
_ABOUT = {
    "source": f"kubernetes {MINORS[0].release} to {NEWEST.release}, lists and declarations of feature gates",
    "license": "Apache-2.0",
    "copyright": "The Kubernetes Authors",
    "generator": "python -m tools.schema.feature_gates SOURCES DIRECTORY",
    "versions": "[first minor version, stage, default, whether it is locked to the default]; the oldest also before it",
    "removed": "the first minor version without the gate",
}

_LIST_DIRECTORIES = ("test/compatibility_lifecycle/reference", "test/featuregates_linter/test_data")
#: The lists name the constants of Go. Two gates are spelled otherwise.
_SPELLING = {"CPUCFSQuotaPeriod": "CustomCPUCFSQuotaPeriod", "RuntimeClassInImageCriAPI": "RuntimeClassInImageCriApi"}
_STAGING = "staging/src/k8s.io"
_CLIENT_GO = f"{_STAGING}/client-go/features/known_features.go"
#: The declarations of the gates that the lists have.
DECLARATIONS = (
    "pkg/features/kube_features.go",
    "pkg/features/versioned_kube_features.go",
    f"{_STAGING}/apiextensions-apiserver/pkg/features/kube_features.go",
    f"{_STAGING}/apiserver/pkg/features/kube_features.go",
    f"{_STAGING}/component-base/logs/api/v1/kube_features.go",
    f"{_STAGING}/component-base/metrics/features/kube_features.go",
    f"{_STAGING}/controller-manager/pkg/features/kube_features.go",
)
_COMMENT = re.compile(r"//.*")
_NAME = re.compile(r'^\s*(\w+)\s+(?:featuregate\.)?Feature\s*=\s*"(\w+)"', re.MULTILINE)
#: ``Gate: {Default: true, …},`` or ``Gate: {`` with one such pair of braces per version.
_DECLARED = re.compile(r"^\t+(?:\w+\.)?(\w+):\s*\{((?=[^}]*PreRelease)(?:[^{}]|\{[^{}]*\})*)\}", re.MULTILINE)
_BRACES = re.compile(r"\{([^{}]*)\}")
_GO_VALUES = {"true": True, "false": False, "contextualLoggingDefault": True}


class _Spec(NamedTuple):
    stage: str
    default: bool
    lock_to_default: bool


def main(sources: Path, directory: Path) -> None:
    """Write the file. Raises SystemExit for sources that lack a minor version or a gate that affects scheduling."""
    by_minor = {minor: _gates_of(sources / str(minor), minor) for minor in MINORS}
    names = sorted(set().union(*by_minor.values()))
    gates = {name: _versions(name, [by_minor[minor].get(name) for minor in MINORS]) for name in names}
    if missing := [name for name in SCHEDULING if name not in gates]:
        raise SystemExit(f"{sources} has no {', '.join(missing)}")
    dependencies = _dependencies(sources / str(NEWEST) / _LIST_DIRECTORIES[0] / "feature_list.md")
    scheduling = {name: {**gates.pop(name), "dependencies": dependencies.get(name, [])} for name in SCHEDULING}
    blocks = [f'"about": {json.dumps(_ABOUT, indent=1)}']
    for title, group in (("scheduling", scheduling), ("others", gates)):
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(gate)}" for name, gate in group.items())
        blocks.append(f'"{title}": {{\n{lines}\n}}')
    (directory / "feature_gates.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def _versions(name: str, specs: list[_Spec | None]) -> dict[str, Any]:
    """A gate's versions, and the minor version that removed it if one did, from what each minor version says."""
    versions: list[list[Any]] = []
    gate: dict[str, Any] = {"versions": versions}
    for minor, before, spec in zip(MINORS, [None, *specs], specs, strict=False):
        if spec is not None and spec != before:
            if "removed" in gate:
                raise SystemExit(f"{name} was removed in 1.{gate['removed']} and is back in {minor}")
            versions.append([minor.number, *spec])
        elif before is not None and spec is None:
            gate["removed"] = minor.number
            if name in _SUCCESSORS:
                gate["successor"] = _SUCCESSORS[name]
    return gate


def _gates_of(tree: Path, minor: Minor) -> dict[str, _Spec]:
    """The gates of a minor version from its own sources, as they are there."""
    listed = [tree / folder / f"{kind}_feature_list.yaml" for folder in _LIST_DIRECTORIES for kind in _LIST_KINDS]
    histories = [history for file in listed if file.exists() for history in _read_list(file)]
    declarations = (_CLIENT_GO,) if histories else (*DECLARATIONS, _CLIENT_GO)
    histories += [history for file in declarations for history in _read_declarations(tree / file)]
    gates = {}
    for name, history in histories:
        if specs := [spec for since, spec in history if since <= minor.number]:
            gates[name] = specs[-1]
    return gates


_LIST_KINDS = ("versioned", "unversioned")
_History = tuple[str, list[tuple[int, _Spec]]]
"""A gate, and its specs with the minor version from which each holds, the oldest first; 0 where none is named."""


def _read_list(file: Path) -> Iterator[_History]:
    for gate in yaml.safe_load(file.read_text(encoding="utf-8")):
        yield (
            _SPELLING.get(gate["name"], gate["name"]),
            [
                (
                    _minor_number(spec["version"]),
                    _Spec(spec["preRelease"].upper(), spec["default"], spec["lockToDefault"]),
                )
                for spec in gate["versionedSpecs"]
            ],
        )


def _read_declarations(file: Path) -> Iterator[_History]:
    """The gates that a Go file declares in a map; ``Feature`` constants give their names."""
    if not file.exists():
        raise SystemExit(f"{file} does not exist")
    text = _COMMENT.sub("", file.read_text(encoding="utf-8"))
    names = dict(_NAME.findall(text))
    for constant, body in _DECLARED.findall(text):
        specs = []
        for fields in _BRACES.findall(body) or [body]:
            version = re.search(r"Version:[^,]*?(1\.\d+)", fields)
            values = dict(re.findall(r"(Default|LockToDefault|PreRelease):\s*(?:featuregate\.)?(\w+)", fields))
            spec = _Spec(
                values["PreRelease"].upper(),
                _GO_VALUES[values["Default"]],
                _GO_VALUES[values.get("LockToDefault", "false")],
            )
            specs.append((_minor_number(version[1] if version else ""), spec))
        yield names.get(constant, constant), specs


def _minor_number(version: str) -> int:
    return int(version.removeprefix("1.") or 0)


def _dependencies(markdown: Path) -> dict[str, list[str]]:
    """The gates that each gate needs, from the column of that name."""
    rows = [line.split("|") for line in markdown.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head, *table = ([cell.strip() for cell in row] for row in rows if len(row) == len(rows[0]))
    column = head.index("Dependencies")
    return {row[1]: row[column].split("<br>") for row in table if row[column]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
