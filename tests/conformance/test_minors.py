"""Recorded decisions of older minor versions, and that every rule that differs between them is tested.

``minors`` has an eighth of the cases that were recorded from kube-scheduler of each version, and more of
``minorrules``, the area of rules that other cases seldom touch.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import MINORS, Behaviour
from kubestow_lab.conformance.replay import replay_file

_ROOT = Path(__file__).parents[2]
#: The minor versions that follow the published sources and were not compared with the binary.
_NOT_RECORDED = {"v1.37"}
RECORDINGS = sorted((Path(__file__).parent / "minors").glob("v1.*/*.jsonl.gz"))


def test_every_other_minor_version_has_recordings() -> None:
    assert {path.parent.name for path in RECORDINGS} == {f"v{minor}" for minor in MINORS} - _NOT_RECORDED


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name.partition('.')[0]}")
def test_every_recorded_case_agrees(path: Path) -> None:
    replayed = replay_file(path, in_tree_registry)
    assert [difference for _, found in replayed for difference in found] == []


def test_every_behaviour_is_tested_by_name() -> None:
    tests = [*_ROOT.glob("packages/*/tests/**/test_*.py"), *_ROOT.glob("tests/**/test_*.py")]
    named = {name for path in tests for name in re.findall(r"Behaviour\.([A-Z_]+)", path.read_text(encoding="utf-8"))}
    assert {behaviour.name for behaviour in Behaviour} - named == set()
