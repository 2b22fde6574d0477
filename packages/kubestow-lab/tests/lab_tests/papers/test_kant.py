"""Kant's strategies on nodes that can be looked at, and its table on a few jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.api.core import Node, Pod
from kubestow.rules.requests import requests_by_spec
from kubestow.testing import PluginHarness, builders, check_plugin
from kubestow_lab.papers import kant
from kubestow_lab.papers.paper import PAPERS, reproduce
from kubestow_lab.workloads.gpu import GPU

PROFILE = {"plugins": {"score": {"enabled": [{"name": "LeafGroupBinpack"}]}}}


def gpu_node(name: str, group: str) -> Node:
    return builders.node(name, allocatable={GPU: "8"}, labels={kant.GROUP: group})


def gpu_pod(name: str, gpus: int, node: str = "", pods: int = 1) -> Pod:
    return builders.pod(name, node=node, requests={GPU: str(gpus)}, labels={kant.SIZE: str(pods)})


NODES = [gpu_node(f"{group}{number}", group) for group, count in (("x", 3), ("y", 2)) for number in range(count)]


def test_small_jobs_go_to_the_fullest_group_and_large_ones_where_they_just_fit() -> None:
    placed = [gpu_pod("p", 4, node="x0")]
    harness = PluginHarness(NODES, pods=placed, profile=PROFILE, plugins=[kant.LeafGroupBinpack])
    assert harness.scores(gpu_pod("a", 1), "LeafGroupBinpack") == {"x0": 16, "x1": 16, "x2": 16, "y0": 0, "y1": 0}
    # Two nodes are free in either group, but a smaller one of y would be left over if x got the job.
    pair = harness.scores(gpu_pod("b", 8, pods=2), "LeafGroupBinpack")
    assert pair["x1"] == pair["y0"] == 100
    # Three fit in neither group: as many as possible together.
    assert harness.scores(gpu_pod("c", 8, pods=3), "LeafGroupBinpack")["y0"] == 50
    lone = harness.scores(gpu_pod("d", 8, pods=1), "LeafGroupBinpack")
    assert lone["x1"] > lone["y0"]


def test_the_plugin_keeps_the_contract() -> None:
    check_plugin(kant.LeafGroupBinpack, nodes=NODES, pods=[gpu_pod("a", 1), gpu_pod("b", 8, pods=2)])


def test_jobs_request_the_load() -> None:
    arrivals = kant.jobs(0.8, seed=1)
    work = sum(requests_by_spec(each.pod)[GPU] * (each.duration or 0.0) for each in arrivals.pods)
    capacity = kant.GROUPS * kant.NODES_PER_GROUP * kant.GPUS * arrivals.pods[-1].time
    assert work / capacity == pytest.approx(0.8, rel=0.15)
    assert {name for name in kant.SIZES if name > kant.GPUS} == {16, 32, 64}


def test_the_table_has_every_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kant.ratios, "__defaults__", (40,))
    table = reproduce(PAPERS["kant"], Path("absent"), tmp_path, seeds=[1], processes=1)
    rows = {(row.workload, row.policy): row for row in table.rows}
    assert set(kant.published()) <= set(rows)
    assert rows[kant.GFR, kant.SPREAD].published is None
    assert rows[kant.GFR, kant.BINPACK].difference == pytest.approx(
        rows[kant.GFR, kant.BINPACK].measured.mean - rows[kant.GFR, kant.SPREAD].measured.mean
    )
    assert rows[kant.GFR, kant.BINPACK].is_within
    assert reproduce(PAPERS["kant"], Path("absent"), tmp_path, seeds=[1], processes=1).rows == table.rows
