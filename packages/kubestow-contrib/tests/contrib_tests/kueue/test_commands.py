"""Commands with ``--kueue``: the queues of the dump decide when jobs start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contrib_tests.kueue.kueue_objects import GPU, cluster_queue, flavor, local_queue
from core_tests.engine.input.manifests import node, workload, write
from kubestow.cli import main


def job(name: str, queue: str) -> dict[str, Any]:
    made = workload("Job", name, parallelism=1, completions=1)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    made["spec"]["template"]["metadata"]["annotations"] = {"kubestow.dev/duration": "60s"}
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {GPU: "4"}}
    return made


def test_compare_simulates_both_sides_with_the_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node(name) for name in ("a", "b")]
    for each in nodes:
        each["status"]["allocatable"][GPU] = "8"
    queues = [flavor("h100"), cluster_queue("research", 4), local_queue("research")]
    cluster = write(tmp_path, *nodes, *queues, name="dump.json")
    jobs = write(tmp_path, job("first", "research"), job("second", "research"), name="jobs.json")
    config = tmp_path / "config.json"
    args = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 1}]}}
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(json.dumps({**kind, "profiles": [profile]}))
    arguments = ["--cluster", str(cluster), "--workload", str(jobs), "--config", str(config), "-o", "json"]
    waits = []
    for option in ([], ["--kueue"]):
        with pytest.raises(SystemExit) as exited:
            main(["compare", *arguments, *option])
        assert not exited.value.code
        metrics = json.loads(capsys.readouterr().out)["metrics"]
        waits.append([metrics["makespan"][side] for side in ("baseline", "candidate")])
    # The quota is enough for one job at a time.
    assert waits[0] == [pytest.approx(60, abs=5)] * 2
    assert min(waits[1]) > 120


def test_the_configuration_of_queues_needs_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = write(tmp_path, node("a"), name="dump.json")
    with pytest.raises(SystemExit) as exited:
        main(["compare", "--cluster", str(cluster), "--config", "", "--queue-configuration", "x.yaml"])
    assert exited.value.code == 2
    assert "--queue-configuration needs --kueue" in capsys.readouterr().err
