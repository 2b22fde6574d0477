"""Qualities of placements are what can be counted, and the table of Firmament has every policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.testing import builders
from kubestow_lab.flow.cost_models import BANDWIDTH
from kubestow_lab.papers import firmament
from kubestow_lab.papers.paper import PAPERS, reproduce


def test_qualities_are_counted_by_hand() -> None:
    image = "data.example/x:v1"
    nodes = [
        builders.node("a", allocatable={BANDWIDTH: "10000"}, images={image: 3_000_000_000}),
        builders.node("b", allocatable={BANDWIDTH: "10000"}),
    ]
    container = {"containers": [{"name": "main", "image": image, "resources": {"requests": {BANDWIDTH: "2000"}}}]}
    pods = [builders.pod(f"p{number}", spec=container) for number in range(4)]
    found = firmament.placement_qualities(nodes, pods, {"p0": "a", "p1": "b", "p2": "b"})
    assert found == pytest.approx([0.5, 100 * 2 / 3, 40.0])  # 1 and 2 pods; two fetch; 4,000 Mbit/s on b


def test_every_policy_is_best_at_what_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")
    for name, value in (("NODES", 12), ("PODS", 48), ("BATCHES", 6), ("DATA_SETS", 8)):
        monkeypatch.setattr(firmament, name, value)
    table = reproduce(PAPERS["firmament"], Path("absent"), tmp_path, seeds=[1], processes=1)
    assert [row.policy for row in table.rows] == [
        each for special in firmament.PURPOSES.values() for each in (firmament.KUBERNETES, special)
    ]
    assert table.is_within
