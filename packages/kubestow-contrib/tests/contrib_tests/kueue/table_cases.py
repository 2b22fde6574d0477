"""The cases of Kueue's tests (``tables``) and the objects in them, decoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from contrib_tests.recorded_tables import RecordedTables
from kubestow.api.core import Node
from kubestow.api.meta import convert
from kubestow_contrib.kueue.admission_state import AdmissionState
from kubestow_contrib.kueue.objects import ClusterQueue, Cohort, ResourceFlavor, Topology, Workload
from kubestow_contrib.kueue.quota_tree import FlavorResource, Quantities
from kubestow_contrib.kueue.topology import flavor_topologies
from kubestow_contrib.kueue.workload_info import WorkloadInfo

T = TypeVar("T")

#: What now is in all cases.
NOW = 1767225600.0

TABLES = RecordedTables(Path(__file__).parent / "tables")
cases_of, parameters = TABLES.cases_of, TABLES.parameters


def objects(kind: type[T], manifests: Iterable[Any] | None) -> list[T]:
    """Decoded objects of a kind."""
    return [convert(kind, one) for one in manifests or ()]


def quantities(amounts: Mapping[str, int] | None) -> Quantities:
    """Amounts by ``flavor/resource``."""
    return {FlavorResource(*name.split("/", 1)): amount for name, amount in (amounts or {}).items()}


def state_of(case: Mapping[str, Any]) -> AdmissionState:
    """The state of a case without Workloads."""
    flavors = objects(ResourceFlavor, case.get("flavors"))
    return AdmissionState(
        objects(ClusterQueue, case["clusterQueues"]),
        objects(Cohort, case.get("cohorts")),
        flavors,
        topologies=flavor_topologies(flavors, objects(Topology, case.get("topologies")), []),
    )


def nodes_of(manifests: Iterable[Any] | None) -> list[Node]:
    """Nodes that are ready."""
    return objects(Node, [one for one in manifests or () if not one.get("notReady")])


def infos(manifests: Iterable[Any] | None) -> list[WorkloadInfo]:
    """Workloads as admission sees them."""
    return [WorkloadInfo.of(workload) for workload in objects(Workload, manifests)]
