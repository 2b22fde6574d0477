"""The tables of Kueue's tests: every case agrees, or its difference has a reason."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection
from typing import Any

import pytest

from contrib_tests.kueue.table_cases import NOW, cases_of, infos, nodes_of, objects, parameters, quantities, state_of
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow_contrib.kueue.admission import Admission, KueueObjects
from kubestow_contrib.kueue.admission_cycle import AdmissionSettings, Outcome
from kubestow_contrib.kueue.fair_sharing import find_fair_targets, share_of
from kubestow_contrib.kueue.flavor_assignment import (
    Assignment,
    FlavorAssigner,
    FlavorAssignment,
    Mode,
    PodSetAssignment,
    Preemption,
)
from kubestow_contrib.kueue.objects import (
    ADMITTED,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    PodSet,
    ReclaimablePod,
    ResourceFlavor,
    Topology,
    TopologyAssignmentStatus,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
    amount,
)
from kubestow_contrib.kueue.preemption import PreemptionRequest, find_targets
from kubestow_contrib.kueue.quota_tree import FlavorResource
from kubestow_contrib.kueue.workload_info import FlavorScan, WorkloadInfo

Case = dict[str, Any]

_MODES = {"NoFit": Mode.NO_FIT, "Preempt": Mode.PREEMPT, "DeferredFit": Mode.DEFERRED_FIT, "Fit": Mode.FIT}


@pytest.mark.parametrize("case", parameters("available"))
def test_available(case: Case) -> None:
    state = state_of(case)

    def all_available() -> dict[str, Any]:
        return {
            name: {"/".join(fr): queue.usable(fr) for fr in queue.quotas}
            for name, queue in state.cluster_queues.items()
        }

    potential = {
        name: {"/".join(fr): queue.potential_available(fr) for fr in queue.quotas}
        for name, queue in state.cluster_queues.items()
    }
    assert potential == case["potential"]
    assert all_available() == case["potential"]
    for name, usage in case.get("usage", {}).items():
        state.cluster_queues[name].add(quantities(usage))
    assert all_available() == case["available"]
    for name, usage in case.get("usage", {}).items():
        state.cluster_queues[name].remove(quantities(usage))
    assert all_available() == case["potential"]


@pytest.mark.parametrize("case", parameters("dominant_shares"))
def test_dominant_shares(case: Case) -> None:
    state = state_of(case)
    state.cluster_queues["cq"].add(quantities(case.get("usage")))
    found = {}
    for prefix, nodes in (("queue", state.cluster_queues), ("cohort", state.cohorts)):
        for name, node in nodes.items():
            share = share_of(node, quantities(case.get("added")))
            rounded = 2**63 - 1 if math.isinf(share.weighted) else math.ceil(share.weighted)
            found[f"{prefix}/{name}"] = [rounded, share.resource, share.is_borrowing]
    assert found == case["shares"]


# -- preemption --------------------------------------------------------------------------------------------------------


def _assignment(pod_sets: Any) -> Assignment:
    found = []
    for one in pod_sets:
        flavors = {name: FlavorAssignment(flavor, _MODES[mode]) for name, (flavor, mode) in one["flavors"].items()}
        found.append(PodSetAssignment(one["name"], one.get("count") or 0, {}, flavors))
    return Assignment(found, {}, FlavorScan((), 0, 0, None))


def _targets(case: Case) -> dict[str, str]:
    state = state_of(case)
    for info in infos(case.get("admitted")):
        state.add(info)
    incoming = WorkloadInfo.of(convert(Workload, case["incoming"]))
    incoming.cluster_queue = case["queue"]
    assignment = _assignment(case["assignment"])
    usage = assignment.total_requests(incoming)
    request = PreemptionRequest(state, incoming, usage, assignment.needing_preemption(), NOW)
    before = {node.name: dict(node.usage) for node in (*state.cluster_queues.values(), *state.cohorts.values())}
    if case.get("fairSharing"):
        targets = find_fair_targets(request, tuple(case.get("strategies", ())))
    else:
        targets = find_targets(request)
    for node in (*state.cluster_queues.values(), *state.cohorts.values()):
        was = before[node.name]
        assert all(was.get(fr, 0) == used for fr, used in node.usage.items()), "the state was changed"
    return {target.info.key: str(target.reason) for target in targets}


@pytest.mark.parametrize("case", [*parameters("preemption"), *parameters("hierarchical_preemption")])
def test_preemption(case: Case) -> None:
    found = _targets(case)
    evicted = {info.key for info in infos(case.get("admitted")) if info.is_evicted}
    assert {key: reason for key, reason in found.items() if key not in evicted} == case.get("targets", {})
    assert len(found) == case.get("count", 0)


@pytest.mark.parametrize("case", parameters("fair_preemption"))
def test_fair_preemption(case: Case) -> None:
    assert _targets(case) == case.get("targets", {})


# -- flavors -----------------------------------------------------------------------------------------------------------

_ELASTIC = "elastic jobs (workload slices) are not there"
_DIFFERENT_FLAVORS = {
    55: "the gate ReclaimablePods, which is always enabled, is disabled",
    57: _ELASTIC,
    58: _ELASTIC,
}
_POSSIBILITIES = (Preemption.NO_CANDIDATES, Preemption.PREEMPT, Preemption.RECLAIM)


@pytest.mark.parametrize("case", parameters("flavor_assignment", _DIFFERENT_FLAVORS))
def test_flavor_assignment(case: Case) -> None:
    queues = [case["clusterQueue"], *([case["secondQueue"]] if "secondQueue" in case else [])]
    state = state_of({**case, "clusterQueues": queues})
    queue = state.cluster_queues[case["clusterQueue"]["metadata"]["name"]]
    queue.add(quantities(case.get("usage")))
    if "secondQueue" in case:
        state.cluster_queues[case["secondQueue"]["metadata"]["name"]].add(quantities(case.get("secondUsage")))
    simulated = case.get("simulation", {})

    def oracle(info: WorkloadInfo, fr: FlavorResource, wanted: int) -> tuple[Preemption, int]:
        possible, height = simulated.get("/".join(fr), (1, 0))
        return _POSSIBILITIES[possible], height

    workload = Workload(
        spec=WorkloadSpec(pod_sets=objects(PodSet, case["podSets"])),
        status=WorkloadStatus(reclaimable_pods=objects(ReclaimablePod, case.get("reclaimable"))),
    )
    assigner = FlavorAssigner(queue, state.flavors, oracle, is_fair=case.get("fairSharing", False))
    found = assigner.assign(WorkloadInfo.of(workload, queue.name))
    assert found.mode is _MODES[case["mode"]]
    assert [
        {name: [one.name, one.mode, one.tried] for name, one in pod_set.flavors.items()} for pod_set in found.pod_sets
    ] == [
        {name: [flavor, _MODES[mode], tried] for name, (flavor, mode, tried) in pod_set["flavors"].items()}
        for pod_set in case["want"]
    ]
    assert [one.count for one in found.pod_sets] == [one.get("count", 0) for one in case["want"]]
    assert found.borrowing == case.get("borrowing", 0)
    assert found.usage == quantities(case.get("wantUsage"))
    assert found.quota_reason == case.get("noFitReason", "")


# -- admission cycles --------------------------------------------------------------------------------------------------

_NAMESPACES = {"default": {}, "eng-alpha": {"dep": "eng"}, "eng-beta": {"dep": "eng"}, "eng-gamma": {"dep": "eng"}}
_NAMESPACES |= {"sales": {"dep": "sales"}, "lend": {"dep": "lend"}}


def _admission(case: Case, settings: AdmissionSettings) -> Admission:
    found = KueueObjects(
        objects(ClusterQueue, case.get("clusterQueues")),
        objects(Cohort, case.get("cohorts")),
        objects(ResourceFlavor, case.get("flavors")),
        objects(LocalQueue, case.get("localQueues")),
        objects(Workload, case.get("workloads")),
        checks=objects(AdmissionCheck, case["checks"]) if "checks" in case else None,
        topologies=objects(Topology, case.get("topologies")),
        nodes=nodes_of(case.get("nodes")),
        pods=objects(
            Pod, [one for one in case.get("pods", ()) if one["status"]["phase"] not in ("Succeeded", "Failed")]
        ),
    )
    return Admission(found, _NAMESPACES, settings, NOW)


def _assignments(admission: Admission, without: Collection[str] = ()) -> dict[str, Any]:
    """What each Workload with quota has: queue, pods, flavors, amounts and domains of its pod sets."""
    found: dict[str, Any] = {}
    for queue in admission.state.cluster_queues.values():
        for info in queue.workloads.values():
            if info.key not in without:
                found[info.key] = [
                    queue.name,
                    *(
                        [
                            one.name,
                            one.count,
                            dict(one.flavors),
                            {name: used for name, used in one.requests.items() if name in one.flavors},
                            one.topology and sorted((domain.values, domain.count) for domain in one.topology.domains),
                        ]
                        for one in info.pod_sets
                    ),
                ]
    return found


def _wanted_assignments(wanted: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [
            one["clusterQueue"],
            *(
                [
                    assigned.get("name", "main"),
                    assigned.get("count", 0),
                    assigned.get("flavors", {}),
                    {name: amount(name, used) for name, used in assigned.get("resourceUsage", {}).items()},
                    _wanted_domains(assigned.get("topologyAssignment")),
                ]
                for assigned in one.get("podSetAssignments", ())
            ),
        ]
        for key, one in wanted.items()
    }


def _wanted_domains(status: Any) -> Any:
    if status is None:
        return None
    return sorted((tuple(one.values), one.count) for one in convert(TopologyAssignmentStatus, status).all_domains())


def _check_cycle(case: Case) -> None:
    admission = _admission(case, AdmissionSettings(fair_sharing=() if case.get("fairSharing") else None))
    before = {info.key for info in infos(case["workloads"]) if info.is_evicted}
    entries = admission.run_cycle(NOW)
    by_topology = "topologies" in case
    admitted = {info.key for info in infos(case["workloads"]) if info.workload.is_in(ADMITTED)} if by_topology else ()
    wanted = case.get("newAssignments" if by_topology else "assignments", {})
    assert _assignments(admission, admitted) == _wanted_assignments(wanted)
    preempted = {
        target.info.key: str(target.reason)
        for entry in entries
        if entry.outcome is Outcome.PREEMPTING
        for target in entry.targets
    }
    assert {key: reason for key, reason in preempted.items() if key not in before} == case.get("preempted", {})
    active = {name: sorted(info.key for info in queue.active()) for name, queue in admission.pending.items()}
    assert {name: keys for name, keys in active.items() if keys} == {
        name: sorted(keys) for name, keys in case.get("left", {}).items()
    }
    inadmissible = {name: sorted(queue.inadmissible) for name, queue in admission.pending.items()}
    assert {name: keys for name, keys in inadmissible.items() if keys} == {
        name: sorted(keys) for name, keys in case.get("inadmissible", {}).items()
    }
    reasons = {entry.info.key: entry.reason for entry in entries if entry.outcome is not Outcome.ADMITTED}
    why = case.get("reasons", {})
    assert {key: reason for key, reason in reasons.items() if key in why} == {
        k: v for k, v in why.items() if k in reasons
    }


_AT_CREATION = "requests above limits and LimitRanges are checked when pods are created"
_NO_RECOMPUTATION = "the gate RecomputeAssignmentUponPreemptionTargetsOverlap, which is always enabled, is disabled"
_DIFFERENT_CYCLES = {
    10: "preemption gates (alpha) are not there",
    18: _AT_CREATION,
    19: _AT_CREATION,
    23: "the API server refuses a write, which a simulation has not",
    40: "the gate PartialAdmission, which is always enabled, is disabled",
}


@pytest.mark.parametrize("case", parameters("admission_cycle", _DIFFERENT_CYCLES))
def test_admission_cycle(case: Case) -> None:
    _check_cycle(case)


@pytest.mark.parametrize("case", parameters("fair_admission_cycle", {10: _NO_RECOMPUTATION}))
def test_fair_admission_cycle(case: Case) -> None:
    _check_cycle(case)


@pytest.mark.parametrize("case", parameters("overlapping_preemption", {4: _NO_RECOMPUTATION}))
def test_overlapping_preemption(case: Case) -> None:
    _check_cycle(case)


_DELETED_QUEUE = "a LocalQueue vanishes between queueing and the cycle; here its Workloads leave with it"


@pytest.mark.parametrize("case", parameters("usage_fair_sharing", dict.fromkeys((2, 5), _DELETED_QUEUE)))
def test_usage_fair_sharing(case: Case) -> None:
    is_enabled = case.get("gates", {}).get("AdmissionFairSharing", True)
    settings = AdmissionSettings(
        () if is_enabled else None, usage_fair_sharing=is_enabled, half_life=10.0, sampling_interval=1.0
    )
    queues = copy.deepcopy(case["localQueues"])
    for queue in queues:
        consumed = case.get("usage", {}).get(queue["metadata"]["name"])
        if consumed is not None:
            status = {"consumedResources": consumed, "lastUpdate": "2026-01-01T00:00:00Z"}
            queue["status"] = {"fairSharing": {"admissionFairSharingStatus": status}}
    admission = _admission({**case, "localQueues": queues}, settings)
    before = {info.key for info in infos(case["workloads"]) if info.is_evicted}
    preempted: dict[str, str] = {}
    for _ in case["workloads"]:
        for entry in admission.run_cycle(NOW):
            if entry.outcome is Outcome.PREEMPTING:
                preempted |= {target.info.key: str(target.reason) for target in entry.targets}
    assert _assignments(admission) == _wanted_assignments(case.get("assignments", {}))
    assert {key: reason for key, reason in preempted.items() if key not in before} == case.get("preempted", {})


@pytest.mark.parametrize("case", parameters("flavor_scan"))
def test_flavor_scan(case: Case) -> None:
    """Two cycles, between which some Workloads are deleted: the second goes on where the first stopped."""
    admission = _admission(case, AdmissionSettings())
    admission.run_cycle(NOW)
    gone = [
        info
        for queue in admission.state.cluster_queues.values()
        for info in queue.workloads.values()
        if info.key in case.get("deleted", ())
    ]
    for info in gone:
        admission.release(info, NOW)
        admission.retry(info, NOW)
    admission.run_cycle(NOW)
    assert _assignments(admission) == _wanted_assignments(case.get("assignments", {}))


_NO_RETRY = "the gate TASRecomputeAssignmentWithinSchedulingCycle, which is always enabled, is disabled"


def _different_topology(table: str) -> dict[int, str]:
    """Why cases with topologies differ, by number."""
    found = {}
    for case in cases_of(table):
        statuses = [one.get("status", {}) for one in case["workloads"]]
        assigned = [one for status in statuses for one in status.get("admission", {}).get("podSetAssignments", ())]
        if any(status.get("unhealthyNodes") for status in statuses):
            found[case["number"]] = "failed nodes are not replaced"
        elif any(one.get("delayedTopologyRequest") == "Pending" for one in assigned):
            found[case["number"]] = "there is no second pass once nodes are provisioned"
        elif case.get("transforms"):
            found[case["number"]] = "resource transformations are not there"
        elif not case.get("gates", {}).get("TASRecomputeAssignmentWithinSchedulingCycle", True):
            found[case["number"]] = _NO_RETRY
    return found


_TOPOLOGY_TABLES = ("topology_cycle", "topology_preemption", "topology_cohorts")


@pytest.mark.parametrize(
    "case", [one for table in _TOPOLOGY_TABLES for one in parameters(table, _different_topology(table))]
)
def test_topology_cycle(case: Case) -> None:
    _check_cycle(case)
