"""Custom resources of plugins in the input of offline commands, and the metrics of simulated nodes."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kubestow.api.custom import CustomObject
from kubestow.engine.explanation.explain import explain
from kubestow.engine.input.cluster_objects import ClusterObjects, custom_objects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.engine.virtual_time import EPOCH
from kubestow.errors import InputError
from kubestow.framework.interface import PreFilterPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow_lab.capacity.estimate import CapacityOptions, estimate
from kubestow_lab.capacity.pod_template import PodTemplate
from kubestow_lab.optimum import EndState
from kubestow_lab.reports import simulation_report
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.tuning.search_space import SearchSpace
from kubestow_lab.tuning.tuning_search import tune
from kubestow_lab.what_if.node_count import nodes_needed
from kubestow_lab.what_if.node_pools import NodePool, pool_like
from kubestow_lab.what_if.node_removal import drain
from kubestow_lab.what_if.pod_fates import Fate
from lab_tests.capacity.test_capacity import template_manifest


class License(CustomObject, frozen=True):
    resource: ClassVar[str] = "licenses.v1.example.com"
    spec: dict[str, Any] = {}


class Licensed(PreFilterPlugin):
    """Rejects pods without a license of their name."""

    name = "Licensed"
    kinds = (License,)

    def pre_filter(self, state, pod, nodes):  # type: ignore[no-untyped-def]
        found = self.handle.cluster.catalog(License).get(pod.namespace, pod.name)
        return SUCCESS if found is not None and found.spec.get("valid") else Status.unresolvable("no license")


def profile(*names: str, **fields: Any) -> dict[str, Any]:
    plugins = {"multiPoint": {"enabled": [{"name": name} for name in names]}}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**document, "profiles": [{"plugins": plugins, **fields}]}


def manifest(kind: str, name: str, api_version: str = "v1", **fields: Any) -> dict[str, Any]:
    namespace = {} if kind == "Node" else {"namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **namespace}, **fields}


def node(name: str) -> dict[str, Any]:
    return manifest("Node", name, status={"allocatable": {"cpu": "10", "memory": "64Gi", "pods": "110"}})


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
    return manifest("Pod", name, spec={"containers": [container], **spec})


def load(directory: Path, *items: dict[str, Any]) -> ClusterObjects:
    path = directory / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return ClusterObjects.load(path)


def license_of(name: str, spec: Any) -> dict[str, Any]:
    return manifest("License", name, "example.com/v1", spec=spec)


def test_plugins_read_their_custom_resources_in_a_simulation(tmp_path: Path) -> None:
    cluster = load(tmp_path, node("n"), pod("licensed"), pod("other"), license_of("licensed", {"valid": True}))
    assert list(cluster.summary.lines()) == ["read 1 Node, 2 Pod", "kept 1 License for plugins that read them"]
    result = Simulation(cluster, configuration=profile("Licensed"), plugins=[Licensed]).run()
    assert {outcome.key: outcome.node for outcome in result.outcomes} == {"default/licensed": "n", "default/other": ""}


def test_plugins_read_their_custom_resources_in_an_explanation(tmp_path: Path) -> None:
    cluster = load(tmp_path, node("n"), pod("licensed"), pod("other"), license_of("licensed", {"valid": True}))
    options = SchedulerOptions(profile("Licensed"), [Licensed])
    assert "no license" in str(explain(cluster, "other", options).message)
    assert "no license" not in str(explain(cluster, "licensed", options).message)


def test_a_custom_resource_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    cluster = load(tmp_path, node("n"), license_of("broken", "valid"))
    with pytest.raises(InputError, match=r"cluster\.json: items\[1\]: invalid License: .*spec"):
        Simulation(cluster, configuration=profile("Licensed"), plugins=[Licensed]).run()
    Simulation(cluster).run()  # nothing reads it


def test_simulated_nodes_use_what_their_pods_request(tmp_path: Path) -> None:
    pytest.importorskip("kubestow_contrib")
    running = [pod(f"running-{number}", cpu="2", nodeName="busy") for number in range(3)]
    for each in running:
        each["status"] = {"phase": "Running", "startTime": "2026-03-01T12:00:00Z"}
    arriving = [pod(f"arriving-{number}", cpu="1") for number in range(4)]
    idle = node("idle")
    idle["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-01T12:30:00Z"}]
    cluster = load(tmp_path, node("busy"), idle, *running, *arriving)
    assert cluster.time(EPOCH).isoformat() == "2026-03-01T12:30:00+00:00"
    args = [{"name": "TargetLoadPacking", "args": {"targetUtilization": 80}}]
    weight = {"score": {"enabled": [{"name": "TargetLoadPacking", "weight": 100}]}}
    configuration = profile(pluginConfig=args)
    configuration["profiles"][0]["plugins"] = weight
    result = Simulation(cluster, configuration=configuration, options=SimulationOptions(ties="name")).run()
    placed = [outcome.node for outcome in result.outcomes if "arriving" in outcome.key]
    # Packed up to 80 % of busy, which is at 60 %; beyond that, idle is better.
    assert sorted(placed) == ["busy", "busy", "idle", "idle"]


def test_the_time_of_a_cluster_is_the_newest_of_its_objects(tmp_path: Path) -> None:
    assert load(tmp_path, node("n"), pod("p")).time(EPOCH) == EPOCH
    report = manifest("Report", "r", "example.com/v1", status={"updateTime": "2026-05-01T00:00:00Z"})
    started = pod("started", nodeName="n")
    started["status"] = {"startTime": "2026-04-01T00:00:00Z"}
    assert load(tmp_path, node("n"), started).time(EPOCH).month == 4
    assert load(tmp_path, node("n"), started, report).time(EPOCH).month == 5


def test_plugins_read_the_custom_resources_of_a_workload(tmp_path: Path) -> None:
    cluster = load(tmp_path, node("n"))
    path = tmp_path / "workload.json"
    items = [pod("licensed"), pod("other"), license_of("licensed", {"valid": True})]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    arrivals = Arrivals.load(path, cluster=cluster)
    assert list(arrivals.summary.lines()) == ["read 2 Pod", "kept 1 License for plugins that read them"]
    result = Simulation(cluster, arrivals, profile("Licensed"), [Licensed]).run()
    assert {outcome.key: outcome.node for outcome in result.outcomes} == {"default/licensed": "n", "default/other": ""}
    options = SchedulerOptions(profile("Licensed"), [Licensed])
    needed = nodes_needed(cluster, arrivals, [pool_like(cluster, "n")], options)
    assert (needed.pods, needed.fitting) == (2, 1)


# -- every question about a cluster is answered with its custom resources, at its time ---------------------------------

LICENSED = SchedulerOptions(profile("Licensed"), [Licensed])


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterObjects:
    started = pod("db-0", nodeName="m")
    started["status"] = {"phase": "Running", "startTime": "2026-05-01T00:00:00Z"}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}
    started["metadata"] |= {"uid": "uid-db-0", "ownerReferences": [owner]}
    licenses = [license_of(name, {"valid": True}) for name in ("db-0", "small", "large", "more-0", "more-1")]
    return load(tmp_path, node("n"), node("m"), started, pod("small"), pod("large", cpu="100"), *licenses)


def test_capacity_reads_custom_resources(cluster: ClusterObjects) -> None:
    template = PodTemplate(template_manifest("more", cpu="1"), "pod.yaml")
    found = estimate(cluster, template, LICENSED.read_configuration(), registry=LICENSED.registry())
    assert found.replicas == 3  # with the small pod, which was pending


def test_a_drain_reads_custom_resources(cluster: ClusterObjects) -> None:
    [fate] = drain(cluster, frozenset({"m"}), LICENSED).pods
    assert (fate.fate, fate.new_node) == (Fate.RESCHEDULED, "n")


def test_the_number_of_nodes_needed_depends_on_custom_resources(cluster: ClusterObjects) -> None:
    pool = NodePool(name="large", allocatable={"cpu": 200, "memory": "64Gi"})
    assert nodes_needed(cluster, Arrivals(), [pool], LICENSED).mix == {"large": 1}


def test_the_decisions_of_a_report_depend_on_custom_resources(cluster: ClusterObjects) -> None:
    simulation = Simulation(cluster, configuration=profile("Licensed"), plugins=[Licensed])
    page = simulation_report(simulation.run(), simulation)
    assert "Insufficient cpu" in page
    assert "no license" not in page


def test_the_end_of_a_simulation_has_its_custom_resources(cluster: ClusterObjects) -> None:
    simulation = Simulation(cluster, configuration=profile("Licensed"), plugins=[Licensed])
    scheduler = EndState.of(simulation, simulation.run()).scheduler()
    assert scheduler.cache.catalog(License).get("default", "small") is not None


def test_tuning_reads_custom_resources(cluster: ClusterObjects) -> None:
    space = SearchSpace.of({"weights": {"NodeResourcesFit": [1, 2]}})
    found = tune(
        cluster, Arrivals(), space, profile("Licensed"), objectives=["pending"], plugins=[Licensed], processes=1
    )
    assert found.best.objectives == (1.0,)


def test_a_cluster_made_of_another_one_has_its_time_and_custom_resources(cluster: ClusterObjects) -> None:
    derived = pickle.loads(pickle.dumps(cluster.altered(pods=())))
    assert derived.time(EPOCH) == cluster.time(EPOCH) == datetime(2026, 5, 1, tzinfo=UTC)
    assert len(custom_objects(derived.custom_resources, [License])) == 5


def test_capacity_is_asked_at_the_time_of_the_cluster(cluster: ClusterObjects) -> None:
    placer = CapacityOptions().placer(cluster, LICENSED.read_configuration(), LICENSED.registry(), LICENSED.gates)
    [licensed] = (plugin for plugin in placer.profile.plugins if isinstance(plugin, Licensed))
    assert licensed.handle.now() == cluster.time(EPOCH)
