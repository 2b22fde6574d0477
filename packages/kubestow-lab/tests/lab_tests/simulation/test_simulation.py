"""The simulation runs the real scheduler in virtual time, and its result depends on input and seed alone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.engine.input.manifests import arrivals, cluster, node, pod, workload
from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import ConfigurationError, InputError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.reports.model import Paragraph, Table, amount_text
from kubestow.rules.minors import Minor
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import builders
from kubestow_lab.simulation.arrivals import Arrival, Arrivals, JointStart
from kubestow_lab.simulation.manifests import resulting_objects
from kubestow_lab.simulation.outcomes import Origin, OutcomeState, PodOutcome
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions, SimulationProgress
from kubestow_lab.simulation.simulation_result import SimulationResult
from kubestow_lab.simulation.timeline import TypicalPods

Object = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def run(within: ClusterObjects, found: Arrivals | None = None, **options: Any) -> SimulationResult:
    """The result of a simulation with default plugins."""
    return Simulation(within, found or Arrivals(), options=SimulationOptions(**options)).run()


def by_name(result: SimulationResult) -> dict[str, PodOutcome]:
    return {outcome.name: outcome for outcome in result.outcomes}


def at(pod: Pod, time: float = 0.0, duration: float | None = None) -> Arrival:
    """A pod that arrives at a time."""
    uid = f"uid-{pod.metadata.name}"
    return Arrival(
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid)), time, duration, {}
    )


def with_priority(manifest: Object, priority: int) -> Object:
    manifest["spec"] |= {"priority": priority, "schedulerName": "default-scheduler"}
    return manifest


# -- who lands where -----------------------------------------------------------------------------------------------


def test_pods_land_on_nodes_and_the_rest_says_why(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="1"), node("b", cpu="1"))
    result = run(within, arrivals(tmp_path, workload("Deployment", "web", replicas=5, cpu="500m"), within=within))
    assert result.count(OutcomeState.RUNNING) == 4
    assert result.pods_per_node() == {"a": 2, "b": 2}
    [group] = result.pending_groups()
    assert len(group.pods) == 1
    assert group.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert result.utilisation["cpu"] == 1.0
    assert result.timeline[-1].pending == 1


def test_pending_pods_of_the_cluster_are_scheduled_too(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"), pod("waiting"), pod("other", schedulerName="mine"))
    outcomes = by_name(run(within))
    assert outcomes["waiting"].node == "a"
    assert outcomes["other"].message == "no profile has the scheduler name mine"


def test_pending_pods_are_explained_in_plain_words_before_the_schedulers_message(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="2"), node("b", cpu="4"))
    result = run(within, arrivals(tmp_path, pod("p", cpu="9"), pod("q", cpu="9"), within=within))
    [group] = result.pending_groups()
    words = ["the pod requests 9 cpu, the largest node has 4", "2 nodes: too little CPU is free"]
    assert result.in_plain_words(group) == words
    assert (len(group.pods), group.message[:35]) == (2, "0/2 nodes are available: 2 Insuffic")
    *_, table = result.blocks()
    assert isinstance(table, Table)
    assert table.rows == [("2", "default/p", "\n".join((*words, group.message)))]


def test_gated_pods_say_what_gates_them(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"))
    result = run(within, arrivals(tmp_path, pod("p", schedulingGates=[{"name": "x"}]), within=within))
    assert by_name(result)["p"].message == "gated by SchedulingGates: waiting for scheduling gates: [x]"


def test_a_seed_gives_the_same_result_and_other_seeds_others(tmp_path: Path) -> None:
    nodes = [node(f"n{i}") for i in range(20)]
    within = cluster(tmp_path, *nodes)
    found = arrivals(tmp_path, workload("Deployment", "web", replicas=10), within=within)
    simulation = Simulation(within, found, options=SimulationOptions(seed=1))
    first = simulation.run().as_json()
    assert simulation.run().as_json() == first
    other = run(within, found, seed=2).as_json()
    assert [p["node"] for p in other["pods"]] != [p["node"] for p in first["pods"]]


def test_ties_by_name_choose_the_first_node(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("c"), node("a"), node("b"))
    result = run(within, arrivals(tmp_path, pod("p"), within=within), ties="name")
    assert by_name(result)["p"].node == "a"
    with pytest.raises(InputError, match="ties: expected random or name"):
        SimulationOptions(ties="luck")


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_pod_waits_until_another_departs() -> None:
    within = ClusterObjects.of([builders.node("a", cpu="1")])
    first, second = builders.pod("first", cpu="1"), builders.pod("second", cpu="1")
    found = Arrivals(pods=[at(first, 10.0, 3600.0), at(second, 20.0, 60.0)])
    outcomes = by_name(run(within, found))
    assert outcomes["first"].ended == pytest.approx(3610, abs=0.1)
    assert outcomes["second"].bound == pytest.approx(3610, abs=0.1)
    assert outcomes["second"].state is OutcomeState.COMPLETED
    staying = by_name(run(within, found, departures=False))
    assert (staying["first"].state, staying["second"].state) == (OutcomeState.RUNNING, OutcomeState.PENDING)


def test_a_pending_pod_that_is_being_deleted_is_not_attempted(tmp_path: Path) -> None:
    ending = pod("ending", schedulerName="default-scheduler")
    ending["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/x"]}
    assert by_name(run(cluster(tmp_path, node("a"), ending)))["ending"].message == "is being deleted"


def test_a_simulation_ends_at_its_limit() -> None:
    within = ClusterObjects.of([builders.node("a")])
    found = Arrivals(pods=[at(builders.pod("p"), 10.0), at(builders.pod("q"), 20.0)])
    result = run(within, found, until=15.0)
    assert [outcome.name for outcome in result.outcomes] == ["p"]
    assert result.run["seconds"] == 15.0


# -- preemption, gangs, volumes, plugins -------------------------------------------------------------------------------


def test_preempted_pods_are_replaced_by_their_controller(tmp_path: Path) -> None:
    low = with_priority(pod("low", cpu="1", nodeName="a"), 0)
    low["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
    ]
    high = pod("high", cpu="1", priorityClassName="system-cluster-critical")
    within = cluster(tmp_path, node("a", cpu="1"), low)
    result = run(within, arrivals(tmp_path, high, within=within))
    outcomes = by_name(result)
    assert (outcomes["low"].state, outcomes["low"].node) == (OutcomeState.PREEMPTED, "a")
    assert (outcomes["high"].state, outcomes["high"].node) == (OutcomeState.RUNNING, "a")
    [replacement] = [o for o in result.outcomes if o.name.startswith("rs-")]
    assert replacement.state is OutcomeState.PENDING
    origins = [outcome.origin for outcome in (outcomes["low"], outcomes["high"], replacement)]
    assert origins == [Origin.CLUSTER, Origin.WORKLOAD, Origin.REPLACEMENT]
    headline, *_ = result.blocks()
    assert isinstance(headline, Paragraph)
    assert headline.text.startswith("1 of 1 pod placed; 1 of 1 node in use")
    assert headline.text.endswith(
        "\n1 pod preempted, 1 of which ran before; of their replacements, 0 of 1 pod placed, 1 pending"
    )
    assert result.run["preemptions"] == 1
    alone = run(within, arrivals(tmp_path, high, within=within), replacements=False)
    assert {o.name for o in alone.outcomes} == {"low", "high"}


def test_nothing_is_left_of_a_simulation_with_preemption() -> None:
    """The garbage collector sees no reference from an array of objects, so none may lead back to the scheduler."""
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": {"app": "web"}}}
    web: dict[str, Any] = {"labels": {"app": "web"}, "cpu": "1", "priority": 10}
    placed = [
        builders.pod("web-0", node="node-a", **web),
        builders.pod("low-a", node="node-a", cpu="1"),
        builders.pod("low-b", node="node-b", cpu="2"),
    ]
    nodes = [builders.node(f"node-{name}", zone=name, cpu="2") for name in "ab"]
    within = ClusterObjects.of(nodes, [*placed, builders.pod("web-1", **web, spread=[spread])])
    gc.collect()
    before = _schedulers()

    assert run(within).run["preemptions"] == 1

    gc.collect()
    assert _schedulers() == before


def _schedulers() -> int:
    return sum(isinstance(each, Scheduler) for each in gc.get_objects())


def test_pods_that_work_together_wait_for_the_replacement_of_one_that_is_evicted() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    together = JointStart("train", 2)
    workers = [
        replace(
            at(builders.pod(f"w{n}", cpu="1", metadata={"ownerReferences": [owner]}), 0.0, 100.0), joint_start=together
        )
        for n in range(2)
    ]
    urgent = at(builders.pod("urgent", cpu="1", priority=9), 50.0, 30.0)
    within = ClusterObjects(nodes=[builders.node(name, cpu="1") for name in "ab"])
    outcomes = run(within, Arrivals(pods=[*workers, urgent])).outcomes
    ended = sorted((o.state.value, round(o.ended or 0)) for o in outcomes)
    # Evicted at 50; its replacement has a node at 80, and both work from then on.
    assert ended == [("Completed", 80), ("Completed", 180), ("Completed", 180), ("Preempted", 50)]


def test_a_gang_that_does_not_fit_stays_pending_as_a_whole(tmp_path: Path) -> None:
    pytest.importorskip("kubestow_contrib")
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "team"},
        "spec": {"minMember": 3},
    }
    members = [pod(f"m{i}", cpu="1") for i in range(3)]
    for member in members:
        member["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "team"}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}],
    }
    for cpu, placed in (("2", 0), ("3", 3)):
        within = cluster(tmp_path, node("a", cpu=cpu))
        found = arrivals(tmp_path, group, *members, within=within)
        assert Simulation(within, found, configuration).run().count(OutcomeState.RUNNING) == placed


def test_a_simulation_ends_though_groups_of_1_37_are_tried_again_and_again(tmp_path: Path) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "team"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    members = [pod(f"m{i}", cpu="1") for i in range(3)]
    for member in members:
        member["spec"]["schedulingGroup"] = {"podGroupName": "team"}
    within = cluster(tmp_path, node("a", cpu="2"))
    found, gates = (
        arrivals(tmp_path, group, *members, within=within),
        FeatureGates({"GenericWorkload": True}, minor=Minor(37)),
    )
    result = Simulation(within, found, gates=gates).run()
    assert (result.count(OutcomeState.PENDING), list(result.remarks)) == (3, [])
    assert result.run["seconds"] < 60


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_volumes_are_provisioned(tmp_path: Path, mode: str) -> None:
    objects = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast"},
            "provisioner": "csi.example.com",
            "volumeBindingMode": mode,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
        },
        pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
    ]
    within = cluster(tmp_path, node("a"))
    found = arrivals(tmp_path, *objects, within=within)
    result = run(within, found)
    assert by_name(result)["p"].node == "a"
    assert result.run["seconds"] < 10
    claims = [o for o in resulting_objects(result.api, within, found) if o["kind"] == "PersistentVolumeClaim"]
    assert [claim["spec"]["volumeName"] for claim in claims] == ["pvc-persistentvolumeclaim-default-data"]


class OnlyNodeB(FilterPlugin):
    """Rejects every node but b."""

    name = "OnlyNodeB"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(np.array([name != "b" for name in nodes.names]), Status.unschedulable("not b"))


def test_own_plugins_take_part(tmp_path: Path) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "OnlyNodeB"}]}}}],
    }
    within = cluster(tmp_path, node("a"), node("b"), node("c"))
    found = arrivals(tmp_path, workload("Deployment", "web", replicas=4), within=within)
    result = Simulation(within, found, configuration, plugins=[OnlyNodeB]).run()
    assert result.pods_per_node() == {"b": 4}


def test_an_invalid_configuration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: -1\n")
    with pytest.raises(ConfigurationError, match="parallelism"):
        Simulation(cluster(tmp_path), configuration=path)


# -- the result --------------------------------------------------------------------------------------------------------


def test_the_resulting_cluster_is_a_cluster_again(tmp_path: Path) -> None:
    annotated = pod("p", nodeSelector={"kubernetes.io/os": "linux"})
    annotated["metadata"]["annotations"] = {"note": "kept"}
    old = pod("old", nodeName="a")
    old["metadata"]["uid"] = "uid-old"
    within = cluster(tmp_path, node("a", labels={"kubernetes.io/os": "linux"}), old)
    found = arrivals(tmp_path, annotated, within=within)
    result = run(within, found)
    objects = list(resulting_objects(result.api, within, found))
    placed = {o["metadata"]["name"]: o for o in objects if o["kind"] == "Pod"}
    assert {name: o["spec"]["nodeName"] for name, o in placed.items()} == {"old": "a", "p": "a"}
    assert placed["p"]["metadata"]["annotations"] == {"note": "kept"}
    assert placed["p"]["spec"]["containers"][0]["image"] == "x"
    again = cluster(tmp_path, *objects)
    assert repr(again) == "<Cluster: 1 node, 2 placed and 0 pending pods>"
    assert not again.summary.problems
    assert {p.metadata.name: p.metadata.uid for p in again.pods} == {
        p.metadata.name: p.metadata.uid for p in result.api.pods()
    }


def test_a_replaced_pod_of_the_resulting_cluster_is_not_where_it_was(tmp_path: Path) -> None:
    def owned(name: str, kind: str) -> Object:
        old = with_priority(pod(name, cpu="1", nodeName="a"), 0)
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": "db", "uid": "u", "controller": True}
        old["metadata"] |= {"ownerReferences": [owner], "annotations": {"note": "kept"}, "uid": f"uid-{name}"}
        old["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]
        old["status"] = {"phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z"}
        return old

    high = pod("high", cpu="2", priorityClassName="system-cluster-critical")
    within = cluster(tmp_path, node("a", cpu="2"), owned("db-0", "StatefulSet"), owned("web-x", "ReplicaSet"))
    found = arrivals(tmp_path, high, within=within)
    objects = list(resulting_objects(run(within, found).api, within, found))
    pods = {o["metadata"]["name"]: o for o in objects if o["kind"] == "Pod"}
    [web] = pods.keys() - {"high", "db-0"}
    for name in ("db-0", web):
        assert "nodeName" not in pods[name]["spec"]
        assert pods[name]["status"].keys() == {"conditions"}
        assert pods[name]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
        assert pods[name]["metadata"]["annotations"] == {"note": "kept"}
    assert pods["high"]["status"]["phase"] == "Running"
    assert repr(cluster(tmp_path, *objects)) == "<Cluster: 1 node, 1 placed and 2 pending pods>"


def test_pods_of_the_resulting_cluster_have_their_claims(tmp_path: Path) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {"spec": {"devices": {}}},
    }
    within = cluster(tmp_path, node("a"))
    with_claim = pod("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
    found = arrivals(tmp_path, template, with_claim, within=within)
    again = cluster(tmp_path, *resulting_objects(run(within, found).api, within, found))
    [claim] = (obj for obj in again.objects if isinstance(obj, ResourceClaim))
    [placed] = again.pods
    assert [status.resource_claim_name for status in placed.status.resource_claim_statuses] == [claim.metadata.name]


def test_the_resulting_cluster_has_the_classes_and_custom_resources_of_the_input(tmp_path: Path) -> None:
    gold = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 7}
    quota = {"apiVersion": "example.com/v1", "kind": "Quota", "metadata": {"name": "q"}, "spec": {"cpu": 4}}
    within = cluster(tmp_path, node("a"), gold)
    found = arrivals(tmp_path, quota, {**gold, "metadata": {"name": "silver"}}, pod("p"), within=within)
    assert list(found.summary.lines()) == ["read 1 Pod, 1 PriorityClass", "kept 1 Quota for plugins that read them"]
    again = cluster(tmp_path, *resulting_objects(run(within, found).api, within, found))
    assert [source.manifest["metadata"]["name"] for source in again.custom_resources] == ["gold", "silver", "q"]
    later = [pod("x", priorityClassName="gold"), pod("y", priorityClassName="silver")]
    assert [a.pod.spec.priority for a in arrivals(tmp_path, *later, within=again).pods] == [7, 7]


def test_tables_have_columns_of_equal_length(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"))
    result = run(within, arrivals(tmp_path, workload("Deployment", "web", replicas=3), within=within))
    for table, length in (("pods", 3), ("nodes", 1), ("timeline", len(result.timeline))):
        assert {len(column) for column in result.columns(table).values()} == {length}
    with pytest.raises(ValueError, match="no table 'other'"):
        result.columns("other")
    assert repr(result) == "<SimulationResult: 3 pods on 1 node: 3 running, 0 completed, 0 pending, 0 preempted>"
    assert "<pre>" in result._repr_html_()


def test_tables_have_their_columns_without_pods(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"))
    empty, full = run(within), run(within, arrivals(tmp_path, pod("p"), within=within))
    for table in ("pods", "nodes", "timeline"):
        assert list(empty.columns(table)) == list(full.columns(table))
    assert set(map(len, empty.columns("pods").values())) == {0}


def test_amounts_have_their_units() -> None:
    amounts = {"cpu": 1500, "memory": 2**30, "hugepages-2Mi": 2**31, "nvidia.com/gpu": 1200}
    assert [amount_text(name, amount) for name, amount in amounts.items()] == [
        "1.5 cores",
        "1.0 GiB",
        "2.0 GiB",
        "1,200",
    ]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("table", ["pods", "nodes", "timeline"])
def test_tables_are_data_frames(tmp_path: Path, library: str, table: str) -> None:
    pytest.importorskip(library)
    within = cluster(tmp_path, node("a"), node("b"))
    result = run(within, arrivals(tmp_path, workload("Deployment", "web", replicas=40), within=within))
    frame = getattr(result, f"to_{library}")(table)
    columns = result.columns(table)
    assert list(frame.columns) == list(columns)
    for name, values in columns.items():
        found = [None if value != value else value for value in frame[name].to_list()]  # pandas stores None as NaN
        assert found == list(values), name


def test_a_simulation_runs_where_an_event_loop_runs_already(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"))
    found = arrivals(tmp_path, pod("p"), within=within)

    async def in_a_notebook() -> SimulationResult:
        return run(within, found)

    assert asyncio.run(in_a_notebook()).count(OutcomeState.RUNNING) == 1


def test_progress_reaches_all_pods(tmp_path: Path) -> None:
    seen: list[SimulationProgress] = []
    within = ClusterObjects.of([builders.node("a", cpu="100", max_pods=1000)])
    found = Arrivals(pods=[at(builders.pod(f"p{i}")) for i in range(600)])
    Simulation(within, found).run(seen.append)
    assert [progress.pods for progress in seen] == sorted(progress.pods for progress in seen)
    assert seen[-1].total == 600
    assert seen[-1].pods >= 512
    assert len(seen) < 6  # it is no business of each pod


def test_progress_counts_rejected_pods_too(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="1"))
    found = arrivals(tmp_path, workload("Deployment", "large", replicas=600, cpu="9"), within=within)
    seen: list[SimulationProgress] = []
    Simulation(within, found).run(seen.append)
    assert seen[-1].pods >= 512


# -- fragmentation -----------------------------------------------------------------------------------------------------

amounts = st.fixed_dictionaries({"cpu": st.integers(1, 4), "memory": st.integers(0, 4)})


@settings(deadline=None)
@given(st.lists(amounts, min_size=1, max_size=6), st.lists(amounts, min_size=1, max_size=5))
def test_fragmentation_is_the_expected_unusable_share(
    pods: list[Mapping[str, int]], free: list[Mapping[str, int]]
) -> None:
    cache = ClusterCache()
    for index, amount in enumerate(free):
        cache.add_node(builders.node(f"n{index}", cpu=str(amount["cpu"]), memory=str(amount["memory"])))
    requests = [{"cpu": 1000 * wanted["cpu"], "memory": wanted["memory"]} for wanted in pods]
    found = TypicalPods(requests).fragmentation(cache.all_nodes(), ["cpu", "memory"])
    for position, resource in enumerate(("cpu", "memory")):
        unit = 1000 if resource == "cpu" else 1
        total = sum(amount[resource] * unit for amount in free)
        wanting = [wanted for wanted in pods if wanted[resource]]
        unusable = [
            sum(
                amount[resource] * unit
                for amount in free
                if amount["cpu"] < wanted["cpu"] or amount["memory"] < wanted["memory"]
            )
            for wanted in wanting
        ]
        expected = sum(unusable) / len(wanting) / total if wanting and total else 0.0
        assert found[position] == pytest.approx(expected)
