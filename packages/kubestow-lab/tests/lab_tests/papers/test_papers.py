"""A paper's table runs from the trace's files to published numbers; here on a trace of a few pods."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from core_tests.engine.input.manifests import cluster, node, pod
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.errors import InputError
from kubestow_lab.cli.paper import paper as command
from kubestow_lab.experiments.experiment_file import with_shuffled_nodes
from kubestow_lab.metrics.intervals import Estimate
from kubestow_lab.papers import cp_sat, power_fgd
from kubestow_lab.papers.paper import PAPERS, PaperTable, Row, find_paper, reproduce
from kubestow_lab.papers.published import Tolerance, above, below
from kubestow_lab.workloads import gpu

FGD, POWER = PAPERS["fgd"], PAPERS["power-fgd"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The files of openb with two nodes and some pods that share GPUs."""
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,32000,65536,4,T4\nb,32000,65536,4,G2\n"
    )
    pods = [f"p{i},{1000 * (1 + i % 3)},1024,1,{(500, 700, 1000)[i % 3]},,,," for i in range(9)]
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time"
    for name in ("cpu250", "default"):
        (tmp_path / f"openb_pod_list_{name}.csv").write_text("\n".join((header, *pods)) + "\n")
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
    rows = [Row("w", "p", 90.0, Estimate(mean, mean, mean, 3), Tolerance(0.3)) for mean in (90.2, 90.4)]
    assert [row.is_within for row in rows] == [True, False]
    table = PaperTable(FGD, tuple(rows), (1, 2, 3))
    assert not table.is_within
    assert [row["withinTolerance"] for row in table.as_json()["rows"]] == [True, False]


def test_a_trend_is_the_sign_of_the_difference_to_another_policy() -> None:
    measured, reference = Estimate(4.0, 3.0, 5.0, 3), Estimate(6.0, 5.0, 7.0, 3)
    rows = [Row("w", "p", claim, measured, None, reference) for claim in (below("q"), above("q"))]
    assert [(row.difference, row.is_within) for row in rows] == [(-2.0, True), (-2.0, False)]
    assert not Row("w", "p", below("q"), measured, None, measured).is_within  # equal is not below
    document = PaperTable(FGD, tuple(rows), (1, 2, 3)).as_json()
    assert [row["published"] for row in document["rows"]] == ["below q", "above q"]
    unpublished = Row("w", "q", None, reference, None)
    assert (unpublished.difference, unpublished.is_within, unpublished.verdict()) == (None, True, "")


def test_a_relative_tolerance_is_in_percent_of_the_published_number() -> None:
    tolerance = Tolerance(5.0, "% of the number", relative=True)
    assert [tolerance.allows(difference, -40.0) for difference in (-2.0, 2.1)] == [True, False]
    assert str(tolerance) == "5.0 % of the number"


def test_published_numbers_are_those_of_all_workloads() -> None:
    numbers = FGD.published()
    assert len(numbers) == 2 * len(FGD.workloads) == 34
    assert numbers["default", "FragmentationGradientDescent"] == 95.391


def test_power_is_compared_with_that_under_fgd(trace: Path) -> None:
    progress: list[tuple[int, int]] = []
    table = reproduce(POWER, trace, trace / "out", seeds=[1], processes=1, progress=lambda *done: progress.append(done))
    assert progress[-1] == (6, 6)
    numbers = POWER.published()
    expected = {(workload, policy) for workload, policy in numbers if workload.startswith("default,")}
    assert {(row.workload, row.policy) for row in table.rows} == expected
    assert len(expected) == len(power_fgd.ARRIVED) * (len(power_fgd.POLICIES) - 1)
    assert len(numbers) == len(expected) + 2 * len(power_fgd.ARRIVED) * 3  # of the two lists with three combinations
    # Pods that go to the T4s first save power until these are full.
    [saved] = [row for row in table.rows if (row.workload, row.policy) == ("default, 40% arrived", "PWR")]
    assert saved.measured.mean >= 0
    again = reproduce(POWER, trace, trace / "out", seeds=[1], processes=1)
    assert [row.measured.mean for row in again.rows] == [row.measured.mean for row in table.rows]
    nodes = trace / "openb_node_list_gpu_node.csv"
    nodes.write_text(nodes.read_text() + "c,64000,65536,2,P100\n")
    other = reproduce(POWER, trace, trace / "out", seeds=[1], processes=1)  # other files, other results
    assert [row.measured.mean for row in other.rows] != [row.measured.mean for row in table.rows]


def test_power_counts_packages_and_gpus_in_use() -> None:
    node = convert(Node, gpu.node("a", gpu.NodeShape(96_000, 1024, 4, "T4")))
    arriving = [convert(Pod, gpu.pod(f"p{i}", gpu.PodShape(17_000, 0, 1, 500, "BE"))) for i in range(8)]
    placed = {}
    for number, devices in ((0, "0"), (1, "0"), (3, "2")):
        pod = arriving[number]
        metadata = msgspec.structs.replace(pod.metadata, annotations={"kubestow.dev/gpu-index": devices})
        there = msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name="a"))
        placed[pod.metadata.name] = there
    empty = 3 * 15 + 4 * 10  # 96 threads are three packages of 16 cores
    # 20 % of four GPUs have been requested by the first two pods, 40 % by four; the others are pending.
    assert power_fgd.power_while_arriving([node], arriving, placed) == [
        empty + 2 * 105 + 60,  # 34 threads are 17 cores
        empty + 2 * 105 + 2 * 60,  # 51 threads are 26 cores
        empty + 2 * 105 + 2 * 60,
        empty + 2 * 105 + 2 * 60,
    ]


@pytest.fixture
def few_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")
    for name, values in (("NODES", (2,)), ("PODS_PER_NODE", (4,)), ("PRIORITIES", (2,)), ("USAGES", (0.95, 3.0))):
        monkeypatch.setattr(cp_sat, name, values)


@pytest.mark.usefixtures("few_scenarios")
def test_cp_sat_is_asked_where_pods_are_pending(tmp_path: Path) -> None:
    paper = PAPERS["cp-sat"]
    table = reproduce(paper, Path("absent"), tmp_path, seeds=[1, 2], processes=1)
    assert table.is_within  # there is nothing to compare with
    assert [row["withinTolerance"] for row in table.as_json()["rows"]] == [True, True]
    better, optimal = (row.measured.mean for row in table.rows)
    assert 0 < better + optimal <= 100
    assert reproduce(paper, Path("absent"), tmp_path, seeds=[1, 2], processes=1).rows == table.rows


@pytest.mark.usefixtures("few_scenarios")
def test_a_placement_is_better_only_by_priority() -> None:
    """A pod of low priority instead of another one, for a lower cost, is no better placement."""
    found = {cp_sat.verdict_of(each, 0.5) for seed in range(3) for each in cp_sat.scenarios(seed)}
    assert {cp_sat.BETTER, cp_sat.OPTIMAL} <= found
    assert cp_sat.verdict_of(cp_sat.Scenario(2, 2, 1, 0.4, 0), 0.5) == ""


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


@pytest.mark.parametrize("columns", [60, 300])
def test_the_list_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = CliRunner().invoke(command, ["--list"], standalone_mode=False).stdout.splitlines()
    assert max(map(len, lines)) <= min(columns, 120) and lines[0].startswith("fgd        Weng et al., Beware of")
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == list(PAPERS)
    assert " ".join(" ".join(lines).split()).count("Workloads: ") == len(names)


def test_bad_input_is_an_error(trace: Path) -> None:
    with pytest.raises(InputError, match="paper: no paper 'x', expected one of fgd"):
        find_paper("x")
    with pytest.raises(InputError, match="no workload 'x', expected one of cpu050"):
        reproduce(FGD, trace, trace / "out", workloads=["x"])
    with pytest.raises(InputError, match="no such directory, expected the data of the paper: git clone"):
        reproduce(FGD, trace / "absent", trace / "out")
