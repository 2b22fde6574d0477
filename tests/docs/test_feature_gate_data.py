"""The generator of ``feature_gates.json`` reads what Kubernetes publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tools.schema import feature_gates

from kubestow.config import feature_specs

_TABLE = """\
| Feature | Enabled | Dependencies | Links |
|---------|---------|--------------|-------|
| GangScheduling |  | GenericWorkload<br>Other | [code](https://example.com) |
| GenericWorkload |  |  | |

| Symbol | Meaning |
|--------|---------|
| :lock: | locked |
"""


def _gate(name: str, stage: str = "Alpha", *, version: str = "1.35") -> dict[str, object]:
    spec = {"default": False, "lockToDefault": False, "preRelease": stage, "version": version}
    return {"name": name, "versionedSpecs": [spec]}


def test_the_list_becomes_data(tmp_path: Path) -> None:
    listed = [*map(_gate, feature_specs()), _gate("CPUCFSQuotaPeriod", "GA", version="1.12")]
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(listed))
    (tmp_path / "feature_list.md").write_text(_TABLE)
    feature_gates.main(tmp_path / "list.yaml", tmp_path)
    data = json.loads((tmp_path / "feature_gates.json").read_text())
    assert data["scheduling"]["GangScheduling"] == {
        "versions": [[35, "ALPHA", False, False]],
        "dependencies": ["GenericWorkload", "Other"],
    }
    assert data["scheduling"].keys() == feature_specs().keys()
    assert data["others"]["CustomCPUCFSQuotaPeriod"] == {"versions": [[12, "GA", False, False]]}


def test_a_gate_of_scheduling_has_to_be_listed(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text(yaml.safe_dump([_gate("GangScheduling")]))
    with pytest.raises(SystemExit, match="has no ClearingNominatedNodeNameAfterBinding"):
        feature_gates.main(tmp_path / "list.yaml", tmp_path)
