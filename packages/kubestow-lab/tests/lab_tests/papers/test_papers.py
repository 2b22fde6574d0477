"""A paper's table runs from the trace's files to published numbers; here on a trace of a few pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from core_tests.engine.input.manifests import cluster, node, pod
from kubestow.errors import InputError
from kubestow_lab.cli.paper import paper as command
from kubestow_lab.experiments.experiment_file import with_shuffled_nodes
from kubestow_lab.metrics.intervals import Estimate
from kubestow_lab.papers.paper import PAPERS, PaperTable, Row, find_paper, reproduce

FGD = PAPERS["fgd"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The files of openb with two nodes and some pods that share GPUs."""
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,32000,65536,4,T4\nb,32000,65536,4,G2\n"
    )
    pods = [f"p{i},{1000 * (1 + i % 3)},1024,1,{(500, 700, 1000)[i % 3]},,,," for i in range(9)]
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time"
    (tmp_path / "openb_pod_list_cpu250.csv").write_text("\n".join((header, *pods)) + "\n")
    return tmp_path


def test_the_table_has_what_was_published_and_measured(trace: Path) -> None:
    table = reproduce(FGD, trace, trace / "out", workloads=["cpu250"], seeds=[1, 2], processes=1)
    found = {row.policy: row for row in table.rows}
    assert {row.published for row in table.rows} == {91.446, 93.411}
    assert found["BestFit"].measured.count == 2
    assert all(50 < row.measured.mean <= 100 for row in table.rows)
    again = reproduce(FGD, trace, trace / "out", workloads=["cpu250"], seeds=[1, 2], processes=1)
    assert again.rows == table.rows


def test_a_difference_above_the_tolerance_is_marked() -> None:
    rows = [Row("w", "p", 90.0, Estimate(mean, mean, mean, 3), 0.3) for mean in (90.2, 90.4)]
    assert [row.is_within for row in rows] == [True, False]
    table = PaperTable(FGD, tuple(rows), (1, 2, 3))
    assert not table.is_within
    assert [row["withinTolerance"] for row in table.as_json()["rows"]] == [True, False]


def test_published_numbers_are_those_of_all_workloads() -> None:
    numbers = FGD.published()
    assert len(numbers) == 2 * len(FGD.workloads) == 34
    assert numbers["default", "FragmentationGradientDescent"] == 95.391


def test_shuffled_nodes_keep_their_pods(tmp_path: Path) -> None:
    from random import Random

    within = cluster(tmp_path, *(node(f"n{i}") for i in range(12)), pod("x", nodeName="n3"))
    shuffled = with_shuffled_nodes(within, Random(1))
    names = [each.metadata.name for each in shuffled.nodes]
    assert sorted(name.partition("-")[2] for name in names) == sorted(f"n{i}" for i in range(12))
    assert {name.partition("-")[0] for name in names} == {f"{i:02}" for i in range(12)}
    [placed] = shuffled.pods
    assert placed.spec.node_name == names[3]


def test_the_command(trace: Path) -> None:
    found = CliRunner().invoke(command, ["--list", "-o", "json"], standalone_mode=False)
    assert json.loads(found.stdout)["papers"][0]["name"] == "fgd"
    arguments = ["fgd", "--data", str(trace), "--workload", "cpu250", "--seeds", "1", "--processes", "1", "-o", "json"]
    found = CliRunner().invoke(command, arguments, standalone_mode=False)
    document = json.loads(found.stdout)
    assert [row["policy"] for row in document["rows"]] == ["BestFit", "FragmentationGradientDescent"]
    assert found.return_value == int(not all(row["withinTolerance"] for row in document["rows"]))


def test_bad_input_is_an_error(trace: Path) -> None:
    with pytest.raises(InputError, match="paper: no paper 'x', expected one of fgd"):
        find_paper("x")
    with pytest.raises(InputError, match="no workload 'x', expected one of cpu050"):
        reproduce(FGD, trace, trace / "out", workloads=["x"])
    with pytest.raises(InputError, match="no such directory, expected the data of the paper: git clone"):
        reproduce(FGD, trace / "absent", trace / "out")
