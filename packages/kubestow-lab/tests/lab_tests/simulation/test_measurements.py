"""Plugins that read metrics from servers are not connected with these in a simulation; a file stands in."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.input.manifests import arrivals, cluster, node, workload
from kubestow.engine import virtual_time
from kubestow.errors import InputError
from kubestow_lab.simulation.node_metrics import Measurements
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.simulation.simulation_result import SimulationResult

pytest.importorskip("kubestow_contrib")

Object = dict[str, Any]


def run(tmp_path: Path, args: Object, measurements: Measurements | None = None) -> SimulationResult:
    """Four pods and two nodes, with TargetLoadPacking alone scoring."""
    within = cluster(tmp_path, node("busy"), node("calm"))
    enabled = {"disabled": [{"name": "*"}], "enabled": [{"name": "TargetLoadPacking"}]}
    profile = {
        "plugins": {"score": enabled},
        "pluginConfig": [{"name": "TargetLoadPacking", "args": args}],
    }
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    pods = arrivals(tmp_path, workload("Deployment", "web", replicas=4, cpu="100m"), within=within)
    options = SimulationOptions(measurements=measurements)
    return Simulation(within, pods, {**header, "profiles": [profile]}, options=options).run()


@pytest.mark.parametrize("host", ["load-watcher.example.invalid", "127.0.0.1"])
@pytest.mark.parametrize("args", ["watcherAddress", "metricProvider"])
def test_a_server_of_metrics_is_not_asked_which_a_remark_says(tmp_path: Path, host: str, args: str) -> None:
    url = f"http://{host}:2020"
    source: Object = {"watcherAddress": url}
    if args == "metricProvider":
        source = {"metricProvider": {"type": "Prometheus", "address": url}}
    result = run(tmp_path, source)
    (remark,) = result.remarks
    assert remark.startswith(f"{url} was not asked")
    assert len(result.pods_per_node()) == 2


def test_a_file_stands_in_for_a_load_watcher(tmp_path: Path) -> None:
    usage = {"busy": 90.0, "calm": 10.0}
    measured = {name: {"metrics": [{"type": "CPU", "operator": "AVG", "value": each}]} for name, each in usage.items()}
    path = tmp_path / "load.json"
    path.write_text(json.dumps({"window": {"end": 1}, "data": {"NodeMetricsMap": measured}}))
    result = run(tmp_path, {"watcherAddress": "http://load-watcher:2020"}, Measurements.load(path))
    assert (result.pods_per_node(), result.remarks) == (Counter({"calm": 4}), ())


def test_a_list_of_node_metrics_stands_in_for_what_pods_request(tmp_path: Path) -> None:
    usage = {"busy": "3900m", "calm": "400m"}
    items = [{"metadata": {"name": name}, "usage": {"cpu": each, "memory": "1Gi"}} for name, each in usage.items()]
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"kind": "NodeMetricsList", "items": items}))
    assert run(tmp_path, {}, Measurements.load(path)).pods_per_node() == Counter({"calm": 4})


def test_a_list_of_node_metrics_does_not_stand_in_for_a_load_watcher(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"kind": "NodeMetricsList", "items": []}))
    (remark,) = run(tmp_path, {"watcherAddress": "http://load-watcher:2020"}, Measurements.load(path)).remarks
    assert f"{path} does not stand in for it" in remark


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"other.json: expected the response of load-watcher"):
        Measurements.load(path)


def test_in_virtual_time_there_are_neither_sockets_nor_threads() -> None:
    async def program() -> int:
        for host in ("example.invalid", "127.0.0.1"):
            with pytest.raises(OSError, match="there is no network in virtual time"):
                await asyncio.open_connection(host, 1)
        return await asyncio.to_thread(lambda: 3)

    assert virtual_time.run(program()) == 3
