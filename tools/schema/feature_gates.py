"""Writes the feature gates of Kubernetes: their stages, defaults and locks by minor version, and their dependencies.

    python -m tools.schema.feature_gates LIST DIRECTORY

It writes ``feature_gates.json`` in DIRECTORY. LIST is ``versioned_feature_list.yaml`` in
``test/compatibility_lifecycle/reference`` of Kubernetes' sources (Apache-2.0), of the newest minor version that is
supported: it has the history of every gate of Kubernetes' components. ``feature_list.md``, which lies beside it, has
the dependencies. A gate that LIST does not have any more is not written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

#: The gates that affect scheduling. The others are accepted, because one flag serves all components of a cluster.
_SCHEDULING = """
    ClearingNominatedNodeNameAfterBinding ComponentFlagz ComponentStatusz CoordinatedLeaderElection DRAAdminAccess
    DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints DRAExtendedResource
    DRAListTypeAttributes DRANodeAllocatableResources DRAPartitionableDevices DRAPrioritizedList
    DRAResourceClaimDeviceStatus DRASchedulerFilterTimeout DRAWorkloadResourceClaims DynamicResourceAllocation
    GangScheduling GenericWorkload ImageVolume InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling
    MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
    NativeHistograms NodeDeclaredFeatures NodeInclusionPolicyInPodTopologySpread NominatedNodeNameForExpectation
    OpportunisticBatching PodLevelResources PodObservedGenerationTracking PodSchedulingReadiness
    SchedulerAsyncAPICalls SchedulerAsyncPreemption SchedulerPopFromBackoffQ SchedulerQueueingHints
    SidecarContainers StorageCapacityScoring TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling
    VolumeAttributesClass VolumeLimitScaling WorkloadAwarePreemption
"""
#: LIST names the constants of Go. Two gates are spelled otherwise.
_SPELLING = {"CPUCFSQuotaPeriod": "CustomCPUCFSQuotaPeriod", "RuntimeClassInImageCriAPI": "RuntimeClassInImageCriApi"}
#: The gates of client-go, which LIST lacks (``staging/src/k8s.io/client-go/features/known_features.go``).
_CLIENT_GO = {
    "AtomicFIFO": [[36, "BETA", True, False]],
    "ClientsAllowCARotation": [[36, "BETA", True, False]],
    "ClientsAllowCBOR": [[32, "ALPHA", False, False]],
    "ClientsAllowTLSCacheGC": [[36, "BETA", True, False]],
    "ClientsPreferCBOR": [[32, "ALPHA", False, False]],
    "InOrderInformers": [[33, "BETA", True, False], [36, "GA", True, True]],
    "InOrderInformersBatchProcess": [[35, "BETA", True, False]],
    "InformerResourceVersion": [[30, "ALPHA", False, False], [35, "GA", True, False]],
    "UnlockWhileProcessingFIFO": [[36, "BETA", True, False]],
    "WatchListClient": [[30, "BETA", False, False], [35, "BETA", True, False]],
}
_ABOUT = {
    "source": "kubernetes 1.36.2, test/compatibility_lifecycle/reference/versioned_feature_list.yaml",
    "license": "Apache-2.0",
    "copyright": "The Kubernetes Authors",
    "generator": "python -m tools.schema.feature_gates LIST DIRECTORY",
    "versions": "[minor version from which it holds, stage, default, whether it is locked to the default]",
}


def main(versioned_list: Path, directory: Path) -> None:
    """Write the file. Raises SystemExit if a gate that affects scheduling is missing in the list."""
    listed = yaml.safe_load(versioned_list.read_text(encoding="utf-8"))
    versions = {_SPELLING.get(gate["name"], gate["name"]): _versions(gate) for gate in listed} | _CLIENT_GO
    if missing := [name for name in _SCHEDULING.split() if name not in versions]:
        raise SystemExit(f"{versioned_list} has no {', '.join(missing)}")
    dependencies = _dependencies(versioned_list.with_name("feature_list.md"))
    scheduling = {
        name: {"versions": versions[name], "dependencies": dependencies.get(name, [])} for name in _SCHEDULING.split()
    }
    others = {name: {"versions": versions[name]} for name in sorted(versions.keys() - scheduling.keys())}
    blocks = [f'"about": {json.dumps(_ABOUT, indent=1)}']
    for title, gates in (("scheduling", scheduling), ("others", others)):
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(gate)}" for name, gate in gates.items())
        blocks.append(f'"{title}": {{\n{lines}\n}}')
    (directory / "feature_gates.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def _versions(gate: dict[str, Any]) -> list[list[Any]]:
    specs = gate["versionedSpecs"]
    minors = [int(spec["version"].removeprefix("1.")) for spec in specs]
    return [
        [minor, spec["preRelease"].upper(), spec["default"], spec["lockToDefault"]]
        for minor, spec in zip(minors, specs, strict=True)
    ]


def _dependencies(markdown: Path) -> dict[str, list[str]]:
    """The gates that each gate needs, from the column of that name."""
    rows = [line.split("|") for line in markdown.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head, *table = ([cell.strip() for cell in row] for row in rows if len(row) == len(rows[0]))
    column = head.index("Dependencies")
    return {row[1]: row[column].split("<br>") for row in table if row[column]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
