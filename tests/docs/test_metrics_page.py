"""docs/metrics.md: it lists all metrics, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubestow_lab.metrics.energy_and_cost import USAGE_METRICS
from kubestow_lab.metrics.run_metrics import METRICS, RESOURCE_METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def listed(section: str) -> set[str]:
    rows = re.findall(r"^\| (.+?) \|", PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return {name.removesuffix(".RESOURCE") for row in rows for name in re.findall(r"`([\w.]+)`", row)}


def test_all_metrics_are_listed() -> None:
    assert listed("Metrics of a run") == METRICS.keys() | RESOURCE_METRICS.keys()
    assert listed("Power, energy, cost") == USAGE_METRICS.keys()


def test_all_sources_are_named() -> None:
    for metric in (*METRICS.values(), *RESOURCE_METRICS.values(), *USAGE_METRICS.values()):
        assert metric.source.partition(" ")[0] in PAGE


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "trace"
    folder.mkdir()
    nodes = "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,1,T4\nb,8000,1024,0,\n"
    (folder / "openb_node_list_gpu_node.csv").write_text(nodes)
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"
    pods += "p,1000,0,1,500,0,90\nq,1000,0,0,0,5,70\n"
    (folder / "openb_pod_list_default.csv").write_text(pods)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL):
        exec(code, names)
    assert names["result"]
