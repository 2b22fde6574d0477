"""The generator of ``feature_gates.json`` reads what Kubernetes publishes, and the file has what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tools.schema import feature_gates

from kubestow.config import feature_specs
from kubestow.config.feature_gates import other_component_features
from kubestow.rules.minors import MINORS, NEWEST, OLDEST

_TABLE = """\
| Feature | Enabled | Dependencies | Links |
|---------|---------|--------------|-------|
| GangScheduling |  | GenericWorkload<br>Other | [code](https://example.com) |
| GenericWorkload |  |  | |

| Symbol | Meaning |
|--------|---------|
| :lock: | locked |
"""
_LIST = "test/compatibility_lifecycle/reference/versioned_feature_list.yaml"
_UNVERSIONED = """\
const (
	// Early is ready.
	EarlyGate featuregate.Feature = "Early"
)

var defaultFeatureGates = map[featuregate.Feature]featuregate.FeatureSpec{
	EarlyGate: {Default: true, PreRelease: featuregate.GA, LockToDefault: true}, // remove in 1.32

	features.StrangeGate: {Default: contextualLoggingDefault, PreRelease: featuregate.Beta},
}
"""
_VERSIONED = """\
	// AtomicFIFO is atomic.
	AtomicFIFO Feature = "AtomicFIFO"

var gates = map[Feature]VersionedSpecs{
	AtomicFIFO: {
		{Version: version.MustParse("1.33"), Default: false, PreRelease: Alpha},
		{Version: version.MustParse("1.36"), Default: true, PreRelease: GA, LockToDefault: true},
	},
}
"""


def _gate(name: str, *specs: tuple[str, str]) -> dict[str, object]:
    return {
        "name": name,
        "versionedSpecs": [
            {"default": False, "lockToDefault": False, "preRelease": stage, "version": version}
            for stage, version in specs or [("Alpha", "1.31")]
        ],
    }


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _sources(folder: Path, *gates: dict[str, object], without: str = "") -> None:
    """Sources in which every minor version but the oldest lists these gates and all those of scheduling."""
    of_scheduling = [_gate(name) for name in feature_gates.SCHEDULING if name != without]
    for minor in MINORS:
        tree = folder / str(minor)
        if minor == OLDEST:
            for file in feature_gates.DECLARATIONS:
                _write(tree / file, _UNVERSIONED)
        else:
            _write(tree / _LIST, yaml.safe_dump([*of_scheduling, *gates]))
        _write(tree / "staging/src/k8s.io/client-go/features/known_features.go", _VERSIONED)
    _write(folder / str(NEWEST) / Path(_LIST).with_name("feature_list.md"), _TABLE)


def test_lists_and_declarations_become_data(tmp_path: Path) -> None:
    history = _gate("CPUCFSQuotaPeriod", ("Alpha", "1.12"), ("Beta", "1.34"), ("GA", "1.99"))
    _sources(tmp_path, history)
    feature_gates.main(tmp_path, tmp_path)
    data = json.loads((tmp_path / "feature_gates.json").read_text())
    assert data["scheduling"]["GangScheduling"] == {
        "versions": [[32, "ALPHA", False, False]],
        "dependencies": ["GenericWorkload", "Other"],
    }
    assert list(data["scheduling"]) == list(feature_gates.SCHEDULING)
    assert data["others"] == {
        "AtomicFIFO": {"versions": [[33, "ALPHA", False, False], [36, "GA", True, True]]},
        "CustomCPUCFSQuotaPeriod": {"versions": [[32, "ALPHA", False, False], [34, "BETA", False, False]]},
        "Early": {"versions": [[31, "GA", True, True]], "removed": 32},
        "StrangeGate": {"versions": [[31, "BETA", True, False]], "removed": 32},
    }


def test_what_a_minor_version_says_about_itself_counts(tmp_path: Path) -> None:
    """A later minor version may list a gate with versions before the one that brought it."""
    _sources(tmp_path)
    listed = yaml.safe_load((tmp_path / str(NEWEST) / _LIST).read_text())
    _write(tmp_path / str(NEWEST) / _LIST, yaml.safe_dump([*listed, _gate("Late", ("GA", "1.0"))]))
    feature_gates.main(tmp_path, tmp_path)
    others = json.loads((tmp_path / "feature_gates.json").read_text())["others"]
    assert others["Late"] == {"versions": [[NEWEST.number, "GA", False, False]]}


def test_a_gate_of_scheduling_has_to_be_listed(tmp_path: Path) -> None:
    _sources(tmp_path, without="GangScheduling")
    with pytest.raises(SystemExit, match="has no GangScheduling"):
        feature_gates.main(tmp_path, tmp_path)


def test_a_gate_cannot_come_back(tmp_path: Path) -> None:
    _sources(tmp_path)
    listed = yaml.safe_load((tmp_path / "1.34" / _LIST).read_text())
    _write(tmp_path / "1.34" / _LIST, yaml.safe_dump([gate for gate in listed if gate["name"] != "GangScheduling"]))
    with pytest.raises(SystemExit, match=r"GangScheduling was removed in 1\.34 and is back in 1\.35"):
        feature_gates.main(tmp_path, tmp_path)


def test_the_sources_of_every_minor_version_are_needed(tmp_path: Path) -> None:
    _sources(tmp_path)
    (tmp_path / "1.33" / _LIST).unlink()
    with pytest.raises(SystemExit, match=r"1\.33/pkg/features/kube_features\.go does not exist"):
        feature_gates.main(tmp_path, tmp_path)


def test_the_data_are_those_of_the_gates_of_scheduling() -> None:
    assert {name for minor in MINORS for name in feature_specs(minor)} == set(feature_gates.SCHEDULING)
    assert all(not feature_specs(minor).keys() & other_component_features(minor).keys() for minor in MINORS)
